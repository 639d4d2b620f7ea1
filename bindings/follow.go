package bindings

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// behind tells whether a binding that was made does not fit where its instance is: it
// lacks credentials of a cluster, has some of one that the instance is not on, or
// names a cluster where nothing of the instance is left.
func behind(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	on := clustersOf(instance)
	if instance.Status.Delivered == nil || b.Status.Operation == nil || b.Status.Operation.State != v1alpha1.StateSucceeded {
		return false
	}
	there := union(on, leftOf(instance))
	return len(without(on, b.Status.Issued)) > 0 || len(without(b.Status.Issued, on)) > 0 || len(without(b.Status.Clusters, there)) > 0
}

// follow issues new credentials when the instance is on other clusters than at the
// time of the bind. The platform sees them when it fetches the binding (OSB 2.17,
// "Fetching a Service Binding"). What was issued on a cluster that the instance has
// left works until the instance is removed there.
func (c *Controller) follow(ctx context.Context, b *v1alpha1.ServiceBinding) (reconcile.Result, error) {
	var instance v1alpha1.ServiceInstance
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.InstanceName}, &instance)
	if apierrors.IsNotFound(err) || err == nil && (!instance.DeletionTimestamp.IsZero() || !behind(b, &instance)) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	on := clustersOf(&instance)
	if len(without(on, b.Status.Issued)) == 0 && len(without(b.Status.Issued, on)) == 0 {
		return reconcile.Result{}, c.forgetClusters(ctx, b, &instance)
	}
	if len(on) == 0 {
		// The instance is displaced (v1alpha1.Decision.Displaced), and what was issued goes with
		// what it leaves. Should it come back to the same clusters, it is issued anew.
		b.Status.Issued = nil
		return reconcile.Result{}, c.writeStatus(ctx, b)
	}
	if err := c.nameClusters(ctx, b, on); err != nil {
		return reconcile.Result{}, err
	}
	issued, err := c.issueAll(ctx, b, &instance)
	if err != nil {
		return reconcile.Result{}, err // with back-off; the credentials that are there stay
	}
	log.FromContext(ctx).Info("follows the instance", "binding", b.Name, "from", b.Status.Issued, "to", on)
	return reconcile.Result{}, c.succeed(ctx, b, issued)
}

// forgetClusters takes the clusters from the status where nothing of the instance, and
// so nothing of the binding, is left.
func (c *Controller) forgetClusters(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	b.Status.Clusters = without(b.Status.Clusters, without(b.Status.Clusters, union(clustersOf(instance), leftOf(instance))))
	return c.writeStatus(ctx, b)
}
