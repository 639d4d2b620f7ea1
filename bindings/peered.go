package bindings

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/overlay"
)

// leg is one hop between two peered clusters; near consumes what far provides.
type leg struct{ near, far string }

func (l leg) String() string { return l.near + "→" + l.far }

// verdict is the result of verifying a leg.
type verdict struct {
	peering *v1alpha1.Peering
	err     error
}

// verify returns a leg's peering if it is in force and its gateways are connected on both
// sides. It asks once for each lookup.
func (l *lookup) verify(ctx context.Context, on leg) (*v1alpha1.Peering, error) {
	if known, ok := l.legs[on]; ok {
		return known.peering, known.err
	}
	peering, err := l.peering(ctx, on)
	if err != nil {
		l.unpeered = true
	} else {
		err = l.connected(ctx, on, on.near, peering.Status.Provider.ClusterID)
		if err == nil {
			err = l.connected(ctx, on, on.far, peering.Status.Consumer.ClusterID)
		}
	}
	l.legs[on] = verdict{peering, err}
	return peering, err
}

// peering reads a leg's Peering from the hub.
func (l *lookup) peering(ctx context.Context, on leg) (*v1alpha1.Peering, error) {
	var peering v1alpha1.Peering
	err := l.Client.Get(ctx, client.ObjectKey{Namespace: l.binding.Namespace, Name: v1alpha1.PeeringName(on.near, on.far)}, &peering)
	if apierrors.IsNotFound(err) {
		return nil, absent("%s: they are not peered", on)
	}
	if err != nil {
		return nil, fmt.Errorf("read the peering %s: %w", on, err)
	}
	status := &peering.Status
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	switch {
	case !peering.DeletionTimestamp.IsZero():
		return nil, absent("%s: the peering ends", on)
	case condition == nil || condition.ObservedGeneration != peering.Generation:
		return nil, absent("%s: the peering is not ready yet", on)
	case condition.Status != metav1.ConditionTrue && (condition.Reason == v1alpha1.ReasonInProgress || condition.Reason == v1alpha1.ReasonRefused):
		return nil, absent("%s: the peering is not ready: %s", on, condition.Message)
	case condition.Status != metav1.ConditionTrue: // the message of another organisation's API server
		return nil, absent("%s: the peering is not ready", on)
	case status.Consumer == nil || status.Provider == nil:
		return nil, absent("%s: the peering does not contain the clusters' Liqo IDs yet", on)
	}
	return &peering, nil
}

// connected verifies that the gateway of one side is connected to the other side.
func (l *lookup) connected(ctx context.Context, on leg, side, remoteID string) error {
	c, err := l.member(ctx, side)
	if err != nil {
		return err
	}
	state, err := liqo.Connection(ctx, c, remoteID)
	switch {
	case err != nil:
		return &unreadError{cluster: side, what: "gateway connections", err: err}
	case state == "":
		return absent("%s: there is no gateway connection on %s", on, side)
	case state != liqo.Connected:
		return absent("%s: the gateway connection is %s instead of %s, on %s", on, state, liqo.Connected, side)
	}
	return nil
}

// view holds the address ranges of a leg's far cluster as the near one sees them.
type view struct {
	leg
	pods, external overlay.Ranges
}

// view verifies a leg and reads its address ranges.
func (l *lookup) view(ctx context.Context, on leg) (*view, error) {
	peering, err := l.verify(ctx, on)
	if err != nil {
		return nil, err
	}
	near, err := l.member(ctx, on.near)
	if err != nil {
		return nil, err
	}
	pods, addresses, chosen, err := liqo.RemoteRanges(ctx, near, peering.Status.Provider.ClusterID)
	if apierrors.IsNotFound(err) {
		return nil, absent("%s: there is no network configuration on %s", on, on.near)
	}
	if err != nil {
		return nil, &unreadError{cluster: on.near, what: "the network configuration", err: err}
	}
	unfinished := absent("%s: %s has not chosen the address ranges that stand for %s yet", on, on.near, on.far)
	if !chosen {
		return nil, unfinished
	}
	v := &view{leg: on}
	if v.pods, err = overlay.New(pods.Own, pods.Seen); err != nil {
		return nil, unfinished
	}
	if v.external, err = overlay.New(addresses.Own, addresses.Seen); err != nil {
		return nil, unfinished
	}
	return v, nil
}

