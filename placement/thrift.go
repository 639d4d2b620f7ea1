package placement

import (
	"cmp"
	"slices"
	"sort"
)

// Strengths with which prices count against scores: so many points are subtracted from a cluster that costs all that a
// budget leaves, and less in proportion from cheaper ones. The greatest is more than scores, a preferred spread and
// evenness can outweigh, and 64 clusters together still are below staying.
const (
	mostThrift  = 48 // as a power of two
	thriftSteps = 16 // between two powers of two
)

// overspends returns the first budget that a choice would exceed, with the numbers; empty if there is none.
func (e *evaluation) overspends(chosen []candidate) string {
	if len(e.request.Quotas) == 0 {
		return ""
	}
	placed := make([]Placement, len(chosen))
	for i, c := range chosen {
		placed[i].Price = e.price(c)
	}
	return e.request.overspends(placed, e.snapshot)
}

// chooseThriftily returns the best choice found that costs no more than the budgets leave, where the best of all costs
// more. It is nil if there is none.
//
// Each cluster alone is within the budgets, or a filter would have rejected it. So the choice is made again with a part
// of its price subtracted from each cluster's score, by the least strength that leads to a choice within the budgets
// (Lagrange relaxation; Fisher, Management Science 27, 1981). The greatest strength leads to the cheapest choice of all,
// so that an order without replicas is refused only if no choice is within the budgets; its choice can be worse than
// the best one within them. With replicas, what a choice costs also depends on how they are divided, and a search for
// room does not look at prices.
//
// Prices only choose: the clusters that the instance stays on come first and then the others, both best first by score.
func (e *evaluation) chooseThriftily() []candidate {
	budgets := e.request.budgets(e.snapshot)
	least := slices.MinFunc(budgets, func(a, b budget) int { return cmp.Compare(a.left, b.left) })
	within := func(strength int64) []candidate {
		e.thrift = func(at position) int64 {
			if e.scorer.tariff.currency(at) != least.currency() {
				return 0
			}
			return mulDiv(e.scorer.tariff.nanoPerHour(at.page, at.row), strength, max(least.left, 1))
		}
		chosen, failed := e.chooseWithin()
		if failed != nil || e.overspends(chosen) != "" {
			return nil
		}
		return chosen
	}
	if within(1<<mostThrift) == nil {
		return nil
	}
	power := sort.Search(mostThrift, func(power int) bool { return within(1<<power) != nil })
	below := int64(1) << max(power-1, 0)
	step := max(below/thriftSteps, 1)
	strength := below + step*int64(sort.Search(thriftSteps, func(i int) bool { return within(below+step*int64(i)) != nil }))
	chosen := within(strength)
	if chosen == nil {
		chosen = within(1 << mostThrift)
	}
	for i := range chosen {
		if chosen[i].rank = int64(chosen[i].score); !e.request.Free && e.isOn(chosen[i].position) {
			chosen[i].rank += staying
		}
	}
	slices.SortFunc(chosen, better)
	return chosen
}
