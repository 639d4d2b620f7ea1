package bindings

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// A binding of an instance on a pool has the credentials and endpoints of its inner binding: one of the instance that the
// pool has ordered for itself. What an inner binding gives and says to consumers names the pool instead of its clusters.

// poolOf returns the placement of a delivered instance on a pool; nil if it has none.
func poolOf(instance *v1alpha1.ServiceInstance) *v1alpha1.Placement {
	return placementWhere(instance, func(p *v1alpha1.Placement) bool { return p.Pool != nil })
}

// poolBinds returns the error for an inner binding that has no credentials yet. The watch of it comes before the pause ends.
func poolBinds() error {
	return &pendingError{"waiting for the pool to bind the instance", slowestRetry}
}

// poolFailedError reports that an inner bind has failed.
type poolFailedError struct{ description string }

func (e *poolFailedError) Error() string { return "the pool did not bind: " + e.description }

func (e *poolFailedError) public() string { return e.description }

// innerName returns the name of the inner binding of a binding on a pool.
func innerName(b *v1alpha1.ServiceBinding, pool string) string {
	return v1alpha1.BindingName(v1alpha1.PlatformSelf, v1alpha1.PoolInstanceID(pool, b.Spec.InstanceName), b.Name)
}

// isInnerOf reports whether a binding is the inner one of this outer one, and not of another one that had its name.
func isInnerOf(inner, outer *v1alpha1.ServiceBinding) bool {
	return inner.IsOfPool() && inner.Labels[v1alpha1.LabelBinding] == outer.Name && inner.Annotations[v1alpha1.AnnotationOwner] == string(v1alpha1.UIDOf(outer))
}

// orderedFor lists the outer binding of an inner one.
func orderedFor(_ context.Context, object client.Object) []reconcile.Request {
	b := object.(*v1alpha1.ServiceBinding)
	if !b.IsOfPool() {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: b.Namespace, Name: b.Labels[v1alpha1.LabelBinding]}}}
}

// takenAnew passes the changes of inner bindings that their outer ones follow.
var takenAnew = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*v1alpha1.ServiceBinding), e.ObjectNew.(*v1alpha1.ServiceBinding)
	var was, is v1alpha1.ServiceBindingStatus
	takeFrom(&was, before)
	takeFrom(&is, after)
	return finished(before) != finished(after) || !equality.Semantic.DeepEqual(was, is)
}}

// takeFrom puts into the status of an outer binding what it has of its inner one, besides the credentials. They are named by
// a digest of their sealed form, which differs each time that some are issued.
func takeFrom(outer *v1alpha1.ServiceBindingStatus, inner *v1alpha1.ServiceBinding) {
	from, sum := &inner.Status, sha256.Sum256(inner.Status.SealedCredentials)
	outer.Pool = &v1alpha1.BindingPool{Binding: inner.Name, Credentials: hex.EncodeToString(sum[:16])}
	outer.Endpoints, outer.EndpointsAbsent, outer.Services = from.Endpoints, from.EndpointsAbsent, from.Services
	outer.IssuedAt, outer.ExpiresAt, outer.RenewBefore = from.IssuedAt, from.ExpiresAt, from.RenewBefore
}

// isTaken reports whether the credentials of a binding are those of an inner binding.
func isTaken(b, inner *v1alpha1.ServiceBinding) bool {
	var is v1alpha1.ServiceBindingStatus
	takeFrom(&is, inner)
	return b.Status.Pool != nil && *b.Status.Pool == *is.Pool
}

// namePool puts the name of the inner binding into status, before that is created. It reports whether it is new.
func namePool(b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) bool {
	p := poolOf(instance)
	if p == nil || b.Status.Pool != nil && b.Status.Pool.Binding == innerName(b, p.Cluster) {
		return false
	}
	b.Status.Pool = &v1alpha1.BindingPool{Binding: innerName(b, p.Cluster)}
	return true
}

// bindPool creates the inner binding, and returns the credentials that it has. Until it has some, or others if they are to be
// renewed, the error is *pendingError; if it failed, *poolFailedError.
func (c *Controller) bindPool(ctx context.Context, b *v1alpha1.ServiceBinding, p *v1alpha1.Placement) ([]issued, error) {
	inner, err := c.innerOf(ctx, b, p)
	if err != nil {
		return nil, err
	}
	switch {
	case inner == nil:
		err = c.orderInner(ctx, b, p)
	case !isInnerOf(inner, b), !inner.DeletionTimestamp.IsZero():
		err = c.endInner(ctx, inner) // it is created once this one is gone
	case !finished(inner):
	case inner.Status.Operation.State == v1alpha1.StateFailed:
		err = c.failInner(ctx, b, inner)
	case b.RenewalAsked() && isTaken(b, inner):
		err = c.renewInner(ctx, inner)
	default:
		object, err := c.Keys.Unseal(inner.Status.SealedCredentials, sealedFor(inner))
		if err != nil {
			return nil, fmt.Errorf("unseal the credentials of binding %s: %w", inner.Name, err)
		}
		return []issued{*handedOn(p, object, func(status *v1alpha1.ServiceBindingStatus) { takeFrom(status, inner) })}, nil
	}
	return nil, cmp.Or(err, poolBinds())
}

// innerOf reads the binding with the name of the inner one; nil if there is none.
func (c *Controller) innerOf(ctx context.Context, b *v1alpha1.ServiceBinding, p *v1alpha1.Placement) (*v1alpha1.ServiceBinding, error) {
	inner := &v1alpha1.ServiceBinding{}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: innerName(b, p.Cluster)}, inner)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read binding %s: %w", innerName(b, p.Cluster), err)
	}
	return inner, nil
}

