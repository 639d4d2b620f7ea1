package v1alpha1

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What an instance's status means, one row for each situation in its life.
func TestStatus(t *testing.T) {
	on := func(clusters ...string) *Decision {
		d := &Decision{Generation: 1}
		for _, name := range clusters {
			d.Placements = append(d.Placements, Placement{Cluster: name})
		}
		return d
	}
	delivered := func(d *Decision) *DeliveredState { return &DeliveredState{Decision: *d} }
	done, running := &Operation{State: StateSucceeded}, &Operation{State: StateInProgress}
	leaving := on("b")
	leaving.Leaving = []Departure{{Cluster: "a"}}
	joining := on("a", "b")
	joining.Joining = []Arrival{{Cluster: "b"}}
	displaced := on()
	displaced.Displaced = []Departure{{Cluster: "a"}}
	cluster := on("makers")
	cluster.Placements[0].Shape = &ClusterShape{}
	otherTerm := on("b")
	otherTerm.Term = "another"
	because := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: ConditionPlaced, Reason: reason}}
	}
	for name, row := range map[string]struct {
		status ServiceInstanceStatus
		change func(*ServiceInstance)
		is     string // the questions that are answered with yes
		on     string // of the clusters a, b and c
	}{
		"nobody has seen it yet":        {},
		"it is being placed":            {status: ServiceInstanceStatus{Operation: running}},
		"it is being delivered":         {status: ServiceInstanceStatus{Operation: running, Decision: on("a")}, is: "undelivered", on: "a"},
		"it is delivered":               {status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a"))}, is: "finished settled", on: "a"},
		"it is being updated":           {status: ServiceInstanceStatus{Operation: running, Decision: on("a", "b"), Delivered: delivered(on("a"))}, is: "undelivered", on: "a b"},
		"an update failed half way":     {status: ServiceInstanceStatus{Operation: done, Decision: on("a", "b"), Delivered: delivered(on("a"))}, is: "finished undelivered abandoned", on: "a b"},
		"a provision failed half way":   {status: ServiceInstanceStatus{Operation: done, Decision: on("a")}, is: "finished undelivered abandoned", on: "a"},
		"it leaves a cluster":           {status: ServiceInstanceStatus{Operation: done, Decision: leaving, Delivered: delivered(on("a"))}, is: "finished undelivered moving", on: "a b"},
		"it comes to another cluster":   {status: ServiceInstanceStatus{Operation: done, Decision: joining, Delivered: delivered(on("a"))}, is: "finished undelivered moving", on: "a b"},
		"it had to leave, for nowhere":  {status: ServiceInstanceStatus{Operation: done, Decision: displaced, Delivered: delivered(displaced)}, is: "finished displaced"},
		"it should leave and cannot":    {status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a")), Conditions: because(ReasonStranded)}, is: "finished settled stranded", on: "a"},
		"a group has no room for it":    {status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a")), Conditions: because(ReasonNotInEachGroup)}, is: "finished settled uncovered", on: "a"},
		"it is a cluster":               {status: ServiceInstanceStatus{Operation: done, Decision: cluster, Delivered: delivered(cluster)}, is: "finished settled fixed"},
		"another leader decided":        {status: ServiceInstanceStatus{Operation: done, Decision: otherTerm, Delivered: delivered(on("a"))}, is: "finished undelivered abandoned foreign", on: "a b"},
		"another leader's is delivered": {status: ServiceInstanceStatus{Operation: done, Decision: otherTerm, Delivered: delivered(otherTerm)}, is: "finished settled", on: "b"},
		"something is left on b":        {status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a")), Left: []LeftPlacement{{Placement: Placement{Cluster: "b"}}}}, is: "finished settled", on: "a"},
		"the operator asks it to leave": {
			status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a"))},
			change: func(i *ServiceInstance) { i.Annotations = map[string]string{AnnotationLeave: "a"} }, is: "finished", on: "a",
		},
		"it is being deleted": {
			status: ServiceInstanceStatus{Operation: done, Decision: on("a"), Delivered: delivered(on("a"))},
			change: func(i *ServiceInstance) { i.DeletionTimestamp = new(metav1.Now()) }, is: "finished", on: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			instance := &ServiceInstance{Status: row.status}
			if row.change != nil {
				row.change(instance)
			}
			s := &instance.Status
			answers := map[string]bool{
				"finished": s.IsFinished(), "undelivered": s.IsUndelivered(), "moving": s.IsMoving(), "abandoned": s.IsAbandoned(), "displaced": s.IsDisplaced(),
				"stranded": s.IsStranded(), "uncovered": s.IsUncovered(), "fixed": s.IsFixed(), "foreign": s.IsOfOtherTerm(""), "settled": instance.IsSettled(),
			}
			for _, question := range slices.Sorted(maps.Keys(answers)) {
				if want := slices.Contains(strings.Fields(row.is), question); answers[question] != want {
					t.Errorf("%s is %t", question, answers[question])
				}
			}
			for _, name := range []string{"a", "b", "c"} {
				if want := slices.Contains(strings.Fields(row.on), name); s.IsOn(name) != want {
					t.Errorf("it is on %s: %t", name, s.IsOn(name))
				}
			}
		})
	}
}

// Where an instance's namespace is: a virtual node of the consumer's own cluster has none at the
// provider, and a hub has one for all clusters behind it.
func TestNamespaceClusters(t *testing.T) {
	d := &Decision{Placements: []Placement{
		{Cluster: "plain"},
		{Cluster: "network-only", Peering: &PlacementPeering{Consumer: "own"}},
		{Cluster: "node", Peering: &PlacementPeering{Consumer: "own", Node: "n"}},
		{Cluster: "behind-1", Peering: &PlacementPeering{Consumer: "own", Hub: "hub", Node: "n1"}},
		{Cluster: "behind-2", Peering: &PlacementPeering{Consumer: "own", Hub: "hub", Node: "n2"}},
	}}
	if got := d.NamespaceClusters(); !slices.Equal(got, []string{"plain", "network-only", "hub"}) {
		t.Errorf("the namespace is on %v", got)
	}
	if got := (*Decision)(nil).NamespaceClusters(); got != nil {
		t.Errorf("without a decision it is on %v", got)
	}
}
