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
func (r Request) denied(s *Snapshot) string { return cmp.Or(r.exceeded(s), r.hostTaken(s)) }

// hostTaken returns that another instance has a host that the request asks for; empty if none has.
// Instances have the first labels of their hosts on all clusters, so that they can move.
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

// hosts returns the labels that the request asks for, sorted.
func (r Request) hosts() []string { return slices.Sorted(maps.Keys(r.Hosts)) }

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

// heldHosts returns the hosts that an instance has.
func (inv *Inventory) heldHosts(instance string) []string {
	var all []string
	for _, r := range rows[Reservation](inv.store.Txn(false), tableReservation, indexOf, instance, "") {
		all = lists.Union(all, r.Hosts)
	}
	return all
}