// orderInner creates the inner binding. It is idempotent: the cache may not show yet that there is one.
func (c *Controller) orderInner(ctx context.Context, b *v1alpha1.ServiceBinding, p *v1alpha1.Placement) error {
	inner := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: innerName(b, p.Cluster), Finalizers: []string{v1alpha1.Finalizer},
			Labels:      map[string]string{v1alpha1.LabelBinding: b.Name},
			Annotations: map[string]string{v1alpha1.AnnotationOwner: string(v1alpha1.UIDOf(b))},
		},
		Spec: *b.Spec.DeepCopy(),
	}
	inner.Spec.Platform, inner.Spec.InstanceName = v1alpha1.PlatformSelf, p.Pool.Instance
	inner.Spec.InstanceID, inner.Spec.BindingID = v1alpha1.PoolInstanceID(p.Cluster, b.Spec.InstanceName), b.Name
	if id := b.Spec.PredecessorBindingID; id != "" {
		inner.Spec.PredecessorBindingID = v1alpha1.BindingName(b.Spec.Platform, b.Spec.InstanceID, id)
	}
	if err := c.handParameters(b, inner); err != nil {
		return err
	}
	err := c.Client.Create(ctx, inner)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create binding %s: %w", inner.Name, err)
	}
	return nil
}

// handParameters gives an inner binding the parameters of its outer one, and seals those for it that are sealed there.
func (c *Controller) handParameters(b, inner *v1alpha1.ServiceBinding) error {
	if b.Spec.Parameters == nil {
		return nil
	}
	of := workload.BindingParametersOf(b, c.Keys)
	hidden, err := of.Hidden(b.Spec.Raw())
	if err != nil {
		return err
	}
	opened, err := of.Opened(b.Spec.Raw())
	if err != nil {
		return err
	}
	sealed, err := workload.BindingParametersOf(inner, c.Keys).Sealed(slices.Collect(maps.Keys(hidden)), opened)
	inner.Spec.Parameters = &runtime.RawExtension{Raw: sealed}
	return err
}

// failInner returns the error for an inner bind that has failed. If the outer binding has credentials of an earlier one, it
// keeps them, and the inner binding is created anew after a while.
func (c *Controller) failInner(ctx context.Context, b, inner *v1alpha1.ServiceBinding) error {
	if !finished(b) {
		return &poolFailedError{inner.Status.Operation.Description}
	}
	pending := &pendingError{poolBinds().Error(), slowestRetry - c.Clock.Since(inner.Status.Operation.FinishedAt.Time)}
	if pending.pause > 0 {
		return pending
	}
	return c.endInner(ctx, inner)
}

// renewInner asks for other credentials of an inner binding.
func (c *Controller) renewInner(ctx context.Context, inner *v1alpha1.ServiceBinding) error {
	if inner.RenewalAsked() {
		return nil
	}
	before := inner.DeepCopy()
	inner.AskRenewal()
	if err := c.Client.Patch(ctx, inner, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("ask for new credentials of binding %s: %w", inner.Name, err)
	}
	return nil
}

// endInner deletes an inner binding.
func (c *Controller) endInner(ctx context.Context, inner *v1alpha1.ServiceBinding) error {
	if !inner.DeletionTimestamp.IsZero() {
		return nil
	}
	return c.delete(ctx, inner)
}

// refreshPool takes over what has changed in the inner binding. If its credentials have changed, or it is gone, others are
// issued.
func (c *Controller) refreshPool(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance) (reconcile.Result, error) {
	inner, err := c.innerOf(ctx, b, poolOf(instance))
	if err != nil {
		return reconcile.Result{}, err
	}
	if inner == nil || !isInnerOf(inner, b) || !isTaken(b, inner) {
		return c.reissue(ctx, b, instance)
	}
	before := b.Status.DeepCopy()
	takeFrom(&b.Status, inner)
	if c.recordExpiry(b) || !equality.Semantic.DeepEqual(before, &b.Status) {
		if err := c.writeStatus(ctx, b); err != nil {
			return reconcile.Result{}, err
		}
	}
	return c.nextCheck(b, instance, findings{}), nil
}

// unbindPools deletes the inner bindings, on all pools that the instance has been on. It returns nil once they are gone, and
// *pendingError until then.
func (c *Controller) unbindPools(ctx context.Context, b *v1alpha1.ServiceBinding) error {
	if b.Status.Pool == nil {
		return nil
	}
	var list v1alpha1.ServiceBindingList
	if err := c.Client.List(ctx, &list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelBinding: b.Name}); err != nil {
		return fmt.Errorf("list the bindings on pools: %w", err)
	}
	if len(list.Items) == 0 { // the cache may not show yet that the last one was created
		var last v1alpha1.ServiceBinding
		err := c.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Status.Pool.Binding}, &last)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read binding %s: %w", b.Status.Pool.Binding, err)
		}
		list.Items = append(list.Items, last)
	}
	for i := range list.Items {
		if err := c.endInner(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return &pendingError{"waiting for the pool to unbind the instance", slowestRetry}
}

// isOrphaned reports whether a binding is an inner one whose outer one is gone, for instance because somebody has removed the
// finalizer of that. Nobody would delete it any more.
func (c *Controller) isOrphaned(ctx context.Context, b *v1alpha1.ServiceBinding) (bool, error) {
	if !b.IsOfPool() || !b.DeletionTimestamp.IsZero() {
		return false, nil
	}
	for _, from := range []client.Reader{c.Client, c.Live} {
		var outer v1alpha1.ServiceBinding
		err := from.Get(ctx, orderedFor(ctx, b)[0].NamespacedName, &outer)
		if err == nil && isInnerOf(b, &outer) {
			return false, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read binding %s: %w", outer.Name, err)
		}
	}
	return true, nil
}
