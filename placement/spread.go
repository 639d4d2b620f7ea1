package placement

import (
	"fmt"
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
	// Groups is the number of groups, and MinGroups the least number of them; zero for both means as many as
	// there are requested clusters.
	Groups, MinGroups int
	// Each requests one cluster in every group instead.
	Each bool
	// MinPerGroup and MaxPerGroup bound the number of clusters in each chosen group; zero means that they do not.
	MinPerGroup, MaxPerGroup int
	// MaxSkew is the largest difference between the numbers of clusters in two chosen groups; zero
	// means 1.
	MaxSkew int
	// Weight makes the spread a preference: each pair of clusters that is not in one group is worth as much as
	// a score of this weight. Only By counts then.
	Weight int32
}

func spreadOf(from *v1alpha1.Spread) (*Spread, error) {
	if from == nil {
		return nil, nil
	}
	if len(from.By) == 0 {
		return nil, fmt.Errorf("spread.by: names no label")
	}
	return &Spread{
		By: from.By, Groups: int(from.Groups), MinGroups: int(from.MinGroups), Each: from.Each, Weight: from.Weight,
		MinPerGroup: int(from.MinPerGroup), MaxPerGroup: int(from.MaxPerGroup), MaxSkew: int(from.MaxSkew),
	}, nil
}

// String returns the labels, for instance "provider and region".
func (s *Spread) String() string { return strings.Join(s.By, " and ") }

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
	for pattern := range asked.patterns() {
		chosen, rank := spreadIn(groups, pattern)
		if chosen != nil && rank > most {
			best, most = chosen, rank
		}
		if even := pattern.fewest == asked.groups && pattern.most-pattern.least <= 1; even && chosen != nil && done(chosen) {
			return chosen
		}
	}
	return best
}

// spreadIn is spread in one pattern, and returns the rank of the choice; nil if that is impossible.
func spreadIn(groups []*group, of pattern) (chosen []candidate, rank int64) {
	groups = worthwhile(groups, of)
	const impossible = math.MinInt64
	// best[j][k] is the greatest sum of ranks of j groups with k clusters, of the groups seen so far, and
	// took[i][j][k] the number of clusters that group i has in it.
	best := table[int64](of.groups+1, of.clusters+1)
	for j := range best {
		for k := range best[j] {
			best[j][k] = impossible
		}
	}
	best[0][0] = 0
	took := make([][][]uint8, len(groups))
	for i, g := range groups {
		took[i] = table[uint8](of.groups+1, of.clusters+1)
		for j := of.groups - 1; j >= 0; j-- {
			for n := of.least; n <= min(of.most, len(g.candidates)); n++ {
				worth := g.worth(n)
				for k := j * of.least; k <= min(of.clusters-n, j*of.most); k++ {
					if before := best[j][k]; before != impossible && before+worth > best[j+1][k+n] {
						best[j+1][k+n], took[i][j+1][k+n] = before+worth, uint8(n) // at most mostClusters
					}
				}
			}
		}
	}
	rank = impossible
	j := 0
	for count := of.groups; count >= of.fewest; count-- {
		if best[count][of.clusters] > rank {
			rank, j = best[count][of.clusters], count
		}
	}
	if rank == impossible {
		return nil, rank
	}
	for i, k := len(groups)-1, of.clusters; i >= 0; i-- {
		if n := int(took[i][j][k]); n > 0 {
			chosen = append(chosen, groups[i].candidates[:n]...)
			j, k = j-1, k-n
		}
	}
	slices.SortFunc(chosen, better)
	return chosen, rank
}

// spreadPreferably chooses clusters with the greatest sum of ranks, of which pair is subtracted for each ordered pair
// of clusters in one group: one after the other, each time the one that adds most. That is exact, because each further
// cluster of a group adds less than the one before, whatever is chosen in other groups.
func spreadPreferably(groups []*group, clusters int, pair int64) (chosen []candidate) {
	of := make([]int, len(groups)) // clusters chosen
	for range clusters {
		var best candidate
		from := -1
		for i, g := range groups {
			if of[i] == len(g.candidates) {
				continue
			}
			next := g.candidates[of[i]]
			if next.rank -= 2 * pair * int64(of[i]); from < 0 || next.compare(&best) < 0 {
				best, from = next, i
			}
		}
		if from < 0 {
			break
		}
		chosen = append(chosen, groups[from].candidates[of[from]])
		of[from]++
	}
	slices.SortFunc(chosen, better)
	return chosen
}

// described returns what is asked for, for instance "5 clusters in at least 2 groups by region, at most 2 in each,".
func (s *Spread) described(asked layout) string {
	text := fmt.Sprintf("%d clusters in ", asked.clusters)
	if !asked.isExact() {
		text += "at least "
	}
	text += fmt.Sprintf("%d groups by %s", asked.fewest, s)
	switch {
	case s.MinPerGroup > 0 && s.MaxPerGroup > 0:
		text += fmt.Sprintf(", %d to %d in each,", s.MinPerGroup, s.MaxPerGroup)
	case s.MinPerGroup > 0:
		text += fmt.Sprintf(", at least %d in each,", s.MinPerGroup)
	case s.MaxPerGroup > 0:
		text += fmt.Sprintf(", at most %d in each,", s.MaxPerGroup)
	}
	return text
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
	return fmt.Sprintf("%s are asked for, their numbers differing by at most %d: %s", e.request.Spread.described(asked), asked.skew, fits)
}
