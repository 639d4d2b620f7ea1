package placement

import "github.com/sluice-dev/sluice/api/v1alpha1"

// Hopeless tells whether it is in vain to wait for a place: even if every cluster answered,
// took new placements, had nothing on it and met every rule, the request could not be placed.
// Only an operator who changes clusters or the plan could help. Rules do not count, as
// providers prove more of their clusters at any time. What is not known yet, for instance of a
// cluster that has never answered, is taken to suit; and a cluster that a policy may have made
// is one like the others. Requests of plans that wait for anything, and of Sluice itself, are
// never hopeless.
func Hopeless(r Request, s *Snapshot) bool {
	if r.WaitFor == v1alpha1.WaitForAnything || r.Consumer.Platform == v1alpha1.PlatformSelf || s.mayMake(r) {
		return false
	}
	r.atBest, r.Current, r.Leaving, r.Seats = true, nil, nil, nil
	_, err := Place(r, s)
	return err != nil
}

// hopelessHere tells whether it is in vain to repeat an update that was refused where the
// instance is and stays: even if its clusters answered and had nothing else on them, they
// could not take it.
func hopelessHere(r Request, s *Snapshot) bool {
	if r.WaitFor == v1alpha1.WaitForAnything {
		return false
	}
	r.atBest = true
	_, err := Place(r, s)
	return err != nil
}

// mayMake tells whether a policy may have a cluster made that suits the request, but perhaps
// for its size.
func (s *Snapshot) mayMake(r Request) bool {
	r.atBest = true
	for _, p := range s.policies {
		if p.Elastic == nil || r.Made != nil || !p.concerns(r.Consumer) {
			continue
		}
		if r.Peering != nil {
			return true // its plan's add-ons say whether it can be peered
		}
		made := newPage([]*Cluster{ClusterOf(p.member(supposedName, ""), r.At)}, s.columns, nil)
		requests := []Request{r}
		for i := range r.Components {
			requests = append(requests, r.of(&r.Components[i]))
		}
		for _, one := range requests[min(len(r.Components), 1):] {
			if _, refused := refusal(spot{page: made}, one.filters(s, nil), false); !refused {
				return true
			}
		}
	}
	return false
}

// known tells whether it is known what a cluster has: it answers, and has said so.
func (p *page) known(row int) bool { return p.ready.has(row) && len(p.clusters[row].Allocatable) > 0 }

// unknown are the rows of clusters of which it is not.
func (p *page) unknown() set {
	rows := p.all
	for row := range p.ready.rows() {
		if p.known(row) {
			rows.remove(row)
		}
	}
	return rows
}

// sparingUnknown is the filter without what it refuses of clusters that are not known.
func (f filter) sparingUnknown() filter {
	rejects := f.rejects
	f.rejects = func(p *page, among set) set { return rejects(p, among).without(p.unknown()) }
	return f
}

// atTheirBest are those of the filters that refuse for good.
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
