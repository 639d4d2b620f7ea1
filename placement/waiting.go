package placement

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Requests that cannot be placed wait. Each change of the inventory wakes the requests that it may help,
// and as few others as can be found cheaply: most changes are of a cluster's free capacity, and help only
// requests for an amount between the free capacity before and after.

// waiter is a request that waits.
type waiter struct {
	Request
	// filters of new placements for each component, or for the whole request. They are made once, and so
	// without those that depend on where other instances are.
	filters [][]filter
	// columns is the number of resources in the inventory when the filters were made.
	columns int
}

// waiters are the requests that wait.
type waiters struct {
	all map[string]*waiter // by ID
	// wants are the amounts of each resource, in order, that requests for one cluster without replicas ask
	// for; wide are the other requests, which may be helped by any more that a cluster has left.
	wants map[corev1.ResourceName][]want
	wide  map[string]*waiter
	// near are the requests with a required affinity, by the holder of the instances that it is about.
	near map[string]map[string]bool
	// shaped are the requests whose largest pods are known, by these.
	shaped map[string]*shaped
}

// shaped are the requests with the same largest pods.
type shaped struct {
	pods []Resources
	ids  map[string]bool
}

// want is an amount that a request asks for on each cluster.
type want struct {
	amount int64
	id     string
}

func (w want) compare(other want) int {
	return cmp.Or(cmp.Compare(w.amount, other.amount), strings.Compare(w.id, other.id))
}

func newWaiters() waiters {
	return waiters{map[string]*waiter{}, map[corev1.ResourceName][]want{}, map[string]*waiter{}, map[string]map[string]bool{}, map[string]*shaped{}}
}

// add adds a request, or replaces the one with its ID.
func (ws *waiters) add(r Request) {
	ws.remove(r.ID)
	w := &waiter{Request: r, columns: -1}
	ws.all[r.ID] = w
	for _, holder := range w.holdersNear() {
		if ws.near[holder] == nil {
			ws.near[holder] = map[string]bool{}
		}
		ws.near[holder][r.ID] = true
	}
	if key := w.podsKey(); key != "" {
		if ws.shaped[key] == nil {
			ws.shaped[key] = &shaped{w.LargestPods, map[string]bool{}}
		}
		ws.shaped[key].ids[r.ID] = true
	}
	if w.isWide() {
		ws.wide[r.ID] = w
		return
	}
	for name, amount := range r.Resources {
		one := want{amount, r.ID}
		at, _ := slices.BinarySearchFunc(ws.wants[name], one, want.compare)
		ws.wants[name] = slices.Insert(ws.wants[name], at, one)
	}
}

// remove removes the request of an ID, if there is one.
func (ws *waiters) remove(id string) {
	w := ws.all[id]
	if w == nil {
		return
	}
	delete(ws.all, id)
	delete(ws.wide, id)
	for _, holder := range w.holdersNear() {
		if delete(ws.near[holder], id); len(ws.near[holder]) == 0 {
			delete(ws.near, holder)
		}
	}
	if key := w.podsKey(); key != "" {
		if delete(ws.shaped[key].ids, id); len(ws.shaped[key].ids) == 0 {
			delete(ws.shaped, key)
		}
	}
	if w.isWide() {
		return
	}
	for name, amount := range w.Resources {
		if at, found := slices.BinarySearchFunc(ws.wants[name], want{amount, id}, want.compare); found {
			ws.wants[name] = slices.Delete(ws.wants[name], at, at+1)
		}
	}
}

// isWide reports whether more than room for the request as a whole may help it: room for a part of it or for
// less than it asks for, because it holds something there; another latency; or victims.
func (w *waiter) isWide() bool {
	return w.Replicas > 0 || len(w.Components) > 0 || len(w.Current) > 0 || w.MaxLatency != nil || w.Class != ""
}

// podsKey is the same for requests with the same largest pods; empty if they are not known, or if the
// request is wide anyway.
func (w *waiter) podsKey() string {
	if len(w.LargestPods) == 0 || w.isWide() {
		return ""
	}
	return fmt.Sprint(w.LargestPods) // maps are printed in the order of their keys
}

// holdersNear returns the holders of the instances that the request has a required affinity to.
func (w *waiter) holdersNear() (holders []string) {
	for _, a := range w.Affinity {
		if holder := w.Consumer.holder(a.With); a.Weight == 0 && holder != "" && !slices.Contains(holders, holder) {
			holders = append(holders, holder)
		}
	}
	return holders
}

// accepts reports whether a cluster takes the request as a new placement, or one of its components, apart
// from where other instances are.
func (w *waiter) accepts(s *Snapshot, at position) bool {
	if at.page == nil {
		return false
	}
	if name := at.cluster().Name; slices.Contains(w.Current, name) || slices.Contains(slices.Collect(maps.Values(w.ComponentClusters)), name) {
		return Accepts(w.Request, s, name)
	}
	if w.columns != len(s.columns) {
		w.compile(s)
	}
	return slices.ContainsFunc(w.filters, func(filters []filter) bool {
		_, refused := refusal(at, filters, false)
		return !refused
	})
}

