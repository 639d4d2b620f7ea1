package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// narrow makes every plan sell one cluster only from now on, without a choice.
func (w *world) narrow() {
	w.reconciler.plan = testCatalog(w.T, func(plan *v1alpha1.ResourcesPlan) { plan.MaxClusters = 0 }).Plan
}

func TestInstancesOfANarrowedPlanMoveAsTheyWereSold(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 12)
	for _, name := range []string{"si-a", "si-b", "si-c"} { // one more than may move at once
		w.provision(name, "plan-2", `{"clusters":1}`)
		w.passes(name)
	}
	w.narrow()
	w.cluster("us", 12)
	w.drain("eu")
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.wantOn(w.settle(name), "us")
	}

	w.provision("si-new", "plan-2", `{"clusters":1}`)
	w.wantOperation(w.passes("si-new"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "parameters/clusters: the plan takes no such parameter")
}

func TestInstancesThatCannotBeWorkedOutSaySoAndKeepNobodyFromMoving(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 12)
	for _, name := range []string{"si-a", "si-b", "si-c"} { // two of which would take all turns
		w.provision(name, "plan-2", "")
		instance := w.passes(name)
		if name == "si-c" {
			break
		}
		instance.Status.Delivered.State.Parameters = raw(`{"selector":{"not a label":"x"}}`)
		w.must(w.hub.Status().Update(t.Context(), instance))
	}
	w.cluster("us", 12)
	w.drain("eu")
	for _, name := range []string{"si-a", "si-b"} {
		if _, err := w.pass(name); err == nil {
			t.Errorf("%s moves", name)
		}
		placed := meta.FindStatusCondition(w.instance(name).Status.Conditions, v1alpha1.ConditionPlaced)
		if placed.Reason != v1alpha1.ReasonStranded || !strings.Contains(placed.Message, "eu is being drained, and no other cluster fits: parameter selector") {
			t.Errorf("%s says %+v", name, placed)
		}
	}
	w.wantOn(w.settle("si-c"), "us")
}

func TestTurnsPassOverThoseWhoNeedNone(t *testing.T) {
	var woken []string
	m := &moves{most: 1, wake: func(instance string) { woken = append(woken, instance) }}
	if !m.begin("a") || m.begin("gone") || m.begin("stays") || m.begin("b") || m.begin("b") {
		t.Fatal("one moves, and the others wait")
	}
	m.end("gone") // was deprovisioned
	m.end("a")
	m.end("stays") // was woken, and needs to leave nothing any more
	if want := []string{"stays", "b"}; !slices.Equal(woken, want) {
		t.Fatalf("woken are %v, want %v", woken, want)
	}
	if !m.begin("b") || m.begin("c") {
		t.Error("b has the turn")
	}
	m.end("b")
	if want := []string{"stays", "b", "c"}; !slices.Equal(woken, want) {
		t.Errorf("woken are %v, want %v", woken, want)
	}
}

func TestAnErrorDoesNotMakeWhatIsDueLater(t *testing.T) {
	w := onEU(t)
	seconds := int64(60)
	w.tolerate(corev1.Toleration{Key: "power", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds})
	w.change("eu", func(c *placement.Cluster) {
		c.Taints = []corev1.Taint{{Key: "power", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: w.clock.Now()}}}
	})
	w.driver.fail("observe eu", errors.New("drifted"))
	w.driver.fail("deliver eu", errors.New("does not take it"))
	var after time.Duration
	note := func(_ string, wait time.Duration) { after = wait }
	w.reconciler.after.Store(&note)
	w.after(30 * time.Second)
	w.reconciler.observations.Store("si-a", observation{at: w.clock.Now()})
	result, err := w.pass("si-a")
	if err == nil || !result.IsZero() {
		t.Errorf("result is %+v beside the error %v: controller-runtime drops it", result, err)
	}
	if after <= 0 || after > 30*time.Second {
		t.Errorf("looked at again after %s, want it when eu must be left", after)
	}
}

func TestStayingDoesNotHideWhatHasChangedMeanwhile(t *testing.T) {
	w := onEU(t)
	instance := w.instance("si-a")
	instance.Annotations = map[string]string{v1alpha1.AnnotationLeave: "us"}
	w.must(w.hub.Update(t.Context(), instance))
	s := &scope{ServiceInstance: w.instance("si-a"), now: w.clock.Now()}
	w.update("si-a", func(state *v1alpha1.InstanceState) { state.PlanID = "plan-4" })
	if err := w.reconciler.dropLeaveRequest(t.Context(), s); !apierrors.IsConflict(err) {
		t.Fatalf("got %v, want a conflict with the update that came between", err)
	}
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	w := onEU(t)
	s := &scope{ServiceInstance: w.instance("si-a"), now: w.clock.Now()}
	for _, long := range []string{"x" + strings.Repeat("ä", 20_000), strings.Repeat("ä", 40_000)} {
		if !s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, long) {
			t.Fatal("it is news")
		}
		w.must(w.hub.Status().Update(t.Context(), s.ServiceInstance))
		if s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, long) {
			t.Error("what was stored is news again")
		}
	}
}
