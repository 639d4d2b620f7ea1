package placement

import (
	"slices"
	"sort"
)

// Where the best clusters have too little room for all replicas, the choice with the greatest rank
// among all that have room is looked for: a knapsack problem. The clusters are taken one after the
// other, and of the choices made so far only those are kept that no other one exceeds in rank and in
// room.

// mostPartial limits the search: so many partial choices are made. At the limit the best choice found
// so far is taken, and the explanation says so.
const mostPartial = 200_000

// partial is a choice of some clusters; its room is counted up to what is asked for.
type partial struct {
	rank, room int64
	last       *candidate
	before     *partial
}

// filling is the search for a choice with room.
type filling struct {
	*bound
	groups []*group
	// pair is subtracted from the rank for each ordered pair of clusters in one group.
	pair int64
	made int
	room func(position) int64
	// spare is memory for partial choices.
	spare []partial
}

// fill returns the best choice with room for all replicas. It gets one that has room.
func (e *evaluation) fill(roomiest []candidate) []candidate {
	asked, _ := e.layout()
	e.ranked = e.ranked[:0]
	scale, pair := e.terms()
	stay := 1 + int64(asked.clusters)*(100*scale+pair*int64(asked.clusters)) // more than anything else counts
	f := &filling{groups: e.undominated(asked.clusters, scale, stay), pair: pair, room: e.room}
	best := &partial{}
	numbers := map[string]int64{}
	for i := range roomiest {
		c := &roomiest[i]
		if best.rank += scale * int64(c.score); !e.request.Free && e.isOn(c.position) {
			best.rank += stay
		}
		numbers[c.group]++
		best = &partial{rank: best.rank, last: c, before: best}
	}
	for _, n := range numbers {
		best.rank -= pair * n * (n - 1)
	}
	var good []*candidate
	f.bound, good = newBound(f.groups, asked.clusters, int64(e.request.Replicas), stay+100*scale+1, e.room)
	f.known = f.factor * best.rank
	if s := e.request.Spread; s == nil || s.Weight > 0 { // any clusters will do
		f.known = max(f.known, f.factor*f.rank(good))
	}
	for pattern := range asked.patterns() {
		if found := f.search(pattern); found != nil && found.rank > best.rank {
			best = found
			f.known = max(f.known, f.factor*best.rank)
		}
	}
	for _, g := range f.groups {
		e.ranked = append(e.ranked, g.candidates)
	}
	e.cut = f.made >= mostPartial
	chosen := make([]candidate, 0, asked.clusters)
	for ; best.before != nil; best = best.before {
		if best.last != nil {
			chosen = append(chosen, *best.last)
		}
	}
	return chosen
}

// search returns the best choice of a pattern; nil if none has room.
func (f *filling) search(of pattern) (best *partial) {
	choices := make([][][]*partial, of.groups+1) // by the numbers of groups and of clusters
	for j := range choices {
		choices[j] = make([][]*partial, of.clusters+1)
	}
	choices[0][0] = []*partial{{}}
	one := min(of.groups, 1) // if any number of groups will do, they are not counted
	first := 0               // of the group's clusters, among all
	for _, g := range f.groups {
		if f.made >= mostPartial {
			break
		}
		for j := of.groups - one; j >= 0; j-- {
			for k := of.clusters - of.least; k >= 0; k-- {
				if len(choices[j][k]) == 0 {
					continue
				}
				for n, some := range f.within(g, first, choices[j][k], min(of.most, of.clusters-k), of.clusters-k) {
					if n < of.least {
						continue
					}
					for _, before := range some {
						choices[j+one][k+n] = f.keep(choices[j+one][k+n], partial{rank: before.rank - f.pair*int64(n*(n-1)), room: before.room, before: before})
					}
				}
			}
		}
		first += len(g.candidates)
	}
	for _, some := range choices[of.fewest:] {
		if all := some[of.clusters]; len(all) > 0 && all[len(all)-1].room >= f.need && (best == nil || all[len(all)-1].rank > best.rank) {
			best = all[len(all)-1]
		}
	}
	return best
}

