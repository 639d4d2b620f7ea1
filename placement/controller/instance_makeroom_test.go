package controller

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// scattered is a world in which four cores are free, two on each of two clusters, and an order of four cores is reconciled
// first, by the plan of four cores unless another is given. A policy lets instances move if most is not zero.
func scattered(t *testing.T, most int32, plan ...string) *world {
	w := newWorld(t)
	if most > 0 {
		w.must(w.hub.Create(w.Context(), &v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "room"},
			Spec:       v1alpha1.PlacementPolicySpec{MakeRoom: &v1alpha1.MakeRoom{AtMost: most}},
		}))
	}
	w.cluster("eu", 8)
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.provision(name, "plan-2", "")
		w.passes(name)
	}
	w.cluster("us", 2)
	w.provision("si-new", append(plan, "plan-4")[0], "")
	return w
}

func TestAnOrderIsPlacedAfterAMoveThatMakesRoom(t *testing.T) {
	for plan, needs := range map[string]string{"plan-4": "needs 4 cpu, 2 free of 8", planDivided: "needs room for 2 of the 2 replicas"} {
		t.Run(plan, func(t *testing.T) { placedAfterAMove(t, plan, needs) })
	}
}

func placedAfterAMove(t *testing.T, plan, needs string) {
	w := scattered(t, 1, plan)
	w.woken = nil
	order := w.passes("si-new")
	w.wantOperation(order, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "instances are moving away from eu to make room (1)")
	moves := w.victims(order)
	if len(moves) != 1 || !slices.Equal(w.woken, moves) || !slices.Equal(order.Status.Preemption.Victims[0].To, []string{"us"}) {
		t.Fatalf("room is made by %+v, and woken are %v", order.Status.Preemption, w.woken)
	}
	w.start() // what is written holds after a kill
	w.passes("si-new")
	w.wantCarried("eu", "si-new", 0)
	moved := w.settle(moves[0])
	w.wantOn(moved, "us")
	if !strings.HasPrefix(moved.Status.Moved.Reason, "it makes room for si-new: "+needs) {
		t.Errorf("moved: %+v", moved.Status.Moved)
	}
	if !slices.Contains(w.woken, "si-new") {
		t.Fatal("nobody tells si-new that there is room")
	}
	order = w.passes("si-new")
	w.wantOn(order, "eu")
	if p := order.Status.Decision.Preemption; order.Status.Preemption != nil || p == nil || !slices.Equal(p.Victims[0].To, []string{"us"}) {
		t.Errorf("the status says of the room %+v and of who left it %+v", order.Status.Preemption, p)
	}
	w.wantReserved("eu", 8)
	w.wantReserved("us", 2)
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		if name != moves[0] {
			w.wantOn(w.settle(name), "eu")
		}
	}
}

func TestNobodyMovesForAnOrderWithoutAPolicy(t *testing.T) {
	w := scattered(t, 0)
	if order := w.passes("si-new"); order.Status.Preemption != nil {
		t.Fatalf("room is made: %+v", order.Status.Preemption)
	}
}

// An instance whose new cluster takes it no more stays where it is, and works. The order looks for another way.
func TestAnInstanceThatFitsNowhereElseStays(t *testing.T) {
	w := scattered(t, 1)
	moves := w.victims(w.passes("si-new"))
	w.provision("si-late", "plan-2", "")
	w.wantOn(w.passes("si-late"), "us")
	w.woken = nil
	stays := w.settle(moves[0])
	w.wantOn(stays, "eu")
	if stays.Status.IsDisplaced() || stays.Status.IsStranded() || stays.Status.IsMoving() {
		t.Errorf("%+v", stays.Status)
	}
	if !slices.Contains(w.woken, "si-new") {
		t.Fatalf("woken are %v", w.woken)
	}
	if order := w.passes("si-new"); order.Status.Preemption != nil {
		t.Fatalf("room is still being made: %+v", order.Status.Preemption)
	}
	w.cluster("asia", 2)
	w.passes("si-new")
	w.wantOn(w.settle(w.victims(w.instance("si-new"))[0]), "asia")
	w.wantOn(w.passes("si-new"), "eu")
	w.wantReserved("eu", 8)
}
