package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/internal/lists"
)

// Improve returns at most the given number of moves, each of another instance, in the order in which they can be made.
// Each gains its instance at least the given number of points at its turn. The requests are those of all instances
// that may move, each with the clusters that it is on.
//
// It begins with the greedy plan, which takes the moves by what each gains alone, the greatest gain first. Large
// neighbourhood search (Shaw, CP 1998) then takes some moves out of the best plan and puts others in, a fixed number of
// times. A plan is better if all those instances together have the greater sum of scores afterwards; so the result
// is never worse than the greedy plan, and what a move costs the neighbours counts. The same question has the same
// answer: what is taken out is chosen by hash.
func Improve(requests []Request, in *Inventory, leastGain int32, most int) []Proposal {
	x := newImprovement(requests, in, leastGain, most)
	if len(x.promising) == 0 {
		return nil // the first move of any plan gains enough alone
	}
	greedy := x.greedy()
	best, worth := greedy, x.worth(greedy)
	if most > 0 {
		for round := range uint64(mostRounds) {
			plan := x.neighbour(best, round)
			if x.steps < 0 {
				break // the plan is not complete
			}
			if w := x.worth(plan); x.steps >= 0 && (w > worth || w == worth && len(plan) < len(best)) {
				best, worth = plan, w
			}
		}
	}
	// Scores of instances elsewhere can depend on a move, too: by region, or because of the lowest price.
	if len(best) > 0 && &best[0] != &greedy[0] && x.contentment(best) < x.contentment(greedy) {
		best = greedy
	}
	proposals := make([]Proposal, len(best))
	for i, m := range best {
		proposals[i] = *m.proposal
	}
	return proposals
}

const (
	// mostRounds is how many plans are tried beside the greedy one.
	mostRounds = 100
	// mostJudged is how often requests are judged for them, which bounds the search in large fleets.
	mostJudged = 5_000
	// poolSize is how many instances are asked for each move that is put in.
	poolSize = 12
)

// improvement is the search for the best plan.
type improvement struct {
	*trial
	requests  []Request
	leastGain int32
	most      int
	// promising are the indices of the requests that gain enough before anything is moved, the greatest gain first.
	promising []int
	// before is each request's score before anything is moved, as far as it was needed.
	before map[int]int32
	// on has the requests by cluster.
	on map[string][]int
}

// planned is a move of a plan: of which request, and what it holds afterwards.
type planned struct {
	request  int
	proposal *Proposal
	holds    Holding
}

func newImprovement(requests []Request, in *Inventory, leastGain int32, most int) *improvement {
	x := &improvement{
		trial: newTrial(in, mostJudged), requests: slices.Clone(requests), leastGain: leastGain, most: most,
		before: map[int]int32{}, on: map[string][]int{},
	}
	slices.SortFunc(x.requests, func(a, b Request) int { return strings.Compare(a.ID, b.ID) })
	gains := make([]int32, len(x.requests))
	s := x.Snapshot()
	for i := range x.requests {
		for _, cluster := range x.requests[i].Current {
			x.on[cluster] = append(x.on[cluster], i)
		}
		if p, _ := Propose(x.requests[i], s, leastGain); p != nil {
			gains[i] = p.Gain
			x.promising = append(x.promising, i)
		}
	}
	slices.SortStableFunc(x.promising, func(a, b int) int { return cmp.Compare(gains[b], gains[a]) })
	return x
}

// greedy returns the moves by the gain that each has alone.
func (x *improvement) greedy() (plan []planned) {
	defer x.undone()()
	for _, i := range x.promising {
		if len(plan) == x.most {
			break
		}
		if m := x.propose(i); m != nil { // else a move before it has taken its place
			plan = x.make(plan, m)
		}
	}
	return plan
}

// propose returns the move of a request as things are now; nil if it does not gain enough.
func (x *improvement) propose(i int) *planned {
	p, holds := Propose(x.requests[i], x.Snapshot(), x.leastGain)
	if p == nil {
		return nil
	}
	return &planned{i, p, holds}
}

// make adds a move to a plan, and makes it.
func (x *improvement) make(plan []planned, m *planned) []planned {
	x.hold(&x.requests[m.request], m.holds)
	return append(plan, *m)
}

// neighbour returns a plan that differs from another one in some moves: up to half of them are taken out, and the others
// are made again, as far as they still gain enough. Then, move by move, the best of a few other instances is put in.
func (x *improvement) neighbour(of []planned, round uint64) (plan []planned) {
	defer x.undone()()
	draw := drawn(round)
	out := map[int]bool{}
	for range 1 + draw(uint64(len(of)/2+1)) {
		if len(of) > 0 {
			out[int(draw(uint64(len(of))))] = true
		}
	}
	in := map[int]bool{}
	for i, m := range of {
		if out[i] || !x.step() {
			continue
		}
		if again := x.propose(m.request); again != nil {
			plan, in[m.request] = x.make(plan, again), true
		}
	}
	for len(plan) < x.most && draw(8) > 0 { // and sometimes fewer
		var best *planned
		for range poolSize {
			i := int(draw(uint64(len(x.requests))))
			if n := uint64(len(x.promising)); n > 0 && draw(4) > 0 {
				i = x.promising[draw(min(n, uint64(4*x.most)))]
			}
			if in[i] || !x.step() {
				continue
			}
			if m := x.propose(i); m != nil && (best == nil || m.proposal.Gain > best.proposal.Gain) {
				best = m
			}
		}
		if best == nil {
			break
		}
		plan, in[best.request] = x.make(plan, best), true
	}
	return plan
}

// drawn returns a function that draws numbers below a limit, always the same ones for a seed.
func drawn(seed uint64) func(below uint64) uint64 {
	state := mix(seed + 1)
	return func(below uint64) uint64 {
		state = mix(state + 0x9e3779b97f4a7c15)
		return state % below
	}
}

// contentment returns the sum of the scores of all instances after a plan.
func (x *improvement) contentment(plan []planned) (sum int64) {
	defer x.undone()()
	now := x.carried(plan)
	s := x.Snapshot()
	for i := range x.requests {
		sum += int64(x.score(i, now[i], s))
	}
	return sum
}

// carried makes the moves of a plan, and returns the clusters that the moved instances are on.
func (x *improvement) carried(plan []planned) map[int][]string {
	now := map[int][]string{}
	for i := range plan {
		x.make(nil, &plan[i])
		now[plan[i].request] = slices.Sorted(maps.Keys(plan[i].holds.Held))
	}
	return now
}

// worth returns what a plan adds to the scores of all instances on the clusters that it concerns.
func (x *improvement) worth(plan []planned) (sum int64) {
	defer x.undone()()
	concerned := map[int]bool{}
	for i := range plan {
		for _, cluster := range lists.Union(plan[i].proposal.From, plan[i].proposal.To) {
			for _, i := range x.on[cluster] {
				concerned[i] = true
			}
		}
	}
	s := x.Snapshot()
	for i := range concerned {
		if _, known := x.before[i]; !known {
			x.before[i] = x.score(i, nil, s)
		}
	}
	now := x.carried(plan)
	s = x.Snapshot()
	for i := range concerned {
		sum += int64(x.score(i, now[i], s) - x.before[i])
	}
	return sum
}

// score returns a request's mean score on clusters that it is on; none means those that it is on before anything is
// moved.
func (x *improvement) score(i int, on []string, s *Snapshot) int32 {
	x.step()
	r := x.requests[i]
	if len(on) > 0 {
		r.Current = on
	}
	e := newEvaluation(r, s)
	defer e.release()
	return e.meanScore(e.current)
}
