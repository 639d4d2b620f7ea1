package placement

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Spread is how chosen clusters are distributed over groups (v1alpha1.Spread).
type Spread struct {
	// By are the labels that group clusters by their values.
	By []string
	// Groups is the number of groups; zero means as many as there are requested clusters.
	Groups int
	// Each requests one cluster in every group instead.
	Each bool
	// MaxSkew is the largest difference between the numbers of clusters in two chosen groups; zero
	// means 1.
	MaxSkew int
}

func spreadOf(from *v1alpha1.Spread) (*Spread, error) {
	if from == nil {
		return nil, nil
	}
	if len(from.By) == 0 {
		return nil, fmt.Errorf("spread.by: names no label")
	}
	return &Spread{By: from.By, Groups: int(from.Groups), Each: from.Each, MaxSkew: int(from.MaxSkew)}, nil
}

// String returns the labels, for instance "provider and region".
func (s *Spread) String() string { return strings.Join(s.By, " and ") }

// mostGroups limits the number of groups of Spread.Each.
const mostGroups = 64

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

// ungrouped rejects clusters that lack a label that the request is spread by.
func ungrouped(spread *Spread) filter {
	return filter{reason: ReasonNoGroup, shape: true,
		rejects: func(p *page, among set) set {
			having := among
			for _, label := range spread.By {
				having = having.and(p.labelled[label])
			}
			return among.without(having)
		},
		message: func(p *page, row int) string {
			for _, label := range spread.By {
				if _, ok := p.clusters[row].Labels[label]; !ok {
					return fmt.Sprintf("has no label %s, by which the request is spread", label)
				}
			}
			return ""
		},
	}
}

// group is the candidates with the same values of a spread's labels, best first.
type group struct {
	name       string
	candidates []candidate
	tie        uint64
}

// worth returns what the group's n best add to the rank of a choice.
func (g *group) worth(n int) int64 {
	sum := -int64(uneven * n * n)
	for i := range g.candidates[:n] {
		sum += g.candidates[i].rank
	}
	return sum
}

// layout is a number of clusters in a number of groups, whose numbers of clusters differ by at most
// skew.
type layout struct{ groups, clusters, skew int }

// layout returns the layout that the request asks for; false if there are fewer replicas than groups
// that each take one. A request without a spread has one group.
func (e *evaluation) layout() (asked layout, enough bool) {
	s := e.request.Spread
	asked = layout{groups: 1, clusters: e.request.ClusterCount(), skew: 1}
	switch {
	case s == nil:
		return asked, true
	case s.Each:
		every := len(e.every())
		return layout{every, every, max(s.MaxSkew, 1)}, e.request.Replicas == 0 || e.request.Replicas >= every
	}
	asked.groups, asked.skew = s.Groups, max(s.MaxSkew, 1)
	if s.Groups == 0 || s.Groups > asked.clusters {
		asked.groups = asked.clusters
	}
	return asked, true
}

// bounds yields the least and most clusters in a chosen group, the most even first.
func (s layout) bounds() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		up := (s.clusters + s.groups - 1) / s.groups
		if !yield(s.clusters/s.groups, up) {
			return
		}
		for least := s.clusters / s.groups; least >= max(1, up-s.skew); least-- {
			if least+s.skew > up && !yield(least, least+s.skew) {
				return
			}
		}
	}
}

// grouped returns the candidates by group, at most limit in each.
func (e *evaluation) grouped(limit int, rank ranking) []*group {
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
		if names := c.page.groups(e.request.Spread.By); names.of[c.row] >= 0 {
			g := of(names.names[names.of[c.row]])
			c.rank, c.group = rank.of(c.position, c.score), g.name
			if !e.request.Free {
				c.rank += staying
			}
			g.candidates = insert(g.candidates, c, limit)
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
			here = append(here, of(name))
		}
		e.scorer.enter(p, e.fits[i])
		for row := range e.fits[i].rows() {
			g := here[names.of[row]]
			g.candidates = e.consider(g.candidates, position{page: p, row: row}, g.name, limit, rank)
		}
	}
	maps.DeleteFunc(known, func(_ string, g *group) bool { return len(g.candidates) == 0 })
	return slices.SortedFunc(maps.Values(known), func(a, b *group) int {
		// Of groups with equal sums the first is taken: the one with the cheaper, nearer cluster.
		x, y := &a.candidates[0], &b.candidates[0]
		return cmp.Or(cmp.Compare(x.price, y.price), cmp.Compare(x.latency, y.latency), cmp.Compare(a.tie, b.tie), strings.Compare(a.name, b.name))
	})
}