// mapped returns the address at which the near cluster reaches an address of the far one.
func (v *view) mapped(ranges overlay.Ranges, address string) (string, error) {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return "", absent("%s: %s has an invalid address: %q", v.leg, v.far, address)
	}
	seen, err := ranges.Map(at)
	if err != nil {
		return "", absent("%s: %s", v.leg, err)
	}
	return seen.String(), nil
}

// direct finds the Services and pods of an instance's namespace on a cluster that is peered
// with the consumer's own.
func (l *lookup) direct(ctx context.Context, p *v1alpha1.Placement) error {
	v, err := l.view(ctx, leg{p.Peering.Consumer, p.Cluster})
	if err != nil {
		return err
	}
	l.recordAbsent(ctx, l.services(ctx, v, servesOn(p), nil))
	pods, err := l.pods(ctx, p.Cluster, client.InNamespace(l.namespace))
	if err != nil {
		return err
	}
	for i := range pods {
		if host, err := v.mapped(v.pods, pods[i].Status.PodIP); err != nil {
			l.recordAbsent(ctx, err)
		} else {
			l.sockets = append(l.sockets, podSockets(&pods[i], host)...)
		}
	}
	return nil
}

// servesOn reports whether a Service has its pods where a placement is. The others of a workload lead to
// linked components on other clusters.
func servesOn(p *v1alpha1.Placement) func(*corev1.Service) bool {
	return func(s *corev1.Service) bool {
		component, ok := s.Labels[v1alpha1.LabelComponent]
		return !ok || p.Runs(component)
	}
}

// sameHub reports whether two placements have their namespace on the same hub, for the same
// consumer.
func sameHub(a, b *v1alpha1.Placement) bool {
	return a.Peering != nil && b.Peering != nil && a.Peering.Hub == b.Peering.Hub && a.Peering.Consumer == b.Peering.Consumer
}

// hubServices finds the Services of an instance's namespace on a hub. Endpoints on a
// cluster that the hub is not connected to do not count as ready.
func (l *lookup) hubServices(ctx context.Context, first *v1alpha1.Placement, placements []v1alpha1.Placement) {
	v, err := l.view(ctx, leg{first.Peering.Consumer, first.Peering.Hub})
	if err != nil {
		l.recordAbsent(ctx, err)
		return
	}
	var lost []string
	for i := range placements {
		if p := &placements[i]; sameHub(first, p) {
			if _, err := l.verify(ctx, leg{p.Peering.Hub, p.Cluster}); err != nil {
				lost = append(lost, p.Peering.Node)
			}
		}
	}
	l.recordAbsent(ctx, l.services(ctx, v, func(*corev1.Service) bool { return true }, func(e *discoveryv1.Endpoint) bool { return !slices.Contains(lost, ptr.Deref(e.NodeName, "")) }))
}

// hubPods finds the pods of a placement that run behind a hub. It uses the address that
// Liqo gives each of them on the hub for clusters one hop further; the address that the
// hub's own pods use works only from the hub.
func (l *lookup) hubPods(ctx context.Context, p *v1alpha1.Placement) error {
	v, err := l.view(ctx, leg{p.Peering.Consumer, p.Peering.Hub})
	if err != nil {
		return err
	}
	if _, err := l.verify(ctx, leg{p.Peering.Hub, p.Cluster}); err != nil {
		return err
	}
	pods, err := l.pods(ctx, p.Peering.Hub, client.InNamespace(l.namespace), client.MatchingFields{"spec.nodeName": p.Peering.Node})
	if err != nil || len(pods) == 0 {
		return err
	}
	addresses, err := l.addresses(ctx, p.Peering.Hub)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		// Liqo names the IP like the pod. An older IP of a former pod with the same name may still
		// exist.
		k := slices.IndexFunc(addresses, func(a liqo.Address) bool {
			return a.Name == pod.Name && !a.IsLeaving() && a.Target() == pod.Status.PodIP && a.Given() != ""
		})
		if k < 0 {
			l.recordPending(ctx, v, "pod "+pod.Name)
			continue
		}
		if host, err := v.mapped(v.external, addresses[k].Given()); err != nil {
			l.recordAbsent(ctx, err)
		} else {
			l.sockets = append(l.sockets, podSockets(pod, host)...)
		}
	}
	return nil
}

