package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// While room is being made on a cluster for a higher priority, an instance stays there with what it has, however its
// replicas or components divide it, and gets no more, neither by a new decision nor by an earlier one.
func TestAnUpdateTakesNoRoomThatIsMadeForOthers(t *testing.T) {
	parts := func(n int64) Request {
		return Request{
			Components:        []Component{{Name: "a", Resources: cores(1)}, {Name: "b", Resources: cores(n)}},
			ComponentClusters: map[string]string{"a": "eu", "b": "eu"},
		}
	}
	for name, row := range map[string]struct {
		asks  Request
		stays bool
	}{
		"as many replicas":    {Request{Resources: cores(2), Replicas: 2, Clusters: 1}, true},
		"more replicas":       {Request{Resources: cores(2), Replicas: 3, Clusters: 1}, false},
		"the same components": {parts(3), true},
		"a larger component":  {parts(4), false},
		"as much":             {Request{Resources: cores(4)}, true},
		"more":                {Request{Resources: cores(5)}, false},
	} {
		inventory := stock([]*Cluster{withCores("eu", 8)})
		inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
		r := row.asks
		r.ID, r.Class, r.Current = "si", "bronze", []string{"eu"}
		inventory.Reserve(Holding{Instance: r.ID, Class: r.Class, Held: map[string]Resources{"eu": cores(4)}})
		before := inventory.Snapshot()
		early, err := Place(r, before)
		if err != nil {
			t.Fatalf("%s: not placed before room is made: %v", name, err)
		}
		gold := before.policies.class("gold")
		inventory.Preempt("si-gold", &v1alpha1.Preemption{PriorityClass: gold.Name, Priority: gold.Value, Room: v1alpha1.Room{Cluster: "eu"}})
		after := inventory.Snapshot()
		if _, err := Place(r, after); (err == nil) != row.stays {
			t.Errorf("%s: placed: %t (%v), want %t", name, err == nil, err, row.stays)
		}
		if allowed := after.allows(r, early, before); allowed != row.stays {
			t.Errorf("%s: the earlier decision is allowed: %t, want %t", name, allowed, row.stays)
		}
	}
}
