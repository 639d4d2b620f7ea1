package placement

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
)

// A request that fits nowhere for lack of room may get it by moving other instances, where a policy allows that
// (v1alpha1.MakeRoom). It is a preemption whose victims are not displaced: each has a cluster to move to, and stays if
// that does not take it any more.

// Movable returns the request of an instance that may move, with the clusters that it is on; false if it may not move now.
type Movable func(instance string) (Request, bool)

// MakeRoom finds the fewest moves of other instances away from one cluster after which a request that cannot be placed is
// placed there. It returns nil if no policy allows moves, or if none would help, as when the request lacks several clusters,
// or has replicas in each group. For a request with components, room is made for one of them.
// In has the reservations; it is not changed.
//
// Every move is one that Place decides, with those before it made. As many instances move as the policies of each of
// them allow. Of equally few, it is the first set found on the cluster that needs the least, equal clusters by hash. A pod
// of the request that fits on no node is taken to fit where an instance leaves that has a pod of that size: what a
// node has free beside it is not known.
//
// The search is exact; if it is cut off after mostMoveSteps, nothing is found. Instances that others would have to make
// way for before they can move themselves are not moved.
func MakeRoom(r Request, in *Inventory, movable Movable) *v1alpha1.Preemption {
	s := in.Snapshot()
	most := s.policies.MakeRoom()
	if most == 0 || r.denied(s) != "" || r.Replicas > 0 && r.inEachGroup() {
		return nil
	}
	class := s.policies.class(r.Class)
	var rooms []crowded
	for _, part := range r.Parts() {
		rooms = append(rooms, searchFor(part, s, class).crowdedClusters(most)...)
	}
	if len(rooms) == 0 {
		return nil
	}
	hash := hash64(r.ID)
	slices.SortStableFunc(rooms, func(a, b crowded) int {
		return cmp.Or(cmp.Compare(a.fewest, b.fewest), slices.Compare(a.lacks, b.lacks),
			cmp.Compare(mix(hash^a.page.hash[a.row]), mix(hash^b.page.hash[b.row])), strings.Compare(a.cluster().Name, b.cluster().Name))
	})
	x := &clearing{search: searchFor(r, s, class), movable: movable, known: map[string]*mover{}}
	x.trial = newTrial(in, mostMoveSteps)
	for count := 1; count <= most; count++ {
		for i := range rooms {
			if rooms[i].fewest > count {
				break // nor are they enough for those after it
			}
			x.crowded, x.chosen = &rooms[i], x.chosen[:0]
			if x.choose(0, count, slices.Clone(rooms[i].lacks)) {
				return x.found()
			}
		}
	}
	return nil
}

// mostMoveSteps is how often instances are placed in the search for room for one request.
const mostMoveSteps = 1000

// clearing is the search for moves that make room.
type clearing struct {
	*search
	*trial
	movable Movable
	known   map[string]*mover
	// crowded is the cluster that is being tried, and chosen are the instances that leave it.
	crowded *crowded
	chosen  []*mover
}

// mover is an instance that may move.
type mover struct {
	Request
	// most instances that may move together with it, zero if it does not move at all.
	most int
	// held on the cluster that it leaves, and to is where it comes to.
	held Resources
	to   []string
}

// crowded is a cluster that lacks only room.
type crowded struct {
	position
	// search for room for the request, or for one of its components.
	search *search
	// names and lacks are the resources and amounts that are lacking, pods are those that fit on no node.
	names []corev1.ResourceName
	lacks []int64
	pods  []Resources
	// held are the reservations that give some of it, the smallest first; gives are their amounts by resource.
	held  []*Reservation
	gives [][]int64
	// all[i] are, of the reservations from i on, the amounts together.
	all [][]int64
	// fewest is how many must move at least.
	fewest int
}

// crowdedClusters returns the clusters on which so many moves may be enough; none if several clusters are lacking.
func (x *search) crowdedClusters(most int) (rooms []crowded) {
	kind, one := x.lookAround()
	if !one {
		return nil
	}
	for _, p := range x.snapshot.pages {
		for row := range x.suits(p)[kind].rows() {
			if one := x.crowdedAt(position{page: p, row: row}); one.fewest > 0 && one.fewest <= most {
				rooms = append(rooms, one)
			}
		}
	}
	return rooms
}

