package placement

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Others move out of the way of one component; the application is placed after their moves, where its links allow it.
func TestMakeRoomForAComponent(t *testing.T) {
	random := rand.New(rand.NewPCG(125, 3))
	made := 0
	for n := range 2_000 {
		a := drawCrowded(random)
		a.inventory.SetPolicies(roomPolicies(2))
		for _, h := range a.mayLeave {
			h.Consumer.Plan = "p2"
			a.inventory.Reserve(h)
		}
		movable := func(instance string) (Request, bool) {
			i := slices.IndexFunc(a.mayLeave, func(h Holding) bool { return h.Instance == instance })
			if i < 0 {
				return Request{}, false
			}
			on := slices.Collect(maps.Keys(a.mayLeave[i].Held))
			return Request{ID: instance, Consumer: Consumer{Platform: "cf", Space: "s1", Plan: "p2"}, Resources: a.mayLeave[i].Held[on[0]], Current: on}, true
		}
		if _, err := Place(a.Request, a.inventory.Snapshot()); err == nil {
			continue
		}
		if p := MakeRoom(a.Request, a.inventory, movable); p != nil {
			if made++; len(p.Victims) > 2 || !p.Moves() || !MovesStand(a.Request, a.inventory, p, movable) {
				t.Fatalf("%d: %+v does not make room for %+v", n, p, a.Components)
			}
		}
	}
	if made < 20 {
		t.Errorf("room was made for %d applications", made)
	}
}
