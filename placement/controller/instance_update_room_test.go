package controller

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// Updates for which the cluster of the instance has too little room, while others may leave it.

// growing is a world in which a cluster of 8 cores has an instance of 2 cores, which is updated to 4, beside one of
// 4 and one of 2 cores, of lower priority where classes are declared; another cluster has 2 cores. The update has had its
// first pass.
func growing(t *testing.T, policy v1alpha1.PlacementPolicySpec) (*world, *v1alpha1.ServiceInstance) {
	w := newWorld(t)
	w.must(w.hub.Create(w.Context(), &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "room"}, Spec: policy}))
	w.cluster("eu", 8)
	w.provision("si", "plan-2", "")
	w.passes("si")
	w.provision("si-large", "plan-patient", "") // 4 cores, and no class
	w.passes("si-large")
	w.provision("si-small", "plan-2", "")
	w.passes("si-small")
	w.cluster("us", 2)
	w.woken = nil
	w.update("si", func(state *v1alpha1.InstanceState) { state.PlanID = "plan-4" })
	return w, w.passes("si")
}

func classes(preempts v1alpha1.Preempts) v1alpha1.PlacementPolicySpec {
	return placementtest.PriorityClasses("", preempts).Spec
}

// waits checks that the update waits for si-small to leave eu, and that the instance serves as before.
func (w *world) waits(updated *v1alpha1.ServiceInstance, why string) {
	w.Helper()
	w.wantOperation(updated, v1alpha1.OperationUpdate, v1alpha1.StateInProgress, why)
	if victims := w.victims(updated); !slices.Equal(victims, []string{"si-small"}) || !slices.Equal(w.woken, victims) {
		w.Fatalf("room is made by %+v, and woken are %v", updated.Status.Preemption, w.woken)
	}
	w.wantCarried("eu", "si", 2)
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionPlaced} {
		if !meta.IsStatusConditionTrue(updated.Status.Conditions, kind) {
			w.Errorf("an instance that waits for an update is not %s: %+v", kind, updated.Status.Conditions)
		}
	}
}

func TestAnUpdateGetsTheRoomThatOthersLeave(t *testing.T) {
	for name, row := range map[string]struct {
		policy v1alpha1.PlacementPolicySpec
		why    string
	}{
		"by moving":        {v1alpha1.PlacementPolicySpec{MakeRoom: &v1alpha1.MakeRoom{AtMost: 1}}, "instances are moving away from eu to make room (1)"},
		"by their classes": {classes(v1alpha1.PreemptsSameConsumer), "instances of lower priority are leaving eu to make room (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			w, updated := growing(t, row.policy)
			w.waits(updated, row.why)
			w.start() // what is written holds after a kill
			w.passes("si")
			w.wantCarried("eu", "si", 2)
			w.woken = nil
			w.wantOn(w.settle("si-small"), "us")
			if !slices.Contains(w.woken, "si") {
				t.Fatal("nobody tells si that there is room")
			}
			updated = w.passes("si")
			w.wantOperation(updated, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
			w.wantOn(updated, "eu")
			w.wantCarried("eu", "si", 4)
			if updated.Status.Preemption != nil {
				t.Errorf("room is still being made: %+v", updated.Status.Preemption)
			}
			w.wantReserved("eu", 8)
		})
	}
}

// An update that has waited as long as platforms poll fails. The instance is as before, and so are those that have not left.
func TestAnUpdateWaitsForRoomAsLongAsPlatformsPoll(t *testing.T) {
	w, updated := growing(t, classes(v1alpha1.PreemptsSameConsumer))
	w.waits(updated, "to make room (1)")
	w.clock.SetTime(w.clock.Now().Add(polling))
	updated = w.passes("si")
	w.wantOperation(updated, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "needs 4 cpu, 2 free of 8")
	if o := updated.Status.Operation; updated.Status.Preemption != nil || !*o.InstanceUsable || !*o.UpdateRepeatable {
		t.Errorf("room for %+v after %+v", updated.Status.Preemption, o)
	}
	w.wantOn(w.settle("si-small"), "eu")
	w.wantCarried("eu", "si", 2)
	w.wantReserved("eu", 8)
}

// Without room that others make, nobody knows when a cluster has more.
func TestAnUpdateThatLacksRoomFailsAtOnce(t *testing.T) {
	for name, policy := range map[string]v1alpha1.PlacementPolicySpec{
		"no policy lets anybody move": {}, "no class may displace": classes(v1alpha1.PreemptsNever),
	} {
		w, updated := growing(t, policy)
		w.wantOperation(updated, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "needs 4 cpu, 2 free of 8")
		if updated.Status.Preemption != nil || len(w.woken) > 0 {
			t.Errorf("%s: room is made: %+v, and woken are %v", name, updated.Status.Preemption, w.woken)
		}
		w.wantCarried("eu", "si", 2)
	}
}
