package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

func TestProvisionIsPlacedDeliveredAndWrittenTwice(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantCarried("eu", "si-a", 2)
	w.wantReserved("eu", 2)
	if w.writes != 2 {
		t.Errorf("%d status writes, want one for the decision and one for the success", w.writes)
	}
	for _, condition := range []string{v1alpha1.ConditionPlaced, v1alpha1.ConditionDelivered, v1alpha1.ConditionReady} {
		if !meta.IsStatusConditionTrue(instance.Status.Conditions, condition) {
			t.Errorf("condition %s is not true", condition)
		}
	}
	if d := instance.Status.Delivered; d == nil || d.State.PlanID != "plan-2" || d.Decision.Clusters()[0] != "eu" {
		t.Errorf("delivered is %+v", d)
	}
}

func TestTheDecisionIsOnTheHubBeforeAnyClusterIsTouched(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.onWrite = func(func() error) error { return errors.New("the hub is away") }
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("a pass succeeds though its write failed")
	}
	if calls := w.driver.called(); len(calls) > 0 {
		t.Errorf("the driver was called: %v", calls)
	}
}

func TestWhatFitsNowhereWaitsAndIsWokenByAClusterThatTakesIt(t *testing.T) {
	w := newWorld(t)
	w.cluster("full", 4)
	w.provision("si-there", "plan-2", "")
	w.passes("si-there")
	w.provision("si-a", "plan-4", "")
	result, err := w.pass("si-a")
	w.must(err)
	if result.RequeueAfter > polling || result.RequeueAfter < polling/2 {
		t.Errorf("looked at again after %s", result.RequeueAfter)
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "needs 4 cpu, 2 free of 4")

	w.cluster("small", 3)
	if len(w.woken) > 0 {
		t.Fatalf("%v woken by a cluster that is too small", w.woken)
	}
	w.cluster("large", 4)
	if !slices.Equal(w.woken, []string{"si-a"}) {
		t.Fatalf("%v woken by a cluster that is large enough", w.woken)
	}
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantCarried("large", "si-a", 4)
}

func TestWhatFitsNowhereIsWokenByADeprovisionThatFreesEnough(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-first", "plan-4", "")
	w.passes("si-first")
	w.provision("si-second", "plan-2", "")
	w.wantOperation(w.passes("si-second"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "0 free of 4 after 4 reserved")
	w.deprovision("si-first")
	if _, err := w.pass("si-first"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.woken, []string{"si-second"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	w.wantOperation(w.passes("si-second"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

func TestWhatCanNeverFitFailsAtOnceAndSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.cluster("small", 2)
	w.provision("si-a", "plan-4", "")
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "needs 4 cpu, 2 free of 2")
	if n := w.inventory.Waiting(); n > 0 {
		t.Errorf("%d instances wait", n)
	}
	if w.cluster("large", 8); len(w.woken) > 0 {
		t.Error("a failed instance still waits")
	}
}

func TestWhatCanNeverFitWaitsWhereThePlanWaitsForAnything(t *testing.T) {
	w := newWorld(t)
	w.cluster("small", 2)
	w.provision("si-a", "plan-patient", "")
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "needs 4 cpu, 2 free of 2")
	w.cluster("large", 8)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

func TestWhatWaitsFailsBeforeThePlatformStopsPolling(t *testing.T) {
	w := newWorld(t)
	w.cluster("small", 2)
	w.provision("si-a", "plan-patient", "")
	result, err := w.pass("si-a")
	w.must(err)
	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "needs 4 cpu, 2 free of 2")
	w.cluster("large", 8)
	if len(w.woken) > 0 {
		t.Error("a failed instance still waits")
	}
	w.passes("si-a")
	w.wantCarried("large", "si-a", 0)
}

func TestAFailedProvisionIsTriedAgainWhenThePlatformRepeatsIt(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.RefusedError{Reason: "the namespace is somebody else's"})
	w.provision("si-a", "plan-2", "")
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "somebody else's")
	w.driver.fail("deliver eu", nil)
	again := w.instance("si-a")
	again.Spec.Attempt++
	w.must(w.hub.Update(t.Context(), again))
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

func TestARefusedDeliveryIsCleanedUpEverywhereAndFails(t *testing.T) {
	w := newWorld(t)
	w.cluster("ap", 4)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.RefusedError{Reason: "no"})
	w.provision("si-a", "plan-2", `{"clusters":2}`)
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateFailed, "no")
	if want := []string{"deliver ap", "deliver eu", "remove ap", "remove eu"}; !slices.Equal(w.driver.called(), want) {
		t.Error("not every touched cluster was cleaned up")
	}
	w.wantReserved("ap", 0)
	w.wantReserved("eu", 0)
	if instance.Status.Decision != nil {
		t.Error("the decision still reserves")
	}
}

func TestADriverThatFailsTillTheDeadlineFailsTheProvision(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", errors.New("eu: connection refused"))
	w.provision("si-a", "plan-2", "")
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("a transient error must reach the work queue, which backs off")
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "connection refused")
	w.wantReserved("eu", 2)
	w.clock.SetTime(w.clock.Now().Add(polling))
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "not delivered in time: eu: connection refused")
	w.wantReserved("eu", 0)
}

