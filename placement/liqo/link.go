package liqo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/overlay"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Components of a workload on different clusters reach each other if they are linked: the two clusters
// are peered, without virtual nodes; the Service of each such component gets an address of Liqo on its
// cluster; and the other cluster has a Service of the same name that leads there.

// links reports whether components of a placement are linked to a cluster, whichever of the two
// clusters consumes in the peering.
func links(p *v1alpha1.Placement, consumer, provider string) bool {
	return slices.ContainsFunc(p.Linked, func(l v1alpha1.LinkedCluster) bool {
		return p.Cluster == consumer && l.Cluster == provider || p.Cluster == provider && l.Cluster == consumer
	})
}

// deliverLinked delivers a placement without the consumer's own cluster, and links its components.
//
// A Service here needs no address there before it can have one of its own. So everything is delivered first
// except pods, which start when all names lead where they have to. Until then nothing is deleted, so that names
// lead where they led before.
func (d *Driver) deliverLinked(ctx context.Context, one delivery.Delivery) error {
	if one.Workload == nil || one.Workload.Share == nil {
		return d.Namespaces.Deliver(ctx, one)
	}
	waits, err := d.link(ctx, one, d.ensurePeering)
	if err != nil {
		return fmt.Errorf("link components on %s: %w", one.Placement.Cluster, err)
	}
	one.Preparing = waits != nil
	delivered := d.Namespaces.Deliver(ctx, one)
	if delivered != nil && !isPending(delivered) {
		return delivered
	}
	return first(d.publish(ctx, one), waits, delivered)
}

// observeLinked is Observe for such a placement.
func (d *Driver) observeLinked(ctx context.Context, one delivery.Delivery) error {
	if one.Workload == nil || one.Workload.Share == nil {
		return d.Namespaces.Observe(ctx, one)
	}
	waits, err := d.link(ctx, one, d.isPeered)
	if err := first(err, waits); err != nil {
		return err
	}
	return d.Namespaces.Observe(ctx, one)
}

// isPeered returns an error if the peering of a leg is not ready. It writes nothing.
func (d *Driver) isPeered(ctx context.Context, l leg) error {
	peering, err := d.read(ctx, d.Client, l)
	if err != nil {
		return err
	}
	if ready := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
		return fmt.Errorf("%s and %s are not peered: %s", l.consumer, l.provider, why(ready))
	}
	return nil
}

// link completes the share of a workload with addresses on other clusters: those of the components
// there, and those from which they call. waits names an address to which a name has to lead and that cannot be
// used yet; the share can be delivered without it. After err it must not be delivered.
func (d *Driver) link(ctx context.Context, one delivery.Delivery, peered func(context.Context, leg) error) (waits, err error) {
	share := one.Workload.Share
	missing := map[string]error{} // where names of components have to lead
	for _, linked := range one.Placement.Linked {
		l, err := d.between(ctx, one.Placement.Cluster, linked.Cluster)
		if err != nil {
			return nil, err
		}
		if err := peered(ctx, l); err != nil {
			return nil, err
		}
		here, there, err := d.sides(ctx, l)
		if err != nil {
			return nil, err
		}
		if l.consumer != one.Placement.Cluster {
			here, there = there, here
		}
		ranges, err := here.mappedRanges(ctx)
		if err != nil {
			return nil, err
		}
		for _, link := range linked.Links {
			share.Callers[link.Here] = lists.Sorted(share.Callers[link.Here], ranges)
			service := serviceOf(one, link.There)
			if service == "" {
				continue
			}
			address, err := d.addressOf(ctx, tenant.Of(there.connection, d.Namespaces.Hub, one.Instance), here, there, link.There, service)
			if err != nil && !isPending(err) {
				return nil, err
			}
			missing[link.There] = err
			if err == nil {
				remote := share.Elsewhere[link.There]
				remote.Addresses = append(lists.Without(remote.Addresses, []string{address}), address)
				share.Elsewhere[link.There] = remote
			}
		}
	}
	for _, there := range slices.Sorted(maps.Keys(missing)) {
		// A component that is being replaced may be gone from its former cluster: its name then leads to where it also runs.
		alsoRuns := share.Runs(there) || one.Replacing && len(share.Elsewhere[there].Addresses) > 0
		if !alsoRuns {
			waits = first(waits, missing[there])
		}
	}
	return waits, nil
}

// serviceOf returns the name of a component's Service; empty if it has no ports that others may reach.
func serviceOf(one delivery.Delivery, component string) string {
	for i := range one.Workload.Plan.Components {
		c := &one.Workload.Plan.Components[i]
		if c.Name == component && slices.ContainsFunc(c.Ports, func(p v1alpha1.WorkloadPort) bool { return p.Reach != v1alpha1.ReachComponent }) {
			return c.ServiceName()
		}
	}
	return ""
}

// between returns the peering of two clusters: the existing one in either direction, or a new one.
func (d *Driver) between(ctx context.Context, a, b string) (leg, error) {
	l := leg{consumer: min(a, b), provider: max(a, b), modules: v1alpha1.ModulesFor(false)}
	reverse := leg{consumer: l.provider, provider: l.consumer, modules: l.modules}
	for _, known := range []leg{l, reverse} {
		peering, err := d.read(ctx, d.Live, known)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return leg{}, err
		case peering.DeletionTimestamp.IsZero():
			return known, nil
		}
	}
	return l, nil
}

