package placement

import (
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// mostTries is how many times a request is decided beside other changes, before it is decided while they wait.
const mostTries = 5

// Place decides and, if the request can be placed, reserves the decision under the request's
// ID, in addition to what it holds already. Two requests never get the same capacity.
//
// The caller must then write the decision to the hub. If that write is refused, it must call
// Reserve with the hub's state. While the result of the write is unknown, the reservation
// stays.
//
// If the request cannot be placed, the error is *UnplaceableError, and the request waits:
// OnWake's function is called when a change may help it, until Place succeeds or
// Reserve or Release is called for it.
//
// It decides by a snapshot, while others read and change the inventory, and reserves if the
// decision can still be made. Then it was the best one at the instant of the snapshot.
//
// Step 4 of a provision (docs/architecture.md).
func (inv *Inventory) Place(r Request) (Decision, error) {
	s, waits := inv.observed(r), false
	for range mostTries {
		d, err := Place(r, s)
		now, done := inv.commit(r, &d, err, s, waits)
		if done {
			return d, err
		}
		s, waits = now, waits || err != nil
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	d, err := Place(r, inv.now())
	inv.enact(r, &d, err)
	return d, err
}

// observed returns the inventory as it is now, in which the neighbours of a request are counted.
func (inv *Inventory) observed(r Request) *Snapshot {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.observe(r)
	return inv.now()
}

// commit reserves what a decision by an earlier snapshot takes, or makes the request wait. It
// returns false, and the inventory as it is now, if the decision has to be made again: because its
// clusters have changed or, for a request that fits nowhere, because of a change that may have
// helped it. Such a request waits from then on, so that it is woken by what happens while it is
// decided again; waits is true if it does.
func (inv *Inventory) commit(r Request, d *Decision, err error, by *Snapshot, waits bool) (now *Snapshot, done bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	now = inv.now()
	if done = now == by || err != nil && waits || err == nil && now.allows(r, *d, by); done || err != nil {
		inv.enact(r, d, err)
	}
	return now, done
}

// enact reserves what a decision takes, and completes it by the quotas that its consumer nears; or it makes the request
// wait that cannot be placed.
func (inv *Inventory) enact(r Request, d *Decision, err error) {
	if err != nil {
		inv.waiting.add(r, inv.counts(r))
		return
	}
	inv.waiting.remove(r.ID)
	d.Warnings = r.nears(d.Placements, inv.now())
	h := inv.holding(r.ID)
	for _, p := range d.Placements {
		h.Held[p.Cluster] = h.Held[p.Cluster].max(p.Reserved)
		h.Prices[p.Cluster] = h.Prices[p.Cluster].max(p.Price.counted())
		h.Pods[p.Cluster] = withPods(h.Pods[p.Cluster], p.LargestPods)
		h.Ports[p.Cluster] = h.Ports[p.Cluster].and(p.PublicPorts)
	}
	h.Consumer, h.Hub, h.Hosts = r.Consumer, r.Peering.hub(), lists.Union(h.Hosts, r.hosts())
	change := inv.reserve(h)
	// Others may follow it, or may no longer have to, if it was of another application before.
	inv.wakeWaiting(change.event())
}

// allows reports whether a decision by an earlier snapshot can be made by this one too: its clusters have not changed,
// except in what is reserved there, and have the room; where it depends on other clusters, these have not either.
func (s *Snapshot) allows(r Request, d Decision, by *Snapshot) bool {
	if r.denied(s) != "" || r.overspends(d.Placements, s) != "" || (r.Peering != nil || r.Spread != nil && r.Spread.Each) && !s.sameTraits(by) {
		return false
	}
	var entry []filter
	for _, a := range r.Affinity {
		if a.Weight == 0 {
			entry = append(entry, affine(a, r, s))
		}
	}
	if r.Upstream != nil {
		entry = append(entry, noRoom(r.Upstream, s))
	}
	spoken := s.spokenFor(r)
	for i := range d.Placements {
		p := &d.Placements[i]
		was, _ := by.find(p.Cluster)
		is, found := s.find(p.Cluster)
		held := s.Reserved(r.ID, p.Cluster)
		if !found || is.cluster() != was.cluster() || !is.hasRoom(p.Reserved, held, s) {
			return false
		}
		if len(r.TCP) > 0 && !maps.Equal(p.PublicPorts, s.portsFor(r.ID, p.Cluster, r.tcpOn(p))) {
			return false
		}
		stays := slices.Contains(r.Current, p.Cluster)
		if spoken[p.Cluster] != "" && !held.covers(p.Reserved) {
			return false
		}
		if _, refused := refusal(is, entry, stays); refused || !stays && !s.holes(p.Cluster).take(p.LargestPods) {
			return false
		}
	}
	return true
}

// hasRoom reports whether a cluster has amounts left, apart from what is held there.
func (at position) hasRoom(amounts, held Resources, s *Snapshot) bool {
	for name, amount := range amounts {
		if _, storage := v1alpha1.StorageClassOf(name); !storage && amount > 0 && at.free(s.columnOf(name))+held[name] < amount {
			return false
		}
	}
	return true
}

// sameTraits reports whether two snapshots have the same clusters, which differ in numbers only.
func (s *Snapshot) sameTraits(other *Snapshot) bool {
	if len(s.pages) != len(other.pages) {
		return false
	}
	for i, p := range s.pages {
		if p.traits != other.pages[i].traits {
			return false
		}
	}
	return true
}
