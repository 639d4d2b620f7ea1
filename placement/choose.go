package placement

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// candidate is a cluster that fits.
type candidate struct {
	position
	score int32
	// rank orders candidates. A choice maximises the sum of its ranks.
	rank int64
	// Candidates of equal rank are ordered by price and latency, lowest first, and then by a
	// hash.
	price, latency int64
	tie            uint64
	// group that the candidate belongs to in a spread; number of replicas that it gets.
	group    string
	replicas int64
}

// ranking returns a cluster's rank from its score; nil means the score itself.
type ranking func(at position, score int32) int64

func (r ranking) of(at position, score int32) int64 {
	if r == nil {
		return int64(score)
	}
	return r(at, score)
}

// ranking returns the order in which clusters are chosen: by their room for replicas, or by their scores, less what
// they cost if that matters (see chooseThriftily).
func (e *evaluation) ranking(forRoom bool) ranking {
	scale, _ := e.terms()
	switch {
	case forRoom:
		return e.byRoom
	case e.thrift != nil:
		return func(at position, score int32) int64 { return scale*int64(score) - e.thrift(at) }
	case e.request.burden != nil:
		return func(at position, _ int32) int64 { return -e.request.burden(&e.request, at) }
	case scale != 1:
		return func(_ position, score int32) int64 { return scale * int64(score) }
	}
	return nil
}

// byRoom ranks clusters by their room for replicas, and then by score.
func (e *evaluation) byRoom(at position, score int32) int64 {
	return e.room(at)*roomy + int64(score)
}

// What counts more in the rank of a choice than everything after it: that the instance stays where
// it is; room, where that is what is looked for; that the choice is even; and the sum of scores.
const (
	// mostClusters is the most clusters of an instance (v1alpha1.ResourcesPlan).
	mostClusters = 64
	// uneven is more than the sum of the scores of any choice. It is subtracted for each ordered pair of
	// clusters in one group; so the sum of the squares of the groups' numbers of clusters becomes least.
	uneven = 1 << 13
	// roomy is more than a choice can lose by being uneven.
	roomy = 2 * uneven * mostClusters * mostClusters
	// staying is more than the room of any choice (v1alpha1.Replicas), and than its scores times their weights.
	staying = 1 << 56
)

// terms returns by what the scores of a choice are multiplied in its rank, and what is subtracted for each
// ordered pair of its clusters that are in one group. A preferred spread is one more score of each cluster, with its
// weight: the percentage of the other clusters that are in other groups.
func (e *evaluation) terms() (scale, pair int64) {
	s := e.request.Spread
	switch {
	case s == nil:
		return 1, 0
	case s.Weight == 0:
		return 1, uneven
	}
	others := int64(e.request.ClusterCount() - 1)
	if others == 0 {
		return 1, 0
	}
	return e.scorer.total * others, 100 * int64(s.Weight)
}

// choose returns the clusters on which the request is placed, best first, or why there are too
// few.
func (e *evaluation) choose() (chosen []candidate, failed *shortage) {
	if why := e.request.denied(e.snapshot); why != "" {
		return nil, &shortage{why: why, denied: true}
	}
	if chosen, failed = e.chooseWithin(); failed != nil {
		if why := e.unaffordable(); why != "" {
			return nil, &shortage{found: failed.found, why: why, denied: true}
		}
		return nil, failed
	}
	if why := e.overspends(chosen); why != "" {
		if affordable := e.chooseThriftily(); affordable != nil {
			return affordable, nil
		}
		return nil, &shortage{found: len(chosen), why: why, denied: true}
	}
	return chosen, nil
}

// chooseWithin is choose for a request that no quota denies, apart from what several clusters cost together.
func (e *evaluation) chooseWithin() (chosen []candidate, failed *shortage) {
	chosen, failed = e.pick(false)
	if failed != nil || e.request.Replicas == 0 {
		return chosen, failed
	}
	if !e.suffices(chosen) {
		roomiest, failed := e.pick(true)
		if failed != nil {
			return nil, failed
		}
		if !e.suffices(roomiest) {
			return nil, &shortage{found: len(roomiest), why: e.cramped(roomiest), told: "there is no room for all replicas"}
		}
		chosen = e.fill(roomiest)
		for i := range chosen {
			chosen[i].rank = int64(chosen[i].score)
		}
		slices.SortFunc(chosen, better)
	}
	e.divide(chosen)
	return chosen, nil
}

// shortage is the reason why a request cannot be placed.
type shortage struct {
	// found is the number of clusters found of those requested.
	found int
	// why is set if the rejections do not give the reason.
	why string
	// told is the part of it that consumers may read; empty if the rejections say all.
	told string
	// denied is true if the consumer's quota or a host is the reason, not a lack of clusters.
	denied bool
}

// pick chooses the best clusters, or those with most room. Clusters that the instance is on are kept before any other.
// It stays on as many of them as are requested, or the pick fails.
func (e *evaluation) pick(forRoom bool) ([]candidate, *shortage) {
	if e.request.Spread != nil {
		return e.pickSpread(forRoom)
	}
	asked, stay, rank := e.request.ClusterCount(), e.request.stays(), e.ranking(forRoom)
	if len(e.current) < stay {
		return nil, &shortage{found: len(e.current)} // it stays on those clusters or on none
	}
	for i := range e.current {
		e.current[i].rank = rank.of(e.current[i].position, e.current[i].score)
	}
	chosen := slices.Clone(e.current)
	slices.SortFunc(chosen, better)
	others := e.best(asked-stay+1, rank) // and the one that would be next
	if e.request.Free {
		for _, c := range e.current {
			others = keepBest(others, c, asked+1, better)
		}
	}
	e.ranked = append(e.ranked[:0], others)
	chosen = append(chosen[:stay], others[:min(len(others), asked-stay)]...)
	if len(chosen) < asked {
		return nil, &shortage{found: len(chosen)}
	}
	return chosen, nil
}