// compile makes the filters.
func (w *waiter) compile(s *Snapshot) {
	w.columns, w.filters = len(s.columns), nil
	alone := *s
	alone.preemptions = nil
	for _, part := range w.parts() {
		part.Affinity = nil
		w.filters = append(w.filters, part.filters(&alone, nil))
	}
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
	// holders of reservations that changed.
	holders []string
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
		for _, w := range concerned {
			if !woken[w.ID] && inv.helps(w, e, s, at, before) {
				woken[w.ID] = true
			}
		}
	}
	for _, holder := range e.holders {
		maps.Copy(woken, inv.waiting.near[holder])
	}
	if e.was != nil || e.is != nil {
		inv.regrouped(e, s, woken)
	}
	if len(e.hosts) > 0 {
		for id, w := range inv.waiting.all {
			if slices.ContainsFunc(e.hosts, func(host string) bool { _, asked := w.Hosts[host]; return asked }) {
				woken[id] = true
			}
		}
	}
	for id := range woken {
		inv.wake(id)
	}
}

// concerned returns the requests that a change of clusters may help by what is there now: all, if a cluster
// changed in more than what it has left.
func (inv *Inventory) concerned(e event, s *Snapshot) (concerned []*waiter) {
	ws := &inv.waiting
	switch {
	case len(e.clusters) == 0:
		return nil
	case e.was != nil || e.is != nil || e.before == nil:
		return slices.Collect(maps.Values(ws.all))
	}
	rises, risen := false, map[corev1.ResourceName][]rise{}
	for _, cluster := range e.clusters {
		for name, column := range s.columns {
			before, now := e.before.free(cluster, column), s.free(cluster, column)
			if now <= before {
				continue
			}
			rises = true
			risen[name] = append(risen[name], rise{before, now})
			wants := ws.wants[name]
			first, _ := slices.BinarySearchFunc(wants, before, func(w want, n int64) int { return cmp.Or(cmp.Compare(w.amount, n), -1) })
			for _, w := range wants[first:] {
				if w.amount > now {
					break
				}
				concerned = append(concerned, ws.all[w.id])
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
		if grown && w.mayBeShaped() || e.latency || w.Class != "" || rises && w.gains(risen) {
			concerned = append(concerned, w)
		}
	}
	for id := range inv.preemptions {
		if w := ws.all[id]; w != nil {
			concerned = append(concerned, w)
		}
	}
	return concerned
}

// rise is a change of what a cluster has left.
type rise struct{ before, now int64 }

// gains reports whether a rise can help: if the request is only for replicas, it has to make room for one more.
func (w *waiter) gains(risen map[corev1.ResourceName][]rise) bool {
	if w.Replicas == 0 || len(w.Components) > 0 || len(w.Current) > 0 {
		return true
	}
	for name, rises := range risen {
		amount, common := w.Resources[name], w.Common[name]
		if amount == 0 && common == 0 {
			continue
		}
		if slices.ContainsFunc(rises, func(r rise) bool {
			return amount == 0 && r.now >= common || amount > 0 && max(r.now-common, 0)/amount > max(r.before-common, 0)/amount
		}) {
			return true
		}
	}
	return false
}

// mayBeShaped reports whether the request or one of its components has known pods.
func (w *waiter) mayBeShaped() bool {
	return slices.ContainsFunc(w.parts(), func(part Request) bool { return len(part.LargestPods) > 0 })
}

// holes returns what the nodes of a cluster have free; nil if unknown.
func (s *Snapshot) holes(cluster string) *Holes {
	if at, found := s.find(cluster); found && at.page.holes != nil {
		return at.page.holes[at.row]
	}
	return nil
}

// free is Free by the number of a column.
func (s *Snapshot) free(cluster string, column int) int64 {
	if at, found := s.find(cluster); found {
		return at.page.column(column).free[at.row]
	}
	return 0
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
		more := w.Replicas > 0 || len(w.Components) > 0 || w.Spread != nil && e.is != nil
		return more || e.before == nil || !w.accepts(e.before, before)
	}
	if p := inv.preemptions[w.ID]; p != nil {
		return p.Cluster == at.cluster().Name
	}
	return w.Class != "" && canVacate(w.Request, s, at.cluster().Name)
}

// regrouped adds the requests that are helped by what a cluster is to others: by the places of instances,
// by the groups in each of which there has to be a cluster, and as the consumer's own cluster or a hub.
func (inv *Inventory) regrouped(e event, s *Snapshot, woken map[string]bool) {
	for _, near := range inv.waiting.near {
		for id := range near {
			by := func(a v1alpha1.Affinity) bool { return relabelled(e.was, e.is, a.By) }
			if slices.ContainsFunc(inv.waiting.all[id].Affinity, by) {
				woken[id] = true
			}
		}
	}
	peers := e.was != nil && e.was.Liqo != nil || e.is != nil && e.is.Liqo != nil
	for id, w := range inv.waiting.all {
		each := w.Spread != nil && w.Spread.Each && (e.is == nil || e.was != nil && !reflect.DeepEqual(e.was.Labels, e.is.Labels))
		if p := w.Peering; each || peers && p != nil && p.Problem != "" && s.peer(w.Request).Peering.Problem != p.Problem {
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
