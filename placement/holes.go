package placement

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Holes is the room for single pods on the nodes of a cluster, see v1alpha1.Holes. It never changes.
//
// A cluster may have eight GPUs free and no node with more than three: then it takes no pod of eight.
type Holes struct {
	names []corev1.ResourceName
	// free on all nodes together, by names.
	free []int64
	// rows have what equal nodes have free each, by names, and after that the number of the nodes; the
	// largest first.
	rows []int64
}

const (
	// mostHoles is the most rows, and mostHoleNames the most resources that are counted, so that what is
	// known of a cluster stays small.
	mostHoles     = 8
	mostHoleNames = 8
)

// HolesOf returns the holes of a cluster's nodes by what each of them has free; a resource that it has
// none of left is zero, and one that it does not have is absent.
func HolesOf(nodes []Resources) *Holes { return (&Holes{}).with(nodes) }

// with returns the holes with further nodes.
func (h *Holes) with(nodes []Resources) *Holes {
	free := h.resources(h.free)
	union := maps.Clone(free)
	for _, node := range nodes {
		maps.Copy(union, node)
	}
	all := &Holes{names: counted(union)}
	all.free = all.amounts(free)
	var rows [][]int64
	for row := range h.each() {
		rows = append(rows, append(all.amounts(h.resources(row)), row[len(h.names)]))
	}
	for _, node := range nodes {
		row := append(all.amounts(node), 1)
		for i := range all.names {
			row[i] = max(row[i], 0)
			all.free[i] += row[i]
		}
		rows = append(rows, row)
	}
	all.rows = slices.Concat(compact(rows)...)
	return all
}

// counted returns the names of the resources that count: cpu, memory and ephemeral storage, then the
// others by name. The number of pods is not one, because nodes that take no more do not count at all.
func counted(of Resources) []corev1.ResourceName {
	names := slices.DeleteFunc(of.names(), func(name corev1.ResourceName) bool { return name == corev1.ResourcePods })
	slices.SortStableFunc(names, func(a, b corev1.ResourceName) int { return cmp.Compare(native(b), native(a)) })
	return slices.Clip(names[:min(len(names), mostHoleNames)])
}

// native is 1 for the resources that every node has.
func native(name corev1.ResourceName) int {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return 1
	}
	return 0
}

// holesFrom reads the status of a member cluster.
func holesFrom(from *v1alpha1.Holes) *Holes {
	if from == nil {
		return nil
	}
	sum := ResourcesOf(from.Free)
	h := &Holes{names: counted(sum)}
	h.free = h.amounts(sum)
	h.rows = slices.Grow(h.rows, len(from.Nodes)*(len(h.names)+1)) // nil for none, as of HolesOf
	for _, nodes := range from.Nodes {
		h.rows = append(append(h.rows, h.amounts(ResourcesOf(nodes.Free))...), int64(nodes.Count))
	}
	return h
}

// API returns the holes for the status of a member cluster.
func (h *Holes) API() *v1alpha1.Holes {
	out := &v1alpha1.Holes{Free: h.resources(h.free).List()}
	for row := range h.each() {
		out.Nodes = append(out.Nodes, v1alpha1.NodesFree{Count: int32(row[len(h.names)]), Free: h.resources(row).List()}) // a count of nodes
	}
	return out
}

// resources returns amounts that are in the order of the names.
func (h *Holes) resources(amounts []int64) Resources {
	r := make(Resources, len(h.names))
	for i, name := range h.names {
		r[name] = amounts[i]
	}
	return r
}

// amounts returns resources in the order of the names.
func (h *Holes) amounts(of Resources) []int64 {
	amounts := make([]int64, len(h.names), len(h.names)+1)
	for i, name := range h.names {
		amounts[i] = of[name]
	}
	return amounts
}

func (h *Holes) each() iter.Seq[[]int64] { return slices.Chunk(h.rows, len(h.names)+1) }

// podsOf reads pods.
func podsOf(lists []corev1.ResourceList) (pods []Resources) {
	for _, list := range lists {
		pods = append(pods, ResourcesOf(list))
	}
	return pods
}

// take reports whether each of the pods finds a node with enough free; nil takes any, and resources that
// are not counted do not count.
func (h *Holes) take(pods []Resources) bool {
	return h == nil || !slices.ContainsFunc(pods, func(pod Resources) bool { return !h.takes(pod) })
}

func (h *Holes) takes(pod Resources) bool { return h.has(h.amounts(pod)) }

// has reports whether a node has these amounts free. Nodes that have nothing free are not in the rows.
func (h *Holes) has(amounts []int64) bool {
	for row := h.rows; len(row) > 0; row = row[len(amounts)+1:] {
		if within(amounts, row) {
			return true
		}
	}
	return !slices.ContainsFunc(amounts, func(amount int64) bool { return amount > 0 })
}

// tooFragmented rejects clusters on which one of the pods fits on no node. What is free on the nodes of a
// cluster is sometimes not known; then it is not rejected.
func tooFragmented(pods []Resources) filter {
	return filter{reason: ReasonTooFragmented, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			var short set
			if p.holes == nil {
				return short
			}
			var names []corev1.ResourceName // most clusters have the same
			need := make([][]int64, len(pods))
			for row := range among.rows() {
				h := p.holes[row]
				if h == nil {
					continue
				}
				if !slices.Equal(h.names, names) {
					names = h.names
					for i, pod := range pods {
						need[i] = h.amounts(pod)
					}
				}
				for _, amounts := range need {
					if !h.has(amounts) {
						short.add(row)
					}
				}
			}
			return short
		},
		message: func(p *page, row int) string {
			h := p.holes[row]
			at := slices.IndexFunc(pods, func(pod Resources) bool { return !h.takes(pod) })
			return h.lacks(pods[at])
		},
	}
}

// lacks says why no node has room for a pod.
func (h *Holes) lacks(pod Resources) string {
	var together []string
	for i, name := range h.names {
		most := int64(0)
		for row := range h.each() {
			most = max(most, row[i])
		}
		if pod[name] > most {
			return fmt.Sprintf("no node has %s %s free; the largest hole is %s", show(name, pod[name]), name, show(name, most))
		}
		if pod[name] > 0 {
			together = append(together, fmt.Sprintf("%s %s", show(name, pod[name]), name))
		}
	}
	return fmt.Sprintf("no node has %s free together", strings.Join(together, " and "))
}
