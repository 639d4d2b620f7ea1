package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// grouping is the group of each row of a page.
type grouping struct {
	names []string
	// of is the number of a row's group, or −1 if the cluster lacks a label.
	of [pageRows]int16
}

// groups returns the groups of a page's clusters by labels. They are computed once for a page's
// traits and kept with them.
func (p *page) groups(by []string) *grouping {
	key := strings.Join(by, "\x00")
	if known, ok := p.groupings.Load(key); ok {
		return known.(*grouping)
	}
	g := &grouping{}
	number, spread := map[string]int16{}, Spread{By: by}
	for row, c := range p.clusters {
		g.of[row] = -1
		name, ok := spread.groupOf(c)
		if !ok {
			continue
		}
		n, ok := number[name]
		if !ok {
			n = int16(len(g.names)) // fewer than pageRows
			number[name] = n
			g.names = append(g.names, name)
		}
		g.of[row] = n
	}
	p.groupings.Store(key, g)
	return g
}

// group is the candidates with the same values of a spread's labels, best first.
type group struct {
	name       string
	candidates []candidate
	tie        uint64
}

// worth returns what the group's n best add to the rank of a choice.
func (g *group) worth(n int) int64 {
	sum := -int64(uneven * n * (n - 1))
	for i := range g.candidates[:n] {
		sum += g.candidates[i].rank
	}
	return sum
}

// groupless names the group of the clusters that lack a label by which a spread is only preferred. No values
// of labels are named like that.
const groupless = "the rest"

// groupOf returns the name of the group of a cluster; false if the cluster lacks a label by which the request must
// be spread. Without a spread, all clusters are in one group.
func (e *evaluation) groupOf(at position) (name string, ok bool) {
	s := e.request.Spread
	if s == nil {
		return "", true
	}
	if groups := at.page.groups(s.By); groups.of[at.row] >= 0 {
		return groups.names[groups.of[at.row]], true
	}
	return groupless, s.Weight > 0
}

// groupOf returns the name of the group of a cluster; false if it lacks a label.
func (s *Spread) groupOf(c *Cluster) (name string, ok bool) {
	values := make([]string, len(s.By))
	for i, label := range s.By {
		if values[i], ok = c.Labels[label]; !ok {
			return "", false
		}
	}
	return strings.Join(values, "/"), true
}

// foremost returns the names of the n groups with the best candidates, if there are so many groups that it pays to look
// at their best candidates first; nil means all groups.
func (e *evaluation) foremost(n int, rank ranking) map[string]bool {
	many := func(p *page) bool { return len(p.groups(e.request.Spread.By).names) > n }
	if !slices.ContainsFunc(e.pages, many) {
		return nil
	}
	var best []candidate // of each group
	add := func(c candidate) {
		if i := slices.IndexFunc(best, func(other candidate) bool { return other.group == c.group }); i >= 0 {
			if better(best[i], c) < 0 {
				return
			}
			best = slices.Delete(best, i, i+1)
		}
		best = keepBest(best, c, n, better)
	}
	for _, c := range e.current {
		if name, ok := e.groupOf(c.position); ok {
			add(e.standing(c, name, rank))
		}
	}
	for i, p := range e.pages {
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			at := position{page: p, row: row}
			if ranked := rank.of(at, e.scorer.scores[row]); len(best) < n || !e.isBehind(at, ranked, &best[n-1]) {
				name, _ := e.groupOf(at)
				c := candidate{position: at, score: e.scorer.scores[row], rank: ranked, group: name}
				e.breakTies(&c)
				add(c)
			}
		}
	}
	names := map[string]bool{}
	for i := range best {
		names[best[i].group] = true
	}
	return names
}

// standing returns a current cluster as a candidate of its group.
func (e *evaluation) standing(c candidate, group string, rank ranking) candidate {
	c.rank, c.group = rank.of(c.position, c.score), group
	if !e.request.Free {
		c.rank += staying
	}
	return c
}

// grouped returns the candidates by group, at most limit in each, of the groups of the given names; nil means all.
func (e *evaluation) grouped(limit int, rank ranking, only map[string]bool) []*group {
	known := map[string]*group{}
	of := func(name string) *group {
		g := known[name]
		if g == nil {
			g = &group{name: name, tie: mix(e.hash ^ hash64(name)), candidates: take(&e.scratch.candidates, min(limit, 16))[:0]}
			known[name] = g
		}
		return g
	}
	for _, c := range e.current {
		if name, ok := e.groupOf(c.position); ok {
			g := of(name)
			g.candidates = keepBest(g.candidates, e.standing(c, name, rank), limit, better)
		}
	}
	var here []*group // by the page's numbers
	for i, p := range e.pages {
		if e.fits[i] == (set{}) {
			continue
		}
		names := p.groups(e.request.Spread.By)
		here = here[:0]
		for _, name := range names.names {
			if only == nil || only[name] {
				here = append(here, of(name))
			} else {
				here = append(here, nil)
			}
		}
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			var g *group
			if n := names.of[row]; n >= 0 {
				g = here[n]
			} else if only == nil || only[groupless] {
				g = of(groupless)
			}
			if g == nil {
				continue
			}
			g.candidates = e.consider(g.candidates, position{page: p, row: row}, g.name, limit, rank)
		}
	}
	maps.DeleteFunc(known, func(_ string, g *group) bool { return len(g.candidates) == 0 })
	return slices.Collect(maps.Values(known))
}

// compare orders groups: of groups with equal sums the first is taken, the one with the cheaper, nearer cluster.
func (g *group) compare(other *group) int {
	x, y := &g.candidates[0], &other.candidates[0]
	return cmp.Or(cmp.Compare(x.price, y.price), cmp.Compare(x.latency, y.latency), cmp.Compare(g.tie, other.tie), strings.Compare(g.name, other.name))
}

// worthwhile returns the groups that can be part of a best solution, in order: for each number of clusters, as many of
// the best as there can be groups beside one with this number.
func worthwhile(groups []*group, of pattern) []*group {
	if len(groups) <= of.groups {
		return slices.SortedFunc(slices.Values(groups), (*group).compare)
	}
	type offer struct {
		*group
		worth int64
	}
	byWorth := func(a, b offer) int {
		if a.worth != b.worth {
			return greater(a.worth, b.worth)
		}
		return a.compare(b.group)
	}
	kept := map[*group]bool{}
	var best []offer
	for n := of.least; n <= min(of.most, of.clusters); n++ {
		count := min(of.groups, (of.clusters-n)/of.least+1)
		best = best[:0]
		for _, g := range groups {
			if len(g.candidates) >= n {
				best = keepBest(best, offer{g, g.worth(n)}, count, byWorth)
			}
		}
		for _, v := range best {
			kept[v.group] = true
		}
	}
	return slices.SortedFunc(maps.Keys(kept), (*group).compare)
}

// everyGroup returns the names of the groups that match the request's selector, whether a
// cluster there fits or not.
func everyGroup(by []string, pages []*page, filters []filter) map[string]bool {
	names := map[string]bool{}
	filters = slices.DeleteFunc(slices.Clone(filters), func(f filter) bool { return !f.shape })
	for _, p := range pages {
		rows := p.passing(filters)
		if rows == (set{}) {
			continue
		}
		groups := p.groups(by)
		for row := range rows.rows() {
			names[groups.names[groups.of[row]]] = true
		}
	}
	return names
}

// every returns the names of the groups in each of which the request needs a cluster.
func (e *evaluation) every() map[string]bool {
	return everyGroup(e.request.Spread.By, e.pages, e.filters)
}
