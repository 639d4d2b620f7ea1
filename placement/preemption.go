package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A request that fits nowhere only for lack of capacity may displace instances of lower
// priority classes: as few as make room, from as few clusters as it needs. Its own status records that first
// (v1alpha1.Preemption). That status makes the victims leave, by moving like any other instance
// that has to leave (instance_move.go), and it keeps other requests out of the room. Nothing is
// placed there before the room is really free.

// Preempt chooses the clusters on which room is made for a request that cannot be placed, and
// the victims that leave them. It returns nil if nothing may be displaced, or if nothing would
// help.
//
// The victims have the lowest maximum priority, then the lowest sum of priorities, then the smallest number. The
// maximum is exact: the request is placed as if all victims up to a priority were gone, from
// the lowest priority up (upTo). So are sum and number, for one cluster and for several without a spread.
// What components and replicas take together on a cluster is not known before. So none of their victims could stay, but
// another set may be cheaper. Replicas get room on one cluster if that is enough, chosen by the same order, unless they
// are in each group.
//
// An update gets room where its instance is.
func Preempt(r Request, s *Snapshot) *v1alpha1.Preemption {
	x := newSearch(r, s)
	if x == nil || r.denied(s) != "" {
		return nil
	}
	if r.Replicas > 0 && !r.inEachGroup() {
		if p := x.onOne(); p != nil {
			return p
		}
	}
	for _, highest := range x.priorities() {
		if p := x.upTo(highest); p != nil {
			return p
		}
	}
	return nil
}

// inEachGroup reports whether the request is placed in every group that there is.
func (r Request) inEachGroup() bool { return r.Spread != nil && r.Spread.Each }

// Clusters on which room can be made: those that the instance stays on, and others.
const (
	currentClusters = iota
	otherClusters
	clusterKinds
)

// onOne makes room on one cluster, for the replicas that the roomiest other clusters do not take. It chooses the one on which
// the cheapest victims leave; equal clusters are ordered by hash.
func (x *search) onOne() *v1alpha1.Preemption {
	kind, _ := x.lookAround()
	var rooms []room
	for _, p := range x.snapshot.pages {
		for row := range x.suits(p)[kind].rows() {
			if found, ok := x.room(position{page: p, row: row}); ok {
				rooms = append(rooms, found)
			}
		}
	}
	hash := hash64(x.request.ID)
	slices.SortFunc(rooms, func(a, b room) int {
		return cmp.Or(a.cost.compare(b.cost), cmp.Compare(mix(hash^a.page.hash[a.row]), mix(hash^b.page.hash[b.row])),
			strings.Compare(a.cluster().Name, b.cluster().Name))
	})
	for i := range rooms[:min(len(rooms), mostRooms)] {
		if p := x.preemption(rooms[i : i+1]); x.snapshot.wouldPlace(x.request, p) {
			return p
		}
	}
	return nil
}

const (
	// mostVictims is how many instances one request may displace.
	mostVictims = 64
	// mostSubsets is how many sets of victims are tried for one request; beyond that, the best
	// set found on each cluster is taken.
	mostSubsets = 1_000_000
	// mostRooms is how many clusters are tried for replicas. Without spread or affinity the first one works.
	mostRooms = 1000
)

// boundless is more of a resource than any cluster can lack.
const boundless = 1 << 61

// search is the search for room for a request.
type search struct {
	request  Request
	snapshot *Snapshot
	class    *v1alpha1.PriorityClass
	holders  []string // of instances that belong to the same consumer
	// filters, without those for capacity.
	filters []filter
	subsets int
	// mayLeave are the victims by cluster; nil if they are not known yet.
	mayLeave map[string][]victim
	// roomiest are the clusters that take most replicas as things are, as many as the request needs, after those that it
	// stays on; nil if nobody has looked.
	roomiest []vacancy
}

// vacancy is a cluster that takes a number of replicas.
type vacancy struct {
	position
	replicas int64
}

// newSearch returns nil if the request may not displace anything.
func newSearch(r Request, s *Snapshot) *search {
	class := s.policies.class(r.Class)
	if class == nil || class.Preempts == v1alpha1.PreemptsNever {
		return nil
	}
	return searchFor(r, s, class)
}

