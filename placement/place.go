package placement

import (
	"fmt"
	"slices"
	"sync"
)

// Place chooses clusters for a request: filter, score, select. It returns the same decision for the same request and
// snapshot, on any machine and in whatever order the clusters came into the inventory.
//
// The decision has a placement for each of the requested clusters, best first. Otherwise Place returns
// *UnplaceableError, whose decision has none and gives the reasons. Current clusters are kept before any other is
// considered (see Request.Current). Equal scores are ordered by price, then by latency, then by a hash of request ID
// and cluster, so that requests do not pile up on one of several equal clusters. The result is the best of all
// clusters, never of a sample.
func Place(r Request, s *Snapshot) (Decision, error) {
	d, err := placeAnywhere(r, s)
	if err != nil {
		return d, err
	}
	if full := d.givePorts(r, s); full != nil {
		return full.Decision, full
	}
	return d, nil
}

// placeAnywhere chooses the clusters.
func placeAnywhere(r Request, s *Snapshot) (Decision, error) {
	if len(r.Components) > 0 {
		return placeTogether(r, s)
	}
	e := evaluate(r, s)
	defer e.release()
	chosen, short := e.choose()
	if short != nil {
		failed := e.unplaceable(short)
		return failed.Decision, failed
	}
	return e.decision(chosen), nil
}

// Accepts reports whether a cluster, as it is in the snapshot, takes the request or one of its
// components, or keeps it if it is there. If it does not, a change of that cluster cannot be the
// reason why a request can be placed now.
func Accepts(r Request, s *Snapshot, cluster string) bool {
	at, found := s.find(cluster)
	return found && slices.ContainsFunc(r.Parts(), func(part Request) bool {
		stays, here := slices.Contains(part.Current, cluster), at
		if stays {
			here.held = s.Reserved(r.ID, cluster)
		}
		_, refused := refusal(here, part.filters(s, here.held), stays)
		return !refused
	}) && r.denied(s) == ""
}

// Parts returns the requests of the components, or the request itself if it has none.
func (r Request) Parts() []Request {
	if len(r.Components) == 0 {
		return []Request{r}
	}
	var parts []Request
	for i := range r.Components {
		parts = append(parts, r.of(&r.Components[i]))
	}
	return parts
}

// evaluation is the result of a request's filters for every cluster of a snapshot.
type evaluation struct {
	request  Request
	snapshot *Snapshot
	hash     uint64 // of the request's ID
	pages    []*page
	// filters for clusters that are not current.
	filters []filter
	// refused[f][i] are the rows of page i that filter f rejected.
	refused [][]set
	// fits[i] are the rows of page i that no filter rejected and that are not current.
	fits []set
	// current clusters that still fit, and those that do not.
	current []candidate
	lost    []lost
	scorer  *scorer
	// joint says what the cluster is chosen for, if the choice also depends on other components.
	joint string
	// thrift returns the part of a cluster's rank that its price takes; nil means nothing.
	thrift func(position) int64
	// spoken are the clusters on which the request gets no more than it holds, if it is on any, see Snapshot.spokenFor.
	// A filter rejects those that it is not on.
	spoken map[string]string
	// cut is true if the search for a choice with room for all replicas ended before its end.
	cut bool
	// ranked are the candidates of the last pick, as far as they matter; by group for a spread.
	ranked  [][]candidate
	scratch *scratch
}

// lost is a current cluster that no longer fits. Without a page it is gone.
type lost struct {
	name string
	position
	filter
}

// evaluate judges all clusters.
func evaluate(r Request, s *Snapshot) *evaluation {
	e := newEvaluation(r, s)
	e.judgeOthers()
	if r.Fewest {
		e.request.Clusters = e.fewest()
	}
	return e
}

