package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	memdb "github.com/hashicorp/go-memdb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// Reserve sets an instance's reservations, and the room that is being made for it, exactly to
// its status. It wakes the instances that may fit into released capacity, and ends the
// instance's own waiting.
func (inv *Inventory) Reserve(h Holding) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.settle(h)
}

func (inv *Inventory) settle(h Holding) {
	inv.waiting.remove(h.Instance)
	inv.preempt(h.Instance, h.Preemption)
	before, hosts := inv.snapshot, inv.holding(h.Instance).Hosts
	change := inv.reserve(h)
	e := change.event()
	e.before, e.clusters, e.spared = before, slices.Collect(maps.Keys(change.clusters)), slices.Collect(maps.Keys(change.holders))
	e.hosts = slices.DeleteFunc(hosts, func(host string) bool { return slices.Contains(h.Hosts, host) })
	inv.wakeWaiting(e)
}

// Begin is called when an operation of an instance begins: others do not displace it meanwhile, it no longer waits, and
// no room is made for one that is deleted. All that it holds stays reserved, because the result of a write may be unknown.
func (inv *Inventory) Begin(h Holding) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	has := inv.holding(h.Instance)
	h.Held, h.Prices, h.Pods, h.Ports, h.Hosts, h.Class = has.Held, has.Prices, has.Pods, has.Ports, has.Hosts, ""
	inv.waiting.remove(h.Instance)
	inv.preempt(h.Instance, h.Preemption)
	change := inv.reserve(h)
	inv.wakeWaiting(change.event())
}

// Release releases everything that an instance holds. It is idempotent.
func (inv *Inventory) Release(instance string) { inv.Reserve(Holding{Instance: instance}) }

// Preempt sets the room that is being made for an instance to its status; nil means none. It
// wakes the victims, and the instances that may use room that is no longer needed.
func (inv *Inventory) Preempt(instance string, p *v1alpha1.Preemption) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.preempt(instance, p)
}

func (inv *Inventory) preempt(instance string, p *v1alpha1.Preemption) {
	was := inv.preemptions[instance]
	if equality.Semantic.DeepEqual(was, p) {
		return
	}
	inv.preemptions = maps.Clone(inv.preemptions)
	delete(inv.preemptions, instance)
	if p != nil {
		if inv.preemptions == nil {
			inv.preemptions = map[string]*v1alpha1.Preemption{}
		}
		inv.preemptions[instance] = p.DeepCopy()
		for _, v := range p.AllVictims() {
			inv.wake(v.Instance)
		}
	}
	inv.refresh()
	if was != nil { // nothing that the clusters have left changes, so that all whom they take are concerned
		inv.wakeWaiting(event{clusters: was.Clusters()})
	}
}

// ClustersHeld returns the clusters on which an instance has reservations, by name.
func (inv *Inventory) ClustersHeld(instance string) []string {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return slices.Sorted(maps.Keys(inv.holding(instance).Held))
}

// Holds reports whether an instance's reservations are exactly these.
func (inv *Inventory) Holds(instance string, held map[string]Resources) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return maps.EqualFunc(inv.holding(instance).Held, held, maps.Equal)
}

// holding returns what an instance has reserved, without the class by which it can be displaced.
func (inv *Inventory) holding(instance string) Holding {
	h := newHolding(instance)
	for _, r := range rows[Reservation](inv.store.Txn(false), tableReservation, indexOf, instance, "") {
		h.Held[r.Cluster], h.Prices[r.Cluster], h.Pods[r.Cluster], h.Ports[r.Cluster] = r.Resources, r.Prices, r.Pods, r.Ports
		h.Hosts, h.Hub, h.holders = lists.Union(h.Hosts, r.Hosts), r.Hub, r.Holders
	}
	return h
}

// ReserveAll is Reserve for many instances at once, several times faster: for recovery. It
// wakes no instance.
func (inv *Inventory) ReserveAll(all []Holding) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	txn := inv.store.Txn(true)
	for _, h := range all {
		inv.book(inv.record(txn, h))
		inv.preempt(h.Instance, h.Preemption)
	}
	txn.Commit()
	inv.snapshot = nil // rebuilt on the next read
	inv.announce()
}

// reserve replaces an instance's reservations, and returns the change.
func (inv *Inventory) reserve(h Holding) change {
	txn := inv.store.Txn(true)
	change := inv.record(txn, h)
	txn.Commit()
	inv.book(change)
	if len(change.owners) > 0 || len(change.clusters) > 0 {
		inv.announce()
	}
	for _, cluster := range slices.Sorted(maps.Keys(change.clusters)) {
		more := change.clusters[cluster]
		inv.redraw(cluster, func(at position) *page { return at.page.withReserved(at.row, more, inv.columns, inv.books[cluster]) })
	}
	return change
}

// book has the reservations on one cluster.
type book struct {
	// reserved is the sum of the reservations.
	reserved Resources
	// pods that are meant to run, in the order of comparePods.
	pods []podsHeld
}

// book adds to what is held on clusters.
func (inv *Inventory) book(c change) {
	for cluster, more := range c.clusters {
		held := inv.books[cluster]
		if held.reserved == nil {
			held.reserved = Resources{}
		}
		held.reserved.Add(more, 1)
		inv.books[cluster] = held
	}
	for _, more := range c.pods {
		held := inv.books[more.cluster]
		held.pods = holdPods(held.pods, more.pod, more.count)
		inv.books[more.cluster] = held
	}
	if len(c.scarce) > 0 {
		inv.sold = maps.Clone(inv.sold)
		if inv.sold == nil {
			inv.sold = map[corev1.ResourceName]sold{}
		}
	}
	for _, one := range c.scarce {
		for name := range one.Resources {
			if isScarce(name) {
				inv.sold[name] = inv.sold[name].with(one.Resources, name, one.sign)
			}
		}
	}
}

