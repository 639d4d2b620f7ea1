package workload

import (
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Share is the part on one cluster of a workload whose components are on several clusters.
type Share struct {
	// Components that run there.
	Components []string
	// Elsewhere has those on other clusters, by name. One that changes its cluster may run here, too.
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
	// Addresses at which the cluster of the share reaches its Service, as far as they are known: more than one
	// while the component changes its cluster. Its name leads to the last one.
	Addresses []string
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
			if remote.Cluster = linked.Cluster; !slices.Contains(remote.LinkedTo, link.Here) {
				remote.LinkedTo = append(remote.LinkedTo, link.Here)
			}
			s.Elsewhere[link.There] = remote
		}
	}
	return s
}

// elsewhere returns where else a component runs.
func (s *Share) elsewhere(component string) Remote {
	if s == nil {
		return Remote{}
	}
	return s.Elsewhere[component]
}

// Runs reports whether a component runs on the cluster.
func (s *Share) Runs(component string) bool {
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
		if s.Runs(component) {
			return here
		}
		return s.Elsewhere[component].Exposure
	}
}

// link renders the name by which components here reach one on another cluster to which they are linked: a
// Service of the same name and ports, and an EndpointSlice with the address that leads to the one there. Labels
// are those of the Multi-Cluster Services API (KEP-1645).
//
// The Service selects pods of the component, too, which are here while it changes its cluster: so it stays
// the same one, with the same address, wherever the component runs.
func (r *rendering) link(c *v1alpha1.WorkloadComponent, to Remote) {
	r.ports = linkedPorts(c)
	if len(to.LinkedTo) == 0 || len(r.ports) == 0 {
		return
	}
	name := c.ServiceName()
	r.service(name)
	if len(to.Addresses) == 0 {
		return
	}
	address := to.Addresses[len(to.Addresses)-1]
	family := discoveryv1.AddressTypeIPv4
	if r.host(address).Addr().Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	labels := r.labels()
	labels[discoveryv1.LabelServiceName], labels[discoveryv1.LabelManagedBy] = name, v1alpha1.ManagedBy
	labels["multicluster.kubernetes.io/service-name"], labels["multicluster.kubernetes.io/source-cluster"] = name, to.Cluster
	slice := discoveryv1ac.EndpointSlice(name, r.namespace).WithLabels(labels).WithAddressType(family).
		WithEndpoints(discoveryv1ac.Endpoint().WithAddresses(address).WithConditions(discoveryv1ac.EndpointConditions().WithReady(true)))
	for _, p := range r.ports {
		slice.WithPorts(discoveryv1ac.EndpointPort().WithName(p.Name).WithPort(p.Port).WithProtocol(protocolOf(p)))
	}
	r.add(slice)
}

// letOut renders a NetworkPolicy that lets pods here out to a component on other clusters, to which they are
// linked. The component may run here, too, while it changes its cluster.
func (r *rendering) letOut(c *v1alpha1.WorkloadComponent, to Remote) {
	ports := linkedPorts(c)
	if len(to.LinkedTo) == 0 || len(to.Addresses) == 0 || len(ports) == 0 {
		return
	}
	var hosts []string
	for _, address := range to.Addresses {
		hosts = append(hosts, r.host(address).String())
	}
	rule := networkingv1ac.NetworkPolicyEgressRule().WithTo(Ranges(hosts)...)
	for _, p := range ports {
		rule.WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(protocolOf(p)).WithPort(intstr.FromInt32(p.Port)))
	}
	r.add(networkingv1ac.NetworkPolicy(c.Name+".link", r.namespace).WithLabels(r.labels()).WithSpec(networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchExpressions(metav1ac.LabelSelectorRequirement().
			WithKey(v1alpha1.LabelComponent).WithOperator(metav1.LabelSelectorOpIn).WithValues(to.LinkedTo...))).
		WithPolicyTypes(networkingv1.PolicyTypeEgress).WithEgress(rule)))
}

// linkedPorts returns the ports of a component that components on other clusters reach.
func linkedPorts(c *v1alpha1.WorkloadComponent) []v1alpha1.WorkloadPort {
	return slices.DeleteFunc(slices.Clone(c.Ports), func(p v1alpha1.WorkloadPort) bool { return p.Reach == v1alpha1.ReachComponent })
}

// host returns an address as a range.
func (r *rendering) host(address string) netip.Prefix {
	at, err := netip.ParseAddr(address)
	r.fail(r.path, err)
	return netip.PrefixFrom(at, at.BitLen())
}
