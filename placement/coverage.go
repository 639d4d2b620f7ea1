package placement

import (
	"cmp"
	"fmt"
	"slices"
)

// Coverage compares the clusters of a delivered instance with the groups of its plan.
type Coverage struct {
	// Lacks reports whether there is a group in which the instance has no cluster.
	Lacks bool
	// Surplus are the clusters that are not needed for any group, with the reason.
	Surplus map[string]string
}

// Covers compares the clusters that an instance is on with the groups of its request. A cluster
// that is not in the inventory counts for no group, and is not surplus.
func (s *Snapshot) Covers(r Request, on []string) Coverage {
	missing := everyGroup(r.Spread.By, s.pages, r.filters(s, nil))
	var known []*Cluster
	for _, name := range on {
		if c := s.Cluster(name); c != nil {
			known = append(known, c)
		}
	}
	slices.SortStableFunc(known, func(a, b *Cluster) int { // of two in a group the usable one stays
		return cmp.Compare(rankOfUse(a), rankOfUse(b))
	})
	c, held := Coverage{Surplus: map[string]string{}}, map[string]string{}
	for _, cluster := range known {
		group, ok := r.Spread.groupOf(cluster)
		switch other := held[group]; {
		case !ok:
			c.Surplus[cluster.Name] = fmt.Sprintf("%s is in no group by %s", cluster.Name, r.Spread)
		case other != "":
			c.Surplus[cluster.Name] = fmt.Sprintf("%s and %s are both in %s, and its plan has one cluster in each group by %s", cluster.Name, other, group, r.Spread)
		default:
			held[group] = cluster.Name
			delete(missing, group)
		}
	}
	c.Lacks = len(missing) > 0
	return c
}

// rankOfUse orders clusters by whether an instance can stay there.
func rankOfUse(c *Cluster) int {
	switch {
	case !c.Ready:
		return 2
	case c.Cordoned:
		return 1
	default:
		return 0
	}
}