func TestAFailedProvisionThatCannotBeCleanedUpKeepsItsReservationTillItIs(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	away := errors.New("eu: connection refused")
	w.driver.fail("deliver eu", away)
	w.driver.fail("remove eu", away)
	w.provision("si-a", "plan-2", "")
	_, err := w.pass("si-a")
	if err == nil {
		t.Fatal("want an error")
	}
	w.clock.SetTime(w.clock.Now().Add(polling))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "not delivered in time")
	w.wantLeft(w.instance("si-a"), 2, "eu")

	w.driver.fail("remove eu", nil)
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateFailed, "not delivered in time")
	w.wantReserved("eu", 0)
	if instance.Status.Decision != nil {
		t.Error("the decision is still there")
	}
}

func TestAPendingDeliveryIsLookedAtSoonAndThenMoreRarely(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace", Detail: "the one before it is being deleted"})
	w.provision("si-a", "plan-2", "")
	result, err := w.pass("si-a")
	w.must(err)
	if result.RequeueAfter < 20*time.Millisecond || result.RequeueAfter > 500*time.Millisecond || w.writes != 1 {
		t.Errorf("looked at again after %s, %d writes", result.RequeueAfter, w.writes)
	}
	w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	result, err = w.pass("si-a")
	w.must(err)
	if result.RequeueAfter < 2*time.Second || result.RequeueAfter > 5*time.Second {
		t.Errorf("looked at again after %s", result.RequeueAfter)
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "the one before it is being deleted")
	w.driver.fail("deliver eu", nil)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

func TestDeprovisionDuringProvisionLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace"})
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.wantReserved("eu", 2)
	w.deprovision("si-a")
	_, err := w.pass("si-a")
	w.must(err)
	if !w.gone("si-a") || !slices.Contains(w.driver.called(), "remove eu") {
		t.Error("the instance, or what it left, is still there")
	}
	w.wantReserved("eu", 0)
}

func TestDeprovisionFirstDeletesTheBindings(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	binding := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sb-a", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.ServiceBindingSpec{Platform: "platform", InstanceName: "si-a", InstanceID: "si-a", BindingID: "b", ServiceID: "service-compute", PlanID: "plan-2"},
	}
	w.must(w.hub.Create(t.Context(), binding))
	w.deprovision("si-a")
	w.passes("si-a")
	w.must(w.hub.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	if binding.DeletionTimestamp.IsZero() {
		t.Fatal("the binding is not being deleted")
	}
	w.wantCarried("eu", "si-a", 2)

	binding.Finalizers = nil
	w.must(w.hub.Update(t.Context(), binding))
	_, err := w.pass("si-a")
	w.must(err)
	w.wantCarried("eu", "si-a", 0)
	if !w.gone("si-a") {
		t.Error("the instance is still there")
	}
}

func TestABlockedDeprovisionSaysWhyFailsInTimeAndGoesOn(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.deprovision("si-a")
	w.driver.fail("remove eu", errors.New("eu: connection refused"))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationDeprovision, v1alpha1.StateInProgress, "connection refused")

	w.clock.SetTime(w.clock.Now().Add(polling))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	instance := w.instance("si-a")
	w.wantOperation(instance, v1alpha1.OperationDeprovision, v1alpha1.StateFailed, "connection refused")
	if usable := instance.Status.Operation.InstanceUsable; usable == nil || *usable {
		t.Error("a half-removed instance is not usable")
	}
	w.wantReserved("eu", 2)

	w.driver.fail("remove eu", nil)
	_, err := w.pass("si-a")
	w.must(err)
	if !w.gone("si-a") {
		t.Error("the instance is still there")
	}
	w.wantReserved("eu", 0)
}

func TestObservationRepairsAndReportsWhatItCannotRepair(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.driver.called()
	w.driver.carried["eu"]["si-a"] = 1 // somebody changed the quota

	result, err := w.pass("si-a")
	w.must(err)
	if calls := w.driver.called(); len(calls) > 0 || result.RequeueAfter > 5*time.Minute {
		t.Fatalf("calls %v, next look after %s", calls, result.RequeueAfter)
	}
	w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	w.passes("si-a")
	w.wantCarried("eu", "si-a", 2)

	w.driver.fail("observe eu", errors.New("eu: connection refused"))
	w.driver.fail("deliver eu", errors.New("eu: connection refused"))
	requested := w.instance("si-a")
	requested.Annotations = map[string]string{AnnotationObserve: "now"}
	w.must(w.hub.Update(t.Context(), requested))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	if meta.IsStatusConditionTrue(w.instance("si-a").Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("an instance that cannot be repaired is ready")
	}
	w.driver.fail("observe eu", nil)
	if !meta.IsStatusConditionTrue(w.passes("si-a").Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("a repaired instance is not ready")
	}
}

// An application is delivered as a whole: each cluster carries the sum of its components. When
// one cluster has to be left, the components on the others stay.
func TestAnApplicationIsDelivered(t *testing.T) {
	w := newWorld(t)
	w.cluster("a", 7)
	w.cluster("b", 3)
	w.provision("app", "plan-application", "")
	w.passes("app")
	instance := w.passes("app")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantCarried("a", "app", 6)
	w.wantCarried("b", "app", 2)
	w.wantReserved("a", 6)
	w.wantReserved("b", 2)

	w.cluster("c", 32)
	asked := w.instance("app")
	asked.Annotations = map[string]string{v1alpha1.AnnotationLeave: "a"}
	w.must(w.hub.Update(t.Context(), asked))
	for range 3 {
		instance = w.passes("app")
	}
	clusters := map[string]string{}
	for _, p := range instance.Status.Delivered.Decision.Placements {
		for _, component := range p.Components {
			clusters[component] = p.Cluster
		}
	}
	if clusters["db"] != "c" || clusters["web"] != "b" {
		t.Errorf("the components are on %v, want db on c and web still on b", clusters)
	}
}
