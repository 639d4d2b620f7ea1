package placement

import (
	"fmt"
	"slices"
	"strings"
)

// Supposition is a hypothetical change of one cluster.
type Supposition struct {
	Cluster string
	// State is lost (its API server does not answer), cordoned, or back (neither).
	State string
}

// ParseSupposition reads "cluster NAME is STATE".
func ParseSupposition(text string) (Supposition, error) {
	words := strings.Fields(text)
	if len(words) != 4 || words[0] != "cluster" || words[2] != "is" || !slices.Contains([]string{"lost", "cordoned", "back"}, words[3]) {
		return Supposition{}, fmt.Errorf("%q: want \"cluster NAME is lost\", \"… is cordoned\" or \"… is back\"", text)
	}
	return Supposition{Cluster: words[1], State: words[3]}, nil
}

// Suppose returns the snapshot with the change; s itself stays as it is. Reservations on the
// cluster stay reserved. A cluster that does not exist is an error.
func (s *Snapshot) Suppose(that Supposition) (*Snapshot, error) {
	at, found := s.find(that.Cluster)
	if !found {
		return nil, fmt.Errorf("there is no member cluster %q", that.Cluster)
	}
	cluster := *at.cluster()
	switch that.State {
	case "lost":
		cluster.Ready, cluster.Unready = false, "supposed to be lost"
	case "cordoned":
		cluster.Cordoned = true
	case "back":
		cluster.Ready, cluster.Cordoned = true, false
	}
	return s.supposing(at, &cluster), nil
}

// supposing returns the inventory as it would be with another version of a cluster.
func (s *Snapshot) supposing(at position, c *Cluster) *Snapshot {
	held := book{reserved: Resources{}}
	for _, r := range s.Reservations(c.Name) {
		held.reserved.Add(r.Resources, 1)
		for _, pod := range r.Pods {
			held.pods = holdPods(held.pods, pod, 1)
		}
	}
	changed := *s
	changed.pages = slices.Clone(s.pages)
	changed.pages[slices.Index(s.pages, at.page)] = at.page.with(at.row, c, s.columns, held)
	return &changed
}

// with returns the inventory as it would be with more left of some clusters, by their names. What their nodes have free
// is as before.
func (s *Snapshot) with(more map[string]Resources) *Snapshot {
	changed := *s
	changed.pages = slices.Clone(s.pages)
	for i, p := range s.pages {
		if !slices.ContainsFunc(p.clusters, func(c *Cluster) bool { return len(more[c.Name]) > 0 }) {
			continue
		}
		vacated := *p
		vacated.columns = slices.Clone(p.columns)
		for k := range vacated.columns {
			vacated.columns[k].free = slices.Clone(p.columns[k].free)
		}
		for row, c := range p.clusters {
			for name, amount := range more[c.Name] {
				if k := s.columnOf(name); k >= 0 && k < len(vacated.columns) && vacated.columns[k].free != nil {
					vacated.columns[k].free[row] += amount
				}
			}
		}
		changed.pages[i] = &vacated
	}
	return &changed
}
