package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// denied returns the reason why the request can be placed on no cluster at all; empty if there is
// none.
func (r Request) denied(s *Snapshot) string { return cmp.Or(r.exceeded(s), r.hostDenied(s)) }

// hostDenied returns why the request gets none of the hosts that it asks for; empty if it may have them.
func (r Request) hostDenied(s *Snapshot) string {
	if taken := r.hostTaken(s); taken != "" {
		return taken
	}
	for _, host := range r.wholeHosts() {
		granted := false
		for _, p := range s.pages {
			for _, c := range p.clusters {
				if c.Exposure != nil && v1alpha1.IsWithin(host, c.Exposure.Domain) {
					return fmt.Sprintf("%s: %s is in the domain of a cluster, in which hosts are asked for by their first label", r.Hosts[host], host)
				}
				granted = granted || c.grants(host, r.Consumer)
			}
		}
		if !granted {
			return fmt.Sprintf("%s: %s is in no domain that is yours", r.Hosts[host], host)
		}
	}
	return ""
}

// hostTaken returns that another instance has a host that the request asks for; empty if none has.
// Instances have their hosts, or the first labels of these, on all clusters, so that they can move.
func (r Request) hostTaken(s *Snapshot) string {
	for _, host := range r.hosts() {
		for _, held := range rows[Reservation](s.store, tableReservation, indexHost, host) {
			if held.Instance != r.ID {
				return fmt.Sprintf("%s: %s is taken by another instance", r.Hosts[host], host)
			}
		}
	}
	return ""
}

// hosts returns the hosts that the request asks for, sorted.
func (r Request) hosts() []string { return slices.Sorted(maps.Keys(r.Hosts)) }

// wholeHosts returns those that are no first labels, but hosts in domains of consumers.
func (r Request) wholeHosts() []string {
	return slices.DeleteFunc(r.hosts(), func(host string) bool { return !v1alpha1.IsWholeHost(host) })
}

// hostsOf returns the hosts that an instance has by its status: those of the decision being
// delivered and of the one last delivered.
func hostsOf(status *v1alpha1.ServiceInstanceStatus) []string {
	var all []string
	for _, decision := range status.Decisions() {
		all = lists.Union(all, decision.Hosts)
	}
	slices.Sort(all)
	return all
}

// grants reports whether a consumer may have a host in a domain of its own on the cluster.
func (c *Cluster) grants(host string, of Consumer) bool {
	return c.Exposure.Grants(host, of.Platform, of.Organization, of.Space)
}

// noGateway rejects clusters without a Gateway for public ports of a protocol.
func noGateway(spoken v1alpha1.AppProtocol) filter {
	return filter{reason: ReasonNoGateway, shape: true,
		rejects: func(p *page, among set) set { return among.without(p.exposing[spoken]) },
		message: func(p *page, row int) string {
			switch {
			case p.clusters[row].Exposure == nil:
				return "has no Gateway for public ports"
			case spoken == v1alpha1.AppProtocolTCP:
				return "has a Gateway for public ports, which has no ports of plain TCP"
			default:
				return "has a Gateway for public ports, which passes no TLS through"
			}
		},
	}
}

// notGranted rejects clusters whose Gateway does not serve a host in a domain of the consumer's own.
func notGranted(host string, of Consumer) filter {
	return filter{reason: ReasonNoGateway, shape: true,
		rejects: func(p *page, among set) set {
			return among.where(func(row int) bool { return !p.clusters[row].grants(host, of) })
		},
		message: func(*page, int) string {
			return "has a Gateway for public ports, which does not serve " + host + " for this consumer"
		},
	}
}
