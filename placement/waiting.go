package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Requests that cannot be placed wait. Each change of the inventory wakes the requests that it may help,
// and as few others as can be found cheaply: most changes are of a cluster's free capacity, and help only
// requests for an amount between the free capacity before and after.

// accepts reports whether a cluster takes the request as a new placement, or one of its components, apart
// from where other instances are.
func (w *waiter) accepts(s *Snapshot, at position) bool {
	if at.page == nil {
		return false
	}
	if name := at.cluster().Name; slices.Contains(w.Current, name) || slices.Contains(slices.Collect(maps.Values(w.ComponentClusters)), name) {
		return Accepts(w.Request, s, name)
	}
	return w.asks.of(&w.Request, s).accept(at)
}

// event is a change of the inventory that may help requests.
type event struct {
	before *Snapshot // nil if unknown
	// clusters of which something changed.
	clusters []string
	// was and is are a cluster that changed in more than what it has left; nil where it was or is not there.
	was, is *Cluster
	// latency reports whether latencies of the clusters changed.
	latency bool
	// holders of reservations that changed, and near the causes of waiting that this is; see causeNear.
	holders, near []string
	// spared are the holders of quotas of which the reservations changed.
	spared []string
	// hosts that were given back.
	hosts []string
}

// wakeWaiting wakes the waiting instances that an event may help.
func (inv *Inventory) wakeWaiting(e event) {
	if len(inv.waiting.all) == 0 {
		return
	}
	s, woken := inv.now(), map[string]bool{}
	concerned := inv.concerned(e, s)
	for _, cluster := range e.clusters {
		at, _ := s.find(cluster)
		var before position
		if e.before != nil {
			before, _ = e.before.find(cluster)
		}
		takes := map[*cohort]bool{}
		for _, w := range concerned {
			if !woken[w.ID] && inv.mayHelp(w, s, at, takes) && inv.helps(w, e, s, at, before) {
				woken[w.ID] = true
			}
		}
	}
	for _, holder := range e.holders {
		maps.Copy(woken, inv.waiting.causes[causeHolder+holder])
	}
	for _, cause := range e.near {
		maps.Copy(woken, inv.waiting.causes[cause])
	}
	for _, holder := range e.spared {
		maps.Copy(woken, inv.waiting.causes[causeQuota+holder])
	}
	for _, host := range e.hosts {
		maps.Copy(woken, inv.waiting.causes[causeHost+host])
	}
	if e.was != nil || e.is != nil {
		inv.regrouped(e, s, woken)
	}
	for id := range woken {
		inv.wake(id)
	}
}

// concerned returns the requests that a change of clusters may help by what is there now: all that a cluster may
// take, if it changed in more than what it has left.
func (inv *Inventory) concerned(e event, s *Snapshot) (concerned []*waiter) {
	ws := &inv.waiting
	if len(e.clusters) == 0 {
		return nil
	}
	for id := range inv.preemptions {
		if w := ws.all[id]; w != nil {
			concerned = append(concerned, w)
		}
	}
	if e.was != nil || e.is != nil || e.before == nil {
		concerned = slices.AppendSeq(concerned, maps.Values(ws.settled))
		for _, cluster := range e.clusters {
			if at, found := s.find(cluster); found {
				for _, c := range ws.cohorts {
					concerned = c.taken(s, at, concerned)
				}
			}
		}
		return concerned
	}
	rises := false
	for _, cluster := range e.clusters {
		was, _ := e.before.find(cluster)
		is, _ := s.find(cluster)
		for name, column := range s.columns {
			before, now := was.free(column), is.free(column)
			if now <= before {
				continue
			}
			rises = true
			for _, w := range ws.wants.between(name, before, now) {
				concerned = append(concerned, w.by)
			}
			for _, w := range ws.parts.between(name, 0, now) {
				if w.by.gains(name, before, now) {
					concerned = append(concerned, w.by)
				}
			}
		}
	}
	grown := false
	for _, cluster := range e.clusters {
		before, now := e.before.holes(cluster), s.holes(cluster)
		if before == now {
			continue
		}
		grown = true
		for _, group := range ws.shaped {
			if !before.take(group.pods) && now.take(group.pods) {
				for id := range group.ids {
					concerned = append(concerned, ws.all[id])
				}
			}
		}
	}
	for _, w := range ws.wide {
		if grown && w.mayBeShaped() || e.latency || w.Class != "" || rises {
			concerned = append(concerned, w)
		}
	}
	return concerned
}

