package market

import (
	"time"

	"github.com/sluice-dev/sluice/catalog"
)

// Inventory knows how much room there is on member clusters.
type Inventory interface {
	// Rooms returns how many orders of each plan fit now, in the order of the plans, for a platform; "" is for a buyer of
	// whom nothing is known. It returns nil if this process does not know what is on the clusters: only the replica
	// that leads does.
	Rooms(plans []*catalog.Plan, platform string, now time.Time) []Room
	// Changed returns a channel that is closed by the next change of a cluster, a reservation or the policies.
	Changed() <-chan struct{}
}

// Room is how many orders of a plan fit, beside one another.
type Room struct {
	// Known is false if it depends on parameters of the order.
	Known bool
	// Orders that fit; AtLeast says that more may.
	Orders  int
	AtLeast bool
	// Clusters that would take one now.
	Clusters int
	// Why no order fits, as consumers are told; empty if one does.
	Why string
	// Currency and NanoPerHour are the price of one on the cheapest of these clusters, in billionths of the currency's
	// unit; Currency is empty if there is none.
	Currency    string
	NanoPerHour int64
}

// unknown is the inventory of a process that has none.
type unknown struct{}

func (unknown) Rooms([]*catalog.Plan, string, time.Time) []Room { return nil }
func (unknown) Changed() <-chan struct{}                        { return nil }
