package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/registration"
)

// A binding that the cache does not show yet is still deleted with its instance, where an earlier leader may have issued its
// credentials.
func TestABindingThatTheCacheDoesNotShowYetGoesWithItsInstance(t *testing.T) {
	w := onEU(t)
	binding := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sb-a", Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.ServiceBindingSpec{Platform: "platform", InstanceName: "si-a", InstanceID: "si-a", BindingID: "b", ServiceID: "service-compute", PlanID: "plan-2"},
	}
	w.must(w.hub.Create(t.Context(), binding))
	w.deprovision("si-a")
	cache := interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if _, behind := list.(*v1alpha1.ServiceBindingList); behind {
				return nil
			}
			return c.List(ctx, list, options...)
		},
	})
	w.reconciler.hub, w.reconciler.bindings = cache, []client.Reader{cache, w.hub}
	if _, err := w.pass("si-a"); err != nil || w.gone("si-a") {
		t.Fatalf("the instance is gone: %t, %v", w.gone("si-a"), err)
	}
	w.must(w.hub.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	if binding.DeletionTimestamp.IsZero() {
		t.Error("the binding is not deleted")
	}
	w.wantCarried("eu", "si-a", 2)
	binding.Finalizers = nil
	w.must(w.hub.Update(t.Context(), binding))
	if _, err := w.pass("si-a"); err != nil || !w.gone("si-a") {
		t.Errorf("the instance is not gone: %v", err)
	}
}

