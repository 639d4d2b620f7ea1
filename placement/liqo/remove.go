package liqo

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Remove removes what was delivered: first the extension of the namespace, then the namespace,
// then the node, and last the peerings that no other instance needs. It returns nil only when
// all of them are gone. If the chosen cluster is gone, it deletes them without waiting.
func (d *Driver) Remove(ctx context.Context, delivery delivery.Delivery) error {
	// The delivery of a removal names only the cluster.
	known := false
	for _, p := range delivery.Instance.Status.Everywhere() {
		if p.Cluster == delivery.Placement.Cluster && p.Peering != nil {
			delivery.Placement, known = *p, true
			break
		}
	}
	if !known {
		return d.Namespaces.Remove(ctx, delivery)
	}
	r := d.route(delivery)
	if err := r.remove(ctx); err != nil {
		return fmt.Errorf("take %s from %s: %w", delivery.Placement.Cluster, r.Consumer, err)
	}
	return nil
}

func (r *route) remove(ctx context.Context) error {
	chosen, err := r.Namespaces.Connections.Present(ctx, r.Placement.Cluster)
	if err != nil {
		return err
	}
	r.gone = chosen == nil
	for _, step := range []func(context.Context) error{r.removeNamespace, r.removeNode, r.releaseAll} {
		if err := r.await(step(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// await returns the error of a removal, unless it is a wait and the chosen cluster is gone. Liqo (v1.2) keeps an object until
// its replica on the other cluster is deleted. If that cluster never answers again, the wait ends only when an operator runs
// `liqoctl force unpeer`.
func (r *route) await(err error) error {
	if r.gone && isPending(err) {
		return nil
	}
	return err
}

// removeNamespace removes the instance's namespace from the chosen cluster, the hub or the
// consumer's own cluster. On the latter two all of the instance's placements share it. It stays
// there until the last of them goes, and only extends to fewer clusters.
func (r *route) removeNamespace(ctx context.Context) error {
	if r.Node == "" {
		if r.gone {
			return nil
		}
		return r.Namespaces.Remove(ctx, r.Delivery)
	}
	if !extends(r.PlacementPeering) {
		return nil
	}
	on, err := openPresent(ctx, r.Namespaces.Connections, r.Namespaces.Hub, nodeHolder(r.PlacementPeering))
	if err != nil || on == nil {
		return err
	}
	t := tenant.Of(on.connection, r.Namespaces.Hub, r.Instance)
	standing, err := t.Standing(ctx)
	if err != nil || standing == tenant.Gone {
		return err
	}
	stays := r.Instance.DeletionTimestamp.IsZero() && len(r.others(r.Instance.Status.InForce())) > 0
	switch {
	case stays && standing == tenant.Held: // no need to wait: Liqo drains the node that is removed
		return r.extendTo(ctx, on, t, r.others(r.Instance.Status.Everywhere()))
	case stays: // the remaining placements create it anew
		return nil
	case standing == tenant.Held:
		if err := r.await(on.withdraw(ctx, t)); err != nil {
			return err
		}
	}
	return t.Remove(ctx)
}

// removeNode deletes the virtual node, if there is one. It needs the provider's identity from the Peering;
// without it there is no node.
func (r *route) removeNode(ctx context.Context) error {
	if r.Node == "" {
		return nil
	}
	on, err := openPresent(ctx, r.Namespaces.Connections, r.Namespaces.Hub, r.peerings[0].consumer)
	if err != nil || on == nil {
		return err
	}
	peering, err := r.read(ctx, r.Live, r.peerings[0])
	if apierrors.IsNotFound(err) || err == nil && peering.Status.Provider == nil {
		return nil
	}
	if err != nil {
		return err
	}
	on.own, on.remote = *peering.Status.Consumer, *peering.Status.Provider
	standing, err := on.standing(ctx)
	switch {
	case err != nil || standing == tenant.Gone:
		return err
	case standing == tenant.Ending:
		return on.pending("delete namespace "+on.namespace(), "")
	}
	return on.removeNode(ctx, r.Node)
}

// releaseAll deletes the peerings that no other instance needs.
func (r *route) releaseAll(ctx context.Context) error {
	var failures []error
	for _, l := range r.peerings {
		failures = append(failures, r.release(ctx, l))
	}
	return first(failures...)
}

// release deletes a peering that no other instance needs, and waits until it is gone. An
// instance that needs it in the meantime creates it anew. While removals are held it leaves the peering to Peerings.
func (r *route) release(ctx context.Context, l leg) error {
	peering, err := r.read(ctx, r.Live, l)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if peering.DeletionTimestamp.IsZero() {
		needed, err := r.neededByOthers(ctx, l)
		if err != nil || needed || peering.Spec.Kept || isHeld(ctx, r.Hold) {
			return err
		}
		err = r.Client.Delete(ctx, peering, client.Preconditions{UID: &peering.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete peering %s: %w", peering.Name, err)
		}
	}
	return &delivery.PendingError{
		Step:   fmt.Sprintf("end the peering of %s with %s", l.consumer, l.provider),
		Detail: why(meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)), Every: often,
	}
}

// neededByOthers reports whether another placement, of this instance or another, needs the
// peering.
func (r *route) neededByOthers(ctx context.Context, l leg) (bool, error) {
	var instances v1alpha1.ServiceInstanceList
	// The instances are only read, so they are not copied: that would cost more than all the
	// rest.
	err := r.Client.List(ctx, &instances, client.InNamespace(r.Namespaces.Connections.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("list service instances: %w", err)
	}
	for i := range instances.Items {
		instance := &instances.Items[i]
		same := instance.Name == r.Instance.Name
		if same && !r.Instance.DeletionTimestamp.IsZero() {
			continue
		}
		but := ""
		if same {
			but = r.Placement.Cluster
		}
		if takes(instance, but, l.consumer, l.provider) {
			return true, nil
		}
	}
	return false, nil
}
