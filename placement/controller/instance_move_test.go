package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// change replaces a cluster in the inventory, as its watch does.
func (w *world) change(name string, change func(*placement.Cluster)) {
	w.Helper()
	c := *w.inventory.Snapshot().Cluster(name)
	change(&c)
	w.inventory.UpsertCluster(&c)
}

func (w *world) drain(name string) {
	w.Helper()
	w.change(name, func(c *placement.Cluster) {
		c.Cordoned = true
		c.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
	})
}

// settle makes passes over an instance until none is due at once.
func (w *world) settle(name string) *v1alpha1.ServiceInstance {
	w.Helper()
	for range 10 {
		result, err := w.pass(name)
		w.must(err)
		if result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
			return w.instance(name)
		}
		w.after(result.RequeueAfter)
	}
	w.Fatalf("%s does not settle", name)
	return nil
}

func (w *world) wantOn(instance *v1alpha1.ServiceInstance, names ...string) {
	w.Helper()
	if got := instance.Status.Delivered.Decision.Clusters(); !slices.Equal(got, names) {
		w.Fatalf("the instance is on %v, want %v; conditions %+v", got, names, instance.Status.Conditions)
	}
}

// onEU is a world of three clusters with an instance of two cores on eu.
func onEU(t *testing.T) *world {
	w := newWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.cluster("us", 4)
	w.cluster("ap", 2)
	w.woken = nil
	return w
}

func TestADrainedClusterIsLeftOnlyOnceTheNewPlaceIsReady(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.driver.called()
	w.drain("eu")
	w.passes("si-a")
	w.wantOn(w.instance("si-a"), "eu")
	w.wantCarried("eu", "si-a", 2)
	w.wantReserved("us", 2)
	w.wantReserved("eu", 2)
	instance := w.instance("si-a")
	if !meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("it works, and is not ready")
	}
	if c := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionDelivered); c.Reason != "Moving" ||
		!strings.Contains(c.Message, "moving from eu (eu is being drained) to us") {
		t.Errorf("condition %+v", c)
	}

	w.driver.fail("deliver us", nil)
	instance = w.settle("si-a")
	w.wantOn(instance, "us")
	w.wantCarried("eu", "si-a", 0)
	w.wantReserved("eu", 0)
	if len(instance.Status.Left) > 0 || len(instance.Status.Decision.Leaving) > 0 {
		t.Error("it is still leaving")
	}
}

func TestABindingFollowsBeforeTheOldPlaceIsRemoved(t *testing.T) {
	w := onEU(t)
	binding := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sb-a"},
		Spec:       v1alpha1.ServiceBindingSpec{Platform: "platform", InstanceName: "si-a", InstanceID: "si-a", BindingID: "b", ServiceID: "service-compute", PlanID: "plan-2"},
	}
	w.must(w.hub.Create(t.Context(), binding))
	issued := func(on string) {
		binding.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 1, State: v1alpha1.StateSucceeded, StartedAt: metav1.Now()}
		binding.Status.Issued = []string{on}
		w.must(w.hub.Status().Update(t.Context(), binding))
	}
	issued("eu")
	w.drain("eu")
	w.passes("si-a")
	w.wantOn(w.passes("si-a"), "us")
	w.wantCarried("eu", "si-a", 2)
	issued("us")
	w.settle("si-a")
	w.wantCarried("eu", "si-a", 0)
}

func TestAnInstanceThatCannotLeaveStaysAndSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-4", "")
	w.passes("si-a")
	w.cluster("us", 2)
	w.drain("eu")
	instance := w.passes("si-a")
	w.wantOn(instance, "eu")
	c := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionPlaced)
	if c.Reason != "Stranded" || !strings.Contains(c.Message, "eu is being drained, and no other cluster fits") ||
		!strings.Contains(c.Message, "needs 4 cpu, 2 free of 2") {
		t.Fatalf("condition %+v", c)
	}
	w.driver.onDeliver = func(d delivery.Delivery) {
		d.Said.Grown = corev1.ResourceList{v1alpha1.StorageResource("fast"): resource.MustParse("1Ki")}
	}
	w.driver.fail("observe eu", errors.New("it has changed"))
	w.after(2 * observeEvery)
	result, err := w.pass("si-a")
	w.must(err)
	if len(w.inventory.Snapshot().Reserved("si-a", "eu")) != 2 || result.RequeueAfter > time.Second {
		t.Fatalf("a check finds storage, and the instance is looked at again after %s", result.RequeueAfter)
	}
	w.passes("si-a")
	w.woken = nil
	w.cluster("ap", 4)
	if !slices.Contains(w.woken, "si-a") {
		t.Fatal("nobody woke it when there was a place")
	}
	w.wantOn(w.settle("si-a"), "ap")
	w.wantCarried("eu", "si-a", 0)
}

