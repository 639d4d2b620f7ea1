package pool

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Driver orders instances for pools. It keeps no state and is safe for concurrent use.
type Driver struct {
	// Client of the hub; its reads may come from a cache, whose age a write finds out.
	Client client.Client
	// Live reads the hub without a cache.
	Live client.Reader
}

var _ delivery.Driver = (*Driver)(nil)

// usualPause is the longest time between two looks at the pool's order, whose changes wake the consumer's instance earlier.
const usualPause = 30 * time.Second

// order by which a pool carries out one instance of a consumer.
type order struct {
	*Driver
	pool     string
	instance *v1alpha1.ServiceInstance
	key      client.ObjectKey
}

func (d *Driver) order(of delivery.Delivery) *order {
	pool := of.Placement.Cluster
	return &order{d, pool, of.Instance, client.ObjectKey{Namespace: of.Instance.Namespace, Name: v1alpha1.PoolInstanceName(pool, of.Instance.Name)}}
}

// Deliver orders the instance for the pool, or changes it to what the delivery says, and returns nil once it is delivered
// on members of the pool. Until then it returns *delivery.PendingError. It is refused if the members have no room, or if the
// pool's own order has failed.
func (d *Driver) Deliver(ctx context.Context, of delivery.Delivery) error {
	o := d.order(of)
	placed, err := o.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return o.create(ctx, of.State)
	case err != nil:
		return err
	case !placed.DeletionTimestamp.IsZero() || !o.isOf(placed):
		return o.remove(ctx, placed)
	case !equality.Semantic.DeepEqual(placed.Spec.Desired, *of.State):
		return o.change(ctx, placed, of.State)
	}
	return o.progress(placed)
}

// Observe returns nil while the pool has the order as the delivery says, and it is delivered.
func (d *Driver) Observe(ctx context.Context, of delivery.Delivery) error {
	o := d.order(of)
	placed, err := o.read(ctx)
	switch {
	case err != nil:
		return err
	case !placed.DeletionTimestamp.IsZero() || !o.isOf(placed) || !equality.Semantic.DeepEqual(placed.Spec.Desired, *of.State):
		return fmt.Errorf("pool %s: its order %s is not that of instance %s", o.pool, placed.Name, o.instance.Name)
	}
	return o.progress(placed)
}

// Remove deletes the pool's order, and returns nil once it is gone, and with it what is on the members. The hub is asked
// without a cache, which may not have heard of an order yet.
func (d *Driver) Remove(ctx context.Context, of delivery.Delivery) error {
	o := d.order(of)
	placed := &v1alpha1.ServiceInstance{}
	err := o.Live.Get(ctx, o.key, placed)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return o.failed("read its order", err)
	}
	return o.remove(ctx, placed)
}

func (o *order) read(ctx context.Context) (*v1alpha1.ServiceInstance, error) {
	placed := &v1alpha1.ServiceInstance{}
	err := o.Client.Get(ctx, o.key, placed)
	if apierrors.IsNotFound(err) {
		err = o.Live.Get(ctx, o.key, placed)
	}
	if err != nil {
		return nil, o.failed("read its order", err)
	}
	return placed, nil
}

// isOf reports whether the pool's order is for this instance, and not for one of the same name that is gone.
func (o *order) isOf(placed *v1alpha1.ServiceInstance) bool {
	return placed.Spec.Pool != nil && placed.Spec.Pool.InstanceUID == v1alpha1.UIDOf(o.instance)
}

func (o *order) create(ctx context.Context, state *v1alpha1.InstanceState) error {
	placed := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.key.Namespace, Name: o.key.Name, Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: v1alpha1.PlatformSelf, InstanceID: v1alpha1.PoolInstanceID(o.pool, o.instance.Name), ServiceID: o.instance.Spec.ServiceID,
			Desired: *state.DeepCopy(),
			Pool: &v1alpha1.PoolOrder{
				Pool: o.pool, Instance: o.instance.Name, InstanceUID: v1alpha1.UIDOf(o.instance), Platform: o.instance.Spec.Platform,
				OrganizationGUID: o.instance.Spec.OrganizationGUID, SpaceGUID: o.instance.Spec.SpaceGUID,
			},
		},
	}
	if err := o.Client.Create(ctx, placed); err != nil && !apierrors.IsAlreadyExists(err) {
		return o.failed("order from its members", err)
	}
	return o.waits("order from its members", "")
}

