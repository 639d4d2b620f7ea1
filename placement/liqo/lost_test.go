package liqo_test

import (
	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// What an instance has on the consumer's cluster is deleted though Liqo keeps some of it until the provider answers, which nobody
// waits for.
func forsakenProvidersAreNotWaitedFor(p *pair) {
	driver, d := p.driver(), p.instance("node", "2")
	p.until("it is delivered", d, driver.Deliver)
	p.controllers.paused.Store(true)
	cluster := &v1alpha1.MemberCluster{}
	must(p.T, p.hub.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: p.provider.name}, cluster))
	cluster.Finalizers = []string{v1alpha1.Finalizer}
	must(p.T, p.hub.Update(p.Context(), cluster))
	must(p.T, p.hub.Delete(p.Context(), cluster))

	p.deprovision(d)
	must(p.T, driver.Remove(p.Context(), delivery.Delivery{Instance: d.Instance, Placement: v1alpha1.Placement{Cluster: p.provider.name}}))
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberNamespace(d.Instance.Name)}},
		&authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: p.consumer.tenant(p.provider), Name: d.Placement.Peering.Node}},
	} {
		if p.consumer.has(p.T, o.GetNamespace(), o.GetName(), o) && o.GetDeletionTimestamp().IsZero() {
			p.Errorf("%T is left on the consumer's cluster", o)
		}
	}
	peering := p.peering()
	if err := p.hub.Get(p.Context(), client.ObjectKeyFromObject(peering), peering); err != nil || peering.DeletionTimestamp.IsZero() {
		p.Fatalf("the peering does not end: %v", err)
	}
	p.deprovisioned(d)

	p.controllers.paused.Store(false)
	p.untilGone(peering)
	if p.consumer.has(p.T, "", p.consumer.tenant(p.provider), &corev1.Namespace{}) || p.consumer.has(p.T, "", p.provider.id, &liqov1beta1.ForeignCluster{}) {
		p.Error("something is left on the consumer's cluster")
	}
	if !p.provider.has(p.T, "", p.provider.tenant(p.consumer), &corev1.Namespace{}) {
		p.Error("the provider was touched")
	}
}
