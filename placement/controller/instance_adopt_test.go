package controller

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/placement"
)

// orphans provisions an instance of a workload, and removes it from the hub as an older backup does, but not from its
// cluster. It returns the resource that adopts it, with the secrets that its workload has.
func (w *world) orphans(id, parameters string) (adopts *v1alpha1.ServiceInstance, key []byte) {
	w.Helper()
	name := v1alpha1.InstanceName("platform", id)
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform", InstanceID: id, ServiceID: "service-compute",
			Desired: v1alpha1.InstanceState{PlanID: "plan-web", Parameters: raw(parameters)},
		},
	}
	w.must(w.hub.Create(w.Context(), instance))
	instance = w.passes(name)
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	for secret, value := range w.secrets(instance) {
		if secret == "key" {
			key = value.Reveal()
		}
	}
	order := carried.Of(instance, &instance.Status.Delivered.State)
	text, err := order.Seal(w.reconciler.keys, w.namespace, name, "")
	w.must(err)
	instance.Finalizers = nil
	w.must(w.hub.Update(w.Context(), instance))
	w.must(w.hub.Delete(w.Context(), instance))
	w.reconciler.forget(name)
	return &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Finalizers: []string{v1alpha1.Finalizer}, Annotations: map[string]string{v1alpha1.AnnotationAdopt: text}},
		Spec:       order.Spec,
	}, key
}

// TestAdopted: the instance is where it was, reserved, with the secrets of its workload, and is checked at once. Nothing
// is placed, so that it does not matter that another cluster is better now.
func TestAdopted(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 4)
	adopts, key := w.orphans("a", "")
	w.wantReserved("eu", 0)
	w.cluster("better", 64)
	w.must(w.hub.Create(w.Context(), adopts))
	w.driver.calls = nil
	a := w.passes(adopts.Name)
	w.wantOperation(a, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantOn(a, "eu")
	w.wantReserved("eu", 2)
	if a.UID == "" || a.Status.Delivered.State.PlanID != "plan-web" || a.Status.Delivered.Decision.Generation != a.Generation {
		t.Errorf("it is %+v", a.Status.Delivered)
	}
	found := false
	for _, value := range w.secrets(a) {
		found = found || string(value.Reveal()) == string(key)
	}
	if !found || len(key) == 0 {
		t.Error("its workload has got another key")
	}
	if calls := w.driver.called(); len(calls) == 0 || calls[0] != "observe eu" {
		t.Errorf("the driver was called: %q", calls)
	}
	w.start() // a Sluice that starts reserves by the status alone
	w.must(w.reconciler.recovery.ensure(w.Context()))
	w.wantReserved("eu", 2)
}

// TestNotAdopted: nothing is placed or removed for an instance that cannot be taken over; it waits, and says why.
func TestNotAdopted(t *testing.T) {
	for name, row := range map[string]struct {
		breaks func(*world, *v1alpha1.ServiceInstance)
		says   string
	}{
		"another request": {func(_ *world, i *v1alpha1.ServiceInstance) { i.Spec.SpaceGUID = "other" }, "was changed"},
		"another order":   {func(_ *world, i *v1alpha1.ServiceInstance) { i.Annotations[v1alpha1.AnnotationAdopt] = "none" }, "open the order"},
		"a cluster less":  {func(w *world, _ *v1alpha1.ServiceInstance) { w.inventory.DeleteCluster("eu") }, "cluster eu is not known"},
		"its host is of another": {func(w *world, i *v1alpha1.ServiceInstance) {
			order, err := carried.Open(i.Annotations[v1alpha1.AnnotationAdopt], w.reconciler.keys, w.namespace, i.Name)
			w.must(err)
			order.Decision.Hosts = []string{"shop"}
			text, err := order.Seal(w.reconciler.keys, w.namespace, i.Name, "")
			w.must(err)
			i.Annotations[v1alpha1.AnnotationAdopt] = text
			w.inventory.Reserve(placement.Holding{Instance: "si-other", Held: map[string]placement.Resources{"eu": {"cpu": 1000}}, Hosts: []string{"shop"}})
		}, "host shop is of si-other"},
		"its port is of another": {func(w *world, i *v1alpha1.ServiceInstance) {
			order, err := carried.Open(i.Annotations[v1alpha1.AnnotationAdopt], w.reconciler.keys, w.namespace, i.Name)
			w.must(err)
			order.Decision.Placements[0].PublicPorts = map[string]int32{"web": 9000}
			text, err := order.Seal(w.reconciler.keys, w.namespace, i.Name, "")
			w.must(err)
			i.Annotations[v1alpha1.AnnotationAdopt] = text
			w.inventory.Reserve(placement.Holding{Instance: "si-other", Held: map[string]placement.Resources{"eu": {"cpu": 1000}}, Ports: map[string]placement.Ports{"eu": {"web": 9000}}})
		}, "port 9000 of eu is of si-other"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkloadWorld(t)
			w.cluster("eu", 4)
			adopts, _ := w.orphans("a", "")
			row.breaks(w, adopts)
			w.must(w.hub.Create(w.Context(), adopts))
			w.driver.calls = nil
			if _, err := w.pass(adopts.Name); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("the pass: %v, want %q", err, row.says)
			}
			a := w.instance(adopts.Name)
			if a.Status.Decision != nil || !strings.Contains(a.Status.Operation.Description, row.says) {
				t.Errorf("it is %+v, %+v", a.Status.Decision, a.Status.Operation)
			}
			if calls := w.driver.called(); len(calls) > 0 {
				t.Errorf("the driver was called: %q", calls)
			}
		})
	}
}