// A link's address is an IP resource of Liqo in the instance's namespace, which leads to the Service of
// a component. It is deleted with the namespace, or when no component is linked to this one any more.

// addressName returns the name of the address of a Service with a cluster IP. Another cluster IP gets
// another address, because Liqo cannot change the target of one.
func addressName(service, clusterIP string) string {
	sum := sha256.Sum256([]byte(service + "/" + clusterIP))
	return "link-" + hex.EncodeToString(sum[:8])
}

// addressOf returns the address at which the Service of a component on the other cluster is reached from here, once
// connections from here are let in there.
func (d *Driver) addressOf(ctx context.Context, t *tenant.Tenant, here, there *side, component, service string) (string, error) {
	waits := there.pending("address of Service "+service, "Liqo has given it none yet")
	var found corev1.Service
	err := there.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: service}, &found)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // Sluice's rights there come with the namespace
		return "", waits
	}
	if err != nil {
		return "", there.failed(fmt.Errorf("read Service %s: %w", service, err))
	}
	known, err := names.Addresses(ctx, there.Client, client.InNamespace(t.Namespace), client.MatchingLabels(t.Labels()))
	if err != nil {
		return "", there.failed(fmt.Errorf("list addresses: %w", err))
	}
	at := slices.IndexFunc(known, func(a names.Address) bool {
		return a.Name == addressName(service, found.Spec.ClusterIP) && a.Target() == found.Spec.ClusterIP && !a.IsLeaving() && a.Given() != ""
	})
	if at < 0 {
		return "", waits
	}
	_, addresses, chosen, err := names.RemoteRanges(ctx, here.Client, here.remote.ClusterID)
	if err != nil {
		return "", here.failed(fmt.Errorf("read how it sees %s: %w", there.cluster.Name, err))
	}
	if !chosen {
		return "", here.pending("Configuration "+here.remote.ClusterID, "Liqo has not mapped its address ranges yet")
	}
	external, err := overlay.New(addresses.Own, addresses.Seen)
	if err != nil {
		return "", here.failed(err)
	}
	if err := there.letsIn(ctx, t, component); err != nil {
		return "", err
	}
	given, err := netip.ParseAddr(known[at].Given())
	if err != nil {
		return "", there.failed(fmt.Errorf("the address of Service %s: %w", service, err))
	}
	seen, err := external.Map(given)
	if err != nil {
		return "", here.failed(fmt.Errorf("the address of Service %s on %s: %w", service, there.cluster.Name, err))
	}
	return seen.String(), nil
}

// letsIn returns nil if a component on this side lets in the other cluster's addresses. Its own delivery makes that so.
func (s *side) letsIn(ctx context.Context, t *tenant.Tenant, component string) error {
	callers, err := s.mappedRanges(ctx)
	if err != nil {
		return err
	}
	var policy networkingv1.NetworkPolicy
	err = s.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: component}, &policy)
	if client.IgnoreNotFound(err) != nil {
		return s.failed(fmt.Errorf("read NetworkPolicy %s: %w", component, err))
	}
	var open []string
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.IPBlock != nil {
				open = append(open, from.IPBlock.CIDR)
			}
		}
	}
	if len(lists.Without(callers, open)) > 0 {
		return s.pending("NetworkPolicy "+component, "it does not let in "+s.remote.ClusterID+" yet")
	}
	return nil
}

// publish makes the addresses on the cluster of a placement match its linked components.
func (d *Driver) publish(ctx context.Context, one delivery.Delivery) error {
	on, err := open(ctx, d.Namespaces.Connections, d.Namespaces.Hub, one.Placement.Cluster)
	if err != nil {
		return err
	}
	t := tenant.Of(on.connection, d.Namespaces.Hub, one.Instance)
	wanted := map[string]names.Address{}
	for _, linked := range one.Placement.Linked {
		for _, link := range linked.Links {
			service := serviceOf(one, link.Here)
			if service == "" {
				continue
			}
			var found corev1.Service
			err := on.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: service}, &found)
			if apierrors.IsNotFound(err) {
				continue // it is not delivered yet
			}
			if err != nil {
				return on.failed(fmt.Errorf("read Service %s: %w", service, err))
			}
			if ip := found.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
				labels := t.Labels()
				labels[v1alpha1.LabelComponent] = link.Here
				name := addressName(service, ip)
				wanted[name] = names.NewAddress(metav1.ObjectMeta{Namespace: t.Namespace, Name: name, Labels: labels}, ip)
			}
		}
	}
	known, err := names.Addresses(ctx, on.Client, client.InNamespace(t.Namespace), client.MatchingLabels(t.Labels()), client.HasLabels{v1alpha1.LabelComponent})
	if err != nil {
		return on.failed(fmt.Errorf("list addresses: %w", err))
	}
	for _, a := range known {
		if _, keep := wanted[a.Name]; keep {
			delete(wanted, a.Name)
			continue
		}
		if err := on.Delete(ctx, a.IP); client.IgnoreNotFound(err) != nil {
			return on.failed(fmt.Errorf("delete the address %s: %w", a.Name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		err := on.Create(ctx, wanted[name].IP, client.FieldOwner(v1alpha1.FieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return on.failed(fmt.Errorf("create the address %s: %w", name, err))
		}
	}
	return nil
}