// crowdedAt returns what a cluster lacks, and who could give it. Fewest is zero if nothing is lacking, or if all of them
// together do not have it.
func (x *search) crowdedAt(at position) crowded {
	one := crowded{position: at, search: x}
	one.names, one.lacks = x.lacking(at, x.request.on(x.missing(at)), x.held(at))
	holes := x.snapshot.holes(at.cluster().Name)
	for _, pod := range x.request.LargestPods {
		if !x.stays(at) && !holes.take([]Resources{pod}) {
			one.pods = append(one.pods, pod)
		}
	}
	if len(one.lacks) == 0 && len(one.pods) == 0 {
		return one
	}
	for _, held := range x.snapshot.Reservations(at.cluster().Name) {
		helps := leavesHole(held.Pods, one.pods...)
		for _, name := range one.names {
			helps = helps || held.Resources[name] > 0
		}
		if helps && held.Instance != x.request.ID {
			one.held = append(one.held, held)
		}
	}
	slices.SortFunc(one.held, func(a, b *Reservation) int {
		for _, name := range one.names {
			if order := cmp.Compare(a.Resources[name], b.Resources[name]); order != 0 {
				return order
			}
		}
		return strings.Compare(a.Instance, b.Instance)
	})
	n := len(one.held)
	one.gives, one.all = table[int64](n, len(one.names)), table[int64](n+1, len(one.names))
	for i := n - 1; i >= 0; i-- {
		for k, name := range one.names {
			one.gives[i][k] = one.held[i].Resources[name]
			one.all[i][k] = one.all[i+1][k] + one.gives[i][k]
		}
	}
	if n > 0 && covers(one.all[0], one.lacks) {
		one.fewest = one.atLeast()
	}
	return one
}

// atLeast returns how many of the reservations are needed at least: for one resource alone, the largest ones.
func (c *crowded) atLeast() int {
	fewest := 1
	for k, lacks := range c.lacks {
		var amounts []int64
		for i := range c.gives {
			amounts = append(amounts, c.gives[i][k])
		}
		slices.SortFunc(amounts, func(a, b int64) int { return cmp.Compare(b, a) })
		n := 0
		for ; lacks > 0; n++ {
			lacks -= amounts[n]
		}
		fewest = max(fewest, n)
	}
	return fewest
}

// leavesHole reports whether one of an instance's pods is at least as large as one of the others, so that the node that
// it leaves has room for that one.
func leavesHole(pods []Resources, others ...Resources) bool {
	return slices.ContainsFunc(others, func(other Resources) bool {
		return slices.ContainsFunc(pods, func(pod Resources) bool {
			for name, amount := range other {
				if pod[name] < amount {
					return false
				}
			}
			return true
		})
	})
}

// choose extends the chosen instances by count more, from a reservation on, so that they give what is still lacking, and
// moves them.
func (x *clearing) choose(from, count int, lacks []int64) bool {
	c := x.crowded
	if count == 0 {
		return covers(make([]int64, len(lacks)), lacks) && x.leavesHoles() && x.helps() && x.moves(0)
	}
	for i := from; i+count <= len(c.held) && covers(c.all[i], lacks) && x.steps >= 0; i++ {
		x.subsets++
		if x.subsets > mostSubsets {
			x.steps = -1
		}
		m := x.mover(c.held[i])
		if m == nil || m.most < len(x.chosen)+count {
			continue
		}
		rest := slices.Clone(lacks)
		subtract(rest, c.gives[i])
		x.chosen = append(x.chosen, m)
		if x.choose(i+1, count-1, rest) {
			return true
		}
		x.chosen = x.chosen[:len(x.chosen)-1]
	}
	return false
}

// leavesHoles reports whether each of the pods that fit on no node gets one that a chosen instance leaves.
func (x *clearing) leavesHoles() bool {
	return !slices.ContainsFunc(x.crowded.pods, func(pod Resources) bool {
		return !slices.ContainsFunc(x.chosen, func(m *mover) bool { return leavesHole(m.LargestPods, pod) })
	})
}

// helps reports whether the request is placed once the chosen instances are gone.
func (x *clearing) helps() bool {
	defer x.undone()()
	cluster := x.crowded.cluster().Name
	for _, m := range x.chosen {
		held := x.holding(m.ID)
		delete(held.Held, cluster)
		x.hold(&m.Request, held)
	}
	return x.step() && x.placedOn(x.request, cluster)
}

