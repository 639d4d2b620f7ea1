package placement

import (
	"fmt"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// neighbours counts the other instances in a scope, by the value of a label of the clusters
// that they are on.
func (r Request) neighbours(s *Snapshot, with v1alpha1.Scope, by string) map[string]int32 {
	count := map[string]int32{}
	holder := r.Consumer.holder(with)
	if holder == "" {
		return count
	}
	for _, held := range rows[Reservation](s.store, tableReservation, indexHolder, holder) {
		if held.Instance == r.ID {
			continue
		}
		if at, found := s.find(held.Cluster); found {
			if value, ok := at.cluster().Labels[by]; ok {
				count[value]++
			}
		}
	}
	return count
}

// affine rejects clusters by where the consumer's other instances are. Affinity to other
// instances rejects nothing while there are none, like the affinity of a Kubernetes pod to
// itself.
func affine(a v1alpha1.Affinity, r Request, s *Snapshot) filter {
	others := r.neighbours(s, a.With, a.By)
	reason := ReasonNotTogether
	if a.Apart {
		reason = ReasonNotApart
	}
	return filter{reason: reason, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			if len(others) == 0 {
				return set{}
			}
			var there set
			for value := range others {
				there = there.or(p.label[labelValue{a.By, value}])
			}
			if a.Apart {
				return among.and(there)
			}
			return among.without(there)
		},
		message: func(p *page, row int) string {
			value, has := p.clusters[row].Labels[a.By]
			switch {
			case !has:
				return fmt.Sprintf("has no label %s, by which instances of the same %s are together", a.By, a.With)
			case a.Apart:
				return fmt.Sprintf("%d of the same %s are on %s=%s", others[value], a.With, a.By, value)
			default:
				return fmt.Sprintf("none of the same %s is on %s=%s", a.With, a.By, value)
			}
		},
	}
}

// wish is a preferred affinity, and where the other instances are.
type wish struct {
	v1alpha1.Affinity
	others map[string]int32
}

func (r Request) wishes(s *Snapshot) (wishes []wish) {
	for _, a := range r.Affinity {
		if a.Weight > 0 {
			wishes = append(wishes, wish{a, r.neighbours(s, a.With, a.By)})
		}
	}
	return wishes
}

// granted reports whether a cluster satisfies the wish.
func (w *wish) granted(c *Cluster) bool {
	if len(w.others) == 0 {
		return true
	}
	value, has := c.Labels[w.By]
	return (has && w.others[value] > 0) != w.Apart
}

// instancesByRegion counts the instances of the same application by region; without an application, those
// of the same space.
func (r Request) instancesByRegion(s *Snapshot) map[string]int32 {
	with := v1alpha1.ScopeApplication
	if r.Consumer.Application == "" {
		with = v1alpha1.ScopeSpace
	}
	return r.neighbours(s, with, v1alpha1.LabelRegion)
}
