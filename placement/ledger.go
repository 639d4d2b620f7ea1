package placement

import (
	"maps"
	"slices"
	"strings"

	memdb "github.com/hashicorp/go-memdb"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Ledger is what an instance's status reserves, by cluster: the larger, resource by
// resource, of the decision being delivered and the one last delivered, because
// while an update is under way a cluster may carry either.
func Ledger(status *v1alpha1.ServiceInstanceStatus) map[string]Resources {
	held := map[string]Resources{}
	for _, decision := range decisions(status) {
		for _, p := range decision.Placements {
			held[p.Cluster] = held[p.Cluster].max(ResourcesOf(p.Reserved))
		}
	}
	for i := range status.Left {
		left := &status.Left[i]
		held[left.Cluster] = held[left.Cluster].max(ResourcesOf(left.Reserved))
	}
	return held
}

// decisions are those that a status has: the one being delivered, the one delivered.
func decisions(status *v1alpha1.ServiceInstanceStatus) []*v1alpha1.Decision {
	var out []*v1alpha1.Decision
	if status.Decision != nil {
		out = append(out, status.Decision)
	}
	if status.Delivered != nil {
		out = append(out, &status.Delivered.Decision)
	}
	return out
}

// Place decides and, where the request can be placed, reserves what was decided
// under the request's ID, on top of what it holds already; both in one step, so
// that two requests are never given the same capacity.
//
// The caller writes the decision to the hub next. If that write is refused, it
// calls Reserve with what the hub says instead; while its outcome is unknown, the
// reservation stays.
//
// Where the request cannot be placed, the error is *UnplaceableError, and the
// request waits: OnWake's function is told when a cluster changes that accepts it
// now, until Place succeeds or Reserve or Release is called for it.
func (inv *Inventory) Place(r Request) (Decision, error) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	d, err := Place(r, inv.now())
	if err != nil {
		inv.waiting[r.ID] = r
		return d, err
	}
	delete(inv.waiting, r.ID)
	held := inv.held(r.ID)
	for _, p := range d.Placements {
		held[p.Cluster] = held[p.Cluster].max(p.Reserved)
	}
	inv.reserve(Holding{Instance: r.ID, Consumer: r.Consumer, Held: held, Hub: r.Peering.hub()})
	return d, nil
}

// Reserve makes what an instance holds, and the room that is being made for it, exactly
// what its status says, wakes the instances that may fit into what that frees, and ends
// the instance's own waiting.
func (inv *Inventory) Reserve(h Holding) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	delete(inv.waiting, h.Instance)
	inv.preempt(h.Instance, h.Preemption)
	before := inv.snapshot
	changed, holders := inv.reserve(h)
	inv.rouse(before, changed)
	for id, request := range inv.waiting {
		if slices.ContainsFunc(request.Quotas, func(q Quota) bool { return holders[request.Consumer.holder(q.Per)] != nil }) {
			inv.wake(id) // its quota may have room now
		}
	}
}

// Release frees all that an instance holds. Releasing twice does nothing.
func (inv *Inventory) Release(instance string) { inv.Reserve(Holding{Instance: instance}) }

// Preempt makes the room that is being made for an instance what its status says, nil
// being none: it tells the victims, or those who may have what they do not leave.
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
		for i := range p.Victims {
			inv.wake(p.Victims[i].Instance)
		}
	}
	before := inv.snapshot
	if inv.snapshot != nil {
		changed := *inv.snapshot
		changed.preemptions = inv.preemptions
		inv.snapshot = &changed
	}
	if was != nil {
		inv.rouse(before, []string{was.Cluster})
	}
}

// ClustersHeld are the clusters on which an instance holds anything, by name.
func (inv *Inventory) ClustersHeld(instance string) []string {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return slices.Sorted(maps.Keys(inv.held(instance)))
}

// Holds tells whether an instance holds exactly this.
func (inv *Inventory) Holds(instance string, held map[string]Resources) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return maps.EqualFunc(inv.held(instance), held, maps.Equal)
}

// held is what an instance holds, by cluster.
func (inv *Inventory) held(instance string) map[string]Resources {
	held := map[string]Resources{}
	for _, r := range rows[Reservation](inv.store.Txn(false), tableReservation, indexOf, instance, "") {
		held[r.Cluster] = r.Resources
	}
	return held
}

// Holding is what an instance holds, by cluster, and on whose behalf.
type Holding struct {
	Instance string
	Consumer Consumer
	Held     map[string]Resources
	// Class is the priority class under which it can be displaced; empty where it cannot.
	Class string
	// Preemption is the room that is being made for it.
	Preemption *v1alpha1.Preemption
	// Hub through which it is reached; empty where there is none.
	Hub string
}

// hubOf is the hub through which an instance is reached, as its status says.
func hubOf(status *v1alpha1.ServiceInstanceStatus) string {
	for _, decision := range decisions(status) {
		for _, p := range decision.Placements {
			if p.Peering != nil && p.Peering.Hub != "" {
				return p.Peering.Hub
			}
		}
	}
	for i := range status.Left {
		if p := status.Left[i].Peering; p != nil && p.Hub != "" {
			return p.Hub
		}
	}
	return ""
}

