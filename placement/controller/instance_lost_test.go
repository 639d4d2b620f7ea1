package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// lose makes a cluster stop answering.
func (w *world) lose(name string) {
	w.Helper()
	w.change(name, func(c *placement.Cluster) {
		c.Ready, c.Unready = false, "connection refused"
		c.Taints = []corev1.Taint{{
			Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: w.clock.Now()},
		}}
	})
}

func (w *world) comeBack(name string) {
	w.Helper()
	w.change(name, func(c *placement.Cluster) { c.Ready, c.Unready, c.Taints = true, "", nil })
}

// after lets time pass.
func (w *world) after(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func TestALostClusterIsLeftAfterItsGraceAndCleanedWhenItIsBack(t *testing.T) {
	w := onEU(t)
	w.lose("eu")
	if !slices.Equal(w.woken, []string{"si-a"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	w.after((v1alpha1.UnreachableSeconds - 1) * time.Second)
	result, err := w.pass("si-a")
	w.must(err)
	w.wantOn(w.instance("si-a"), "eu")
	if result.RequeueAfter > time.Second {
		t.Fatalf("looked at again after %s", result.RequeueAfter)
	}
	w.after(result.RequeueAfter)
	instance := w.settle("si-a")
	w.wantOn(instance, "us")
	w.wantCarried("us", "si-a", 2)
	w.wantCarried("eu", "si-a", 2) // nobody can remove it there
	w.wantReserved("us", 2)
	w.wantReserved("eu", 2)
	if left := instance.Status.Left; len(left) != 1 || left[0].Cluster != "eu" {
		t.Fatalf("left are %v", left)
	}
	if moved := instance.Status.Moved; moved == nil || !slices.Equal(moved.From, []string{"eu"}) || !slices.Equal(moved.To, []string{"us"}) ||
		!strings.HasPrefix(moved.Reason, "eu has not answered since ") || moved.DeliveredAt == nil {
		t.Fatalf("moved: %+v", instance.Status.Moved)
	}
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if !meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("it is not ready where it is now")
	}

	w.woken = nil
	w.comeBack("eu")
	if !slices.Contains(w.woken, "si-a") {
		t.Fatal("nobody cleans the cluster that is back")
	}
	instance = w.settle("si-a")
	w.wantOn(instance, "us")
	w.wantCarried("eu", "si-a", 0)
	w.wantReserved("eu", 0)
	if len(instance.Status.Left) > 0 {
		t.Errorf("left are %v", instance.Status.Left)
	}
}

func TestAClusterThatComesBackInTimeKeepsItsInstances(t *testing.T) {
	w := onEU(t)
	for range 5 { // however often
		w.lose("eu")
		w.after(time.Minute)
		w.passes("si-a")
		w.comeBack("eu")
		w.after(time.Minute)
		w.passes("si-a")
	}
	w.driver.called()
	w.wantOn(w.instance("si-a"), "eu")
	w.wantReserved("us", 0)
}

func TestThePlanSaysHowLongALostClusterIsTolerated(t *testing.T) {
	w := onEU(t)
	seconds := int64(30)
	w.tolerate(corev1.Toleration{Key: v1alpha1.TaintUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds})
	w.lose("eu")
	w.after(29 * time.Second)
	w.wantOn(w.passes("si-a"), "eu")
	w.after(2 * time.Second)
	w.wantOn(w.settle("si-a"), "us")

	w = onEU(t)
	w.tolerate(corev1.Toleration{Key: v1alpha1.TaintUnreachable, Operator: corev1.TolerationOpExists})
	w.lose("eu")
	w.after(24 * time.Hour)
	w.wantOn(w.passes("si-a"), "eu")
}

// tolerate adds a toleration to every plan.
func (w *world) tolerate(toleration corev1.Toleration) {
	find := w.reconciler.plan
	w.reconciler.plan = func(serviceID, planID string) (*catalog.Plan, error) {
		plan, err := find(serviceID, planID)
		if err == nil {
			plan.Resources.Tolerations = []corev1.Toleration{toleration}
		}
		return plan, err
	}
}

func TestNobodyMovesBeforeTheCatalogIsThere(t *testing.T) {
	w := onEU(t)
	find := w.reconciler.plan
	w.reconciler.plan = func(string, string) (*catalog.Plan, error) { return nil, errors.New("not loaded yet") }
	w.lose("eu")
	w.after(24 * time.Hour)
	instance := w.passes("si-a")
	w.wantOn(instance, "eu")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantReserved("us", 0)
	w.reconciler.plan = find
	w.wantOn(w.settle("si-a"), "us")
}

func TestNobodyMovesWhileMostClustersAreLost(t *testing.T) {
	w := onEU(t)
	w.lose("eu")
	w.lose("ap")
	w.after(time.Hour)
	w.wantOn(w.passes("si-a"), "eu")
	w.wantReserved("us", 0)
	w.woken = nil
	w.comeBack("ap")
	if !slices.Contains(w.woken, "si-a") {
		t.Fatal("nobody goes on when most clusters answer again")
	}
	w.wantOn(w.settle("si-a"), "us")
}

func TestATargetThatIsLostDuringTheMoveIsReplaced(t *testing.T) {
	w := onEU(t)
	w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
	w.drain("eu")
	w.passes("si-a")
	w.lose("us")
	w.after(v1alpha1.UnreachableSeconds*time.Second + time.Second)
	instance := w.settle("si-a")
	w.wantOn(instance, "ap")
	if left := instance.Status.Left; len(left) != 1 || left[0].Cluster != "us" {
		t.Fatalf("left are %+v", left)
	}
	w.wantReserved("us", 2)
	w.comeBack("us")
	w.settle("si-a")
	w.wantReserved("us", 0)
	if !slices.Contains(w.driver.called(), "remove us") {
		t.Error("what may have been delivered to us is still there")
	}
}

func TestAnUpdateOfAnInstanceOnALostClusterIsDeliveredElsewhere(t *testing.T) {
	w := onEU(t)
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds*time.Second + time.Second)
	w.update("si-a", plan("plan-4"))
	instance := w.settle("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantOn(instance, "us")
	w.wantCarried("us", "si-a", 4)
	if instance.Status.Delivered.State.PlanID != "plan-4" || len(instance.Status.Left) != 1 {
		t.Errorf("delivered %s, left %v", instance.Status.Delivered.State.PlanID, instance.Status.Left)
	}
}

func TestAProvisionWhoseClusterIsLostGoesOnElsewhere(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 8)
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace"})
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.cluster("us", 4)
	w.cluster("ap", 1)
	seconds := int64(10)
	w.tolerate(corev1.Toleration{Key: v1alpha1.TaintUnreachable, Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds})
	w.lose("eu")
	w.after(11 * time.Second)
	instance := w.settle("si-a")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantOn(instance, "us")
	if left := instance.Status.Left; len(left) != 1 || left[0].Cluster != "eu" {
		t.Fatalf("left are %+v", left)
	}
}

func TestALostClusterThatIsTakenOutOfTheInventoryIsForgotten(t *testing.T) {
	w := onEU(t)
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds*time.Second + time.Second)
	w.settle("si-a")
	w.woken = nil
	w.change("eu", func(c *placement.Cluster) { c.Removed, c.Cordoned = true, true })
	if !slices.Contains(w.woken, "si-a") {
		t.Fatal("nobody lets the cluster go")
	}
	if left := w.settle("si-a").Status.Left; len(left) > 0 {
		t.Fatalf("left are %v", left)
	}
	w.wantReserved("eu", 0)
}
