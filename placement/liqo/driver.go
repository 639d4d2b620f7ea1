package liqo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Driver delivers instances over peerings. It keeps no state and is safe for concurrent use. A
// placement without a peering is delivered by kube.Driver.
type Driver struct {
	// Namespaces delivers the namespaces of instances.
	Namespaces *kube.Driver
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Live reads the hub without a cache.
	Live client.Reader
	// Selectable labels are copied to virtual nodes.
	Selectable Selectable
	// Hold has the meaning of Peerings.Hold.
	Hold func(context.Context) error
}

var _ delivery.Driver = (*Driver)(nil)

// route is the way from the consumer's own cluster to the chosen cluster of one placement.
type route struct {
	*Driver
	delivery.Delivery
	*v1alpha1.PlacementPeering
	peerings []leg
	// gone is true if nothing can be removed from the chosen cluster any more. It is set for removals only.
	gone bool
}

// leg is one peering of a route.
type leg struct {
	consumer, provider string
	modules            []v1alpha1.LiqoModule
}

func (d *Driver) route(delivery delivery.Delivery) *route {
	return &route{Driver: d, Delivery: delivery, PlacementPeering: delivery.Placement.Peering, peerings: legs(&delivery.Placement)}
}

// legs returns the peerings of a placement, the one with the chosen cluster first.
func legs(p *v1alpha1.Placement) []leg {
	all := []leg{{nodeHolder(p.Peering), p.Cluster, v1alpha1.ModulesFor(p.Peering.Node != "")}}
	if p.Peering.Hub != "" {
		all = append(all, leg{p.Peering.Consumer, p.Peering.Hub, v1alpha1.ModulesFor(false)})
	}
	return all
}

// Takes reports whether an instance needs the peering of two member clusters.
func Takes(instance *v1alpha1.ServiceInstance, consumer, provider string) bool {
	return takes(instance, "", consumer, provider)
}

// takes is Takes, except for the placement on one cluster.
func takes(instance *v1alpha1.ServiceInstance, but, consumer, provider string) bool {
	return slices.ContainsFunc(instance.Status.Everywhere(), func(p *v1alpha1.Placement) bool {
		return links(p, consumer, provider) || p.Peering != nil && p.Cluster != but && slices.ContainsFunc(legs(p), func(l leg) bool {
			return l.consumer == consumer && l.provider == provider
		})
	})
}

// Deliver peers the clusters as the placement says and, if it has a node, gives the consumer's
// cluster or the hub a virtual node with the reserved resources. It is idempotent, and returns
// *delivery.PendingError while Liqo is not done.
func (d *Driver) Deliver(ctx context.Context, delivery delivery.Delivery) error {
	if delivery.Placement.Peering == nil {
		return d.deliverLinked(ctx, delivery)
	}
	r := d.route(delivery)
	if err := r.deliver(ctx); err != nil {
		return fmt.Errorf("deliver %s to %s: %w", delivery.Placement.Cluster, r.Consumer, err)
	}
	return nil
}

func (r *route) deliver(ctx context.Context) error {
	// All at once: the peering with the hub need not wait for the one behind it.
	var failures []error
	for _, l := range r.peerings {
		failures = append(failures, r.ensurePeering(ctx, l))
	}
	if err := first(failures...); err != nil {
		return err
	}
	if r.Node != "" {
		on, provider, err := r.sides(ctx, r.peerings[0])
		if err != nil {
			return err
		}
		if len(r.Placement.Workloads) > 0 { // for the namespaces that are there, before the node is
			if err := provider.isolate(ctx, r.isolation()); err != nil {
				return err
			}
		}
		if err := ensureNode(ctx, on, provider, r.Delivery, r.Selectable.of(r.Instance)); err != nil {
			return err
		}
		if !extends(r.PlacementPeering) {
			return nil
		}
		t := tenant.Of(on.connection, r.Namespaces.Hub, r.Instance)
		if r.Hub == "" {
			_, err = t.Ensure(ctx)
		} else {
			err = r.Namespaces.Deliver(ctx, r.onHub())
		}
		if err != nil {
			return err
		}
		if err := r.extend(ctx, on, t); err != nil {
			return err
		}
		return provider.isolate(ctx, r.isolation())
	}
	_, provider, err := r.sides(ctx, r.peerings[0])
	if err != nil {
		return err
	}
	if r.Workload.Runs() { // it says itself what the other cluster's pods reach
		open, err := provider.openTo(ctx, r.Delivery)
		if err != nil {
			return err
		}
		return r.deliverLinked(ctx, open)
	}
	if err := r.Namespaces.Deliver(ctx, r.Delivery); err != nil {
		return err
	}
	return provider.letIn(ctx, tenant.Of(provider.connection, r.Namespaces.Hub, r.Instance))
}

// onHub returns the delivery of the instance's namespace on the hub, with the sum of the
// reservations on all clusters behind it.
func (r *route) onHub() delivery.Delivery {
	sum := corev1.ResourceList{}
	for _, p := range r.Instance.Status.Latest() {
		if p.Peering != nil && p.Peering.Hub == r.Hub {
			for name, quantity := range p.Reserved {
				total := sum[name]
				total.Add(quantity)
				sum[name] = total
			}
		}
	}
	return delivery.Delivery{Instance: r.Instance, Placement: v1alpha1.Placement{Cluster: r.Hub, Reserved: sum}}
}