// HoldingOf is what an instance's status says.
func HoldingOf(instance *v1alpha1.ServiceInstance) Holding {
	h := Holding{Instance: instance.Name, Consumer: ConsumerOf(instance), Held: Ledger(&instance.Status), Hub: hubOf(&instance.Status)}
	if !instance.DeletionTimestamp.IsZero() {
		return h
	}
	h.Preemption = instance.Status.Preemption
	decided, delivered := instance.Status.Decision, instance.Status.Delivered
	if decided != nil && delivered != nil && decided.Generation == delivered.Decision.Generation && !decided.Moves() {
		h.Class = delivered.Decision.PriorityClass // nothing is being done with it
	}
	return h
}

// ReserveAll is Reserve for many instances at once, several times faster: for recovery.
// It wakes nobody.
func (inv *Inventory) ReserveAll(all []Holding) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	txn := inv.store.Txn(true)
	for _, h := range all {
		for cluster, more := range record(txn, h, inv.quotas).clusters {
			inv.book(cluster, more)
		}
		inv.preempt(h.Instance, h.Preemption)
	}
	txn.Commit()
	inv.snapshot = nil // laid out anew when somebody looks
}

// reserve replaces what an instance holds. It returns the clusters on which that
// changed, and by how much it changed for each holder.
func (inv *Inventory) reserve(h Holding) (changed []string, totals map[string]Resources) {
	txn := inv.store.Txn(true)
	change := record(txn, h, inv.quotas)
	txn.Commit()
	changed = slices.Sorted(maps.Keys(change.clusters))
	for _, cluster := range changed {
		more := change.clusters[cluster]
		inv.book(cluster, more)
		inv.redraw(cluster, func(at spot) *page { return at.page.withReserved(at.row, more, inv.columns) })
	}
	return changed, change.holders
}

// book adds to what is reserved on a cluster.
func (inv *Inventory) book(cluster string, more Resources) {
	if inv.reserved[cluster] == nil {
		inv.reserved[cluster] = Resources{}
	}
	inv.reserved[cluster].add(more, 1)
}

// change is by how much a reservation changes what clusters have, and holders that a
// quota may bind.
type change struct {
	clusters, holders map[string]Resources
	quotas            scopes
}

func (c change) add(cluster string, holders []string, resources Resources, sign int64) {
	count := func(sums map[string]Resources, key string) {
		if sums[key] == nil {
			sums[key] = make(Resources, len(resources))
		}
		sums[key].add(resources, sign)
	}
	count(c.clusters, cluster)
	for _, holder := range holders {
		if c.quotas.bind(holder) {
			count(c.holders, holder)
		}
	}
}

// record writes what an instance holds into the store of record.
func record(txn *memdb.Txn, h Holding, quotas scopes) change {
	c := change{map[string]Resources{}, map[string]Resources{}, quotas}
	holders := h.Consumer.holders()
	same := map[string]bool{}
	was, hub := "", h.Hub
	if len(h.Held) == 0 {
		hub = ""
	}
	for _, r := range rows[Reservation](txn, tableReservation, indexOf, h.Instance, "") {
		now, kept := h.Held[r.Cluster]
		was = r.Hub
		if kept && maps.Equal(r.Resources, now) && slices.Equal(r.Holders, holders) && r.Class == h.Class && r.Hub == hub {
			same[r.Cluster] = true
			continue
		}
		c.add(r.Cluster, r.Holders, r.Resources, -1)
		if !kept {
			check(txn.Delete(tableReservation, r))
		}
	}
	for cluster, resources := range h.Held {
		if same[cluster] {
			continue
		}
		c.add(cluster, holders, resources, 1)
		check(txn.Insert(tableReservation, &Reservation{
			Instance: h.Instance, Cluster: cluster, Resources: resources, Holders: holders, Class: h.Class, Hub: hub,
		}))
	}
	if was != hub {
		countThrough(txn, was, -1)
		countThrough(txn, hub, 1)
	}
	for holder, more := range c.holders {
		sum := more
		if known := row[holding](txn, tableHolding, holder); known != nil {
			sum = maps.Clone(known.Resources)
			sum.add(more, 1)
		}
		check(txn.Insert(tableHolding, &holding{Holder: holder, Resources: sum}))
	}
	return c
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

// Parked are the requests that wait for a cluster to take them, in the order of their IDs.
func (inv *Inventory) Parked() []Request {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	parked := slices.Collect(maps.Values(inv.waiting))
	slices.SortFunc(parked, func(a, b Request) int { return strings.Compare(a.ID, b.ID) })
	return parked
}

// Waiting is the number of instances that wait for a cluster to take them.
func (inv *Inventory) Waiting() int {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return len(inv.waiting)
}
