package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// An instance may be displaced only in its class's turn: while no operation is under way, and
// before it is deleted.
func TestHoldingOf(t *testing.T) {
	decision := func(generation int64) *v1alpha1.Decision {
		return &v1alpha1.Decision{Generation: generation, PriorityClass: "bronze", Placements: []v1alpha1.Placement{{Cluster: "eu", Reserved: cores(1).List()}}}
	}
	room := &v1alpha1.Preemption{Cluster: "us"}
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
