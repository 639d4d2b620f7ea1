package placement

import "github.com/sluice-dev/sluice/api/v1alpha1"

// Hopeless reports whether waiting is in vain: even if every cluster answered, took new
// placements, had nothing on it and met every rule, the request could not be placed. Only an
// operator who changes clusters or the plan could help. Rules do not count, because providers
// may prove more about their clusters at any time. Unknown facts, for instance about a cluster
// that has never answered, are assumed to fit. A cluster that a policy could make counts like
// an existing one. A host that another instance has counts as taken for
// good, and a domain as granted to nobody else. Requests of plans
// that wait for anything, and of Sluice itself, are never hopeless.
func Hopeless(r Request, s *Snapshot) bool {
	if r.WaitFor == v1alpha1.WaitForAnything || r.Consumer.Platform == v1alpha1.PlatformSelf {
		return false
	}
	if r.hostDenied(s) != "" {
		return true
	}
	if s.mayMake(r) {
		return false
	}
	r.atBest, r.Current, r.Leaving, r.ComponentClusters = true, nil, nil, nil
	_, err := Place(r, s)
	return err != nil
}

// HopelessHere reports whether it is in vain to repeat an update that was refused on the
// clusters where the instance has to stay: even if they answered and had nothing else on them,
// the update would not fit.
func HopelessHere(r Request, s *Snapshot) bool {
	if r.WaitFor == v1alpha1.WaitForAnything {
		return false
	}
	r.atBest = true
	_, err := Place(r, s)
	return err != nil
}

// mayMake reports whether a policy may make a cluster that fits the request, apart from its
// size.
func (s *Snapshot) mayMake(r Request) bool {
	r.atBest = true
	for _, p := range s.policies {
		if p.Elastic == nil || r.Shape != nil || !p.Concerns(r.Consumer) {
			continue
		}
		if r.Peering != nil {
			return true // whether it can be peered depends on its plan's add-ons
		}
		supposed := Supposed(SupposedName, &v1alpha1.ClusterShape{Member: p.Member(&v1alpha1.ClusterPlan{})})
		made := newPage([]*Cluster{ClusterOf(supposed, r.At)}, s.columns, nil)
		for _, one := range r.Parts() {
			if _, refused := refusal(position{page: made}, one.filters(s, nil), false); !refused {
				return true
			}
		}
	}
	return false
}

// known reports whether the capacity of a cluster is known: it answers, and its
// capacity has been read and holds.
func (p *page) known(row int) bool {
	return p.ready.has(row) && !p.uncounted.has(row) && len(p.clusters[row].Allocatable) > 0
}

// unknown returns the rows of clusters whose capacity is not known.
func (p *page) unknown() set {
	rows := p.all
	for row := range p.ready.rows() {
		if p.known(row) {
			rows.remove(row)
		}
	}
	return rows
}

// sparingUnknown returns the filter without rejections of clusters that are not known.
func (f filter) sparingUnknown() filter {
	rejects := f.rejects
	f.rejects = func(p *page, among set) set { return rejects(p, among).without(p.unknown()) }
	return f
}

// atTheirBest returns those of the filters that reject for good.
func atTheirBest(filters []filter) []filter {
	var lasting []filter
	for _, f := range filters {
		switch {
		case f.passing, f.reason == ReasonPolicy:
		case f.probed:
			lasting = append(lasting, f.sparingUnknown())
		default:
			lasting = append(lasting, f)
		}
	}
	return lasting
}

// SupposedName is the prefix of the names of clusters that are not begun yet; no member cluster
// can have it.
const SupposedName = "another cluster"