// newEvaluation judges and scores the clusters that the request is on. judgeOthers judges the others.
func newEvaluation(r Request, s *Snapshot) *evaluation {
	memory := scratches.Get().(*scratch)
	e := &evaluation{request: r, snapshot: s, hash: hash64(r.ID), pages: s.pages, scorer: newScorer(r, s, &memory.rowScores), scratch: memory}
	if len(r.Current) > 0 {
		e.spoken = s.spokenFor(r)
	}
	e.fits = take(&e.scratch.sets, len(e.pages))
	for i, p := range e.pages {
		e.fits[i] = p.all
	}
	e.judgeCurrent()
	e.scorer.currency = sync.OnceValue(func() string {
		if r.MaxPrice != nil {
			return r.MaxPrice.Currency
		}
		e.filterOthers()
		return commonCurrency(e.scorer.tariff, e.pages, e.fits, e.current)
	})
	e.scorer.cheapest = sync.OnceValue(func() int64 {
		e.filterOthers()
		return cheapest(e.scorer.currency(), e.scorer.tariff, e.pages, e.fits, e.current)
	})
	for i := range e.current {
		e.current[i].score = e.scorer.score(e.current[i].position)
	}
	return e
}

// judgeCurrent separates the current clusters from the others and filters them; what the
// request holds on them counts as free.
func (e *evaluation) judgeCurrent() {
	s := e.snapshot
	for _, name := range e.request.Current {
		at, found := s.find(name)
		if !found {
			e.lost = append(e.lost, lost{name: name, filter: filter{reason: ReasonGone}})
			continue
		}
		e.fits[slices.Index(e.pages, at.page)].remove(at.row)
		at.held = s.Reserved(e.request.ID, name)
		if f, refused := refusal(at, e.request.filters(s, at.held), true); refused {
			e.lost = append(e.lost, lost{name: name, position: at, filter: f})
			continue
		}
		e.current = append(e.current, candidate{position: at})
	}
}

// refusal returns the first filter that rejects one cluster. Entry filters do not apply to a
// request that stays on the cluster.
func refusal(at position, filters []filter, stays bool) (filter, bool) {
	var one set
	one.add(at.row)
	for _, f := range filters {
		if f.entry && stays {
			continue
		}
		if f.rejects(at.page, one) != (set{}) {
			return f, true
		}
	}
	return filter{}, false
}

// passing returns the rows that no filter rejects.
func (p *page) passing(filters []filter) set {
	rows := p.all
	for _, f := range filters {
		rows = rows.without(f.rejects(p, rows))
	}
	return rows
}

// judgeOthers judges the clusters that the request is not on, and then sets what breaks ties of those that it is on.
func (e *evaluation) judgeOthers() {
	e.filterOthers()
	for i := range e.current {
		e.breakTies(&e.current[i])
	}
}

// filterOthers filters the clusters that the request is not on, once.
func (e *evaluation) filterOthers() {
	if e.refused != nil {
		return
	}
	e.filters = e.request.filters(e.snapshot, nil)
	e.refused = make([][]set, len(e.filters))
	for f := range e.filters {
		e.refused[f] = take(&e.scratch.sets, len(e.pages))
		for i, p := range e.pages {
			if e.fits[i] == (set{}) {
				continue
			}
			e.refused[f][i] = e.filters[f].rejects(p, e.fits[i])
			e.fits[i] = e.fits[i].without(e.refused[f][i])
		}
	}
}

// unplaceable returns the error that explains why too few clusters were found.
func (e *evaluation) unplaceable(short *shortage) *UnplaceableError {
	failed := &UnplaceableError{
		Decision: e.decision(nil), Asked: e.request.ClusterCount(), Found: short.found, Why: short.why, short: short.told, Denied: short.denied,
	}
	failed.Told = e.told()
	if short.why == "" && short.found < min(e.request.ClusterCount(), len(e.request.Current)) {
		for _, l := range e.lost {
			failed.Lost = append(failed.Lost, Example{l.name, fmt.Sprintf("%s (%s)", l.reason, l.why())})
		}
	}
	return failed
}

// told returns what consumers may be told of the rejections, by reason.
func (e *evaluation) told() map[Reason][]string {
	var all map[Reason][]string
	for f, refused := range e.refused {
		filter := &e.filters[f]
		if filter.told == nil {
			continue
		}
		for i, rows := range refused {
			for row := range rows.rows() {
				text := filter.told(e.pages[i], row)
				if text == "" || slices.Contains(all[filter.reason], text) {
					continue
				}
				if all == nil {
					all = map[Reason][]string{}
				}
				all[filter.reason] = append(all[filter.reason], text)
			}
		}
	}
	return all
}
