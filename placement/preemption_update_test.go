package placement

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// An update gets room where its instance stays, whether or not that cluster answers, and what the instance has there counts
// as free. If it needs another cluster as well, or moves, others leave that one.
func TestRoomForAnUpdate(t *testing.T) {
	classes := CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)})
	for name, row := range map[string]struct {
		asks     Request
		clusters []string // on which room is made, by displacing others or, on one of them, by moves
	}{
		"more on its cluster":             {Request{Resources: cores(8), Current: []string{"eu"}}, []string{"eu"}},
		"more than its cluster has":       {Request{Resources: cores(9), Current: []string{"eu"}}, nil},
		"as much on another":              {Request{Resources: cores(8), Leaving: []string{"eu"}}, []string{"us"}},
		"another cluster as well":         {Request{Resources: cores(4), Clusters: 2, Current: []string{"eu"}}, []string{"us"}},
		"more, and another cluster":       {Request{Resources: cores(6), Clusters: 2, Current: []string{"eu"}}, []string{"eu", "us"}},
		"more, and one too many":          {Request{Resources: cores(6), Clusters: 3, Current: []string{"eu"}}, nil},
		"more replicas":                   {Request{Resources: cores(2), Replicas: 4, Clusters: 1, Current: []string{"eu"}}, []string{"eu"}},
		"more replicas, also on another":  {Request{Resources: cores(2), Replicas: 6, Clusters: 2, Current: []string{"eu"}}, []string{"us"}},
		"it is on both":                   {Request{Resources: cores(5), Clusters: 2, Current: []string{"eu", "us"}}, []string{"eu", "us"}},
		"it stays on one of both":         {Request{Resources: cores(5), Current: []string{"eu", "us"}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: "us"})}, []string{"us"}},
		"replicas on both":                {Request{Resources: cores(2), Replicas: 6, Clusters: 2, Current: []string{"eu", "us"}}, []string{"us"}},
		"replicas that need room on both": {Request{Resources: cores(2), Replicas: 7, Clusters: 2, Current: []string{"eu", "us"}}, []string{"eu", "us"}},
		"more replicas than both have":    {Request{Resources: cores(2), Replicas: 9, Clusters: 2, Current: []string{"eu", "us"}}, nil},
		"a component on its cluster": {Request{
			Components:        []Component{{Name: "a", Resources: cores(6)}, {Name: "b", Resources: cores(1)}},
			ComponentClusters: map[string]string{"a": "eu", "b": "us"}, Current: []string{"eu", "us"},
		}, []string{"eu"}},
		"both components": {Request{
			Components:        []Component{{Name: "a", Resources: cores(6)}, {Name: "b", Resources: cores(2)}},
			ComponentClusters: map[string]string{"a": "eu", "b": "us"}, Current: []string{"eu", "us"},
		}, []string{"eu", "us"}},
		"a component more, where new ones may be": {Request{
			Components:        []Component{{Name: "a", Resources: cores(2)}, {Name: "b", Resources: cores(2)}, {Name: "c", Resources: cores(4)}},
			ComponentClusters: map[string]string{"a": "eu", "b": "eu"}, Current: []string{"eu"},
		}, []string{"us"}},
	} {
		silent, other := withCores("eu", 8), withCores("us", 8)
		silent.Ready = false
		inventory := stock([]*Cluster{silent, other})
		inventory.SetPolicies(slices.Concat(roomPolicies(2), classes))
		spare := withCores("spare", 8) // takes only those that move
		spare.Taints = []corev1.Taint{{Key: "spare", Effect: corev1.TaintEffectNoSchedule}}
		inventory.UpsertCluster(spare)
		r := row.asks
		r.ID, r.Class = "si", "gold"
		mine := map[string]Resources{"eu": cores(4)}
		if len(r.Current) == 2 {
			mine["us"] = cores(1)
		}
		inventory.Reserve(Holding{Instance: r.ID, Class: r.Class, Held: mine})
		var others []Request
		for cluster, n := range map[string]int64{"eu": 4, "us": 7} {
			other := Request{ID: "si-" + cluster, Consumer: Consumer{Plan: "p2"}, Class: "bronze", Resources: cores(n), Current: []string{cluster}, Free: true}
			other.Tolerations = []corev1.Toleration{{Key: "spare", Operator: corev1.TolerationOpExists}}
			others = append(others, other)
			inventory.Reserve(Holding{Instance: other.ID, Consumer: other.Consumer, Class: other.Class, Held: map[string]Resources{cluster: other.Resources}})
		}
		for way, p := range map[string]*v1alpha1.Preemption{
			"displaced": Preempt(r, inventory.Snapshot()), "moved": MakeRoom(r, inventory, movableAmong(others)),
		} {
			want := row.clusters
			if way == "moved" && len(want) > 1 {
				want = nil
			}
			if p == nil {
				if want != nil {
					t.Errorf("%s: nobody is %s", name, way)
				}
				continue
			}
			if !slices.Equal(slices.Sorted(slices.Values(p.Clusters())), want) {
				t.Errorf("%s: others of %v are %s, want %v", name, p.Clusters(), way, want)
			}
			for _, room := range p.Rooms() {
				if len(room.Victims) != 1 || room.Victims[0].Instance != "si-"+room.Cluster {
					t.Errorf("%s: %+v of %s are %s", name, room.Victims, room.Cluster, way)
				}
			}
		}
	}
}
