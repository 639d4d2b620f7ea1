package placement

import "iter"

// mostGroups limits the number of groups of Spread.Each.
const mostGroups = 64

// layout is a number of clusters in fewest to groups groups, of each of which at least least and at most most are
// chosen, and whose numbers of clusters differ by at most skew.
type layout struct{ fewest, groups, clusters, least, most, skew int }

// pattern is a part of a layout, in which the numbers of clusters in the groups are bounded more closely, so that
// they differ by at most the skew of the layout.
type pattern struct{ fewest, groups, clusters, least, most int }

// layout returns the layout that the request asks for; false if there are fewer replicas than groups
// that each take one. A request without a spread has one group, and one that only prefers a spread any.
func (e *evaluation) layout() (asked layout, enough bool) {
	s, clusters := e.request.Spread, e.request.ClusterCount()
	switch {
	case s == nil:
		return layout{1, 1, clusters, 1, clusters, 0}, true
	case s.Weight > 0:
		return layout{0, 0, clusters, 1, clusters, clusters}, true
	case s.Each:
		every := len(e.every())
		return layout{every, every, every, 1, 1, 0}, e.request.Replicas == 0 || e.request.Replicas >= every
	}
	asked = layout{clusters, clusters, clusters, max(s.MinPerGroup, 1), clusters, max(s.MaxSkew, 1)}
	switch {
	case s.Groups > 0:
		asked.fewest = min(s.Groups, clusters)
		asked.groups = asked.fewest
	case s.MinGroups > 0:
		asked.fewest = min(s.MinGroups, clusters)
		asked.groups = max(asked.fewest, clusters/asked.least)
	}
	if asked.most -= (asked.fewest - 1) * asked.least; s.MaxPerGroup > 0 { // the other groups have their least
		asked.most = min(asked.most, s.MaxPerGroup)
	}
	return asked, true
}

// isExact reports whether the number of groups is given.
func (l layout) isExact() bool { return l.fewest == l.groups }

// patterns yields the patterns that a choice may have. The first one is the most even of all.
func (l layout) patterns() iter.Seq[pattern] {
	return func(yield func(pattern) bool) {
		if l.groups == 0 {
			yield(pattern{0, 0, l.clusters, 1, l.clusters})
			return
		}
		even := pattern{l.groups, l.groups, l.clusters, l.clusters / l.groups, (l.clusters + l.groups - 1) / l.groups}
		if even.least >= l.least && even.most <= l.most && !yield(even) {
			return
		}
		for least := l.clusters / max(l.fewest, 1); least >= l.least; least-- {
			s := pattern{l.fewest, l.groups, l.clusters, least, min(least+l.skew, l.most)}
			if s.most < least || l.isExact() && (s.most-least <= 1 || s.groups*least == s.clusters || s.groups*s.most == s.clusters) {
				continue // only the most even one
			}
			s.fewest, s.groups = max(s.fewest, (s.clusters+s.most-1)/s.most), min(s.groups, s.clusters/least)
			if s.fewest <= s.groups && !yield(s) {
				return
			}
		}
	}
}