// within adds up to the given number of a group's clusters to choices that lack so many clusters; the results are by
// their number. The group's first cluster has a position among all.
func (f *filling) within(g *group, first int, choices []*partial, most, lack int) [][]*partial {
	by := make([][]*partial, min(most, len(g.candidates))+1)
	by[0] = choices
	for i := range g.candidates {
		c := &g.candidates[i]
		room := f.room(c.position)
		for n := min(i, len(by)-2); n >= 0; n-- {
			for _, one := range by[n] {
				more := partial{rank: one.rank + c.rank, room: min(one.room+room, f.need), last: c, before: one}
				if !f.excludes(&more, first+i+1, lack-n-1) {
					by[n+1] = f.keep(by[n+1], more)
				}
			}
		}
	}
	return by
}

// rank returns the rank of a choice; less than any if it has too little room.
func (f *filling) rank(chosen []*candidate) (rank int64) {
	numbers, room := map[string]int64{}, int64(0)
	for _, c := range chosen {
		rank += c.rank - 2*f.pair*numbers[c.group]
		room += f.room(c.position)
		numbers[c.group]++
	}
	if room < f.need {
		return impossible / max(f.factor, 1)
	}
	return rank
}

// keep adds a choice, unless another one has at least its rank and its room, and removes those of
// which it has both. Choices are in the order of their rank, greatest first, and so of their room,
// least first.
func (f *filling) keep(choices []*partial, one partial) []*partial {
	if f.made >= mostPartial {
		return choices
	}
	f.made++
	at := sort.Search(len(choices), func(i int) bool { return choices[i].rank < one.rank })
	if at > 0 && choices[at-1].room >= one.room {
		return choices
	}
	if at > 0 && choices[at-1].rank == one.rank {
		at--
	}
	end := at
	for end < len(choices) && choices[end].room <= one.room {
		end++
	}
	if len(f.spare) == cap(f.spare) {
		f.spare = make([]partial, 0, 512)
	}
	f.spare = append(f.spare, one)
	return slices.Replace(choices, at, end, &f.spare[len(f.spare)-1])
}

// undominated returns the clusters that can be part of a best choice of the given number, by group,
// best first: there are not as many others of the group with at least their score and their room. Their rank is their
// score times scale, and more if the instance stays there.
func (e *evaluation) undominated(number int, scale, stay int64) []*group {
	type byScore [101][]candidate
	roomiest := map[string]*byScore{} // of each group and score those with the most room
	in := func(group string) *byScore {
		if roomiest[group] == nil {
			roomiest[group] = &byScore{}
		}
		return roomiest[group]
	}
	var groups []*group
	current := map[string][]candidate{}
	for _, c := range e.current {
		if group, ok := e.groupOf(c.position); ok {
			if c.rank, c.group = scale*int64(c.score), group; !e.request.Free {
				c.rank += stay
			}
			current[group] = append(current[group], c)
			in(group)
		}
	}
	byRoom := func(at position, _ int32) int64 { return e.room(at) }
	for i, p := range e.pages {
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			at := position{page: p, row: row}
			if group, ok := e.groupOf(at); ok {
				some := &in(group)[e.scorer.scores[row]]
				*some = e.consider(*some, at, group, number, byRoom)
			}
		}
	}
	for name, scores := range roomiest {
		all := current[name]
		for _, some := range scores {
			for _, c := range some {
				c.rank = scale * int64(c.score)
				all = append(all, c)
			}
		}
		slices.SortFunc(all, better)
		g := &group{name: name}
		var rooms []int64 // the greatest, in order
		for _, c := range all {
			if room := e.room(c.position); len(rooms) < number || rooms[number-1] < room {
				rooms = keepBest(rooms, room, number, greater)
				g.candidates = append(g.candidates, c)
			}
		}
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *group) int {
		return better(a.candidates[0], b.candidates[0])
	})
	return groups
}
