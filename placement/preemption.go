package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A request that fits nowhere only for lack of capacity may displace instances of lower
// priority classes: from one cluster, as few as make room. Its own status records that first
// (v1alpha1.Preemption). That status makes the victims leave, by moving like any other instance
// that has to leave (instance_move.go), and it keeps other requests out of the room. Nothing is
// placed there before the room is really free.

// Preempt chooses the cluster on which room is made for a request that cannot be placed, and
// the victims that leave it. It returns nil if nothing may be displaced, or if nothing would
// help.
//
// Of all clusters on which the request would then be placed, it chooses by the lowest maximum
// priority of the victims, then the lowest sum of their priorities, then the smallest number;
// equal clusters are ordered by hash. On each cluster it chooses the best set of victims by the
// same order. An update gets room where its instance is. Requests with components displace nothing, nor do
// those with replicas in each group.
func Preempt(r Request, s *Snapshot) *v1alpha1.Preemption {
	var rooms []room
	search := newSearch(r, s)
	if search == nil || r.denied(s) != "" {
		return nil
	}
	search.lookAround()
	for _, p := range s.pages {
		for row := range search.suits(p).rows() {
			if found, ok := search.room(position{page: p, row: row}); ok {
				rooms = append(rooms, found)
			}
		}
	}
	hash := hash64(r.ID)
	slices.SortFunc(rooms, func(a, b room) int {
		return cmp.Or(a.cost.compare(b.cost), cmp.Compare(mix(hash^a.page.hash[a.row]), mix(hash^b.page.hash[b.row])),
			strings.Compare(a.cluster().Name, b.cluster().Name))
	})
	for _, found := range rooms[:min(len(rooms), mostRooms)] {
		p := search.preemption(found)
		if s.wouldPlace(r, p) {
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
	// mostRooms is how many clusters are tried. Without spread, affinity or several clusters
	// the first one works.
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
	// inPlace reports whether all clusters that the request needs are those that its instance is on.
	inPlace bool
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
	x := &search{request: r, snapshot: s, class: class, holders: owners(r.Consumer.holders()), filters: filtered.filters(s, enough)}
	if x.inPlace = len(r.Current) > 0 && r.stays() == r.ClusterCount(); x.inPlace {
		x.filters = slices.DeleteFunc(x.filters, func(f filter) bool { return f.entry })
	}
	return x
}

// lookAround finds the clusters that take most replicas. It looks at all clusters.
func (x *search) lookAround() {
	if x.request.Replicas == 0 {
		return
	}
	e := evaluate(x.request, x.snapshot)
	defer e.release()
	x.roomiest = []vacancy{}
	for _, c := range e.current {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
	slices.SortFunc(x.roomiest, func(a, b vacancy) int { return cmp.Compare(b.replicas, a.replicas) })
	if x.inPlace {
		return
	}
	for _, c := range e.best(x.request.ClusterCount(), e.byRoom) {
		x.roomiest = append(x.roomiest, vacancy{c.position, e.room(c.position)})
	}
}

// held returns what the request holds on a cluster where it stays.
func (x *search) held(at position) Resources {
	if !x.inPlace {
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

// suits returns the rows of a page that lack only capacity: of the clusters that the instance is on if it stays there, and
// else of the others.
func (x *search) suits(p *page) set {
	var current set
	for _, name := range x.request.Current {
		if row, found := p.find(name); found {
			current.add(row)
		}
	}
	rows := p.all.without(current)
	if x.inPlace {
		rows = current
	}
	for _, f := range x.filters {
		if rows != (set{}) {
			rows = rows.without(f.rejects(p, rows))
		}
	}
	return rows
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
	c, lacks := x.cover(at)
	if c == nil {
		return room{}, false
	}
	best, ok := c.least(lacks)
	if !ok {
		return room{}, false
	}
	found := room{position: at, cost: c.bestCost}
	for _, i := range best {
		found.victims = append(found.victims, c.victims[i])
	}
	return found, true
}

// cover finds the cheapest victims that together release what is lacking, by branch and bound.
type cover struct {
	victims []victim // by priority
	gives   [][]int64
	// most[i] and all[i] are, of the victims from i on, the most that a single one releases,
	// and what they release together.
	most, all [][]int64
	// lowest[i] is the lowest priority of the victims from i on, and next[i] the first victim after i
	// that has another priority or releases something else.
	lowest  []int64
	next    []int
	subsets *int
	first   int // subsets that were tried on other clusters

	chosen   []int
	sum      int64
	best     []int
	bestCost cost
}

// preemption returns a room in the form of the status.
func (x *search) preemption(found room) *v1alpha1.Preemption {
	p := x.roomOn(found.position)
	if x.subsets > mostSubsets {
		p.Message += fmt.Sprintf(" (the best of the first %d sets of victims)", mostSubsets)
	}
	for _, v := range found.victims {
		p.Victims = append(p.Victims, v1alpha1.Victim{
			Instance: v.Instance, PriorityClass: v.class.Name, Priority: v.class.Value, Reserved: v.Resources.List(),
		})
	}
	return p
}

// roomOn returns a preemption without victims.
func (x *search) roomOn(at position) *v1alpha1.Preemption {
	p := &v1alpha1.Preemption{Cluster: at.cluster().Name}
	if x.class != nil {
		p.PriorityClass, p.Priority = x.class.Name, x.class.Value
	}
	if f, refused := refusal(at, x.request.filters(x.snapshot, x.held(at)), x.inPlace); refused {
		p.Message = f.message(at.page, at.row)
	} else {
		p.Message = fmt.Sprintf("needs room for %d of the %d replicas", x.missing(at), x.request.Replicas)
	}
	return p
}

// wouldPlace reports whether a request is placed on the preemption's cluster once the victims
// hold nothing there.
func (s *Snapshot) wouldPlace(r Request, p *v1alpha1.Preemption) bool {
	at, found := s.find(p.Cluster)
	if !found {
		return false
	}
	given := Resources{}
	for i := range p.Victims {
		given.Add(s.Reserved(p.Victims[i].Instance, p.Cluster), -1)
	}
	vacated := *s
	vacated.pages = slices.Clone(s.pages)
	vacated.pages[slices.Index(s.pages, at.page)] = at.page.withReserved(at.row, given, s.columns, book{})
	r.LargestPods = nil // as in the search
	decision, err := Place(r, &vacated)
	return err == nil && decision.Uses(p.Cluster)
}

// Stands reports whether a preemption is still valid: its victims are of a lower class, and the
// request is placed when they have left.
func (s *Snapshot) Stands(r Request, p *v1alpha1.Preemption) bool {
	class := s.policies.class(r.Class)
	if class == nil || class.Name != p.PriorityClass || class.Value != p.Priority || class.Preempts == v1alpha1.PreemptsNever {
		return false
	}
	for i := range p.Victims {
		if class := s.policies.class(p.Victims[i].PriorityClass); class == nil || class.Value >= p.Priority {
			return false
		}
	}
	return s.wouldPlace(r, p)
}

// Preempting returns the instance for which another one has to leave a cluster, and the room
// that is being made for it; nil if there is none. Of several it is the first by name.
func (s *Snapshot) Preempting(victim, cluster string) (instance string, found *v1alpha1.Preemption) {
	for id, p := range s.preemptions {
		if p.Cluster != cluster || found != nil && instance < id {
			continue
		}
		if p.Victim(victim) != nil {
			instance, found = id, p
		}
	}
	return instance, found
}

// spokenFor rejects clusters on which room is being made for instances of the same or a higher
// priority.
func spokenFor(r Request, s *Snapshot) filter {
	class := s.policies.class(r.Class)
	by := map[string]string{}
	for id, p := range s.preemptions {
		if id != r.ID && (class == nil || p.Priority >= class.Value) && (by[p.Cluster] == "" || id < by[p.Cluster]) {
			by[p.Cluster] = id
		}
	}
	return filter{reason: ReasonSpokenFor, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			var there set
			for cluster := range by {
				if row, found := p.find(cluster); found {
					there.add(row)
				}
			}
			return among.and(there)
		},
		message: func(p *page, row int) string {
			id := by[p.clusters[row].Name]
			return "room is being made there for " + of(id, s.preemptions[id])
		},
	}
}

// of names an instance for which room is made, with its priority class if it has one.
func of(instance string, p *v1alpha1.Preemption) string {
	if p.PriorityClass == "" {
		return instance
	}
	return instance + " of priority class " + p.PriorityClass
}

// describePreemption describes the victims in words.
func describePreemption(p *v1alpha1.Preemption) string {
	var b strings.Builder
	fmt.Fprintf(&b, "room for class %s (%d) without", p.PriorityClass, p.Priority)
	for i, v := range p.Victims {
		held := ResourcesOf(v.Reserved)
		var parts []string
		for _, name := range held.names() {
			parts = append(parts, show(name, held[name])+" "+string(name))
		}
		separator := ","
		if i == 0 {
			separator = ""
		}
		fmt.Fprintf(&b, "%s %s of class %s (%d, %s)", separator, v.Instance, v.PriorityClass, v.Priority, strings.Join(parts, ", "))
	}
	return b.String()
}

// canVacate reports whether a cluster would have room for a request if others left it. It does
// not determine the victims, because it is called for each change of a cluster, under the
// inventory's lock.
func canVacate(r Request, s *Snapshot, at position) bool {
	x := newSearch(r, s)
	if x == nil {
		return false
	}
	if suits := x.suits(at.page); !suits.has(at.row) {
		return false
	}
	c, lacks := x.cover(at)
	if c == nil {
		return false
	}
	_, ok := c.enough(lacks)
	return ok
}