// pickSpread chooses clusters spread over groups.
func (e *evaluation) pickSpread(forRoom bool) ([]candidate, *shortage) {
	s, rank := e.request.Spread, e.ranking(forRoom)
	asked, enough := e.layout()
	_, pair := e.terms()
	if forRoom {
		pair = 0 // only room counts
	}
	var only map[string]bool
	if s.Weight > 0 || asked.most == 1 {
		only = e.foremost(asked.clusters+1, rank) // only the best groups count, and the one that would be next
	}
	groups := e.grouped(asked.clusters, rank, only)
	e.ranked = e.ranked[:0]
	for _, g := range groups {
		e.ranked = append(e.ranked, g.candidates)
	}
	stay, kept := min(asked.clusters, len(e.request.Current)), 0
	if e.request.Free {
		stay = 0
	}
	var chosen []candidate
	switch {
	case s.Weight > 0:
		if chosen = spreadPreferably(groups, asked.clusters, pair); len(chosen) < asked.clusters {
			return nil, &shortage{found: len(chosen)}
		}
		if len(e.current) < stay {
			return nil, &shortage{found: len(e.current)}
		}
		return chosen, nil
	case enough && asked.clusters > 0 && asked.clusters <= mostClusters:
		there := asked
		there.groups = max(min(asked.groups, len(groups)), asked.fewest) // no more than there are
		chosen = spread(groups, there, func(even []candidate) bool { return rank == nil && e.kept(even) == stay })
		kept = e.kept(chosen)
	}
	switch {
	case chosen == nil:
		return nil, &shortage{why: e.unspread(groups, asked)}
	case kept < stay:
		return nil, &shortage{found: kept, why: "spread by " + s.String() + ", the instance cannot stay on all clusters that it is on"}
	}
	return chosen, nil
}

// kept counts the clusters of a choice on which the instance is already.
func (e *evaluation) kept(chosen []candidate) (n int) {
	for _, c := range chosen {
		if e.isOn(c.position) {
			n++
		}
	}
	return n
}

// isOn reports whether the instance is on a cluster already.
func (e *evaluation) isOn(at position) bool {
	return slices.Contains(e.request.Current, at.cluster().Name)
}

// suffices reports whether clusters have room for all replicas.
func (e *evaluation) suffices(chosen []candidate) bool {
	room := int64(0)
	for _, c := range chosen {
		room += e.room(c.position)
	}
	return room >= int64(e.request.Replicas)
}

// best returns the n best clusters that fit and that the instance is not on, best first.
func (e *evaluation) best(n int, rank ranking) []candidate {
	top := take(&e.scratch.candidates, min(n, 256))[:0]
	for i, p := range e.pages {
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			top = e.consider(top, position{page: p, row: row}, "", n, rank)
		}
	}
	return top
}

// consider inserts a cluster of the scorer's current page into the limit best. Most clusters
// are not among them, and cost only a comparison.
func (e *evaluation) consider(best []candidate, at position, group string, limit int, rank ranking) []candidate {
	score := e.scorer.scores[at.row]
	ranked := rank.of(at, score)
	if len(best) == limit && e.isBehind(at, ranked, &best[limit-1]) {
		return best
	}
	c := candidate{position: at, score: score, rank: ranked, group: group}
	e.breakTies(&c)
	return keepBest(best, c, limit, better)
}

// isBehind reports whether a cluster with a rank is certainly worse than a candidate.
func (e *evaluation) isBehind(at position, rank int64, last *candidate) bool {
	return rank < last.rank || rank == last.rank && e.scorer.cost(at) > last.price
}

// keepBest inserts one into the best, which are in order, before its equals, and keeps at most limit of them.
func keepBest[T any](best []T, one T, limit int, compare func(a, b T) int) []T {
	if len(best) == limit {
		if limit == 0 || compare(one, best[limit-1]) > 0 {
			return best
		}
		best = best[:limit-1]
	}
	at, _ := slices.BinarySearchFunc(best, one, compare)
	return slices.Insert(best, at, one)
}

// better orders candidates, best first.
func better(a, b candidate) int { return a.compare(&b) }

// compare orders candidates: higher rank, then lower price, then lower latency, then hash, then
// name.
func (c *candidate) compare(other *candidate) int {
	switch { // cmp.Or would compare the names of all
	case c.rank != other.rank:
		return cmp.Compare(other.rank, c.rank)
	case c.price != other.price:
		return cmp.Compare(c.price, other.price)
	case c.latency != other.latency:
		return cmp.Compare(c.latency, other.latency)
	case c.tie != other.tie:
		return cmp.Compare(c.tie, other.tie)
	default:
		return strings.Compare(c.cluster().Name, other.cluster().Name)
	}
}

// breakTies sets the values that order candidates of equal rank: price, latency and a hash that
// differs for each request.
func (e *evaluation) breakTies(c *candidate) {
	c.price, c.latency = e.scorer.cost(c.position), math.MaxInt64
	if measured, known := latencyOf(c.cluster(), e.request.MaxLatency, e.request.At); known {
		c.latency = int64(measured)
	}
	c.tie = mix(e.hash ^ c.page.hash[c.row])
}
