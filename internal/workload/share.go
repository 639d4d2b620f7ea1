package workload

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Share is the part on one cluster of a workload whose components are on several clusters.
type Share struct {
	// Components that run there.
	Components []string
	// Elsewhere are the others, by name.
	Elsewhere map[string]Remote
	// Callers are the addresses (CIDRs) of clusters whose components are linked to one here, by that
	// one's name, as the cluster sees them.
	Callers map[string][]string
}

// Remote is a component on another cluster.
type Remote struct {
	Cluster string
	// LinkedTo are the components of the share that are linked to it.
	LinkedTo []string
	// Address at which the cluster of the share reaches its Service; empty while there is none.
	Address string
	// Exposure of its cluster, if it has a public port; nil if there is none.
	Exposure *v1alpha1.ClusterExposure
}

// On returns the part of the order that runs on one of several placements.
func (o *Order) On(p *v1alpha1.Placement, all []v1alpha1.Placement) *Order {
	if o == nil {
		return nil
	}
	own := *o
	own.Replicas, own.Ports = p.Replicas, map[string]int32{}
	for i := range all {
		maps.Copy(own.Ports, all[i].PublicPorts)
	}
	maps.Copy(own.Ports, p.PublicPorts)
	if len(p.Components) > 0 {
		own.Share = shareOf(p, all)
	}
	return &own
}

func shareOf(p *v1alpha1.Placement, all []v1alpha1.Placement) *Share {
	s := &Share{Components: p.Components, Elsewhere: map[string]Remote{}, Callers: map[string][]string{}}
	for i := range all {
		if all[i].Cluster == p.Cluster {
			continue
		}
		for _, name := range all[i].Components {
			s.Elsewhere[name] = Remote{Cluster: all[i].Cluster}
		}
	}
	for _, linked := range p.Linked {
		for _, link := range linked.Links {
			remote := s.Elsewhere[link.There]
			remote.Cluster, remote.LinkedTo = linked.Cluster, append(remote.LinkedTo, link.Here)
			s.Elsewhere[link.There] = remote
		}
	}
	return s
}

// runs reports whether a component runs on the cluster.
func (s *Share) runs(component string) bool {
	return s == nil || slices.Contains(s.Components, component)
}

func (s *Share) callers(component string) []string {
	if s == nil {
		return nil
	}
	return s.Callers[component]
}

// exposure returns the exposures of the clusters of components; here is that of the share's own.
func (s *Share) exposure(here *v1alpha1.ClusterExposure) func(component string) *v1alpha1.ClusterExposure {
	return func(component string) *v1alpha1.ClusterExposure {
		if s.runs(component) {
			return here
		}
		return s.Elsewhere[component].Exposure
	}
}

// link renders how components here reach one on another cluster to which they are linked: a Service of
// the same name and ports, an EndpointSlice with the address that leads to the one there, and a
// NetworkPolicy that lets their pods out to it. Labels are those of the Multi-Cluster Services API (KEP-1645).
func (r *rendering) link(c *v1alpha1.WorkloadComponent, to Remote) {
	ports := slices.DeleteFunc(slices.Clone(c.Ports), func(p v1alpha1.WorkloadPort) bool { return p.Reach == v1alpha1.ReachComponent })
	if len(to.LinkedTo) == 0 || len(ports) == 0 {
		return
	}
	name := c.ServiceName()
	service := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP)
	for _, p := range ports {
		service.WithPorts(corev1ac.ServicePort().WithName(p.Name).WithPort(p.Port).WithProtocol(protocolOf(p)).WithTargetPort(intstr.FromInt32(p.Port)))
	}
	r.add(corev1ac.Service(name, r.namespace).WithLabels(r.labels()).WithSpec(service))
	if to.Address == "" {
		return
	}
	at, err := netip.ParseAddr(to.Address)
	if err != nil {
		r.fail(r.path, err)
		return
	}
	family, bits := discoveryv1.AddressTypeIPv4, 32
	if at.Is6() {
		family, bits = discoveryv1.AddressTypeIPv6, 128
	}
	labels := r.labels()
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = name, v1alpha1.ManagedBy
	labels["multicluster.kubernetes.io/service-name"], labels["multicluster.kubernetes.io/source-cluster"] = name, to.Cluster
	slice := discoveryv1ac.EndpointSlice(name, r.namespace).WithLabels(labels).WithAddressType(family).
		WithEndpoints(discoveryv1ac.Endpoint().WithAddresses(to.Address).WithConditions(discoveryv1ac.EndpointConditions().WithReady(true)))
	rule := networkingv1ac.NetworkPolicyEgressRule().WithTo(ranges([]string{netip.PrefixFrom(at, bits).String()})...)
	for _, p := range ports {
		slice.WithPorts(discoveryv1ac.EndpointPort().WithName(p.Name).WithPort(p.Port).WithProtocol(protocolOf(p)))
		rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(protocolOf(p)).WithPort(intstr.FromInt32(p.Port)))
	}
	r.add(slice)
	// Its name is not that of the component's own policy, so that both are there while the component moves.
	r.add(networkingv1ac.NetworkPolicy(c.Name+".link", r.namespace).WithLabels(r.labels()).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchExpressions(metav1ac.LabelSelectorRequirement().
			WithKey(v1alpha1.LabelComponent).WithOperator(metav1.LabelSelectorOpIn).WithValues(to.LinkedTo...))).
		WithPolicyTypes(networkingv1.PolicyTypeEgress).WithEgress(rule)))
}
