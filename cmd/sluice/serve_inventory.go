package main

import (
	"time"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/placement"
)

// soldInventory tells the market how much room there is, by the inventory of the engine. It is the only place where
// the two meet.
type soldInventory struct {
	*placement.Inventory
	// filled is closed when the inventory has the clusters: only on the replica that leads.
	filled chan struct{}
}

func newSoldInventory() *soldInventory {
	return &soldInventory{Inventory: placement.NewInventory(), filled: make(chan struct{})}
}

// fill says that the inventory has the clusters. It is to be called once.
func (s *soldInventory) fill() { close(s.filled) }

// Changed implements market.Inventory.
func (s *soldInventory) Changed() <-chan struct{} {
	select {
	case <-s.filled:
		return s.Inventory.Changed()
	default:
		return s.filled
	}
}

// Rooms implements market.Inventory.
func (s *soldInventory) Rooms(plans []*catalog.Plan, platform string, now time.Time) []market.Room {
	select {
	case <-s.filled:
	default:
		return nil
	}
	snapshot, rooms := s.Snapshot(), make([]market.Room, len(plans))
	for i, p := range plans {
		if p.Withdrawn {
			rooms[i].Known = true
			continue
		}
		if p.ValidateCreate(nil) != nil {
			continue // it depends on parameters that an order needs
		}
		request, err := placement.NewRequest("", p, nil)
		if err != nil {
			continue
		}
		if request.Shape != nil && request.Shape.Version == "" {
			request.Shape.Version = p.Cluster.Versions[0] // as a new instance gets it
		}
		request.At = now
		room := snapshot.Room(snapshot.Govern(request, placement.Consumer{Platform: platform, Plan: p.ID}))
		rooms[i] = market.Room{Known: true, Orders: room.Orders, AtLeast: room.AtLeast, Clusters: room.Clusters, Why: room.Why}
		if room.Price != nil {
			rooms[i].Currency, rooms[i].NanoPerHour = room.Price.Currency, room.Price.NanoPerHour
		}
	}
	return rooms
}