// first returns the first error that is not just a wait (*delivery.PendingError); if there is
// none, the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if pending := (*delivery.PendingError)(nil); err != nil && !errors.As(err, &pending) {
			return err
		}
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// isPending reports whether an error is only that something must be waited for.
func isPending(err error) bool { return errors.As(err, new(*delivery.PendingError)) }

// ensurePeering creates the Peering of a leg and returns nil once it is ready.
func (d *Driver) ensurePeering(ctx context.Context, l leg) error {
	peering := &v1alpha1.Peering{}
	key := client.ObjectKey{Namespace: d.Namespaces.Connections.Namespace, Name: v1alpha1.PeeringName(l.consumer, l.provider)}
	err := d.Live.Get(ctx, key, peering)
	waits := &delivery.PendingError{Step: fmt.Sprintf("peer %s with %s", l.consumer, l.provider), Every: often}
	switch {
	case apierrors.IsNotFound(err):
		peering.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Finalizers: []string{v1alpha1.Finalizer}}
		peering.Spec = v1alpha1.PeeringSpec{Consumer: l.consumer, Provider: l.provider, Modules: l.modules}
		err := d.Client.Create(ctx, peering)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create peering %s: %w", key.Name, err)
		}
		return waits
	case err != nil:
		return fmt.Errorf("read peering %s: %w", key.Name, err)
	case !peering.DeletionTimestamp.IsZero():
		waits.Detail = "the previous peering is still being removed"
		return waits
	}
	lacking := slices.DeleteFunc(slices.Clone(l.modules), func(m v1alpha1.LiqoModule) bool { return slices.Contains(peering.Spec.Modules, m) })
	if len(lacking) > 0 {
		peering.Spec.Modules = append(peering.Spec.Modules, lacking...)
		if err := d.Client.Update(ctx, peering); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("add modules to peering %s: %w", key.Name, err)
		}
		return waits
	}
	ready := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil || ready.ObservedGeneration != peering.Generation:
		return waits
	case IsRefused(peering):
		return &delivery.RefusedError{Reason: fmt.Sprintf("%s cannot be peered with %s: %s", l.consumer, l.provider, ready.Message)}
	case ready.Status != metav1.ConditionTrue:
		waits.Detail = ready.Message
		return waits
	}
	return nil
}

// read returns the Peering of a leg.
func (d *Driver) read(ctx context.Context, hub client.Reader, l leg) (*v1alpha1.Peering, error) {
	peering := &v1alpha1.Peering{}
	key := client.ObjectKey{Namespace: d.Namespaces.Connections.Namespace, Name: v1alpha1.PeeringName(l.consumer, l.provider)}
	if err := hub.Get(ctx, key, peering); err != nil {
		return nil, fmt.Errorf("read peering %s: %w", key.Name, err)
	}
	return peering, nil
}

// sides returns the two clusters of a leg, whose Liqo identities are known.
func (d *Driver) sides(ctx context.Context, l leg) (consumer, provider *side, err error) {
	peering, err := d.read(ctx, d.Live, l)
	if err != nil {
		return nil, nil, err
	}
	if peering.Status.Consumer == nil || peering.Status.Provider == nil {
		return nil, nil, &delivery.PendingError{Step: fmt.Sprintf("peer %s with %s", l.consumer, l.provider), Every: often}
	}
	if consumer, err = open(ctx, d.Namespaces.Connections, d.Namespaces.Hub, l.consumer); err != nil {
		return nil, nil, err
	}
	if provider, err = open(ctx, d.Namespaces.Connections, d.Namespaces.Hub, l.provider); err != nil {
		return nil, nil, err
	}
	consumer.own, consumer.remote = *peering.Status.Consumer, *peering.Status.Provider
	provider.own, provider.remote = consumer.remote, consumer.own
	consumer.remoteCluster, provider.remoteCluster = l.provider, l.consumer
	return consumer, provider, nil
}

// Observe returns nil while everything is as it was delivered. It writes nothing.
func (d *Driver) Observe(ctx context.Context, delivery delivery.Delivery) error {
	if delivery.Placement.Peering == nil {
		return d.observeLinked(ctx, delivery)
	}
	r := d.route(delivery)
	for _, l := range r.peerings {
		if err := d.isPeered(ctx, l); err != nil {
			return err
		}
	}
	on, provider, err := r.sides(ctx, r.peerings[0])
	if err != nil {
		return err
	}
	if r.Node == "" && r.Workload.Runs() {
		open, err := provider.openTo(ctx, delivery)
		if err != nil {
			return err
		}
		return d.observeLinked(ctx, open)
	}
	if r.Node == "" {
		t := tenant.Of(provider.connection, d.Namespaces.Hub, r.Instance)
		opening, err := provider.opening(ctx, t)
		if err != nil {
			return err
		}
		return errors.Join(d.Namespaces.Observe(ctx, delivery), provider.compare(ctx, t, opening))
	}
	if err := on.hasNode(ctx, r.Node, sliceOf(r.Placement.Reserved)); err != nil {
		return err
	}
	if r.Hub != "" {
		if err := d.Namespaces.Observe(ctx, r.onHub()); err != nil {
			return err
		}
	}
	if !extends(r.PlacementPeering) {
		return nil
	}
	return r.observeExtension(ctx, on, tenant.Of(on.connection, d.Namespaces.Hub, r.Instance))
}

func why(c *metav1.Condition) string {
	if c == nil {
		return "not read by the controller yet"
	}
	return c.Message
}
