package v1alpha1

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ResourcePublicPorts counts public ports with appProtocol tcp: as capacity, those of a cluster's range; in
// reservations, those that an instance has there.
const ResourcePublicPorts corev1.ResourceName = "sluice.dev/public-ports"

// ClusterExposure is a Gateway (Gateway API) of the cluster's operator, by which everyone reaches the
// public ports of workloads: one address for all instances, which differ by host.
type ClusterExposure struct {
	// Gateway to which Sluice attaches routes from the namespaces of instances, which its listeners must
	// allow.
	Gateway ExposureGateway `json:"gateway"`
	// Domain of the hosts: a public port has a name directly below it. The listener has a certificate for
	// all of them (*.domain), and they resolve to the Gateway's address, unless DNS makes a record for each.
	// With DNS, clusters may share a domain.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:MaxLength=189
	Domain string `json:"domain"`
	// Protocol that consumers speak to the listener: https, or http if it has no TLS.
	// +kubebuilder:default=https
	Protocol ExposureProtocol `json:"protocol,omitempty"`
	// Port at which consumers reach the listener. Absent means 443, for http 80.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// TLS is a listener for public ports with appProtocol tls. Without it there are none on the cluster.
	TLS *ExposureTLS `json:"tls,omitempty"`
	// TCP is a range of ports for public ports with appProtocol tcp. Without it there are none on the cluster.
	TCP *ExposureTCP `json:"tcp,omitempty"`
	// DNS makes a record for each host.
	DNS *ExposureDNS `json:"dns,omitempty"`
	// Domains of consumers, whose hosts the Gateway serves, too.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	Domains []ExposureDomain `json:"domains,omitempty"`
}

// ExposureDomain is a domain of consumers. Nobody else gets hosts in it, unless a longer domain of others has
// them.
type ExposureDomain struct {
	// Name of the domain. Its hosts are itself and all names below it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Consumers that may have its hosts.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Consumers []ConsumerReference `json:"consumers"`
	// Listener of the Gateway for hosts of the domain whose port speaks HTTP, with a certificate for them; absent
	// means the one in Gateway.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Listener string `json:"listener,omitempty"`
}

// ExposureTCP is a range of ports at which consumers reach the Gateway. It has a listener for each (protocol
// TCP), which is named tcp-PORT.
// +kubebuilder:validation:XValidation:rule="self.first <= self.last && self.last - self.first < 64",message="a range goes from first to last, and has at most 64 ports"
type ExposureTCP struct {
	// First port of the range.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	First int32 `json:"first"`
	// Last port of the range.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Last int32 `json:"last"`
}

// ExposureDNS makes a DNSEndpoint of external-dns for each host of the domain, in the namespace of its
// instance.
// +kubebuilder:validation:XValidation:rule="self.targets.size() == 1 || self.targets.all(t, isIP(t))",message="targets are IP addresses, or one name"
type ExposureDNS struct {
	// Targets of the records: the public addresses of the Gateway, or a name for it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Pattern=`^[a-zA-Z0-9]([-a-zA-Z0-9.:]*[a-zA-Z0-9])?$`
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Targets []string `json:"targets"`
}

