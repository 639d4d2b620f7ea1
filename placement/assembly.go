package placement

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// assembly is a request with several components during the search.
type assembly struct {
	request  Request
	snapshot *Snapshot
	// evaluations and candidates of each component: the clusters that fit it, best first. Only
	// the best few at first, then all.
	evaluations []*evaluation
	fitting     [][]candidate
	few         bool
	// order in which components are placed: the one with the most links to those before it
	// comes next, and of several the one with the fewest clusters.
	order []int
	// paths are known once all clusters are considered.
	paths *paths
	// most is the highest score that the components from each position in the order on can
	// still add.
	most []int64

	tried  int
	cut    bool        // the search ended at mostCombinations
	chosen []candidate // by component, as far as the search has come
	sum    int64
	best   []candidate
	bestAt int64
}

func assemble(r Request, s *Snapshot) *assembly {
	a := &assembly{request: r, snapshot: s, bestAt: math.MinInt64}
	for i := range r.Components {
		e := evaluate(r.of(&r.Components[i]), s)
		e.joint = "the best combination"
		a.evaluations = append(a.evaluations, e)
	}
	a.chosen = make([]candidate, len(r.Components))
	a.consider(firstFew)
	return a
}

// release returns the memory of the components' evaluations for reuse. Nothing of them may be used afterwards.
func (a *assembly) release() {
	for _, e := range a.evaluations {
		e.release()
	}
}

// firstFew is how many clusters of each component are tried first. They are usually enough to
// prove that the others contain nothing better.
var firstFew = 64

// consider selects the given number of best clusters for each component, or all with 0.
func (a *assembly) consider(most int) {
	a.fitting, a.order, a.few = nil, nil, false
	for i, e := range a.evaluations {
		fitting := slices.Clone(e.current)
		leaves := a.request.Components[i].Moves && len(e.current) == 0
		if len(e.request.Current) == 0 || a.request.Free || leaves {
			if others := e.fittingBest(most); most > 0 && len(others) == most {
				a.few, fitting = true, append(fitting, others...)
			} else {
				fitting = append(fitting, others...)
			}
		}
		rank := e.ranking(false)
		for k := range fitting {
			fitting[k].rank = rank.of(fitting[k].position, fitting[k].score)
		}
		slices.SortFunc(fitting, better)
		a.fitting = append(a.fitting, fitting)
	}
	a.arrange()
}

// fittingBest returns the given number of best clusters that fit, or all with 0.
func (e *evaluation) fittingBest(most int) []candidate {
	if most > 0 {
		return e.best(most, e.ranking(false))
	}
	return e.fitting()
}

// proven reports whether no combination with an untried cluster can score more than the best
// found. For each component it adds the rank of its last tried cluster, which no untried one
// exceeds, to the best ranks of all others.
func (a *assembly) proven() bool {
	if !a.few {
		return true
	}
	for _, fitting := range a.fitting {
		if last := fitting[len(fitting)-1].rank; last+a.most[0]-fitting[0].rank > a.bestAt {
			return false
		}
	}
	return true
}

// fitting returns the clusters that fit, in no order.
func (e *evaluation) fitting() (all []candidate) {
	for i, p := range e.pages {
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			at := position{page: p, row: row}
			c := candidate{position: at, score: e.scorer.scores[row]}
			e.breakTies(&c)
			all = append(all, c)
		}
	}
	return all
}

// arrange computes the order, and the score that can still be added from each position on.
func (a *assembly) arrange() {
	left := make([]int, len(a.fitting))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		next := slices.MinFunc(left, func(i, k int) int {
			return cmp.Or(cmp.Compare(a.linked(k), a.linked(i)), cmp.Compare(len(a.fitting[i]), len(a.fitting[k])), cmp.Compare(i, k))
		})
		a.order = append(a.order, next)
		left = slices.DeleteFunc(left, func(i int) bool { return i == next })
	}
	a.most = make([]int64, len(a.order)+1)
	for place, i := range slices.Backward(a.order) {
		a.most[place] = a.most[place+1]
		if len(a.fitting[i]) > 0 {
			a.most[place] += a.fitting[i][0].rank
		}
	}
}

// linked counts the links of a component to those in the order.
func (a *assembly) linked(component int) (n int) {
	for _, link := range a.request.Links {
		for side, i := range link.Between {
			if i == component && slices.Contains(a.order, link.Between[1-side]) {
				n++
			}
		}
	}
	return n
}

// choose returns the best combination by component, or why there is none.
func (a *assembly) choose() (chosen []candidate, why string) {
	for i, fitting := range a.fitting {
		if len(fitting) == 0 {
			return nil, fmt.Sprintf("component %s fits nowhere", a.request.Components[i].Name)
		}
	}
	if a.search(0); !a.proven() {
		a.consider(0)
		a.tried, a.cut, a.paths = 0, false, a.measured()
		a.search(0)
	}
	switch {
	case a.best == nil && a.cut:
		return nil, fmt.Sprintf("none of the first %d combinations of clusters takes all components: %s", mostCombinations, a.obstacles())
	case a.best == nil:
		return nil, "no combination of clusters takes all components: " + a.obstacles()
	case a.cut:
		for _, e := range a.evaluations {
			e.joint = fmt.Sprintf("the best of the first %d combinations", mostCombinations)
		}
	}
	return a.best, ""
}

// obstacles lists the limits of a combination, in words.
func (a *assembly) obstacles() string {
	var names []string
	for _, c := range a.request.Components {
		names = append(names, c.Name)
	}
	text := fmt.Sprintf("each of %s fits somewhere", strings.Join(names, ", "))
	for _, link := range a.request.Links {
		between := names[link.Between[0]] + " and " + names[link.Between[1]]
		if link.Connects {
			text += "; " + between + " need one cluster, or two with the driver liqo"
		}
		if link.Most != AnyLatency {
			text += fmt.Sprintf("; %s may be %s apart", between, link.Most)
		}
	}
	return text
}

