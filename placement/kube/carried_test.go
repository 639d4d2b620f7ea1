package kube_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/carried"
)

// theNamespaceCarriesItsOrder: sealed, as it was delivered last, with the same text while it is the same order; and it is
// put there again if it is missing.
func theNamespaceCarriesItsOrder(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	d.Instance.Namespace, d.State = f.hubNamespace, &v1alpha1.InstanceState{PlanID: "small"}
	d.Instance.Spec = v1alpha1.ServiceInstanceSpec{Platform: "platform-1", InstanceID: t.Name(), ServiceID: "service-1"}
	carries := func(plan string) string {
		t.Helper()
		var namespace corev1.Namespace
		if err := f.admin.Get(t.Context(), key("", namespaceOf(d)), &namespace); err != nil {
			t.Fatal(err)
		}
		text := namespace.Annotations[v1alpha1.AnnotationOrder]
		if order, err := carried.Open(text, f.connections.Keys, f.hubNamespace, d.Instance.Name); err != nil || order.Spec.Desired.PlanID != plan {
			t.Errorf("it carries %+v, %v, want plan %s", order, err, plan)
		}
		return text
	}
	f.deliver(t, d)
	first := carries("small")
	f.deliver(t, d)
	if carries("small") != first {
		t.Error("the same order has another text")
	}
	d.State = &v1alpha1.InstanceState{PlanID: "large"}
	f.deliver(t, d)
	carries("large")
	namespace := &corev1.Namespace{}
	if err := f.admin.Get(t.Context(), key("", namespaceOf(d)), namespace); err != nil {
		t.Fatal(err)
	}
	delete(namespace.Annotations, v1alpha1.AnnotationOrder)
	if err := f.admin.Update(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), "does not carry its order") {
		t.Errorf("without its order: %v", err)
	}
	f.deliver(t, d)
	carries("large")
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Errorf("with its order: %v", err)
	}
}