// nodePods finds the pods that the consumer runs on a virtual node of its own cluster, with
// the addresses that they have there.
func (l *lookup) nodePods(ctx context.Context, p *v1alpha1.Placement) error {
	v, err := l.view(ctx, leg{p.Peering.Consumer, p.Cluster})
	if err != nil {
		return err
	}
	pods, err := l.pods(ctx, p.Peering.Consumer, client.MatchingFields{"spec.nodeName": p.Peering.Node})
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		at, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || !v.pods.Sees(at) {
			l.recordAbsent(ctx, absent("%s: pod %s/%s has the address %s, which is outside the ranges that %s knows of %s", v.leg, pod.Namespace, pod.Name, pod.Status.PodIP, v.near, v.far))
			continue
		}
		l.sockets = append(l.sockets, podSockets(pod, at.Unmap().String())...)
	}
	return nil
}

// recordPending records that Liqo has not given something an address on the far cluster of a view.
func (l *lookup) recordPending(ctx context.Context, v *view, what string) {
	l.pending = true
	l.recordAbsent(ctx, &absentError{fmt.Sprintf("%s: Liqo has given %s no address on %s yet", v.leg, what, v.far), what + " has no address yet"})
}

// pods lists the ready pods.
func (l *lookup) pods(ctx context.Context, cluster string, which ...client.ListOption) ([]corev1.Pod, error) {
	c, err := l.member(ctx, cluster)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := c.List(ctx, &list, which...); err != nil {
		return nil, &unreadError{cluster: cluster, what: "pods", err: err}
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !isReady(&p) }), nil
}

// services finds the Services of the instance's namespace on the far cluster of a view. A
// cluster IP cannot be reached from another cluster. Each Service gets an address of the
// far cluster's external range, which the near cluster maps. Which selects Services.
func (l *lookup) services(ctx context.Context, v *view, which func(*corev1.Service) bool, reachable func(*discoveryv1.Endpoint) bool) error {
	c, err := l.member(ctx, v.far)
	if err != nil {
		return err
	}
	services, err := readyServices(ctx, c, l.namespace, func(s *corev1.Service) bool {
		return which(s) && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && len(socketsOf("", "", s.Spec.Ports)) > 0
	}, reachable)
	if err != nil {
		return &unreadError{cluster: v.far, what: "Services", err: err}
	}
	if more := len(services) - maxHosts; more > 0 {
		reason := fmt.Sprintf("%d more Services than the %d that get an address", more, maxHosts)
		l.recordAbsent(ctx, &absentError{fmt.Sprintf("%s: %s on %s", v.leg, reason, v.far), reason})
		services = services[:maxHosts]
	}
	given, err := l.publish(ctx, v.far, c, services)
	if err != nil {
		return err
	}
	for i := range services {
		s := &services[i]
		address := given[s.Name]
		switch {
		case len(s.ports) == 0: // no ready endpoint
		case address == "":
			l.recordPending(ctx, v, "Service "+s.Name)
		default:
			host, err := v.mapped(v.external, address)
			if err != nil {
				l.recordAbsent(ctx, err)
				continue
			}
			l.sockets = append(l.sockets, socketsOf(host, s.Name, s.ports)...)
		}
	}
	return nil
}
