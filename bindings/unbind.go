package bindings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/member"
)

// unbind revokes the credentials everywhere, and removes the finalizer once nothing of them
// remains.
func (c *Controller) unbind(ctx context.Context, b *v1alpha1.ServiceBinding) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(b, v1alpha1.Finalizer) {
		return reconcile.Result{}, nil
	}
	c.begin(b, v1alpha1.OperationUnbind)
	var instance v1alpha1.ServiceInstance
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.InstanceName}, &instance)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read instance %s: %w", b.Spec.InstanceName, err)
	}
	if err := errors.Join(c.unbindPools(ctx, b), c.revokeAll(ctx, b, &instance, lists.Union(b.Status.Clusters, clustersOf(&instance)))); err != nil {
		waited := c.wait(ctx, b, v1alpha1.OperationUnbind, publicReason(err))
		if pending := pendingIn(err); pending != nil && waited == nil {
			return reconcile.Result{RequeueAfter: pending.pause}, nil
		}
		return reconcile.Result{}, errors.Join(err, waited)
	}
	c.happened(b, v1alpha1.Event{Type: v1alpha1.EventRemoved, After: c.since(b)})
	if err := c.journals().End(ctx, b); err != nil {
		return reconcile.Result{}, err
	}
	before := b.DeepCopy()
	controllerutil.RemoveFinalizer(b, v1alpha1.Finalizer)
	err = c.Client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	c.Recorder.Removed(ctx, before, err)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // the cache was behind
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer: %w", err)
	}
	c.hooksEnded.Delete(b.UID)
	return reconcile.Result{}, nil
}

// leftPatience limits the wait for a cluster that the instance has left and that does not answer, as far as the hub knows:
// it may be lost.
const leftPatience = 5 * time.Second

// revokeAll revokes on all clusters concurrently; a cluster that does not answer does not
// delay the others. It does not wait for a cluster that has left the inventory, or is taken out of it while it does not
// answer: that waits for the instance, which waits for its bindings.
func (c *Controller) revokeAll(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, clusters []string) error {
	var group errgroup.Group
	left := leftOf(instance)
	for _, cluster := range clusters {
		group.Go(func() error {
			present, err := c.Connections.Present(ctx, cluster)
			if err == nil && present == nil {
				log.FromContext(ctx).Info("cluster left the inventory; what is left of the binding there expires, or is its operator's to delete", "binding", b.Name, "cluster", cluster)
				return nil
			}
			switch {
			case err != nil:
			case present.Spec.Pool != nil: // see unbindPools
			case slices.Contains(left, cluster):
				err = c.revokeLeft(ctx, b, instance, present)
			default:
				err = c.on(cluster, b, func() error { return c.revoke(ctx, b, instance, cluster) })
			}
			if err != nil {
				return &clusterError{cluster: cluster, shown: shownAs(instance, cluster), doing: "revoke credentials", err: err}
			}
			return nil
		})
	}
	return group.Wait()
}

// revokeLeft revokes on a cluster that the instance has left. What remains there is deleted with the instance's namespace,
// so it does not wait for a cluster that does not answer, nor for a hook that has failed: the workload may be stopped there.
func (c *Controller) revokeLeft(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster *v1alpha1.MemberCluster) error {
	answers, _ := cluster.Holds(v1alpha1.ConditionReachable)
	if !answers {
		patient, cancel := context.WithTimeout(ctx, leftPatience)
		defer cancel()
		ctx = patient
	}
	err := c.on(cluster.Name, b, func() error { return c.revoke(ctx, b, instance, cluster.Name) })
	var busy *member.BusyError
	var failed *hookError
	if err == nil || pendingIn(err) != nil || errors.As(err, &busy) || answers && !errors.As(err, &failed) {
		return err
	}
	log.FromContext(ctx).Info("what remains of the binding goes with the instance's namespace", "binding", b.Name, "cluster", cluster.Name, "reason", publicReason(err))
	return nil
}
