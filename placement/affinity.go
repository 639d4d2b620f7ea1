package placement

import (
	"fmt"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// neighbours counts the other instances of a scope by the value that a label has on
// the clusters where they are.
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

// affine refuses clusters by where other instances of the consumer are. Going together
// asks nothing while there is no other instance, as Kubernetes' affinity of a pod to
// itself does not.
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

// wish is an affinity that is preferred, and where the others are.
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

// granted tells whether a cluster is where the wish wants it.
func (w *wish) granted(c *Cluster) bool {
	if len(w.others) == 0 {
		return true
	}
	value, has := c.Labels[w.By]
	return (has && w.others[value] > 0) != w.Apart
}

// crowd counts the instances of the same application, or of the same space where no
// application is named, by region.
func (r Request) crowd(s *Snapshot) map[string]int32 {
	with := v1alpha1.ScopeApplication
	if r.Consumer.Application == "" {
		with = v1alpha1.ScopeSpace
	}
	return r.neighbours(s, with, v1alpha1.LabelRegion)
}
