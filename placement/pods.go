package placement

import (
	"cmp"
	"slices"
)

// podsHeld are pods that instances have reserved room for and are meant to run.
type podsHeld struct {
	pod   Resources
	count int
}

// comparePods orders pods, the largest first: by the last of the resources in the order of names, as those
// are scarce, then by the one before.
func comparePods(a, b Resources) int {
	names := a.max(b).names()
	for _, name := range slices.Backward(names) {
		if order := cmp.Compare(b[name], a[name]); order != 0 {
			return order
		}
	}
	return 0
}

// holdPods adds to the pods, which are in order, a number of pods; negative to take them away.
func holdPods(all []podsHeld, pod Resources, count int) []podsHeld {
	at, found := slices.BinarySearchFunc(all, pod, func(p podsHeld, pod Resources) int { return comparePods(p.pod, pod) })
	all = slices.Clone(all) // pages and forks share it
	if !found {
		return slices.Insert(all, at, podsHeld{pod, count})
	}
	if all[at].count += count; all[at].count == 0 {
		return slices.Delete(all, at, at+1)
	}
	return all
}

// holesLeft returns the holes of a cluster once the pods that do not run yet, of those that are meant to,
// have taken the smallest that they fit into. Pods do not run yet as far as more is reserved, or used by
// others, than the pods on the nodes request.
func (c *Cluster) holesLeft(held book) *Holes {
	h := c.Holes
	if h == nil || len(held.pods) == 0 {
		return h
	}
	waiting := make([]int64, len(h.names))
	for i, name := range h.names {
		waiting[i] = held.reserved[name] + c.ForeignUse[name] - (c.Allocatable[name] - h.free[i])
	}
	var rows [][]int64
	for _, held := range held.pods {
		pod := h.amounts(held.pod)
		for range held.count {
			if !within(pod, waiting) || empty(pod) {
				break
			}
			if rows == nil {
				rows = slices.Collect(slices.Chunk(slices.Clone(h.rows), len(h.names)+1))
			}
			at := len(rows) - 1
			for at >= 0 && !within(pod, rows[at]) {
				at--
			}
			if at < 0 {
				break
			}
			rows = fill(rows, at, pod)
			subtract(waiting, pod)
		}
	}
	if rows == nil {
		return h
	}
	return &Holes{names: h.names, free: h.free, rows: slices.Concat(compact(rows)...)}
}

// fill takes a pod out of one of the nodes of a row.
func fill(rows [][]int64, at int, pod []int64) [][]int64 {
	one := slices.Clone(rows[at])
	subtract(one, pod)
	one[len(pod)] = 1
	if rows[at][len(pod)]--; rows[at][len(pod)] == 0 {
		rows = slices.Delete(rows, at, at+1)
	}
	to, same := slices.BinarySearchFunc(rows, one, compareRows)
	if same {
		rows[to][len(pod)]++
		return rows
	}
	return slices.Insert(rows, to, one)
}
