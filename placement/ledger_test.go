package placement

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// An instance may be displaced only in its class's turn: while no operation is under way, and
// before it is deleted.
func TestHoldingOf(t *testing.T) {
	decision := func(generation int64) *v1alpha1.Decision {
		return &v1alpha1.Decision{Generation: generation, PriorityClass: "bronze", Placements: []v1alpha1.Placement{{Cluster: "eu", Reserved: cores(1).List()}}}
	}
	room := &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "us"}}
	now := metav1.Now()
	for name, row := range map[string]struct {
		status  v1alpha1.ServiceInstanceStatus
		deleted *metav1.Time
		class   string
		room    bool
	}{
		"delivered":          {status: v1alpha1.ServiceInstanceStatus{Decision: decision(1), Delivered: &v1alpha1.DeliveredState{Decision: *decision(1)}}, class: "bronze"},
		"being delivered":    {status: v1alpha1.ServiceInstanceStatus{Decision: decision(1)}},
		"being updated":      {status: v1alpha1.ServiceInstanceStatus{Decision: decision(2), Delivered: &v1alpha1.DeliveredState{Decision: *decision(1)}}},
		"not decided":        {status: v1alpha1.ServiceInstanceStatus{Delivered: &v1alpha1.DeliveredState{Decision: *decision(1)}}},
		"waiting for room":   {status: v1alpha1.ServiceInstanceStatus{Preemption: room}, room: true},
		"deleted":            {status: v1alpha1.ServiceInstanceStatus{Decision: decision(1), Delivered: &v1alpha1.DeliveredState{Decision: *decision(1)}}, deleted: &now},
		"deleted and waited": {status: v1alpha1.ServiceInstanceStatus{Preemption: room}, deleted: &now},
	} {
		t.Run(name, func(t *testing.T) {
			h := HoldingOf(&v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si", DeletionTimestamp: row.deleted}, Status: row.status})
			if h.Instance != "si" || h.Class != row.class || (h.Preemption != nil) != row.room {
				t.Errorf("%+v", h)
			}
			if placed := row.status.Decision != nil || row.status.Delivered != nil; (h.Held["eu"] != nil) != placed {
				t.Errorf("it holds %v", h.Held)
			}
		})
	}
}

// While an update is delivered, an instance holds the larger of what it had and what it gets, what it has left somewhere,
// and what volumes have beyond that; so do its prices, and its pods are those of both.
func TestHoldingsOfAnUpdate(t *testing.T) {
	placed := func(cluster string, n, nano int64, replaced int64) v1alpha1.Placement {
		p := v1alpha1.Placement{Cluster: cluster, Reserved: cores(n).List(), LargestPods: []corev1.ResourceList{cores(n).List()}}
		if replaced > 0 {
			p.Replaced = cores(replaced).List()
		}
		if cluster == "af" {
			p.Grown = cores(1).List()
		}
		if nano > 0 {
			p.Currency, p.PricePerHour = "EUR", resource.NewScaledQuantity(nano, resource.Nano)
		}
		return p
	}
	i := &v1alpha1.ServiceInstance{Status: v1alpha1.ServiceInstanceStatus{
		Decision:  &v1alpha1.Decision{Generation: 2, Placements: []v1alpha1.Placement{placed("eu", 2, 20, 0), placed("us", 1, 30, 4)}},
		Delivered: &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{placed("eu", 3, 10, 0), placed("ap", 5, 0, 0)}}},
		Left:      []v1alpha1.LeftPlacement{{Placement: placed("ap", 6, 0, 0)}, {Placement: placed("af", 1, 0, 0)}},
	}}
	h := HoldingOf(i)
	for cluster, want := range map[string]struct{ cores, nano, pods int64 }{"eu": {3, 20, 2}, "us": {4, 30, 1}, "ap": {6, 0, 2}, "af": {2, 0, 1}} {
		if h.Held[cluster][corev1.ResourceCPU] != 1000*want.cores || h.Prices[cluster][priceIn("EUR")] != want.nano || len(h.Pods[cluster]) != int(want.pods) {
			t.Errorf("on %s it holds %v for %v with the pods %v, want %+v", cluster, h.Held[cluster], h.Prices[cluster], h.Pods[cluster], want)
		}
	}
	if len(h.Held) != 4 {
		t.Errorf("it holds %v", h.Held)
	}
	for name, want := range (Resources{corev1.ResourceCPU: 15000, priceIn("EUR"): 50, instancesHeld: 1}) {
		if got := h.counted()[name]; got != want {
			t.Errorf("quotas count %d %s, want %d", got, name, want)
		}
	}
}

// An operation that begins keeps what is reserved beyond the status, because a write may arrive late; nobody displaces its
// instance, which no longer waits.
func TestAnOperationThatBegins(t *testing.T) {
	inventory := stock([]*Cluster{withCores("eu", 8)})
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	status := Holding{Instance: "si", Class: "bronze", Held: map[string]Resources{"eu": cores(2)}}
	inventory.Reserve(status)
	gold := Request{ID: "si-gold", Class: "gold", Resources: cores(8)}
	if p := Preempt(gold, inventory.Snapshot()); p == nil || p.Victims[0].Instance != "si" {
		t.Fatalf("before the operation, room is made by %+v", p)
	}
	if _, err := inventory.Place(Request{ID: "si", Resources: cores(4), Current: []string{"eu"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := inventory.Place(Request{ID: "si", Resources: cores(9), Current: []string{"eu"}}); err == nil || len(inventory.Parked()) != 1 {
		t.Fatalf("%v, and %d wait", err, len(inventory.Parked()))
	}
	inventory.Begin(status)
	if held := inventory.Snapshot().Reserved("si", "eu"); !maps.Equal(held, cores(4)) || len(inventory.Parked()) != 0 {
		t.Errorf("it holds %v, and %d wait", held, len(inventory.Parked()))
	}
	if p := Preempt(gold, inventory.Snapshot()); p != nil {
		t.Errorf("during the operation, room is made by %+v", p)
	}
}

// An instance is on the clusters with its reservations, and on the hub through which it is reached.
func TestAnInstanceUsesItsClustersAndItsHub(t *testing.T) {
	inventory := NewInventory()
	inventory.Reserve(Holding{Instance: "si-1", Hub: "hub", Held: map[string]Resources{"eu": cores(1), "us": cores(1)}})
	inventory.Reserve(Holding{Instance: "si-2", Held: map[string]Resources{"eu": cores(1)}})
	var used []string
	s := inventory.Snapshot()
	for _, instance := range []string{"si", "si-1", "si-2"} {
		for _, cluster := range []string{"eu", "us", "hub", "ap"} {
			if s.Uses(instance, cluster) {
				used = append(used, instance+" on "+cluster)
			}
		}
	}
	if want := []string{"si-1 on eu", "si-1 on us", "si-1 on hub", "si-2 on eu"}; !slices.Equal(used, want) {
		t.Errorf("%q, want %q", used, want)
	}
}