func searchFor(r Request, s *Snapshot, class *v1alpha1.PriorityClass) *search {
	enough := Resources{}
	for name := range r.on(1) {
		enough[name] = boundless
	}
	return &search{request: r, snapshot: s, class: class, holders: owners(r.Consumer.holders()), filters: r.withoutPods().filters(s, enough)}
}

// lookAround finds on which kind of clusters room has to be made, if on one; false if several lack it. It also finds
// the clusters that take most replicas. It looks at all clusters.
func (x *search) lookAround() (kind int, one bool) {
	e := evaluate(x.request, x.snapshot)
	defer e.release()
	asked, stays := x.request.ClusterCount(), x.request.stays()
	if x.request.Replicas == 0 {
		current, others := max(stays-len(e.current), 0), max(asked-stays-len(e.best(asked, nil)), 0)
		if current > 0 {
			return currentClusters, current+others == 1
		}
		return otherClusters, others <= 1 // none lacks it if it is because of where they are
	}
	x.roomiest = []vacancy{}
	for _, c := range e.current {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
	slices.SortFunc(x.roomiest, func(a, b vacancy) int { return cmp.Compare(b.replicas, a.replicas) })
	if stays == asked {
		return currentClusters, true
	}
	for _, c := range e.best(asked, e.byRoom) {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
	return otherClusters, true
}

// stays reports whether a cluster is one of those on which the instance stays.
func (x *search) stays(at position) bool {
	name := at.cluster().Name
	if len(x.request.Components) > 0 {
		return slices.Contains(slices.Collect(maps.Values(x.request.ComponentClusters)), name)
	}
	return x.request.stays() > 0 && slices.Contains(x.request.Current, name)
}

// held returns what the request holds on a cluster where it stays.
func (x *search) held(at position) Resources {
	if !x.stays(at) {
		return nil
	}
	return x.snapshot.Reserved(x.request.ID, at.cluster().Name)
}

// missing returns how many replicas a cluster has to take at least: those that the roomiest other ones do not take, or one
// if nobody has looked around.
func (x *search) missing(at position) int64 {
	if x.roomiest == nil {
		return 1
	}
	left, others := int64(x.request.Replicas), x.request.ClusterCount()-1
	for _, other := range x.roomiest {
		if others > 0 && !other.same(at) {
			left, others = left-other.replicas, others-1
		}
	}
	return max(left, 1)
}

// owners returns the holders that determine who owns an instance. The application is not one of
// them: the consumer chooses it freely.
func owners(holders []string) []string {
	return slices.DeleteFunc(slices.Clone(holders), func(holder string) bool {
		return strings.HasPrefix(holder, string(v1alpha1.ScopeApplication)+" ")
	})
}

// suits returns the rows of a page that lack only capacity. Clusters that the instance is on, and need not stay on, do not
// suit, nor do those where it asks for more while room is being made for others.
func (x *search) suits(p *page) (suits [clusterKinds]set) {
	suits[otherClusters] = p.all
	for _, name := range x.request.Current {
		row, found := p.find(name)
		if !found {
			continue
		}
		suits[otherClusters].remove(row)
		at := position{page: p, row: row, held: x.snapshot.Reserved(x.request.ID, name)}
		if _, refused := refusal(at, []filter{spokenFor(x.request, x.snapshot, at.held)}, true); !refused && x.request.stays() > 0 {
			suits[currentClusters].add(row)
		}
	}
	for _, f := range x.filters {
		for kind, rows := range suits {
			if rows != (set{}) && !(f.entry && kind == currentClusters) {
				suits[kind] = rows.without(f.rejects(p, rows))
			}
		}
	}
	return suits
}

// victim is a reservation that may be displaced.
type victim struct {
	*Reservation
	class *v1alpha1.PriorityClass
}

// victims returns the reservations on a cluster that may be displaced, the lowest priority
// first, and of equal priority by name.
func (x *search) victims(cluster string) []victim {
	if x.mayLeave != nil {
		return x.mayLeave[cluster]
	}
	var all []victim
	for _, held := range x.snapshot.Reservations(cluster) {
		class := x.snapshot.policies.class(held.Class)
		switch {
		case class == nil, class.Value >= x.class.Value, held.Instance == x.request.ID:
		case x.class.Preempts != v1alpha1.PreemptsAnyConsumer && !slices.Equal(owners(held.Holders), x.holders):
		default:
			all = append(all, victim{held, class})
		}
	}
	slices.SortFunc(all, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.class.Value, b.class.Value), strings.Compare(a.Instance, b.Instance))
	})
	return all
}

