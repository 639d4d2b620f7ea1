package placement

import (
	"cmp"
	"fmt"
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
// These are as many clusters as are lacking: more than one if the request needs several, and
// fewer take it as things are. Of all of them with which the request would then be placed, it
// chooses by the lowest maximum priority of the victims, then the lowest sum of their priorities,
// then the smallest number; equal clusters are ordered by hash. On each cluster it chooses the
// best set of victims by the same order. An update gets room where its instance is, and replicas
// get it on one cluster. Requests with components displace nothing, nor do those with replicas in
// each group.
func Preempt(r Request, s *Snapshot) *v1alpha1.Preemption {
	search := newSearch(r, s)
	if search == nil || r.denied(s) != "" {
		return nil
	}
	search.lookAround()
	rooms := search.roomsBy(search.room)
	var highest int32
	for kind, lacks := range search.lacks {
		if len(rooms[kind]) < lacks {
			return nil
		}
		if lacks > 0 {
			highest = max(highest, rooms[kind][lacks-1].highest)
		}
	}
	if search.severalLack() {
		// Victims of this priority leave one of the clusters, so one of them may leave the others, too, instead of many.
		rooms = search.roomsBy(func(at position) (room, bool) { return search.roomWithin(at, highest) })
	}
	tries := mostRooms
	return search.among(rooms, search.lacks, nil, &tries)
}

// Clusters on which room can be made: those that the instance stays on, and others.
const (
	currentClusters = iota
	otherClusters
	clusterKinds
)

// roomsBy returns the clusters on which a function makes room, the cheapest first.
func (x *search) roomsBy(on func(position) (room, bool)) (rooms [clusterKinds][]room) {
	for _, p := range x.snapshot.pages {
		for kind, suits := range x.suits(p) {
			for row := range suits.rows() {
				if found, ok := on(position{page: p, row: row}); ok {
					rooms[kind] = append(rooms[kind], found)
				}
			}
		}
	}
	hash := hash64(x.request.ID)
	for _, some := range rooms {
		slices.SortFunc(some, func(a, b room) int {
			return cmp.Or(a.cost.compare(b.cost), cmp.Compare(mix(hash^a.page.hash[a.row]), mix(hash^b.page.hash[b.row])),
				strings.Compare(a.cluster().Name, b.cluster().Name))
		})
	}
	return rooms
}

// among returns the first preemption with which the request is placed, of the chosen rooms and as many of the others as are
// lacking; nil if there is none, or after too many tries.
func (x *search) among(rooms [clusterKinds][]room, lacks [clusterKinds]int, chosen []room, tries *int) *v1alpha1.Preemption {
	kind := currentClusters
	if lacks[kind] == 0 {
		kind = otherClusters
	}
	if lacks[kind] == 0 {
		*tries--
		if p := x.preemption(chosen); x.snapshot.wouldPlace(x.request, p) {
			return p
		}
		return nil
	}
	candidates := rooms[kind]
	for i := 0; i <= len(candidates)-lacks[kind] && *tries > 0; i++ {
		rest, left := rooms, lacks
		rest[kind], left[kind] = candidates[i+1:], lacks[kind]-1
		if p := x.among(rest, left, append(chosen, candidates[i]), tries); p != nil {
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
	// mostRooms is how many clusters, or combinations of clusters, are tried. Without spread or affinity the
	// first one works.
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
	// lacks is on how many clusters room has to be made, as far as that is known before.
	lacks [clusterKinds]int
	// filters, without those for capacity.
	filters []filter
	subsets int
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

// searchFor returns nil for requests for which no room is made: those with components, or with replicas in each group.
func searchFor(r Request, s *Snapshot, class *v1alpha1.PriorityClass) *search {
	if len(r.Components) > 0 || r.Replicas > 0 && r.Spread != nil && r.Spread.Each {
		return nil
	}
	enough := Resources{}
	for name := range r.on(1) {
		enough[name] = boundless
	}
	filtered := r
	filtered.LargestPods = nil // which nodes the victims free is not known
	return &search{request: r, snapshot: s, class: class, holders: owners(r.Consumer.holders()), filters: filtered.filters(s, enough)}
}

// lookAround finds how many clusters are lacking, or those that take most replicas. It looks at all clusters.
func (x *search) lookAround() {
	e := evaluate(x.request, x.snapshot)
	defer e.release()
	asked, stays := x.request.ClusterCount(), x.request.stays()
	switch {
	case x.request.Replicas == 0:
		x.lacks[currentClusters], x.lacks[otherClusters] = max(stays-len(e.current), 0), max(asked-stays-len(e.best(asked, nil)), 0)
		if x.lacks == [clusterKinds]int{} { // because of where they are
			x.lacks[otherClusters] = 1
		}
		return
	case stays == asked:
		x.lacks[currentClusters] = 1
	default:
		x.lacks[otherClusters] = 1
	}
	x.roomiest = []vacancy{}
	for _, c := range e.current {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
	slices.SortFunc(x.roomiest, func(a, b vacancy) int { return cmp.Compare(b.replicas, a.replicas) })
	if stays == asked {
		return
	}
	for _, c := range e.best(asked, e.byRoom) {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
}

// severalLack reports whether room has to be made on several clusters.
func (x *search) severalLack() bool { return x.lacks[currentClusters]+x.lacks[otherClusters] > 1 }

// stays reports whether a cluster is one of those on which the instance stays.
func (x *search) stays(at position) bool {
	return x.request.stays() > 0 && slices.Contains(x.request.Current, at.cluster().Name)
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
}

// room returns the cheapest set of victims that makes room on a cluster that fits otherwise;
// false if all victims together are not enough, or if there is room already.
func (x *search) room(at position) (room, bool) {
	return x.roomBy(at, (*cover).least)
}

// roomWithin is room with victims of at most a priority, of which the cheapest may have a higher one than others.
func (x *search) roomWithin(at position, highest int32) (room, bool) {
	return x.roomBy(at, func(c *cover, lacks []int64) ([]int, bool) { return c.within(lacks, highest) })
}

func (x *search) roomBy(at position, find func(*cover, []int64) ([]int, bool)) (room, bool) {
	c, lacks := x.cover(at)
	if c == nil {
		return room{}, false
	}
	best, ok := find(c, lacks)
	if !ok {
		return room{}, false
	}
	found := room{position: at, cost: c.bestCost}
	for _, i := range best {
		found.victims = append(found.victims, c.victims[i])
	}
	return found, true
}

// preemption returns rooms in the form of the status.
func (x *search) preemption(rooms []room) *v1alpha1.Preemption {
	var made []v1alpha1.Room
	for _, found := range rooms {
		on := x.roomOn(found.position)
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

// roomOn returns the room on a cluster, without victims.
func (x *search) roomOn(at position) v1alpha1.Room {
	p := v1alpha1.Room{Cluster: at.cluster().Name}
	if f, refused := refusal(at, x.request.filters(x.snapshot, x.held(at)), x.stays(at)); refused {
		p.Message = f.message(at.page, at.row)
	} else {
		p.Message = fmt.Sprintf("needs room for %d of the %d replicas", x.missing(at), x.request.Replicas)
	}
	return p
}

// canVacate reports whether a cluster would have room for a request if others left it. It does
// not determine the victims, because it is called for each change of a cluster, under the
// inventory's lock.
func canVacate(r Request, s *Snapshot, at position) bool {
	x := newSearch(r, s)
	if x == nil {
		return false
	}
	if suits := x.suits(at.page); !suits[currentClusters].has(at.row) && !suits[otherClusters].has(at.row) {
		return false
	}
	c, lacks := x.cover(at)
	if c == nil {
		return false
	}
	_, ok := c.enough(lacks)
	return ok
}
