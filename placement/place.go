package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Place chooses clusters for a request: filter, score, select. It returns the same
// decision for the same request and snapshot, on any machine and in whatever order
// the clusters came into the inventory.
//
// The decision has a placement for each of the clusters asked for, best first, or
// Place returns *UnplaceableError, whose decision has none and says why. Current
// clusters are kept before any other is considered (see Request.Current). Equal
// scores are ordered by a hash of request ID and cluster, so that ties do not pile
// up on one cluster.
func Place(r Request, s *Snapshot) (Decision, error) {
	e := evaluate(r, s)
	chosen := e.choose()
	if len(chosen) < r.clusters() {
		failed := e.unplaceable(len(chosen))
		return failed.Decision, failed
	}
	return e.decision(chosen), nil
}

// Accepts tells whether a cluster, as it is in the snapshot, takes the request.
// What a cluster does not accept cannot have been made placeable by a change of
// that cluster.
func Accepts(r Request, s *Snapshot, cluster string) bool {
	at, found := s.find(cluster)
	if !found {
		return false
	}
	_, refused := refusal(at, r.filters(s, nil), false)
	return !refused
}

// evaluation is a request judged against every cluster of a snapshot.
type evaluation struct {
	request Request
	// filters asked of clusters that are not current.
	filters []filter
	pages   []*page
	// refused[f][i] are the rows of page i that filter f refused.
	refused [][]set
	// fits[i] are the rows of page i that no filter refused and that are not current.
	fits []set
	// current clusters that still suit, and those that do not.
	current []candidate
	lost    []lost
	scorer  *scorer
}

// candidate is a cluster that fits.
type candidate struct {
	spot
	score int32
	tie   uint64
}

// lost is a current cluster that no longer suits; without a page, one that is gone.
type lost struct {
	name string
	spot
	filter
}

func evaluate(r Request, s *Snapshot) *evaluation {
	e := &evaluation{request: r, pages: s.pages, filters: r.filters(s, nil), scorer: newScorer(r, s)}
	e.fits = make([]set, len(e.pages))
	for i, p := range e.pages {
		e.fits[i] = p.all
	}
	e.judgeCurrent(s)
	e.filterOthers()
	e.scorer.market = sync.OnceValues(func() (string, int64) {
		return cheapest(r, e.scorer.tariff, e.pages, e.fits, e.current)
	})
	for i := range e.current {
		e.current[i].score = e.scorer.score(e.current[i].spot)
	}
	return e
}

// judgeCurrent takes the current clusters out of the others and filters them, what
// they hold for the request counting as free.
func (e *evaluation) judgeCurrent(s *Snapshot) {
	for _, name := range e.request.Current {
		at, found := s.find(name)
		if !found {
			e.lost = append(e.lost, lost{name: name, filter: filter{reason: ReasonGone}})
			continue
		}
		e.fits[slices.Index(e.pages, at.page)].remove(at.row)
		at.held = s.Reserved(e.request.ID, name)
		if f, refused := refusal(at, e.request.filters(s, at.held), true); refused {
			e.lost = append(e.lost, lost{name: name, spot: at, filter: f})
			continue
		}
		e.current = append(e.current, candidate{spot: at, tie: e.tie(at)})
	}
}

// refusal returns the first filter that refuses one cluster. A request that stays
// where it is is not asked the entry filters.
func refusal(at spot, filters []filter, stays bool) (filter, bool) {
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

func (e *evaluation) filterOthers() {
	e.refused = make([][]set, len(e.filters))
	for f := range e.filters {
		e.refused[f] = make([]set, len(e.pages))
		for i, p := range e.pages {
			if e.fits[i] == (set{}) {
				continue
			}
			e.refused[f][i] = e.filters[f].rejects(p, e.fits[i])
			e.fits[i] = e.fits[i].without(e.refused[f][i])
		}
	}
}

// choose returns the clusters asked for, or as many as there are.
func (e *evaluation) choose() []candidate {
	asked := e.request.clusters()
	stay := min(asked, len(e.request.Current))
	chosen := slices.Clone(e.current)
	slices.SortFunc(chosen, better)
	if len(chosen) < stay {
		return chosen // it stays on them or nowhere
	}
	return append(chosen[:stay], e.best(asked-stay)...)
}

// best returns the n best of the clusters that fit and are not current, best first.
func (e *evaluation) best(n int) []candidate {
	if n == 0 {
		return nil
	}
	top := make([]candidate, 0, n+1)
	for i, p := range e.pages {
		for row := range e.fits[i].rows() {
			c := candidate{spot: spot{page: p, row: row}}
			c.score = e.scorer.score(c.spot)
			if len(top) == n && c.score < top[n-1].score {
				continue
			}
			c.tie = e.tie(c.spot)
			at, _ := slices.BinarySearchFunc(top, c, better)
			top = slices.Insert(top, at, c)
			top = top[:min(len(top), n)]
		}
	}
	return top
}

// unplaceable explains why only so many clusters were found.
func (e *evaluation) unplaceable(found int) *UnplaceableError {
	failed := &UnplaceableError{Decision: e.decision(nil), Asked: e.request.clusters(), Found: found}
	if found < min(e.request.clusters(), len(e.request.Current)) {
		for _, l := range e.lost {
			failed.Lost = append(failed.Lost, Example{l.name, fmt.Sprintf("%s (%s)", l.reason, l.why())})
		}
	}
	return failed
}

// better orders candidates: higher score, then hash, then name.
func better(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(b.score, a.score),
		cmp.Compare(a.tie, b.tie),
		strings.Compare(a.cluster().Name, b.cluster().Name),
	)
}

func (e *evaluation) tie(at spot) uint64 {
	return mix(hash64(e.request.ID) ^ hash64(at.cluster().Name))
}
