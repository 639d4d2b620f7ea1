package placement

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestTheMarketOfASluice: a broker that is a Sluice gets as many orders as its market has room for, those since it was
// read included. What is not known, may be more, or is too old rejects nothing. The market's price counts if there is no
// other.
func TestTheMarketOfASluice(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	orders := func(n int64) *int64 { return &n }
	for name, row := range map[string]struct {
		market v1alpha1.MarketPlan
		age    time.Duration
		fit    int // of 3 orders
		room   int
		says   string // the last rejection
	}{
		"room for two":     {v1alpha1.MarketPlan{Orders: orders(2), Clusters: 1}, 0, 2, 2, "NoRoom on 1 (eu: its market had room for 2 more on 1 clusters, and since then 2 were ordered there)"},
		"none":             {v1alpha1.MarketPlan{Orders: orders(0), Reason: "nothing on offer fits at the moment: InsufficientCPU"}, 0, 0, 0, "eu: its market has no room for one more: nothing on offer fits at the moment: InsufficientCPU"},
		"at least one":     {v1alpha1.MarketPlan{Orders: orders(1), AtLeast: true}, 0, 3, 10, ""},
		"not known":        {v1alpha1.MarketPlan{}, 0, 3, 10, ""},
		"read a while ago": {v1alpha1.MarketPlan{Orders: orders(0)}, 3 * time.Minute, 0, 0, "no room"},
		"too old":          {v1alpha1.MarketPlan{Orders: orders(0)}, 3*time.Minute + time.Second, 3, 10, ""},
		"with ours":        {v1alpha1.MarketPlan{Orders: orders(1), Ordered: 2}, 0, 3, 1, ""}, // two of the three were there when it was read
	} {
		t.Run(name, func(t *testing.T) {
			price := resource.MustParse("7.3")
			row.market.Price = &v1alpha1.Price{Currency: "EUR", PerMonth: &price}
			mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu"}, Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverOSB, Broker: &v1alpha1.UpstreamBroker{RefreshSeconds: 60}}}
			mc.Status.Broker = &v1alpha1.UpstreamBrokerStatus{
				Plans: []v1alpha1.OfferedPlan{{Service: "mysql", Plan: "small", PlanID: "p"}},
				Sluice: &v1alpha1.UpstreamSluice{
					MarketReadAt: &metav1.Time{Time: now.Add(-row.age)},
					Plans:        []v1alpha1.SluicePlan{{Plan: "mysql/small", Market: &row.market}},
				},
			}
			c := ClusterOf(mc, now)
			c.Ready, c.AccessVerified, c.Allocatable = true, true, Resources{v1alpha1.ResourceInstances: 10}
			inv := NewInventory()
			inv.UpsertCluster(c)
			request := func(id string) Request {
				return Request{ID: id, Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"eu": upstreamCandidate("eu", "")}}}
			}
			room := inv.Snapshot().Room(request(""))
			fit, said, told := 0, "", ""
			for _, id := range []string{"a", "b", "c"} {
				d, err := inv.Place(request(id))
				if err != nil {
					said = err.Error()
					if none, ok := AsUnplaceable(err); ok {
						told = none.ForConsumer()
					}
					if Hopeless(request(id), inv.Snapshot()) {
						t.Error("an order for which there may be room tomorrow does not wait")
					}
					continue
				}
				if fit++; d.Placements[0].Price == nil || *d.Placements[0].Price != (Price{"EUR", 10_000_000}) {
					t.Errorf("the price is %v", d.Placements[0].Price)
				}
			}
			if fit != row.fit || !strings.Contains(said, row.says) {
				t.Errorf("%d fit, and it says %q; want %d, %q", fit, said, row.fit, row.says)
			}
			if want := "nothing on offer fits at the moment: NoRoom (" + row.market.Reason + ")"; row.market.Reason != "" && (told != want || room.Why != want) {
				t.Errorf("consumers are told %q, and of the room %q; want %q", told, room.Why, want)
			}
			if room.Orders != row.room {
				t.Errorf("there is room for %d, want %d", room.Orders, row.room)
			}
			r := request("a")
			r.Current = []string{"eu"}
			if d, err := Place(r, inv.Snapshot()); row.fit > 0 && (err != nil || d.Placements[0].Cluster != "eu") {
				t.Errorf("an instance that is there goes: %v", err)
			}
		})
	}
}

// An order that was decided before another one took the last place at a broker is decided again.
func TestTheLastPlaceAtABrokerIsGivenOnce(t *testing.T) {
	broker := aBroker("eu", "eu", "mysql/small")
	broker.Markets = map[string]Market{"mysql/small": {Known: true, Orders: 1}}
	inventory := stock([]*Cluster{broker})
	r := Request{ID: "si-1", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"eu": upstreamCandidate("eu", "")}}}
	before := inventory.Snapshot()
	d, err := Place(r, before)
	if err != nil {
		t.Fatal(err)
	}
	if !inventory.Snapshot().allows(r, d, before) {
		t.Error("it is decided again, though nothing has changed")
	}
	inventory.Reserve(Holding{Instance: "si-2", Held: map[string]Resources{"eu": {v1alpha1.ResourceInstances: 1}}})
	if inventory.Snapshot().allows(r, d, before) {
		t.Error("it gets the place that another one has")
	}
}

// Consumers are told each of the reasons once.
func TestReasonsOfMarketsAreToldOnce(t *testing.T) {
	inventory, u := NewInventory(), &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{}}
	for name, reason := range map[string]string{"a": "no disk", "b": "no disk", "c": "", "d": "no rack"} {
		broker := aBroker(name, "eu", "mysql/small")
		broker.Markets = map[string]Market{"mysql/small": {Known: true, Reason: reason}}
		inventory.UpsertCluster(broker)
		u.Candidates[name] = upstreamCandidate(name, "")
	}
	_, err := Place(Request{ID: "si", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: u}, inventory.Snapshot())
	none, ok := AsUnplaceable(err)
	if want := "nothing on offer fits at the moment: NoRoom (no disk; no rack)"; !ok || none.ForConsumer() != want {
		t.Errorf("they are told %q, want %q", none.ForConsumer(), want)
	}
}

// Who waits for a place at a broker is woken when another one leaves it, though the broker may be asked for more.
func TestWhoWaitsForAPlaceAtABrokerIsWoken(t *testing.T) {
	broker := aBroker("eu", "eu", "mysql/small")
	broker.Allocatable[v1alpha1.ResourceInstances] = 100
	broker.Markets = map[string]Market{"mysql/small": {Known: true, Orders: 1}}
	inventory, woken := watched(broker)
	inventory.Reserve(Holding{Instance: "si-1", Held: map[string]Resources{"eu": {v1alpha1.ResourceInstances: 1}}})
	r := Request{ID: "si-2", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{"eu": upstreamCandidate("eu", "")}}}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it gets the place that another one has")
	}
	woken()
	if inventory.Release("si-1"); woken()["si-2"] != 1 {
		t.Error("it slept on")
	}
}