func TestAMoveThatTheNewClusterRefusesIsUndone(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.RefusedError{Reason: "the namespace is somebody else's"})
	w.drain("eu")
	_, err := w.pass("si-a")
	w.must(err)
	instance := w.instance("si-a")
	w.wantOn(instance, "eu")
	w.wantCarried("eu", "si-a", 2)
	w.wantReserved("us", 0)
	if c := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionPlaced); !strings.Contains(c.Message, "somebody else's") {
		t.Errorf("condition %+v", c)
	}
}

// A cluster that refuses a move is not tried again while another fits, also by a Sluice that comes later, and not for a while
// if none does.
func TestARefusedMoveGoesElsewhere(t *testing.T) {
	refused := &delivery.RefusedError{Reason: "the namespace is somebody else's"}
	w := onEU(t)
	w.driver.fail("deliver us", refused)
	w.driver.fail("deliver ap", refused)
	w.drain("eu")
	for i, want := range []string{"deliver us", "deliver ap"} {
		w.driver.called()
		_, err := w.pass("si-a")
		w.must(err)
		if got := w.driver.called(); !slices.Contains(got, want) || len(w.instance("si-a").Status.Operation.Refusals) != i+1 {
			t.Errorf("it calls %v, with %+v", got, w.instance("si-a").Status.Operation.Refusals)
		}
		result, err := w.pass("si-a") // now that the room is free again
		w.must(err)
		if got := w.driver.called(); len(got) > 0 || result.RequeueAfter <= 0 || result.RequeueAfter > afterRefusal {
			t.Errorf("it calls %v, and comes again in %v", got, result.RequeueAfter)
		}
		w.after(afterRefusal)
		w.start()
		w.must(w.reconciler.recovery.ensure(t.Context()))
		w.drain("eu")
	}
	w.driver.fail("deliver us", nil)
	result, err := w.pass("si-a")
	w.must(err)
	instance := w.instance("si-a")
	c := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionPlaced)
	if w.wantOn(instance, "eu"); result.RequeueAfter <= 0 || result.RequeueAfter > dataPatience || c.Reason != v1alpha1.ReasonStranded || !strings.Contains(c.Message, "somebody else's") {
		t.Errorf("it comes again in %v, with %+v", result.RequeueAfter, c)
	}
	w.after(dataPatience)
	instance = w.settle("si-a")
	if w.wantOn(instance, "us"); len(instance.Status.Operation.Refusals) > 0 {
		t.Errorf("it moved, and still knows %+v", instance.Status.Operation.Refusals)
	}
}

// What refused a move is forgotten when the instance does not have to move any more.
func TestRefusalsEndWithTheMove(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.RefusedError{Reason: "not now"})
	w.drain("eu")
	w.passes("si-a")
	w.change("eu", func(c *placement.Cluster) { c.Cordoned, c.Taints = false, nil })
	if instance := w.passes("si-a"); len(instance.Status.Operation.Refusals) > 0 || instance.Status.IsStranded() {
		t.Errorf("it may stay, and has %+v", instance.Status)
	}
}

func TestADeprovisionDuringAMoveLeavesNothing(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.drain("eu")
	w.passes("si-a")
	w.deprovision("si-a")
	_, err := w.pass("si-a")
	w.must(err)
	if !w.gone("si-a") {
		t.Fatal("the instance is still there")
	}
	for _, name := range []string{"eu", "us"} {
		w.wantReserved(name, 0)
		w.wantCarried(name, "si-a", 0)
	}
}

