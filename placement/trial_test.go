package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A move spends of a budget what the moves before it have left.
func TestMovesKeepTheBudgetTogether(t *testing.T) {
	for percent, moves := range map[int64]int{250: 0, 300: 2} { // of what one costs where it is
		priced := func(name string, price int64) *Cluster {
			c := withCores(name, 4)
			c.Currency, c.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: price}
			return c
		}
		inventory := stock([]*Cluster{priced("x", 200)})
		inventory.SetPolicies(append(roomPolicies(2), &Policy{Name: "budget", Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace}}))
		var movers []Request
		for _, id := range []string{"si-a", "si-b"} {
			r := Request{ID: id, Resources: cores(2), Consumer: Consumer{Platform: "cf", Space: "s", Plan: "p2"}}
			d, err := inventory.Place(r)
			if err != nil {
				t.Fatal(err)
			}
			r.Current = []string{"x"}
			r.Quotas = []Quota{{By: "policy budget", Per: v1alpha1.ScopeSpace, Limits: Resources{priceIn("EUR"): d.Placements[0].Price.NanoPerHour * percent / 100}}}
			movers = append(movers, r)
		}
		inventory.UpsertCluster(priced("y", 300))
		asks := Request{ID: "si-new", Resources: cores(4), Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: "x"})}
		var moved []v1alpha1.Victim
		if room := MakeRoom(asks, inventory, movableAmong(movers)); room != nil {
			moved = room.AllVictims()
		}
		if len(moved) != moves {
			t.Errorf("with a budget of %d %% of one: %+v, want %d moves", percent, moved, moves)
		}
	}
}