// mover returns an instance that may leave the cluster and has somewhere to go before others move; nil if it may not.
func (x *clearing) mover(held *Reservation) *mover {
	key := held.Instance + "/" + held.Cluster
	if m, known := x.known[key]; known {
		return m
	}
	x.known[key] = nil
	r, ok := x.movable(held.Instance)
	if leaves, _ := x.snapshot.Preempting(held.Instance, held.Cluster); !ok || leaves != "" {
		return nil
	}
	m := &mover{Request: r, held: held.Resources, most: x.snapshot.policies.mostMoves(r.Consumer)}
	if m.most == 0 {
		return nil
	}
	defer x.undone()()
	if _, ok := x.leave(&m.Request, held.Cluster, nil); !ok {
		return nil
	}
	x.known[key] = m
	return m
}

// moves moves the chosen instances from one on, and then places the request. If one does not fit any more where those
// before it have gone, these go elsewhere.
func (x *clearing) moves(from int) bool {
	cluster := x.crowded.cluster().Name
	if from == len(x.chosen) {
		return x.step() && x.placedOn(x.request, cluster)
	}
	m := x.chosen[from]
	var tried []string
	for {
		undo := x.undone()
		to, ok := x.leave(&m.Request, cluster, tried)
		if !ok {
			return false
		}
		m.to = to
		if x.moves(from + 1) {
			return true
		}
		undo()
		tried = append(tried, to...)
	}
}

// found returns the moves in the form of the status.
func (x *clearing) found() *v1alpha1.Preemption {
	on := x.crowded.search.roomOn(room{position: x.crowded.position})
	for _, m := range x.chosen {
		v := v1alpha1.Victim{Instance: m.ID, Reserved: m.held.List(), To: m.to}
		if class := x.snapshot.policies.class(m.Class); class != nil {
			v.PriorityClass, v.Priority = class.Name, class.Value
		}
		on.Victims = append(on.Victims, v)
	}
	return x.preemptionOf(on)
}

// leave moves an instance away from a cluster, not to any of those that are excluded. It returns the clusters that the
// instance comes to; false if it fits nowhere else, if it needs no other cluster, or if the steps are used up.
func (t *trial) leave(r *Request, cluster string, excluded []string) (to []string, ok bool) {
	if !t.step() {
		return nil, false
	}
	leaving := *r
	leaving.Free, leaving.Current = false, lists.Without(r.Current, []string{cluster})
	leaving.Leaving = slices.Concat(r.Leaving, []string{cluster}, excluded)
	d, err := Place(leaving, t.Snapshot())
	if err != nil {
		return nil, false
	}
	holds := newHolding(r.ID)
	for _, p := range d.Placements {
		holds.on(p.Cluster, p.Reserved, p.Price, p.LargestPods)
		if !slices.Contains(leaving.Current, p.Cluster) {
			to = append(to, p.Cluster)
		}
	}
	if len(to) == 0 {
		return nil, false
	}
	t.hold(r, holds)
	return to, true
}

// placedOn reports whether a request is placed on a cluster as things are now, apart from what its nodes have free.
func (t *trial) placedOn(r Request, cluster string) bool {
	d, err := Place(r.withoutPods(), t.Snapshot())
	return err == nil && d.Uses(cluster)
}

// MovesStand reports whether the moves that make room for a request can still be made, and still help: the policies allow
// them, and each instance that has not moved yet still fits where it is to come.
func MovesStand(r Request, in *Inventory, p *v1alpha1.Preemption, movable Movable) bool {
	t := newTrial(in, mostMoveSteps)
	s := t.Snapshot()
	class := s.policies.class(r.Class)
	if name := p.PriorityClass; class == nil && name != "" || class != nil && (class.Name != name || class.Value != p.Priority) {
		return false
	}
	for i := range p.Victims {
		v := &p.Victims[i]
		if s.Reserved(v.Instance, p.Cluster) == nil {
			continue // it has left
		}
		if held := t.holding(v.Instance); !slices.ContainsFunc(v.To, func(to string) bool { return held.Held[to] == nil }) {
			delete(held.Held, p.Cluster) // it is on its way
			t.Reserve(held)
			continue
		}
		m, ok := movable(v.Instance)
		if !ok || s.policies.mostMoves(m.Consumer) < len(p.Victims) {
			return false
		}
		m.Current = lists.Without(m.Current, []string{p.Cluster})
		var err error
		if m.Selector, err = OnlyClusters(m.Selector, lists.Union(m.Current, v.To)...); err != nil {
			return false
		}
		if _, ok := t.leave(&m, p.Cluster, nil); !ok {
			return false
		}
	}
	return t.placedOn(r, p.Cluster)
}
