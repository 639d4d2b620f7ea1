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

// Inventory is the indexed picture of the member clusters and of the reservations on them:
//
//	free = allocatable − foreign use − reserved
//
// exactly, in integers. It lives in memory: clusters are rebuilt from their probes,
// reservations from the instances' statuses (see Ledger). Its methods are safe for concurrent
// use and block only on each other.
type Inventory struct {
	mu    sync.Mutex
	store *memdb.MemDB
	// books have the reservations on each cluster.
	books map[string]book
	// amounts that reservations have, by their text, see shared.
	amounts map[string]Resources
	// columns numbers every resource that any cluster ever had; it only grows.
	columns map[corev1.ResourceName]int
	// sold has the holdings of orders with each scarce resource. The map is replaced, never changed, because
	// snapshots share it.
	sold     map[corev1.ResourceName]sold
	policies Policies
	proofs   Proofs
	// quotas are the scopes of all quotas; only reservations in these scopes are added up.
	quotas scopes
	// vicinities in which neighbours are counted. The slice is replaced, never changed.
	vicinities []vicinity
	// snapshot is the picture after the last change, except of the clusters in moved: those that were
	// added or removed, which are entered on the next read. It is nil if all is to be rebuilt.
	snapshot *Snapshot
	moved    map[string]bool
	// clusters in total, and those that answer.
	clusters, answering int
	// preemptions by the instance for which room is being made. The map is replaced, never
	// changed, because snapshots share it.
	preemptions map[string]*v1alpha1.Preemption
	// following are the labels by whose values instances have a cluster in each group.
	following map[string][]string
	// changed is closed by the next change of a cluster or a reservation; nil while nobody waits for one.
	changed chan struct{}
	// waiting requests, and the function to call when one of them may fit.
	waiting waiters
	wake    func(instance string)
}

// NewInventory returns an empty inventory.
func NewInventory() *Inventory {
	return &Inventory{
		store:     newStore(),
		books:     map[string]book{},
		amounts:   map[string]Resources{},
		columns:   map[corev1.ResourceName]int{},
		following: map[string][]string{},
		moved:     map[string]bool{},
		waiting:   newWaiters(),
		wake:      func(string) {},
	}
}

// OnWake sets the function that is called with each instance that has something to do: one that
// waited and may fit now, or one whose cluster answers again. It must not call back into the
// inventory.
func (inv *Inventory) OnWake(wake func(instance string)) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.wake = wake
}

// Wake calls that function with an instance.
func (inv *Inventory) Wake(instance string) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.wake(instance)
}

// Changed returns a channel that is closed by the next change of a cluster, a reservation or the policies.
func (inv *Inventory) Changed() <-chan struct{} {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if inv.changed == nil {
		inv.changed = make(chan struct{})
	}
	return inv.changed
}

// announce ends the waiting for a change.
func (inv *Inventory) announce() {
	if inv.changed != nil {
		close(inv.changed)
		inv.changed = nil
	}
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
		if was == nil || is == nil || slices.ContainsFunc(by, func(label string) bool { return relabelled(was, is, label) }) {
			inv.wake(instance)
		}
	}
}

// Fork returns an independent copy of the inventory as it is now, for trying out changes. It
// wakes no instance.
func (inv *Inventory) Fork() *Inventory {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	fork := NewInventory()
	fork.store = inv.store.Snapshot()
	fork.columns, fork.policies, fork.proofs, fork.quotas, fork.vicinities = inv.columns, inv.policies, inv.proofs, inv.quotas, inv.vicinities
	fork.snapshot, fork.sold = inv.snapshot, inv.sold
	fork.moved = maps.Clone(inv.moved)
	fork.clusters, fork.answering, fork.preemptions = inv.clusters, inv.answering, inv.preemptions
	for cluster, held := range inv.books {
		fork.books[cluster] = book{maps.Clone(held.reserved), held.pods}
	}
	return fork
}

// Snapshot returns the inventory as it is now.
func (inv *Inventory) Snapshot() *Snapshot {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.now()
}

// UpsertCluster adds a cluster or replaces the one of that name. It wakes the waiting instances
// that the change may help. It wakes the instances on it when it
// answers again, when its taints change and when it is about to be removed. And it wakes the
// instances on clusters that do not answer when more than half of all clusters answer again.
// The cluster must not be changed afterwards.
func (inv *Inventory) UpsertCluster(c *Cluster) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	known := row[Cluster](inv.store.Txn(false), tableCluster, c.Name)
	if known != nil && reflect.DeepEqual(known, c) {
		return
	}
	inv.announce()
	inv.number(c)
	before, outage := inv.snapshot, inv.outage()
	inv.count(known, -1)
	inv.count(c, 1)

	txn := inv.store.Txn(true)
	check(txn.Insert(tableCluster, c))
	near := inv.relabel(txn, known, c)
	txn.Commit()

	if known != nil {
		inv.redraw(c.Name, func(at position) *page { return at.page.with(at.row, c, inv.columns, inv.books[c.Name]) })
	} else {
		inv.moved[c.Name] = true
	}
	change := event{before: before, clusters: []string{c.Name}, near: near, latency: known != nil && !c.sameLatency(known)}
	if known == nil || !c.sameButNumbers(known) {
		change.was, change.is = known, c
	}
	inv.wakeWaiting(change)
	inv.regroup(known, c)
	inv.wakeLost(outage)
	if known != nil && known.disturbs(c) {
		for _, held := range inv.now().Reservations(c.Name) {
			inv.wake(held.Instance)
		}
	}
}

