package placement

import (
	"cmp"
	"slices"
)

// Rows of Holes: what equal nodes have free each, and the number of the nodes at the end.

// compact brings rows into order, counts equal ones together, and leaves at most mostHoles of them: first
// those that no other exceeds, and of the rest, neighbours together as the least of them, so that no hole
// is larger than there is.
func compact(rows [][]int64) [][]int64 {
	slices.SortFunc(rows, compareRows)
	rows = joined(rows, func(a, b []int64) bool { return compareRows(a, b) == 0 })
	rows = slices.DeleteFunc(rows, func(row []int64) bool { return empty(row[:len(row)-1]) })
	if len(rows) <= mostHoles {
		return rows
	}
	var front, rest [][]int64
	for _, row := range rows { // nothing is exceeded by what comes after it
		if slices.ContainsFunc(front, func(larger []int64) bool { return within(row[:len(row)-1], larger) }) {
			rest = append(rest, row)
		} else {
			front = append(front, row)
		}
	}
	front = mostTelling(front)
	for share := int64(1); len(rest) > mostHoles-len(front); share *= 2 {
		if share > 64 {
			rest = nil
			break
		}
		rest = joined(rest, func(a, b []int64) bool { return similar(a, b, share) })
	}
	kept := append(front, rest...)
	slices.SortFunc(kept, compareRows)
	return kept
}

// empty reports whether amounts are all zero; there may be none.
func empty(amounts []int64) bool {
	return !slices.ContainsFunc(amounts, func(amount int64) bool { return amount != 0 })
}

// joined makes one row of neighbours that are alike: the least of them, with all their nodes.
func joined(rows [][]int64, alike func(a, b []int64) bool) [][]int64 {
	var out [][]int64
	for _, row := range rows {
		if len(out) == 0 || !alike(out[len(out)-1], row) {
			out = append(out, slices.Clone(row))
			continue
		}
		one := out[len(out)-1]
		last := len(one) - 1
		for i := range one[:last] {
			one[i] = min(one[i], row[i])
		}
		one[last] += row[last]
	}
	return out
}

// similar reports whether two rows differ by at most a number of 64ths of each amount.
func similar(a, b []int64, share int64) bool {
	for i := range a[:len(a)-1] {
		if most := max(a[i], b[i]); most-min(a[i], b[i]) > most/64*share+most%64*share/64 {
			return false
		}
	}
	return true
}

// mostTelling leaves at most mostHoles rows, in any order: the one with the most of each resource, then
// the first ones.
func mostTelling(rows [][]int64) [][]int64 {
	if len(rows) <= mostHoles {
		return rows
	}
	first := map[int]bool{}
	for i := range len(rows[0]) - 1 {
		most := 0
		for at := range rows {
			if rows[at][i] > rows[most][i] {
				most = at
			}
		}
		first[most] = true
	}
	for at := range rows {
		if len(first) == mostHoles {
			break
		}
		first[at] = true
	}
	var kept [][]int64
	for at := range rows {
		if first[at] {
			kept = append(kept, rows[at])
		}
	}
	return kept
}

func subtract(from, amounts []int64) {
	for i, amount := range amounts {
		from[i] -= amount
	}
}

// within reports whether amounts are at most as large as others.
func within(amounts, others []int64) bool {
	for i, amount := range amounts {
		if amount > others[i] {
			return false
		}
	}
	return true
}

// compareRows orders rows, the largest first, as comparePods does.
func compareRows(a, b []int64) int {
	for i := len(a) - 2; i >= 0; i-- {
		if order := cmp.Compare(b[i], a[i]); order != 0 {
			return order
		}
	}
	return 0
}
