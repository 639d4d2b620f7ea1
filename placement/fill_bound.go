package placement

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// bound bounds the rank that a partial choice can still reach, by Lagrange's relaxation of the knapsack: room counts as
// rank at a price, instead of being demanded, and then the best of the clusters that are left are the best completion.
// All numbers are multiplied by a factor, so that the price can be a fraction.
//
// A choice that the bound excludes has less rank in the end than one that is known. So the best choice is found as if
// none were excluded.
type bound struct {
	factor, price, need int64
	// best has, by position and number, the greatest worth of so many of the clusters from there on.
	best [][]int64
	// known is the rank of a choice that has room, times the factor.
	known int64
}

// impossible is less than the worth of any clusters: that of more than there are.
const impossible = math.MinInt64 / 2

// newBound prices room so that the best clusters have just enough. It also returns a good choice, if only room matters.
// The rank of every cluster is below most.
func newBound(groups []*group, number int, need, most int64, room func(position) int64) (b *bound, good []*candidate) {
	const fine = 1 << 10
	b = &bound{factor: min(fine, (1<<60)/(int64(number)*most)), need: need}
	var all []*candidate
	var rooms []int64
	for _, g := range groups {
		for i := range g.candidates {
			all, rooms = append(all, &g.candidates[i]), append(rooms, room(g.candidates[i].position))
		}
	}
	worth := func(i int) int64 { return b.factor*all[i].rank + b.price*rooms[i] }
	at := func(price int) []int {
		b.price = int64(price)
		return greatest(len(all), number, worth)
	}
	sum := func(chosen []int) (has int64) {
		for _, i := range chosen {
			has += rooms[i]
		}
		return has
	}
	limit := int(min(b.factor*most, (1<<60)/(int64(number)*need)))
	price := sort.Search(limit, func(price int) bool { return sum(at(price)) >= need })
	chosen := at(max(price-1, 0)) // which just lack room
	for _, further := range at(price) {
		if sum(chosen) < need && !slices.Contains(chosen, further) {
			chosen = append(chosen[1:], further)
		}
	}
	b.fill(len(all), number, worth)
	for _, i := range chosen {
		good = append(good, all[i])
	}
	return b, good
}

// fill computes what the clusters from each position on are worth.
func (b *bound) fill(all, number int, worth func(int) int64) {
	b.best = make([][]int64, all+1)
	sums := make([]int64, (all+1)*(number+1))
	var left []int64 // the greatest, in order
	for at := all; at >= 0; at-- {
		if at < all {
			left = keepBest(left, worth(at), number, greater)
		}
		b.best[at] = sums[at*(number+1) : (at+1)*(number+1)]
		for n := range number {
			if b.best[at][n+1] = impossible; n < len(left) {
				b.best[at][n+1] = b.best[at][n] + left[n]
			}
		}
	}
}

// greater orders numbers, the greatest first.
func greater(a, b int64) int { return cmp.Compare(b, a) }

// greatest returns the numbers below all that are worth most, best first.
func greatest(all, number int, worth func(int) int64) (top []int) {
	byWorth := func(a, b int) int { return cmp.Or(greater(worth(a), worth(b)), cmp.Compare(a, b)) }
	for i := range all {
		top = keepBest(top, i, number, byWorth)
	}
	return top
}

// excludes reports whether a choice that is completed by so many clusters from a position on has less rank than a
// choice that is known, or too little room.
func (b *bound) excludes(one *partial, at, more int) bool {
	return b.factor*one.rank+b.price*(one.room-b.need)+b.best[at][more] < b.known
}