// change makes the pool's order that of another state of the instance.
func (o *order) change(ctx context.Context, placed *v1alpha1.ServiceInstance, state *v1alpha1.InstanceState) error {
	placed = placed.DeepCopy()
	placed.Spec.Desired = *state.DeepCopy()
	if err := o.Client.Update(ctx, placed); err != nil { // a conflict, if it was read before another write
		return o.failed("change its order", err)
	}
	return o.waits("change its order", "")
}

// remove deletes the pool's order, and waits until it is gone.
func (o *order) remove(ctx context.Context, placed *v1alpha1.ServiceInstance) error {
	if placed.DeletionTimestamp.IsZero() {
		err := o.Client.Delete(ctx, placed, client.Preconditions{UID: &placed.UID})
		if client.IgnoreNotFound(err) != nil {
			return o.failed("delete its order", err)
		}
	}
	told := ""
	if operation := placed.Status.Operation; operation != nil && operation.Type == v1alpha1.OperationDeprovision {
		told = operation.Summary
	}
	return o.waits("delete its order", told)
}

// progress returns how far the pool's order is.
func (o *order) progress(placed *v1alpha1.ServiceInstance) error {
	operation := placed.Status.Operation
	if operation == nil || operation.Generation != placed.Generation {
		return o.waits("place its order on its members", "")
	}
	switch operation.State {
	case v1alpha1.StateSucceeded:
		return o.works(placed)
	case v1alpha1.StateFailed:
		return o.refused(operation)
	}
	waits := meta.FindStatusCondition(placed.Status.Conditions, v1alpha1.ConditionPlaced)
	if placed.Status.Delivered == nil && waits != nil && waits.Status == metav1.ConditionFalse && waits.Reason == v1alpha1.ReasonUnplaceable {
		return o.refused(operation) // another pool may have room
	}
	return o.waits("deliver its order", operation.Summary)
}

// works returns why the pool's order does not work, although it was delivered; nil if it works.
func (o *order) works(placed *v1alpha1.ServiceInstance) error {
	ready := meta.FindStatusCondition(placed.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return nil
	}
	return o.waits("keep its order on its members", "")
}

// What the pool's order says to consumers names no cluster, and is passed on. What it says to operators is not: it would be
// in events of the consumer's instance, which go to its platform. Operators read it where it is.

func (o *order) waits(step, told string) error {
	return &delivery.PendingError{Step: fmt.Sprintf("pool %s: %s", o.pool, step), Detail: o.pointer(), Consumer: told, Every: usualPause}
}

func (o *order) pointer() string { return "its order is the instance " + o.key.Name }

// refused returns the error for an order that the pool does not carry out.
func (o *order) refused(operation *v1alpha1.Operation) error {
	return &delivery.RefusedError{
		Reason: fmt.Sprintf("pool %s: %s", o.pool, cmp.Or(operation.Summary, "it gives no reason")), Consumer: operation.Summary,
		Remedy:     "see to the members of the pool, or order elsewhere; " + o.pointer(),
		Repeatable: operation.UpdateRepeatable == nil || *operation.UpdateRepeatable,
		Unusable:   operation.InstanceUsable != nil && !*operation.InstanceUsable,
	}
}

func (o *order) failed(step string, err error) error {
	if apierrors.IsNotFound(err) {
		return err
	}
	if apierrors.IsConflict(err) {
		return o.waits(step, "")
	}
	return fmt.Errorf("pool %s: %s: %w", o.pool, step, err)
}