// cost of displacing victims.
type cost struct {
	highest int32
	sum     int64
	count   int
}

func (c cost) compare(other cost) int {
	return cmp.Or(cmp.Compare(c.highest, other.highest), cmp.Compare(c.sum, other.sum), cmp.Compare(c.count, other.count))
}

// room is a cluster and the victims that leave it.
type room struct {
	position
	cost
	victims []victim
	// needs of the request there, including what it holds; nil if they are not known before it is placed.
	needs Resources
}

// room returns the cheapest set of victims that makes room on a cluster that fits otherwise;
// false if all victims together are not enough, or if there is room already.
func (x *search) room(at position) (room, bool) {
	c, lacks := x.cover(at, x.request.on(x.missing(at)), x.held(at))
	if c == nil {
		return room{}, false
	}
	best, ok := c.least(lacks)
	return room{position: at, cost: c.bestCost, victims: c.of(best)}, ok
}

// preemption returns rooms in the form of the status.
func (x *search) preemption(rooms []room) *v1alpha1.Preemption {
	var made []v1alpha1.Room
	for _, found := range rooms {
		on := x.roomOn(found)
		if x.subsets > mostSubsets {
			on.Message += fmt.Sprintf(" (the best of the first %d sets of victims)", mostSubsets)
		}
		for _, v := range found.victims {
			on.Victims = append(on.Victims, v1alpha1.Victim{
				Instance: v.Instance, PriorityClass: v.class.Name, Priority: v.class.Value, Reserved: v.Resources.List(),
			})
		}
		made = append(made, on)
	}
	return x.preemptionOf(made[0], made[1:]...)
}

// preemptionOf returns the preemption that has this room.
func (x *search) preemptionOf(on v1alpha1.Room, elsewhere ...v1alpha1.Room) *v1alpha1.Preemption {
	p := &v1alpha1.Preemption{Room: on, Elsewhere: elsewhere}
	if x.class != nil {
		p.PriorityClass, p.Priority = x.class.Name, x.class.Value
	}
	return p
}

// roomOn returns a room without its victims.
func (x *search) roomOn(found room) v1alpha1.Room {
	at := found.position
	p := v1alpha1.Room{Cluster: at.cluster().Name}
	if lacking, _ := x.lacking(at, found.needs, x.held(at)); len(lacking) > 0 {
		name := lacking[0]
		p.Message = insufficient(name, found.needs[name], x.held(at)[name], x.snapshot.columnOf(name), false).message(at.page, at.row)
	} else if f, refused := refusal(at, x.request.filters(x.snapshot, x.held(at)), x.stays(at)); refused {
		p.Message = f.message(at.page, at.row)
	} else {
		p.Message = fmt.Sprintf("needs room for %d of the %d replicas", x.missing(at), x.request.Replicas)
	}
	return p
}

// canVacate reports whether a cluster would have room for a request, or one of its components, if others left it. It does
// not determine the victims, because it is called for each change of a cluster, under the
// inventory's lock.
func canVacate(r Request, s *Snapshot, at position) bool {
	return slices.ContainsFunc(r.Parts(), func(part Request) bool {
		x := newSearch(part, s)
		if x == nil {
			return false
		}
		if suits := x.suits(at.page); !suits[currentClusters].has(at.row) && !suits[otherClusters].has(at.row) {
			return false
		}
		c, lacks := x.cover(at, part.on(1), x.held(at))
		if c == nil {
			return false
		}
		_, ok := c.enough(lacks)
		return ok
	})
}