// change is the change of the reservations on clusters, and of holders with a quota. owners are all
// holders of which a reservation changed, and near the causes of waiting that their neighbours changed.
type change struct {
	clusters, holders map[string]Resources
	pods              []podsOn
	scarce            []scarceHeld
	owners            map[string]bool
	near              []string
	quotas            scopes
}

func newChange(quotas scopes) change {
	return change{clusters: map[string]Resources{}, holders: map[string]Resources{}, owners: map[string]bool{}, quotas: quotas}
}

// event returns that instances of the owners have come, or gone.
func (c *change) event() event {
	return event{holders: slices.Collect(maps.Keys(c.owners)), near: c.near}
}

// scarceHeld is a reservation with scarce resources, and 1, or −1 if it ends.
type scarceHeld struct {
	Resources
	sign int64
}

// podsOn are pods more on a cluster, or fewer.
type podsOn struct {
	cluster string
	podsHeld
}

// add adds a reservation, or takes it away, by its sign.
func (c *change) add(r *Reservation, sign int) {
	addTo(c.clusters, r.Cluster, r.Resources, int64(sign))
	for _, pod := range r.Pods {
		c.pods = append(c.pods, podsOn{r.Cluster, podsHeld{pod, sign}})
	}
	for name, amount := range r.Resources {
		if amount > 0 && isScarce(name) {
			c.scarce = append(c.scarce, scarceHeld{r.Resources, int64(sign)})
			break
		}
	}
	for _, holder := range r.Holders {
		c.owners[holder] = true
		if c.quotas.bind(holder) {
			addTo(c.holders, holder, r.Resources, int64(sign))
			addTo(c.holders, holder, r.Prices, int64(sign))
		}
	}
}

// addInstance adds an instance with reservations to its holders, or takes it away, by its sign.
func (c *change) addInstance(holders []string, sign int64) {
	for _, holder := range holders {
		if c.quotas.bind(holder) {
			addTo(c.holders, holder, Resources{instancesHeld: 1}, sign)
		}
	}
}

// addTo adds amounts to one of several sums.
func addTo(sums map[string]Resources, key string, amounts Resources, sign int64) {
	if sums[key] == nil {
		sums[key] = make(Resources, len(amounts))
	}
	sums[key].Add(amounts, sign)
}

// record writes an instance's reservations into the store of record.
func (inv *Inventory) record(txn *memdb.Txn, h Holding) change {
	c, counts := newChange(inv.quotas), census{}
	add := func(r *Reservation, sign int) {
		c.add(r, sign)
		if len(inv.vicinities) > 0 {
			counts.add(inv.vicinities, r, row[Cluster](txn, tableCluster, r.Cluster), int32(sign))
		}
	}
	before, now := rows[Reservation](txn, tableReservation, indexOf, h.Instance, ""), h.reservations()
	var was, is Reservation // one of them; all of an instance have the same holders and hub
	if len(before) > 0 {
		was = *before[0]
	}
	if len(now) > 0 {
		is = *now[0]
	}
	if !slices.Equal(was.Holders, is.Holders) {
		c.addInstance(was.Holders, -1)
		c.addInstance(is.Holders, 1)
	}
	if was.Hub != is.Hub {
		countThrough(txn, was.Hub, -1)
		countThrough(txn, is.Hub, 1)
	}
	for _, r := range before {
		i := slices.IndexFunc(now, func(other *Reservation) bool { return other.Cluster == r.Cluster })
		if i >= 0 && r.equal(now[i]) {
			now = slices.Delete(now, i, i+1)
			continue
		}
		add(r, -1)
		if i < 0 {
			check(txn.Delete(tableReservation, r))
		}
	}
	for _, r := range now {
		r.Resources = inv.shared(r.Resources)
		add(r, 1)
		check(txn.Insert(tableReservation, r))
	}
	c.near = counts.write(txn)
	for holder, more := range c.holders {
		sum := more
		if known := row[holding](txn, tableHolding, holder); known != nil {
			sum = maps.Clone(known.Resources)
			sum.Add(more, 1)
		}
		check(txn.Insert(tableHolding, &holding{Holder: holder, Resources: sum}))
	}
	return c
}

// mostAmounts is how many different amounts are remembered.
const mostAmounts = 1 << 12

// shared returns equal amounts that another reservation has, if there were some lately: many instances of a plan have the
// same. They must not be changed.
func (inv *Inventory) shared(amounts Resources) Resources {
	var key strings.Builder
	for _, name := range amounts.names() {
		fmt.Fprintf(&key, "%s=%d ", name, amounts[name])
	}
	if known, there := inv.amounts[key.String()]; there {
		return known
	}
	if len(inv.amounts) == mostAmounts {
		clear(inv.amounts)
	}
	inv.amounts[key.String()] = amounts
	return amounts
}

// countThrough adds to the number of instances that are reached through a hub.
func countThrough(txn *memdb.Txn, hub string, more int) {
	if hub == "" {
		return
	}
	load := hubLoad{Hub: hub, Instances: more}
	if known := row[hubLoad](txn, tableHub, hub); known != nil {
		load.Instances += known.Instances
	}
	check(txn.Insert(tableHub, &load))
}
