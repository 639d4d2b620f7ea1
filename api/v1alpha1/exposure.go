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
