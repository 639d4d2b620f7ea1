package placement_test

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/placement"
)

// The nodes of docs/placement.md, one by one.

// dig draws what each node of a cluster has free, or leaves it unknown.
func (w *world) dig(c *placement.Cluster) {
	if w.one(3) {
		return
	}
	n := 1 + w.IntN(4)
	w.nodes[c.Name] = nil
	alike := w.one(2)
	for i := range n {
		node := placement.Resources{
			cpu: int64(w.IntN(int(c.Allocatable[cpu])/n+1)) / 1000 * 1000, memory: int64(w.IntN(int(c.Allocatable[memory]>>30)/n+1)) << 30,
		}
		if alike && i > 0 {
			node = maps.Clone(w.nodes[c.Name][0])
		}
		w.nodes[c.Name] = append(w.nodes[c.Name], node)
	}
	c.Holes = placement.HolesOf(w.nodes[c.Name])
}

// pods draws the largest pods of what takes some resources; none for most.
func (w *world) pods(of placement.Resources) (pods []placement.Resources) {
	if !w.one(3) {
		return nil
	}
	for range 1 + w.IntN(2) {
		pod := placement.Resources{}
		for _, name := range []corev1.ResourceName{cpu, memory} {
			pod[name] = of[name] / int64(1+w.IntN(2))
		}
		pods = append(pods, pod)
	}
	return pods
}

// hasNodes reports whether each pod finds a node with room, once the pods that do not run yet have taken the smallest
// nodes with room for them, the largest pod first.
func (o *oracle) hasNodes(c *placement.Cluster, component *placement.Component) bool {
	if c.Holes == nil {
		return true
	}
	pods := o.LargestPods
	if component != nil {
		pods = component.LargestPods
	}
	var nodes, due []placement.Resources
	free := placement.Resources{}
	for _, node := range o.nodes[c.Name] {
		nodes = append(nodes, maps.Clone(node))
		free.Add(node, 1)
	}
	missing := placement.Resources{}
	for _, name := range []corev1.ResourceName{cpu, memory} {
		missing[name] = free[name] + c.ForeignUse[name] - c.Allocatable[name]
	}
	for _, h := range o.held {
		if h.Held[c.Name] != nil {
			missing.Add(h.Held[c.Name], 1)
			due = append(due, h.Pods[c.Name]...)
		}
	}
	size := func(a, b placement.Resources) int {
		return cmp.Or(cmp.Compare(a[memory], b[memory]), cmp.Compare(a[cpu], b[cpu]))
	}
	slices.SortStableFunc(due, func(a, b placement.Resources) int { return size(b, a) })
	room := func(in, pod placement.Resources) bool { return in[cpu] >= pod[cpu] && in[memory] >= pod[memory] }
	smallest := func(pod placement.Resources) placement.Resources {
		with := slices.DeleteFunc(slices.Clone(nodes), func(node placement.Resources) bool { return !room(node, pod) })
		if len(with) == 0 {
			return nil
		}
		return slices.MinFunc(with, size)
	}
	for _, pod := range due {
		if node := smallest(pod); node != nil && room(missing, pod) {
			node.Add(pod, -1)
			missing.Add(pod, -1)
		}
	}
	return !slices.ContainsFunc(pods, func(pod placement.Resources) bool { return smallest(pod) == nil && pod[cpu]+pod[memory] > 0 })
}
