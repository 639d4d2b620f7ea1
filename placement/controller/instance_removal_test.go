package controller

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
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
