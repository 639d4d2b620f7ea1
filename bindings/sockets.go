package bindings

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// maxHosts limits the hosts that a binding lists besides the API servers, and so the requests
	// to clusters and the addresses taken there.
	maxHosts = 1024
	// maxSockets limits the sum of their ports: once it is reached, no further host is listed. The
	// binding's status must fit into an object of the hub, of at most 1.5 MB.
	maxSockets = 8192
)

// socket is one port of one host.
type socket struct {
	host, port, protocol string
	// service that answers there, if any.
	service string
}

// protocols maps protocols of Kubernetes to those of OSB endpoints, which lack SCTP.
var protocols = map[corev1.Protocol]string{"": "tcp", corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}

// socketsOf returns the sockets of a host, for the ports whose protocol OSB has.
func socketsOf(host, service string, ports []corev1.ServicePort) []socket {
	var out []socket
	for _, p := range ports {
		if protocol := protocols[p.Protocol]; protocol != "" && p.Port > 0 {
			out = append(out, socket{host: host, port: strconv.Itoa(int(p.Port)), protocol: protocol, service: service})
		}
	}
	return out
}

// bounded returns the sockets of as many hosts as may be listed, and the number of hosts
// cut.
func bounded(sockets []socket) (kept []socket, cut int) {
	hosts, listed := map[string]bool{}, 0
	for _, s := range sockets {
		if shown, known := hosts[s.host]; known && !shown {
			continue
		} else if !known {
			hosts[s.host] = listed < maxHosts && len(kept) < maxSockets
			if !hosts[s.host] {
				continue
			}
			listed++
		}
		kept = append(kept, s)
	}
	return kept, len(hosts) - listed
}

// endpointsOf returns one entry for each host (OSB 2.17, "Endpoint Object"), in the
// sockets' order. A host whose TCP and UDP ports differ gets two, because an entry has one
// protocol.
func endpointsOf(sockets []socket) []v1alpha1.Endpoint {
	var hosts []string
	ports := map[[2]string][]string{}
	for _, s := range sockets {
		if !slices.Contains(hosts, s.host) {
			hosts = append(hosts, s.host)
		}
		key := [2]string{s.host, s.protocol}
		if !slices.Contains(ports[key], s.port) {
			ports[key] = append(ports[key], s.port)
		}
	}
	var out []v1alpha1.Endpoint
	for _, host := range hosts {
		tcp, udp := ports[[2]string{host, "tcp"}], ports[[2]string{host, "udp"}]
		if slices.Equal(slices.Sorted(slices.Values(tcp)), slices.Sorted(slices.Values(udp))) {
			out = append(out, v1alpha1.Endpoint{Host: host, Ports: tcp, Protocol: "all"})
			continue
		}
		for _, entry := range []v1alpha1.Endpoint{{Host: host, Ports: tcp, Protocol: "tcp"}, {Host: host, Ports: udp, Protocol: "udp"}} {
			if len(entry.Ports) > 0 {
				out = append(out, entry)
			}
		}
	}
	return out
}

// servicesOf returns the addresses of Services, by name.
func servicesOf(sockets []socket) map[string][]string {
	var out map[string][]string
	for _, s := range sockets {
		if s.service == "" {
			continue
		}
		if out == nil {
			out = map[string][]string{}
		}
		address := s.protocol + "://" + net.JoinHostPort(s.host, s.port)
		if !slices.Contains(out[s.service], address) {
			out[s.service] = append(out[s.service], address)
		}
	}
	return out
}

// serverSockets returns the sockets of API servers from their URLs.
func serverSockets(servers []string) ([]socket, error) {
	var out []socket
	for _, server := range servers {
		at, err := url.Parse(server)
		if err != nil {
			return nil, fmt.Errorf("read the URL of an API server: %w", err)
		}
		out = append(out, socket{host: at.Hostname(), port: cmp.Or(at.Port(), "443"), protocol: "tcp"})
	}
	return out, nil
}

// maxReasons limits the reasons for missing endpoints in status.
const maxReasons = 5

// sentence joins reasons with semicolons.
func sentence(reasons []string) string {
	reasons = slices.Compact(slices.Clone(reasons))
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}