func TestARestartedSluiceGoesOnWithAMove(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.drain("eu")
	w.passes("si-a")
	w.start()
	w.passes("si-a")
	w.wantReserved("us", 2)
	w.wantReserved("eu", 2)
	w.driver.fail("deliver us", nil)
	instance := w.settle("si-a")
	w.wantOn(instance, "us")
	w.wantReserved("eu", 0)
}

func TestOnlySoManyInstancesMoveAtOnce(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 32)
	names := []string{"si-a", "si-b", "si-c", "si-d"}
	for _, name := range names {
		w.provision(name, "plan-2", "")
		w.passes(name)
	}
	w.cluster("us", 32)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.drain("eu")
	for _, name := range names {
		w.passes(name)
	}
	w.wantReserved("us", 4) // two of them, as the fixture has it
	w.driver.fail("deliver us", nil)
	w.woken = nil
	w.passes("si-a")
	w.passes("si-b")
	if !slices.Equal(slices.Compact(w.woken), []string{"si-c", "si-d"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	for _, name := range names {
		w.passes(name)
		w.wantOn(w.settle(name), "us")
	}
	w.wantReserved("eu", 0)
}

func TestAnOperatorHasAnInstanceLeaveACluster(t *testing.T) {
	w := onEU(t)
	ask := func() {
		asked := w.instance("si-a")
		asked.Annotations = map[string]string{v1alpha1.AnnotationLeave: "eu"}
		w.must(w.hub.Update(t.Context(), asked))
	}
	ask()
	w.settle("si-a")
	instance := w.settle("si-a")
	w.wantOn(instance, "us")
	if _, still := instance.Annotations[v1alpha1.AnnotationLeave]; still {
		t.Error("it would leave eu again if it ever came there")
	}

	w = newWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	ask()
	instance = w.settle("si-a")
	w.wantOn(instance, "eu")
	if _, still := instance.Annotations[v1alpha1.AnnotationLeave]; still || w.inventory.Waiting() > 0 {
		t.Error("it waits for a place that its operator did not mean")
	}
	if !meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionPlaced) {
		t.Error("it is well where it is, and does not say so")
	}
}

// An operator may say where an instance is to come to: then it comes there, or stays.
func TestAnOperatorSaysWhereAnInstanceComesTo(t *testing.T) {
	for name, row := range map[string]struct{ to, on string }{
		"to one that is not the best": {"ap", "ap"},
		"to one of several":           {"full,ap", "ap"},
		"to one without room":         {"full", "eu"},
		"to one that there is not":    {"nowhere", "eu"},
		"to any":                      {"", "us"},
	} {
		t.Run(name, func(t *testing.T) {
			w := onEU(t)
			w.cluster("full", 1)
			asked := w.instance("si-a")
			asked.Annotations = map[string]string{v1alpha1.AnnotationLeave: "eu", v1alpha1.AnnotationMoveTo: row.to}
			w.must(w.hub.Update(t.Context(), asked))
			w.settle("si-a")
			instance := w.settle("si-a")
			w.wantOn(instance, row.on)
			if len(instance.Annotations) > 0 || w.inventory.Waiting() > 0 {
				t.Errorf("it is still asked to move: %v", instance.Annotations)
			}
		})
	}
}

func TestAnInstanceStaysForTheOverlapThatItsPlanGives(t *testing.T) {
	w := onEU(t)
	find := w.reconciler.plan
	w.reconciler.plan = func(serviceID, planID string) (*catalog.Plan, error) {
		plan, err := find(serviceID, planID)
		if err == nil {
			plan.Resources.OverlapSeconds = 600
		}
		return plan, err
	}
	w.drain("eu")
	w.passes("si-a")
	result, err := w.pass("si-a")
	w.must(err)
	w.wantOn(w.instance("si-a"), "us")
	w.wantCarried("eu", "si-a", 2)
	w.after(result.RequeueAfter)
	for range 3 {
		w.after(5 * time.Minute)
		w.passes("si-a")
	}
	w.wantCarried("eu", "si-a", 0)
}