// search places the components from one position in the order on.
func (a *assembly) search(place int) {
	if place == len(a.order) {
		a.best, a.bestAt = slices.Clone(a.chosen), a.sum // better, as whatever is not was cut off below
		return
	}
	i := a.order[place]
	for c := range a.reachable(place, i) {
		if a.sum+c.rank+a.most[place+1] <= a.bestAt {
			return // none of the following clusters can be better
		}
		if a.tried == mostCombinations {
			a.cut = true
			return
		}
		a.tried++
		if !a.near(place, i, c) || !a.holds(place, i, c) {
			continue
		}
		a.chosen[i] = c
		a.sum += c.rank
		a.search(place + 1)
		a.sum -= c.rank
	}
}

// paths are the pairs of clusters between which a latency is known, and the clusters that fit each
// component, so that a search visits only clusters that can be near enough.
type paths struct {
	from map[*Cluster][]*Cluster
	// fitting are the indices in assembly.fitting, by component.
	fitting []map[*Cluster]int
}

// measured returns the paths; nil if no link limits the latency, so that they do not matter.
func (a *assembly) measured() *paths {
	if a.request.atBest || !slices.ContainsFunc(a.request.Links, func(l Link) bool { return l.Most != AnyLatency }) {
		return nil
	}
	known := &paths{from: map[*Cluster][]*Cluster{}}
	for _, p := range a.snapshot.pages {
		for _, c := range p.clusters {
			for name := range c.Latencies {
				if at, found := a.snapshot.find(name); found {
					other := at.cluster()
					known.from[c] = append(known.from[c], other)
					known.from[other] = append(known.from[other], c)
				}
			}
		}
	}
	for _, fitting := range a.fitting {
		at := make(map[*Cluster]int, len(fitting))
		for i := range fitting {
			at[fitting[i].cluster()] = i
		}
		known.fitting = append(known.fitting, at)
	}
	return known
}

// reachable yields the clusters that fit a component, best first; if the latency to a component
// placed before is limited, only those from which it is known.
func (a *assembly) reachable(place, component int) iter.Seq[candidate] {
	fitting := a.fitting[component]
	if a.paths == nil {
		return slices.Values(fitting)
	}
	for _, link := range a.request.Links {
		for side, i := range link.Between {
			other := link.Between[1-side]
			if i != component || link.Most == AnyLatency || !slices.Contains(a.order[:place], other) {
				continue
			}
			var near []int
			at := a.chosen[other].cluster()
			for _, c := range append([]*Cluster{at}, a.paths.from[at]...) {
				if k, fits := a.paths.fitting[component][c]; fits {
					near = append(near, k)
				}
			}
			slices.Sort(near)
			return func(yield func(candidate) bool) {
				for _, k := range slices.Compact(near) {
					if !yield(fitting[k]) {
						return
					}
				}
			}
		}
	}
	return slices.Values(fitting)
}

// near reports whether a cluster for a component satisfies its links to the components placed
// so far. A latency that was not measured does not satisfy a limit.
func (a *assembly) near(place, component int, at candidate) bool {
	if a.request.atBest {
		return true // latencies are measured again
	}
	for _, link := range a.request.Links {
		for side, i := range link.Between {
			other := link.Between[1-side]
			if i != component || !slices.Contains(a.order[:place], other) {
				continue
			}
			if !link.spans(at.cluster(), a.chosen[other].cluster()) {
				return false
			}
		}
	}
	return true
}

// holds reports whether a cluster has room for a component beside those already placed there.
func (a *assembly) holds(place, component int, at candidate) bool {
	var together Resources
	for _, other := range a.order[:place] {
		if a.chosen[other].position.same(at.position) {
			if together == nil {
				together = Resources{}
				together.Add(a.request.Components[component].Resources, 1)
			}
			together.Add(a.request.Components[other].Resources, 1)
		}
	}
	if a.request.atBest && !at.page.known(at.row) {
		return true // its capacity is not known
	}
	if most := a.request.MaxPrice; most != nil && together != nil && a.cost(place, component, at) > most.NanoPerHour {
		return false
	}
	held := a.snapshot.Reserved(a.request.ID, at.cluster().Name)
	if together != nil && a.evaluations[component].spoken[at.cluster().Name] != "" && !held.covers(together) {
		return false
	}
	for name, need := range together {
		if _, class := v1alpha1.StorageClassOf(name); !class && at.page.column(a.snapshot.columnOf(name)).left(a.request.atBest)[at.row]+held[name] < need {
			return false
		}
	}
	return true
}

// cost returns the price of a component and of those already placed on a cluster, in billionths
// per hour.
func (a *assembly) cost(place, component int, at candidate) int64 {
	sum := a.evaluations[component].scorer.tariff.nanoPerHour(at.page, at.row)
	for _, other := range a.order[:place] {
		if c := a.chosen[other]; c.same(at.position) {
			if sum += a.evaluations[other].scorer.tariff.nanoPerHour(c.page, c.row); sum < 0 {
				return math.MaxInt64
			}
		}
	}
	return sum
}

// narrowest returns the evaluation of the component that fits on the fewest clusters: its
// rejections are the most useful.
func (a *assembly) narrowest() *evaluation {
	at := 0
	for i := range a.fitting {
		if len(a.fitting[i]) < len(a.fitting[at]) {
			at = i
		}
	}
	return a.evaluations[at]
}