// ExposureTLS is a listener of the Gateway that passes TLS through (protocol TLS, mode Passthrough), for all
// hosts of the domain.
type ExposureTLS struct {
	// Listener of the Gateway; absent means all that match the host and pass TLS through.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Listener string `json:"listener,omitempty"`
	// Port at which consumers reach the listener.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// ExposureProtocol is the protocol between consumers and a Gateway.
// +kubebuilder:validation:Enum=https;http
type ExposureProtocol string

// Values of ExposureProtocol.
const (
	ExposureHTTPS ExposureProtocol = "https"
	ExposureHTTP  ExposureProtocol = "http"
)

// ExposureGateway names a Gateway.
type ExposureGateway struct {
	// Namespace of the Gateway.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Gateway.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Listener of the Gateway; absent means all that match the host.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Listener string `json:"listener,omitempty"`
	// PodNamespace is the namespace of the pods from which the Gateway's traffic comes; absent means the
	// Gateway's own. NetworkPolicies let these pods reach public ports.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	PodNamespace string `json:"podNamespace,omitempty"`
}

// Speaks returns what public ports of the cluster may speak, sorted; nothing if e is nil.
func (e *ClusterExposure) Speaks() []AppProtocol {
	if e == nil {
		return nil
	}
	spoken := []AppProtocol{AppProtocolHTTP}
	if e.TCP != nil {
		spoken = append(spoken, AppProtocolTCP)
	}
	if e.TLS != nil {
		spoken = append(spoken, AppProtocolTLS)
	}
	return spoken
}

// PortOf is the port at which consumers reach a public port. The cluster has a listener for it. Given is the
// port of the range that a placement has for it, if it speaks TCP.
func (e *ClusterExposure) PortOf(p *WorkloadPort, given int32) int32 {
	switch p.Speaks() {
	case AppProtocolTCP:
		return given
	case AppProtocolTLS:
		return e.TLS.Port
	default:
		return e.PortNumber()
	}
}

// ListenerOf is the listener for a public port at a host; "" means all that match. Given is as in PortOf.
func (e *ClusterExposure) ListenerOf(p *WorkloadPort, host string, given int32) string {
	switch p.Speaks() {
	case AppProtocolTCP:
		return "tcp-" + strconv.Itoa(int(given))
	case AppProtocolTLS:
		return e.TLS.Listener
	}
	if of := e.domainOf(host); of != nil {
		return cmp.Or(of.Listener, e.Gateway.Listener)
	}
	return e.Gateway.Listener
}

// Grants reports whether a consumer may have a host outside of the cluster's own domain there. It is false if e
// is nil.
func (e *ClusterExposure) Grants(host, platform, organization, space string) bool {
	if e == nil {
		return false
	}
	of := e.domainOf(host)
	return of != nil && slices.ContainsFunc(of.Consumers, func(ref ConsumerReference) bool { return ref.Selects(platform, organization, space) })
}

// domainOf returns the longest domain of consumers that has a host; nil if none has it.
func (e *ClusterExposure) domainOf(host string) (longest *ExposureDomain) {
	for i := range e.Domains {
		of := &e.Domains[i]
		if IsWithin(host, of.Name) && (longest == nil || len(of.Name) > len(longest.Name)) {
			longest = of
		}
	}
	return longest
}

// IsWithin reports whether a host is a domain or below it.
func IsWithin(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }

// IsWholeHost reports whether a host that is asked for is the whole name, and not only its first label.
func IsWholeHost(host string) bool { return strings.Contains(host, ".") }

// Has reports whether a port is in the range. It is false if t is nil.
func (t *ExposureTCP) Has(port int32) bool { return t != nil && t.First <= port && port <= t.Last }

// Len is the number of ports of the range; 0 if t is nil.
func (t *ExposureTCP) Len() int {
	if t == nil {
		return 0
	}
	return int(t.Last-t.First) + 1
}

// Selects reports whether the reference selects a consumer.
func (r ConsumerReference) Selects(platform, organization, space string) bool {
	return r.Platform == platform && (r.Organization == "" || r.Organization == organization) && (r.Space == "" || r.Space == space)
}

// PodNamespaceName is the namespace of the Gateway's pods.
func (g *ExposureGateway) PodNamespaceName() string { return cmp.Or(g.PodNamespace, g.Namespace) }

// PortNumber is the port at which consumers reach the listener for HTTP.
func (e *ClusterExposure) PortNumber() int32 {
	switch {
	case e.Port != 0:
		return e.Port
	case e.Protocol == ExposureHTTP:
		return 80
	default:
		return 443
	}
}

// URL is the address of a host behind the Gateway, with the port unless the protocol implies it.
func (e *ClusterExposure) URL(host string) string {
	usual := ClusterExposure{Protocol: e.Protocol}
	if e.PortNumber() != usual.PortNumber() {
		host = net.JoinHostPort(host, strconv.Itoa(int(e.PortNumber())))
	}
	return string(cmp.Or(e.Protocol, ExposureHTTPS)) + "://" + host
}
