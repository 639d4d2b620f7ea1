package bindings

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/member"
)

// behind reports whether a successful binding no longer fits its instance: it lacks
// credentials of a cluster or a node, has some of one that the instance is not on, or names
// a cluster where nothing of the instance remains.
func behind(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	return made(b, instance) && (elsewhere(b, instance) ||
		len(lists.Without(addressedOf(instance), b.Status.AddressClusters)) > 0 ||
		len(lists.Without(b.Status.Clusters, lists.Union(clustersOf(instance), leftOf(instance)))) > 0)
}

// made reports whether a bind has succeeded for an instance that is delivered.
func made(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	return instance.Status.Delivered != nil && b.Status.Operation != nil && b.Status.Operation.State == v1alpha1.StateSucceeded
}

// elsewhere reports whether the credentials are for other clusters or nodes than the
// instance's, or for data that was replaced since (a restore).
func elsewhere(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	return !lists.Same(b.Status.Issued, clustersOf(instance)) || !lists.Same(b.Status.Nodes, nodesOf(instance)) || predates(b, instance)
}

// predates reports whether the bind is older than the data of its instance, which an operator has restored.
func predates(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	restored := instance.Status.Restored
	return restored != nil && restored.At != nil && b.Status.Operation != nil && b.Status.Operation.FinishedAt != nil &&
		!b.Status.Operation.FinishedAt.After(restored.At.Time)
}

// follow issues new credentials when the instance's clusters have changed since the bind,
// or when they are requested. Otherwise it refreshes the endpoints. The platform sees new
// credentials when it fetches the binding (OSB 2.17, "Fetching a Service Binding").
// Credentials on a cluster that the instance has left work until the instance is removed
// there.
func (c *Controller) follow(ctx context.Context, b *v1alpha1.ServiceBinding) (reconcile.Result, error) {
	var instance v1alpha1.ServiceInstance
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.InstanceName}, &instance)
	if apierrors.IsNotFound(err) {
		return c.outlive(ctx, b)
	}
	if err == nil && !instance.DeletionTimestamp.IsZero() {
		return reconcile.Result{RequeueAfter: c.Patience}, nil // the end of the deprovision deletes the binding
	}
	if err == nil && !made(b, &instance) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(placementsOf(&instance)) == 0 {
		return reconcile.Result{}, c.lapse(ctx, b, &instance)
	}
	renewal := b.RenewalAsked() && !elsewhere(b, &instance)
	if !elsewhere(b, &instance) && !renewal {
		c.endBindHooks(ctx, b, &instance)
	}
	if !behind(b, &instance) && !renewal {
		return c.refresh(ctx, b, &instance)
	}
	if err := c.nameClusters(ctx, b, &instance); err != nil {
		return reconcile.Result{}, err
	}
	if !elsewhere(b, &instance) && !renewal {
		if err := c.forgetClusters(ctx, b, &instance); err != nil {
			return reconcile.Result{}, err
		}
		return c.refresh(ctx, b, &instance)
	}
	return c.reissue(ctx, b, &instance)
}

// reissue issues new credentials. While that waits, and after an error, the present ones stay.
func (c *Controller) reissue(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (reconcile.Result, error) {
	before := b.Status.Upstream.DeepCopy()
	issued, found, err := c.issueAndFind(ctx, b, instance)
	if pending := pendingIn(err); pending != nil {
		return c.waitBound(ctx, b, before, pending)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	log.FromContext(ctx).Info("issues credentials anew", "binding", b.Name, "renewal", b.RenewalAsked(), "from", b.Status.Issued, "to", clustersOf(instance))
	return c.succeed(ctx, b, instance, issued, found)
}

// lostAccount returns a cluster on which the binding's account, or its role, is not there any more, or another one; "" if
// there is none. The error is what clusters answer instead; one that does not answer says nothing.
func (c *Controller) lostAccount(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (on string, unread error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, cluster := range b.Status.Issued {
		uid := b.Status.Accounts[cluster]
		if uid == "" {
			continue
		}
		lost := false
		err := c.on(cluster, b, func() error {
			a, err := c.account(ctx, b, instance, cluster)
			if err == nil {
				lost, err = a.isLost(ctx, types.UID(uid))
			}
			return err
		})
		switch {
		case lost:
			return cluster, nil
		case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown && !member.IsUnknown(err):
			unread = errors.Join(unread, &clusterError{cluster: cluster, shown: shownAs(instance, cluster), doing: "read the account", err: err})
		}
	}
	return "", unread
}

// isLost reports whether the account is not the one with a UID any more, or has no role.
func (a *account) isLost(ctx context.Context, uid types.UID) (bool, error) {
	var holder corev1.ServiceAccount
	key := client.ObjectKey{Namespace: a.namespace, Name: a.binding.Name}
	err := a.client.Get(ctx, key, &holder)
	if apierrors.IsNotFound(err) || err == nil && holder.UID != uid {
		return true, nil
	}
	if err == nil {
		err = a.client.Get(ctx, key, &rbacv1.RoleBinding{})
	}
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// outlive deletes a binding whose instance is gone, once Patience has passed since the
// bind. The broker may have accepted the bind while the instance was being deleted, and
// nobody unbinds it any more. Patience leaves the platform time to learn that the bind
// failed.
func (c *Controller) outlive(ctx context.Context, b *v1alpha1.ServiceBinding) (reconcile.Result, error) {
	if wait := c.Patience - c.age(b); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.InstanceName}, &v1alpha1.ServiceInstance{})
	if !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err // it exists again, or the read failed
	}
	return reconcile.Result{}, c.delete(ctx, b)
}

// delete deletes a binding, which is then unbound.
func (c *Controller) delete(ctx context.Context, b *v1alpha1.ServiceBinding) error {
	err := c.Client.Delete(ctx, b, client.Preconditions{UID: &b.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete binding %s: %w", b.Name, err)
	}
	return nil
}

// lapse records that no credentials are issued: the instance is displaced
// (v1alpha1.Decision.Displaced), and its credentials are removed with it. If it returns to
// the same clusters, new ones are issued.
func (c *Controller) lapse(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	if !elsewhere(b, instance) {
		return c.forgetClusters(ctx, b, instance)
	}
	b.Status.Issued, b.Status.Nodes, b.Status.Accounts = nil, nil, nil
	return c.writeStatus(ctx, b)
}

// forgetClusters removes from status the clusters on which nothing of the instance remains,
// and so nothing of the binding.
func (c *Controller) forgetClusters(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) error {
	gone := lists.Without(b.Status.Clusters, lists.Union(clustersOf(instance), leftOf(instance)))
	if len(gone) == 0 {
		return nil
	}
	b.Status.Clusters, b.Status.AddressClusters = lists.Without(b.Status.Clusters, gone), lists.Without(b.Status.AddressClusters, gone)
	return c.writeStatus(ctx, b)
}