// What is deleted object by object with a namespace triggers no passes over an instance that is being removed, but the end of
// the namespace does, at once. Of other instances each of these is a loss.
func TestOnlyTheEndOfANamespaceIsNewsOfARemoval(t *testing.T) {
	w := onEU(t)
	var looks []time.Duration
	note := func(_ string, wait time.Duration) { looks = append(looks, wait) }
	w.reconciler.after.Store(&note)
	of := news{lost: w.reconciler.lost, ended: w.reconciler.ended, progressed: w.reconciler.progressed}
	object := func(kind, namespace, ready string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		o.SetUID(types.UID(kind))
		o.SetNamespace(namespace)
		o.SetLabels(map[string]string{v1alpha1.LabelInstance: "si-a"})
		if ready != "" {
			w.must(unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": "Ready", "status": ready}}, "status", "conditions"))
		}
		return o
	}
	ends := func() []time.Duration {
		looks = nil
		known := map[types.UID]seen{}
		of.of(watch.Event{Type: watch.Added, Object: object("Thing", "n", "True")}, known)
		of.of(watch.Event{Type: watch.Modified, Object: object("Thing", "n", "False")}, known)
		of.of(watch.Event{Type: watch.Deleted, Object: object("Thing", "n", "")}, known)
		of.of(watch.Event{Type: watch.Deleted, Object: object("Namespace", "", "")}, known)
		return looks
	}
	if got, want := ends(), []time.Duration{afterNews, afterLoss, afterLoss}; !slices.Equal(got, want) {
		t.Errorf("before its removal it is looked at after %v, want %v", got, want)
	}
	w.deprovision("si-a")
	w.driver.fail("remove eu", &delivery.PendingError{Step: "delete the namespace"})
	w.passes("si-a")
	if got, want := ends(), []time.Duration{0}; !slices.Equal(got, want) {
		t.Errorf("while it is removed it is looked at after %v, want %v", got, want)
	}
	w.driver.fail("remove eu", nil)
	if _, err := w.pass("si-a"); err != nil || !w.gone("si-a") {
		t.Errorf("the instance is not gone: %v", err)
	}
	if w.reconciler.isRemoved("si-a") {
		t.Error("it is remembered when it is gone")
	}
}

// An instance with a peering has objects on other clusters than the one that it is placed on. They are removed also if that one is
// lost and taken out of the inventory, or has left it, after which nothing waits for it.
func TestObjectsOfAPeeringAreRemovedThoughTheProviderIsLost(t *testing.T) {
	taken := func(c *placement.Cluster) { c.Removed, c.Cordoned = true, true }
	peered := func(t *testing.T) *world {
		w := onEU(t)
		w.reconciler.drivers[v1alpha1.DriverLiqo] = w.driver
		w.change("eu", func(c *placement.Cluster) { c.Driver = v1alpha1.DriverLiqo })
		instance := w.instance("si-a")
		for _, d := range instance.Status.Decisions() {
			d.Placements[0].Peering = &v1alpha1.PlacementPeering{Consumer: "own", Hub: "hub", Node: "node"}
		}
		w.must(w.hub.Status().Update(t.Context(), instance))
		w.lose("eu")
		return w
	}
	for name, leave := range map[string]func(w *world){
		"being taken out": func(w *world) { w.change("eu", taken) },
		"has left":        func(w *world) { w.inventory.DeleteCluster("eu") },
	} {
		t.Run("deprovisioned, "+name, func(t *testing.T) {
			w := peered(t)
			w.deprovision("si-a")
			w.driver.called()
			_, _ = w.pass("si-a")
			if calls := w.driver.called(); len(calls) > 0 || w.gone("si-a") {
				t.Errorf("a cluster that does not answer is asked %v", calls)
			}
			leave(w)
			_, err := w.pass("si-a")
			w.must(err)
			if calls := w.driver.called(); !slices.Equal(calls, []string{"remove eu"}) || !w.gone("si-a") {
				t.Errorf("the calls were %v, and the instance is gone: %t", calls, w.gone("si-a"))
			}
		})
		t.Run("moved, "+name, func(t *testing.T) {
			w := peered(t)
			w.after(v1alpha1.UnreachableSeconds*time.Second + time.Second)
			w.wantLeft(w.settle("si-a"), 2, "eu")
			w.driver.called()
			leave(w)
			w.wantLeft(w.settle("si-a"), 0)
			if calls := w.driver.called(); !slices.Contains(calls, "remove eu") {
				t.Errorf("the calls were %v", calls)
			}
			w.wantReserved("eu", 0)
		})
	}
}

// A cluster that was made for an instance leaves the inventory with the instance also if its management cluster is lost,
// and is being removed by the operator or has left the inventory.
func TestAMadeClusterLeavesTheInventoryWithItsInstance(t *testing.T) {
	for name, row := range map[string]struct{ removed, failed bool }{
		"its management cluster is being removed":                   {removed: true},
		"its management cluster has left":                           {},
		"its management cluster has left, and the provision failed": {failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.reconciler.drivers[v1alpha1.DriverCAPI] = &capi.Driver{Members: &registration.Members{Client: w.hub, Live: w.hub, Namespace: w.namespace}}
			if row.removed {
				makers := placementtest.Cluster{Name: "makers", Driver: v1alpha1.DriverCAPI, Unreachable: "connection refused"}.MemberCluster()
				makers.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()}
				w.inventory.UpsertCluster(placement.ClusterOf(makers, w.clock.Now()))
			}
			id := v1alpha1.InstanceName("platform", "made")
			w.provision(id, "plan-2", "")
			instance, shape := w.instance(id), &v1alpha1.ClusterShape{Member: &v1alpha1.ShapeMember{MemberTemplate: v1alpha1.MemberTemplate{Region: "eu"}}}
			decision := v1alpha1.Decision{Generation: instance.Generation, Placements: []v1alpha1.Placement{
				{Cluster: "makers", Reserved: placementtest.Quantities("cpu=8"), Shape: shape},
			}}
			instance.Status = v1alpha1.ServiceInstanceStatus{
				ObservedGeneration: instance.Generation, Decision: &decision, Delivered: &v1alpha1.DeliveredState{State: instance.Spec.Desired, Decision: decision},
				Operation: &v1alpha1.Operation{Type: v1alpha1.OperationProvision, Generation: instance.Generation, State: v1alpha1.StateSucceeded, StartedAt: metav1.Now()},
			}
			if row.failed {
				instance.Status.Decision, instance.Status.Delivered, instance.Status.Operation.State = nil, nil, v1alpha1.StateFailed
			}
			w.must(w.hub.Status().Update(t.Context(), instance))
			made := shape.MemberCluster(w.namespace, id)
			made.Spec.Access.SealedKubeconfig, made.Finalizers = []byte("sealed"), []string{v1alpha1.Finalizer}
			w.must(w.hub.Create(t.Context(), made))

			w.deprovision(id)
			for range 2 {
				w.passes(id)
				w.must(w.hub.Get(t.Context(), client.ObjectKeyFromObject(made), made))
				if made.DeletionTimestamp.IsZero() {
					t.Fatal("its cluster stays in the inventory")
				}
			}
			made.Finalizers = nil
			w.must(w.hub.Update(t.Context(), made))
			if _, err := w.pass(id); err != nil || !w.gone(id) {
				t.Errorf("the instance is not gone: %v", err)
			}
			if err := w.hub.Get(t.Context(), client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
				t.Errorf("its cluster is still in the inventory: %v", err)
			}
		})
	}
}
