package placement

import (
	"fmt"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// affine rejects clusters by where the consumer's other instances are. Affinity to other
// instances rejects nothing while there are none, like the affinity of a Kubernetes pod to
// itself.
func affine(a v1alpha1.Affinity, r Request, s *Snapshot) filter {
	others := r.neighbours(s, vicinity{a.With, a.By})
	reason := ReasonNotTogether
	if a.Apart {
		reason = ReasonNotApart
	}
	return filter{reason: reason, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			if len(others) == 0 {
				return set{}
			}
			if there := p.having(a.By, others); a.Apart {
				return among.and(there)
			} else {
				return among.without(there)
			}
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
			wishes = append(wishes, wish{a, r.neighbours(s, vicinity{a.With, a.By})})
		}
	}
	return wishes
}

// granted returns those of a page's rows that satisfy the wish.
func (w *wish) granted(p *page, among set) set {
	if len(w.others) == 0 {
		return among
	}
	if there := p.having(w.By, w.others); w.Apart {
		return among.without(there)
	} else {
		return among.and(there)
	}
}

// having returns the rows of clusters with one of the values of a label.
func (p *page) having(label string, values map[string]int32) (rows set) {
	if len(values) < pageRows {
		for value := range values {
			rows = rows.or(p.label[labelValue{label, value}])
		}
		return rows
	}
	groups := p.groups([]string{label})
	for row, group := range groups.of[:len(p.clusters)] {
		if group >= 0 && values[groups.names[group]] > 0 {
			rows.add(row)
		}
	}
	return rows
}