// SetPolicies puts policies in force, and wakes every waiting instance, because its
// requirements may have changed. Placed instances stay.
func (inv *Inventory) SetPolicies(policies Policies) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.policies = policies
	if quotas := policies.scopes(); !slices.Equal(quotas, inv.quotas) {
		inv.quotas = quotas
		inv.countHoldings()
	}
	inv.governAnew()
}

// SetProofs replaces what consumers have proven. If that is something else, it wakes every waiting instance, because
// its requirements may be met now. Placed instances stay.
func (inv *Inventory) SetProofs(proofs Proofs) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if reflect.DeepEqual(inv.proofs, proofs) {
		return
	}
	inv.proofs = proofs
	inv.governAnew()
}

// governAnew makes the policies and proofs those of the snapshot, and wakes every waiting instance.
func (inv *Inventory) governAnew() {
	inv.announce()
	inv.refresh()
	for id := range inv.waiting.all {
		inv.wake(id)
	}
}

// DeleteCluster removes a cluster; its reservations stay in the ledger. For a cluster that does
// not exist it does nothing.
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
	near := inv.relabel(txn, known, nil)
	txn.Commit()
	inv.moved[name] = true
	inv.announce()
	outage := inv.outage()
	inv.count(known, -1)
	inv.wakeWaiting(event{was: known, near: near})
	inv.regroup(known, nil)
	inv.wakeLost(outage)
	for id, p := range inv.preemptions {
		if p.On(name) != nil {
			inv.wake(id) // there will be no room
		}
	}
}

// count adds n to the numbers for a cluster: 1 to add it, −1 to remove it; nil counts nothing.
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

// wakeLost wakes the instances on clusters that do not answer if there was an outage, during which they did not
// leave, and it has ended.
func (inv *Inventory) wakeLost(outage bool) {
	if !outage || inv.outage() {
		return
	}
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

// number gives a column to each resource of the cluster. The map is replaced, never changed,
// because snapshots share it.
func (inv *Inventory) number(c *Cluster) {
	further := Resources{}
	for name := range c.resources(nil) {
		if _, known := inv.columns[name]; !known {
			further[name] = 0
		}
	}
	if len(further) == 0 {
		return
	}
	inv.columns = maps.Clone(inv.columns)
	for _, name := range further.names() {
		inv.columns[name] = len(inv.columns)
	}
}

// now returns the snapshot, and enters the clusters that were added or removed.
func (inv *Inventory) now() *Snapshot {
	switch {
	case inv.snapshot == nil || len(inv.moved) > len(inv.snapshot.pages):
		inv.show(nil)
		for some := range slices.Chunk(inv.snapshot.Clusters(), pageRows) { // in the order of names
			inv.snapshot.pages = append(inv.snapshot.pages, newPage(some, inv.columns, inv.books))
		}
	case len(inv.moved) > 0:
		inv.show(slices.Clone(inv.snapshot.pages))
		for name := range inv.moved {
			inv.enter(inv.snapshot, name)
		}
	}
	clear(inv.moved)
	return inv.snapshot
}

// enter puts a cluster, as the store has it, on the page where it belongs. There is one: each cluster takes away one page
// at most, and now enters no more clusters than there are pages.
func (inv *Inventory) enter(s *Snapshot, name string) {
	c := row[Cluster](s.store, tableCluster, name)
	at := max(s.after(name)-1, 0)
	p := s.pages[at]
	var pages []*page
	switch row, there := p.find(name); {
	case there && c != nil:
		clusters := slices.Clone(p.clusters)
		clusters[row] = c
		pages = append(pages, newPage(clusters, inv.columns, inv.books))
	case there && len(p.clusters) > 1:
		pages = append(pages, p.deleted(row))
	case there:
	case c == nil:
		return
	case len(p.clusters) < pageRows:
		pages = append(pages, p.inserted(row, c, inv.columns, inv.books[name]))
	default:
		clusters := slices.Insert(slices.Clone(p.clusters), row, c)
		half := (len(clusters) + 1) / 2
		pages = append(pages, newPage(clusters[:half:half], inv.columns, inv.books), newPage(clusters[half:], inv.columns, inv.books))
	}
	s.pages = slices.Replace(s.pages, at, at+1, pages...)
}

// redraw replaces the page that a cluster is on, unless the pages are to be rebuilt.
func (inv *Inventory) redraw(cluster string, change func(at position) *page) {
	if inv.snapshot == nil {
		return
	}
	pages := inv.snapshot.pages
	if at, found := inv.snapshot.find(cluster); found {
		pages = slices.Clone(pages)
		pages[slices.Index(pages, at.page)] = change(at)
	}
	inv.show(pages)
}

// show makes pages, and everything else as it is now, the snapshot.
func (inv *Inventory) show(pages []*page) {
	inv.snapshot = &Snapshot{
		pages: pages, columns: inv.columns, store: inv.store.Txn(false), policies: inv.policies, proofs: inv.proofs,
		sold: inv.sold, preemptions: inv.preemptions, vicinities: inv.vicinities,
	}
}

// refresh makes everything but the clusters what it is now, unless the pages are to be rebuilt.
func (inv *Inventory) refresh() {
	if inv.snapshot != nil {
		inv.show(inv.snapshot.pages)
	}
}
