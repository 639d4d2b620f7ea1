package placement

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	memdb "github.com/hashicorp/go-memdb"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Inventory is the indexed picture of the member clusters and of what is reserved
// on them:
//
//	free = allocatable − foreign use − reserved
//
// exactly, in integers. It lives in memory: clusters come back from their probes,
// reservations from the instances' statuses (see Ledger). Its methods may be called
// from many goroutines and never block on anything but each other.
type Inventory struct {
	mu    sync.Mutex
	store *memdb.MemDB
	// reserved is the sum of the reservations on each cluster.
	reserved map[string]Resources
	// columns numbers every resource that a cluster ever had; it only grows.
	columns  map[corev1.ResourceName]int
	policies Policies
	// quotas are the scopes that they bind; what others hold is not added up.
	quotas scopes
	// snapshot is the picture as of the last change, or nil after a cluster came or
	// went: pages are laid out again when somebody looks.
	snapshot *Snapshot
	// clusters in all, and those that answer.
	clusters, answering int
	// preemptions by the instance for which room is being made. The map is replaced, not
	// changed: snapshots hold it.
	preemptions map[string]*v1alpha1.Preemption
	// following are the labels by whose values instances have a cluster in each group.
	following map[string][]string
	// waiting requests, by ID, and who is told when one of them may fit.
	waiting map[string]Request
	wake    func(instance string)
}

// NewInventory returns an empty inventory.
func NewInventory() *Inventory {
	return &Inventory{
		store:     newStore(),
		reserved:  map[string]Resources{},
		columns:   map[corev1.ResourceName]int{},
		following: map[string][]string{},
		waiting:   map[string]Request{},
		wake:      func(string) {},
	}
}

// OnWake names the function that is told of instances that have something to do:
// that waited and may fit now, or whose cluster answers again. It must not call back
// into the inventory.
func (inv *Inventory) OnWake(wake func(instance string)) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.wake = wake
}

// Wake tells an instance that it has something to do.
func (inv *Inventory) Wake(instance string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.wake(instance)
}

// Follow makes the inventory wake an instance whenever the groups of clusters by these
// labels may have changed: when a cluster comes, goes, or has another value of one of them.
// No labels end that.
func (inv *Inventory) Follow(instance string, by []string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if len(by) == 0 {
		delete(inv.following, instance)
		return
	}
	inv.following[instance] = by
}

// regroup wakes the instances whose groups a cluster changes: from what it was to what it is,
// nil where it was or is not there.
func (inv *Inventory) regroup(was, is *Cluster) {
	for instance, by := range inv.following {
		if was == nil || is == nil || slices.ContainsFunc(by, func(label string) bool {
			before, had := was.Labels[label]
			after, has := is.Labels[label]
			return before != after || had != has
		}) {
			inv.wake(instance)
		}
	}
}

// Fork returns an inventory that is as this one is now, and goes its own way: for
// trying out what would be. It wakes nobody.
func (inv *Inventory) Fork() *Inventory {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	fork := NewInventory()
	fork.store = inv.store.Snapshot()
	fork.columns, fork.policies, fork.quotas, fork.snapshot = inv.columns, inv.policies, inv.quotas, inv.snapshot
	fork.clusters, fork.answering, fork.preemptions = inv.clusters, inv.answering, inv.preemptions
	for cluster, reserved := range inv.reserved {
		fork.reserved[cluster] = maps.Clone(reserved)
	}
	return fork
}

// Snapshot returns the inventory as it is now.
func (inv *Inventory) Snapshot() *Snapshot {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.now()
}

// UpsertCluster adds a cluster or replaces the one of that name. It wakes the instances
// that the cluster takes now and did not take before, and those that are on it when
// it answers again, drives them away or is about to be removed; and those on clusters
// that do not answer when most others do again. The cluster must not be changed
// afterwards.
func (inv *Inventory) UpsertCluster(c *Cluster) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	known := row[Cluster](inv.store.Txn(false), tableCluster, c.Name)
	if known != nil && reflect.DeepEqual(known, c) {
		return
	}
	inv.number(c)
	before, outage := inv.snapshot, inv.outage()
	inv.count(known, -1)
	inv.count(c, 1)

	txn := inv.store.Txn(true)
	check(txn.Insert(tableCluster, c))
	txn.Commit()

	if known != nil {
		inv.redraw(c.Name, func(at spot) *page { return at.page.with(at.row, c, inv.columns, inv.reserved[c.Name]) })
	} else {
		inv.snapshot = nil
	}
	inv.rouse(before, []string{c.Name})
	inv.regroup(known, c)
	if outage && !inv.outage() {
		inv.wakeLost()
	}
	if known != nil && known.disturbs(c) {
		for _, held := range inv.now().Reservations(c.Name) {
			inv.wake(held.Instance)
		}
	}
}

