package placement

import (
	"cmp"
	"slices"

	memdb "github.com/hashicorp/go-memdb"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Where a holder's instances are is counted by the values of a label, so that a decision reads as many numbers as the
// label has values, and not all reservations of the holder.

// vicinity is a scope of consumers and a label of clusters: instances of one holder are neighbours if their clusters have
// the same value.
type vicinity struct {
	scope v1alpha1.Scope
	label string
}

// mostVicinities is how many vicinities are counted. In others, the reservations are looked at one by one.
const mostVicinities = 64

// neighbours is the number of a holder's reservations on clusters with a value of a label.
type neighbours struct {
	Holder, Label string
	// Value after "=", because an empty text is none to an index.
	Value string
	Count int32
}

// vicinities returns those that a decision about the request depends on.
func (r Request) vicinities() (all []vicinity) {
	for _, a := range r.Affinity {
		all = append(all, vicinity{a.With, a.By})
	}
	if r.weights().Diversity != 0 {
		all = append(all, r.region())
	}
	return all
}

// region is the vicinity by which diversity spreads instances: of the application or, without one, of the space.
func (r Request) region() vicinity {
	if r.Consumer.Application == "" {
		return vicinity{v1alpha1.ScopeSpace, v1alpha1.LabelRegion}
	}
	return vicinity{v1alpha1.ScopeApplication, v1alpha1.LabelRegion}
}

// neighbours counts the reservations of other instances in a vicinity, by the value of the label.
func (r Request) neighbours(s *Snapshot, in vicinity) map[string]int32 {
	count := map[string]int32{}
	holder := r.Consumer.holder(in.scope)
	if holder == "" {
		return count
	}
	add := func(held *Reservation, n int32) {
		if at, found := s.find(held.Cluster); found {
			if value, has := at.cluster().Labels[in.label]; has {
				count[value] += n
			}
		}
	}
	if !slices.Contains(s.vicinities, in) {
		for _, held := range rows[Reservation](s.store, tableReservation, indexHolder, holder) {
			if held.Instance != r.ID {
				add(held, 1)
			}
		}
		return count
	}
	for _, there := range rows[neighbours](s.store, tableNeighbours, indexOf, holder, in.label, "") {
		count[there.Value[1:]] = there.Count
	}
	for _, own := range rows[Reservation](s.store, tableReservation, indexOf, r.ID, "") {
		if slices.Contains(own.Holders, holder) {
			add(own, -1)
		}
	}
	for value, n := range count {
		if n == 0 {
			delete(count, value)
		}
	}
	return count
}

// observe counts the neighbours in the vicinities of a request from now on.
func (inv *Inventory) observe(r Request) {
	var further []vicinity
	for _, v := range r.vicinities() {
		if !slices.Contains(inv.vicinities, v) && !slices.Contains(further, v) && len(inv.vicinities)+len(further) < mostVicinities {
			further = append(further, v)
		}
	}
	if len(further) == 0 {
		return
	}
	txn := inv.store.Txn(true)
	counts := census{}
	for _, held := range rows[Reservation](txn, tableReservation, indexID) {
		counts.add(further, held, row[Cluster](txn, tableCluster, held.Cluster), 1)
	}
	counts.write(txn)
	txn.Commit()
	inv.vicinities = append(slices.Clip(inv.vicinities), further...)
	inv.refresh()
}

// counts reports whether the neighbours of a request are counted, and it has no reservations among them.
func (inv *Inventory) counts(r Request) bool {
	uncounted := func(v vicinity) bool { return !slices.Contains(inv.vicinities, v) }
	return !slices.ContainsFunc(r.vicinities(), uncounted) && len(inv.holding(r.ID).Held) == 0
}

// census is by how much the numbers of neighbours change. The Count of its keys is zero.
type census map[neighbours]int32

// add adds n for a reservation on a cluster, which may be nil.
func (c census) add(in []vicinity, held *Reservation, on *Cluster, n int32) {
	if on == nil {
		return
	}
	for _, v := range in {
		value, has := on.Labels[v.label]
		if !has {
			continue
		}
		for _, holder := range held.Holders {
			if scopeOf(holder) == v.scope {
				c[neighbours{Holder: holder, Label: v.label, Value: "=" + value}] += n
			}
		}
	}
}

// write stores the numbers. It returns the causes for which requests may wait: neighbours where there were none, or none
// where there were some.
func (c census) write(txn *memdb.Txn) (causes []string) {
	for now, more := range c {
		if more == 0 {
			continue
		}
		known := row[neighbours](txn, tableNeighbours, now.Holder, now.Label, now.Value)
		if now.Count = more; known != nil {
			now.Count += known.Count
		}
		if now.Count == 0 {
			check(txn.Delete(tableNeighbours, known))
		} else {
			check(txn.Insert(tableNeighbours, &now))
		}
		if known == nil || now.Count == 0 {
			causes = append(causes, causeNear(now.Holder, now.Label))
		}
	}
	return causes
}

// relabel moves the reservations on a cluster from the values that its labels had to those that they have; nil where
// it was or is not there.
func (inv *Inventory) relabel(txn *memdb.Txn, was, is *Cluster) (causes []string) {
	in := slices.DeleteFunc(slices.Clone(inv.vicinities), func(v vicinity) bool { return !relabelled(was, is, v.label) })
	if len(in) == 0 {
		return nil
	}
	counts := census{}
	for _, held := range rows[Reservation](txn, tableReservation, indexCluster, cmp.Or(is, was).Name) {
		counts.add(in, held, was, -1)
		counts.add(in, held, is, 1)
	}
	return counts.write(txn)
}
