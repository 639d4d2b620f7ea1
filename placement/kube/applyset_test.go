package kube_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// exposing returns the delivery of the same instance with other public ports of the consumer's own pods.
func exposing(t *testing.T, d delivery.Delivery, ports ...v1alpha1.ExposedPort) delivery.Delivery {
	t.Helper()
	d.Workload = nil
	if plan := workload.PlanOf(&v1alpha1.Decision{Exposed: ports}); plan != nil {
		var err error
		if d.Workload, err = workload.Of(plan, d.Instance, &v1alpha1.InstanceState{}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// aPortIsGivenBack although its consumer has deleted or emptied the list of what Sluice has applied, on a cluster that was
// registered before that was denied: the host and the port are sold again.
func (f *fixture) aPortIsGivenBack(t *testing.T) {
	list := func(d delivery.Delivery) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "sluice-workload"}}
	}
	deleted := func(c client.Client, d delivery.Delivery) error { return c.Delete(t.Context(), list(d)) }
	emptied := func(c client.Client, d delivery.Delivery) error {
		return c.Patch(t.Context(), list(d), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"applyset.kubernetes.io/contains-group-kinds":""}}}`)))
	}
	for _, row := range []struct {
		name   string
		change func(client.Client, delivery.Delivery) error
		found  string
		// undone means that the port is given back because an update is undone, not by an update.
		undone bool
	}{
		{"the list is deleted", deleted, `configmaps "sluice-workload" not found`, false},
		{"the list is emptied", emptied, "ConfigMap sluice-workload was changed: it lists the kinds , not ", false},
		{"the list is deleted while an update is undone", deleted, "not found", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := exposing(t, newDelivery(t, "cpu", "1", "memory", "1Gi"), v1alpha1.ExposedPort{Name: "web", Port: 8080, Host: "market"})
			var pending *delivery.PendingError
			if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &pending) {
				t.Fatalf("got %v, want a wait for the Gateway", err)
			}
			f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
			f.runs(t, d)

			refusedWith(t, "the consumer changes the list", row.change(f.consumer(t, namespaceOf(d)), d), "the ConfigMap sluice-workload is Sluice's own")
			f.must(t, row.change(f.admin, d))
			if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), row.found) {
				t.Errorf("observe: got %v, want %s", err, row.found)
			}
			route := f.route(t, d, workload.HTTPRoutes)
			closed := exposing(t, d)
			if !row.undone {
				closed.Former = d.Workload
			}
			f.deliver(t, closed)
			f.gone(t, d, "web", route)
			f.gone(t, d, "web", &networkingv1.NetworkPolicy{})
			if !row.undone {
				f.gone(t, d, "sluice-web", &corev1.Service{})
			}
			if err := f.driver().Observe(t.Context(), closed); err != nil {
				t.Errorf("observe: %v", err)
			}
		})
	}
}