// gains reports whether a rise of what is free makes room for one more replica.
func (w *waiter) gains(name corev1.ResourceName, before, now int64) bool {
	amount, common := w.Resources[name], w.Common[name]
	if amount == 0 {
		return now >= common
	}
	return max(now-common, 0)/amount > max(before-common, 0)/amount
}

// mayBeShaped reports whether the request or one of its components has known pods.
func (w *waiter) mayBeShaped() bool {
	return slices.ContainsFunc(w.Parts(), func(part Request) bool { return len(part.LargestPods) > 0 })
}

// holes returns what the nodes of a cluster have free; nil if unknown.
func (s *Snapshot) holes(cluster string) *Holes {
	if at, found := s.find(cluster); found && at.page.holes != nil {
		return at.page.holes[at.row]
	}
	return nil
}

// free returns what is free by the number of a column; 0 if there is no cluster.
func (at position) free(column int) int64 {
	if at.page == nil {
		return 0
	}
	return at.page.column(column).free[at.row]
}

// mayHelp reports whether a cluster takes requests like one that waits, or can help it in another way. What is known
// of cohorts is in takes.
func (inv *Inventory) mayHelp(w *waiter, s *Snapshot, at position, takes map[*cohort]bool) bool {
	if w.cohort == nil || at.page == nil || inv.preemptions[w.ID] != nil {
		return true
	}
	accepted, known := takes[w.cohort]
	if !known {
		accepted = w.cohort.accept(s, at)
		takes[w.cohort] = accepted
	}
	return accepted
}

// helps reports whether a changed cluster takes a request now and, as far as is known, did not take it before.
// Requests of three kinds are helped more often: with replicas, components or a spread, by every change of a
// cluster that takes one; if room is being made for it, by every change of that cluster; and if it
// may displace others, by every change of a cluster that then has room.
func (inv *Inventory) helps(w *waiter, e event, s *Snapshot, at, before position) bool {
	if at.page == nil {
		return false
	}
	if w.accepts(s, at) && w.denied(s) == "" {
		more := w.Replicas > 0 || len(w.Components) > 0 || e.is != nil && (w.Spread != nil || len(w.Quotas) > 0) || w.regroups(e)
		return more || e.before == nil || !w.accepts(e.before, before)
	}
	if p := inv.preemptions[w.ID]; p != nil {
		return p.On(at.cluster().Name) != nil
	}
	return w.Class != "" && canVacate(w.Request, s, at)
}

// regroups reports whether the changed cluster is in another group by which the request is together with other
// instances or apart from them.
func (w *waiter) regroups(e event) bool {
	return e.was != nil && e.is != nil && slices.ContainsFunc(w.Affinity, func(a v1alpha1.Affinity) bool { return relabelled(e.was, e.is, a.By) })
}

// regrouped adds the requests that are helped by what a cluster is to others: by the places of instances,
// by the groups in each of which there has to be a cluster, and as the consumer's own cluster or a hub.
func (inv *Inventory) regrouped(e event, s *Snapshot, woken map[string]bool) {
	relabels := e.was == nil || e.is == nil || !maps.Equal(e.was.Labels, e.is.Labels)
	if relabels {
		for _, held := range s.Reservations(cmp.Or(e.is, e.was).Name) {
			for _, holder := range held.Holders {
				maps.Copy(woken, inv.waiting.causes[causeHolder+holder])
			}
		}
	}
	if e.is == nil || e.was != nil && relabels {
		maps.Copy(woken, inv.waiting.causes[causeGroups])
	}
	if e.was == nil || e.was.Liqo == nil {
		if e.is == nil || e.is.Liqo == nil {
			return
		}
	}
	for id := range inv.waiting.causes[causePeering] {
		if w := inv.waiting.all[id]; s.peer(w.Request).Peering.Problem != w.Peering.Problem {
			woken[id] = true
		}
	}
}

// relabelled reports whether a label has another value; a cluster that is not there has none.
func relabelled(was, is *Cluster, label string) bool {
	value := func(c *Cluster) (string, bool) {
		if c == nil {
			return "", false
		}
		v, has := c.Labels[label]
		return v, has
	}
	before, had := value(was)
	after, has := value(is)
	return before != after || had != has
}

// Parked returns the requests that wait for a cluster to take them, in the order of their IDs.
func (inv *Inventory) Parked() []Request {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	var parked []Request
	for _, id := range slices.Sorted(maps.Keys(inv.waiting.all)) {
		parked = append(parked, inv.waiting.all[id].Request)
	}
	return parked
}

// Waiting returns the number of instances that wait for a cluster to take them.
func (inv *Inventory) Waiting() int {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return len(inv.waiting.all)
}