// SetPolicies puts policies in force, and wakes every instance that waits: what was
// asked on its behalf may have changed. Instances that are placed stay.
func (inv *Inventory) SetPolicies(policies Policies) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.policies = policies
	if quotas := policies.scopes(); !slices.Equal(quotas, inv.quotas) {
		inv.quotas = quotas
		inv.countHoldings()
	}
	if inv.snapshot != nil {
		changed := *inv.snapshot
		changed.policies = policies
		inv.snapshot = &changed
	}
	for id := range inv.waiting {
		inv.wake(id)
	}
}

// DeleteCluster removes a cluster; what is reserved on it stays on the ledger.
// Deleting a cluster that is not there does nothing.
func (inv *Inventory) DeleteCluster(name string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	txn := inv.store.Txn(true)
	defer txn.Abort()
	known := row[Cluster](txn, tableCluster, name)
	if known == nil {
		return
	}
	check(txn.Delete(tableCluster, known))
	txn.Commit()
	inv.snapshot = nil
	inv.count(known, -1)
	inv.regroup(known, nil)
	for id, p := range inv.preemptions {
		if p.Cluster == name {
			inv.wake(id) // there will be no room
		}
	}
}

// count adds a cluster to the numbers of clusters, or with −1 takes it off; nil is none.
func (inv *Inventory) count(c *Cluster, n int) {
	if c == nil {
		return
	}
	inv.clusters += n
	if c.Ready {
		inv.answering += n
	}
}

// outage is Snapshot.Outage without a snapshot.
func (inv *Inventory) outage() bool { return 2*inv.answering < inv.clusters }

// wakeLost wakes the instances on clusters that do not answer: as long as most did not,
// nobody left them.
func (inv *Inventory) wakeLost() {
	s := inv.now()
	for _, c := range s.Clusters() {
		if c.Ready {
			continue
		}
		for _, held := range s.Reservations(c.Name) {
			inv.wake(held.Instance)
		}
	}
}

// number gives a column to each resource that the cluster has. The map is replaced,
// not changed: snapshots hold it.
func (inv *Inventory) number(c *Cluster) {
	columns := inv.columns
	for _, resources := range []map[corev1.ResourceName]int64{c.Allocatable, c.ForeignUse, c.Prices} {
		for _, name := range Resources(resources).names() {
			if _, known := columns[name]; known {
				continue
			}
			columns = maps.Clone(columns)
			columns[name] = len(columns)
		}
	}
	inv.columns = columns
}

// now returns the snapshot, laying out the pages anew where it must.
func (inv *Inventory) now() *Snapshot {
	if inv.snapshot == nil {
		txn := inv.store.Txn(false)
		clusters := rows[Cluster](txn, tableCluster, indexID) // in the order of names
		inv.snapshot = &Snapshot{columns: inv.columns, store: txn, policies: inv.policies, preemptions: inv.preemptions}
		for some := range slices.Chunk(clusters, pageRows) {
			inv.snapshot.pages = append(inv.snapshot.pages, newPage(some, inv.columns, inv.reserved))
		}
	}
	return inv.snapshot
}

// redraw replaces the page on which a cluster is, if pages are laid out.
func (inv *Inventory) redraw(cluster string, change func(at spot) *page) {
	if inv.snapshot == nil {
		return
	}
	changed := &Snapshot{
		columns: inv.columns, store: inv.store.Txn(false), pages: inv.snapshot.pages, policies: inv.policies, preemptions: inv.preemptions,
	}
	if at, found := inv.snapshot.find(cluster); found {
		changed.pages = slices.Clone(changed.pages)
		changed.pages[slices.Index(changed.pages, at.page)] = change(at)
	}
	inv.snapshot = changed
}

// rouse wakes the waiting instances that one of these clusters accepts now and did not
// accept before, as far as that is known. Those that have replicas to place are woken by
// every change of a cluster that accepts one; those for which room is being made, by
// every change of that cluster; and those that may displace others, by every change of a
// cluster that has room for them then.
func (inv *Inventory) rouse(before *Snapshot, clusters []string) {
	if len(inv.waiting) == 0 {
		return
	}
	s := inv.now()
	for id, request := range inv.waiting {
		if slices.ContainsFunc(clusters, func(name string) bool {
			if p := request.Peering; p != nil && p.Problem != "" && s.peer(request).Peering.Problem != p.Problem {
				return true // a hub takes it, or a cluster of the consumer's own is there
			}
			if Accepts(request, s, name) {
				return before == nil || request.Replicas > 0 || len(request.Components) > 0 || !Accepts(request, before, name)
			}
			if p := inv.preemptions[id]; p != nil {
				return p.Cluster == name
			}
			return canVacate(request, s, name)
		}) {
			inv.wake(id)
		}
	}
}