// spread chooses clusters over groups, with the greatest possible rank: it keeps what has to stay,
// then it is as even as the groups allow, so that the sum of the squares of their numbers of clusters
// is least, and then the sum of scores is greatest. done reports whether the most even choice of all
// is good enough.
//
// For each minimum number m of clusters in a group, from the most even down, it solves exactly
// by dynamic programming how many clusters, m to m+skew, each chosen group contributes. Only
// groups that are among the best for some number can be part of a best solution (any other
// could be replaced by an unused one of those). So the cost does not grow with the number of
// groups, except for sorting them.
func spread(groups []*group, asked layout, done func([]candidate) bool) (best []candidate) {
	most := int64(math.MinInt64)
	for least, greatest := range asked.bounds() {
		chosen, rank := spreadFrom(groups, asked.groups, asked.clusters, least, greatest)
		if chosen != nil && rank > most {
			best, most = chosen, rank
		}
		if even := greatest-least <= 1; even && chosen != nil && done(chosen) {
			return chosen
		}
	}
	return best
}

// spreadFrom is spread with least to most clusters in each chosen group, and returns the rank of the
// choice; nil if that is impossible.
func spreadFrom(groups []*group, count, clusters, least, most int) (chosen []candidate, rank int64) {
	groups = worthwhile(groups, count, least, most)
	// best[i][j][k] is the greatest sum of ranks of j of the first i groups with k clusters.
	const impossible = math.MinInt64
	best := make([][][]int64, len(groups)+1)
	for i := range best {
		best[i] = make([][]int64, count+1)
		for j := range best[i] {
			best[i][j] = slices.Repeat([]int64{impossible}, clusters+1)
		}
	}
	best[0][0][0] = 0
	for i, g := range groups {
		for j := range count + 1 {
			copy(best[i+1][j], best[i][j])
		}
		for n := least; n <= min(most, len(g.candidates)); n++ {
			worth := g.worth(n)
			for j := range count {
				for k := range clusters - n + 1 {
					if before := best[i][j][k]; before != impossible && before+worth > best[i+1][j+1][k+n] {
						best[i+1][j+1][k+n] = before + worth
					}
				}
			}
		}
	}
	if rank = best[len(groups)][count][clusters]; rank == impossible {
		return nil, rank
	}
	for i, j, k := len(groups), count, clusters; i > 0; i-- {
		if best[i][j][k] == best[i-1][j][k] {
			continue
		}
		g := groups[i-1]
		for n := least; n <= min(most, len(g.candidates), k); n++ {
			if before := best[i-1][j-1][k-n]; before != impossible && before+g.worth(n) == best[i][j][k] {
				chosen = append(chosen, g.candidates[:n]...)
				j, k = j-1, k-n
				break
			}
		}
	}
	slices.SortFunc(chosen, better)
	return chosen, rank
}

// worthwhile returns the groups that can be part of a best solution: for each number of
// clusters, the count best. Their order is kept.
func worthwhile(groups []*group, count, least, most int) []*group {
	if len(groups) <= count {
		return groups
	}
	kept := map[*group]bool{}
	for n := least; n <= most; n++ {
		able := slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return len(g.candidates) < n })
		slices.SortStableFunc(able, func(a, b *group) int { return cmp.Compare(b.worth(n), a.worth(n)) })
		for _, g := range able[:min(len(able), count)] {
			kept[g] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return !kept[g] })
}

// everyGroup returns the names of the groups that match the request's selector, whether a
// cluster there fits or not.
func everyGroup(by []string, pages []*page, filters []filter) map[string]bool {
	names := map[string]bool{}
	for _, p := range pages {
		rows := p.all
		for _, f := range filters {
			if f.shape {
				rows = rows.without(f.rejects(p, rows))
			}
		}
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

// unspread returns why the groups do not suffice.
func (e *evaluation) unspread(groups []*group, asked layout) string {
	if e.request.Spread.Each {
		names := e.every()
		switch {
		case len(names) == 0:
			return fmt.Sprintf("there is no group by %s", e.request.Spread)
		case len(names) > mostGroups:
			return fmt.Sprintf("%d groups by %s are more than %d", len(names), e.request.Spread, mostGroups)
		case e.request.Replicas > 0 && e.request.Replicas < len(names):
			return fmt.Sprintf("each of the %d groups by %s takes at least one replica, and %d are asked for", len(names), e.request.Spread, e.request.Replicas)
		}
		for _, g := range groups {
			delete(names, g.name)
		}
		return fmt.Sprintf("no cluster of %s fits in %s", e.request.Spread, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	var have []string
	slices.SortFunc(groups, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	for _, g := range groups {
		have = append(have, fmt.Sprintf("%s %d", g.name, len(g.candidates)))
	}
	const shown = 8
	if len(have) > shown {
		have = append(have[:shown], fmt.Sprintf("and %d more", len(have)-shown))
	}
	fits := "none fits"
	if len(have) > 0 {
		fits = "there fit " + strings.Join(have, ", ")
	}
	return fmt.Sprintf("%d clusters in %d groups by %s are asked for, their numbers differing by at most %d: %s",
		asked.clusters, asked.groups, e.request.Spread, asked.skew, fits)
}

// groupOf is the name of the group that a cluster is in; false where it lacks a label.
func (s *Spread) groupOf(c *Cluster) (name string, ok bool) {
	values := make([]string, len(s.By))
	for i, label := range s.By {
		if values[i], ok = c.Labels[label]; !ok {
			return "", false
		}
	}
	return strings.Join(values, "/"), true
}
