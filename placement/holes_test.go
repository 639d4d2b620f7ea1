package placement

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

const testGPU corev1.ResourceName = "nvidia.com/gpu"

// drawNodes draws what up to 40 nodes have free.
func drawNodes(t *rapid.T) (nodes []Resources) {
	for range rapid.IntRange(0, 40).Draw(t, "nodes") {
		nodes = append(nodes, Resources{
			corev1.ResourceCPU:    int64(rapid.IntRange(0, 64).Draw(t, "cores")) * 1000,
			corev1.ResourceMemory: int64(rapid.IntRange(0, 64).Draw(t, "GiB")) << 30,
			testGPU:               int64(rapid.IntRange(0, 8).Draw(t, "GPUs")),
		})
	}
	return nodes
}

// What is kept of many nodes is small, claims no room that there is not, and keeps the largest of each resource.
func TestHolesAreFewAndThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		h := HolesOf(nodes)
		if n := len(h.rows) / (len(h.names) + 1); n > mostHoles {
			t.Fatalf("%d rows", n)
		}
		count := int64(0)
		for row := range h.each() {
			count += row[len(h.names)]
			amounts := Resources{}
			for i, name := range h.names {
				amounts[name] = row[i]
			}
			atLeast := 0
			for _, node := range nodes {
				if (&Holes{names: h.names, rows: append(h.amounts(node), 1)}).takes(amounts) {
					atLeast++
				}
			}
			if int64(atLeast) < row[len(h.names)] {
				t.Fatalf("%d nodes are said to have %v, %d do", row[len(h.names)], amounts, atLeast)
			}
		}
		if count > int64(len(nodes)) {
			t.Fatalf("%d nodes of %d", count, len(nodes))
		}
		for _, name := range h.names {
			largest := slices.MaxFunc(nodes, func(a, b Resources) int { return int(a[name]/1000 - b[name]/1000) })
			if most := (Resources{name: largest[name] / 1000 * 1000}); !h.takes(most) {
				t.Fatalf("there is no %v", most)
			}
		}
		if read := holesFrom(h.API()); len(nodes) > 0 && !reflect.DeepEqual(read, h) {
			t.Fatalf("%+v is read as %+v", h, read)
		}
	})
}

// A few kinds of nodes are known exactly.
func TestOfAFewKindsOfNodesEveryPodIsJudgedExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := drawNodes(t)
		nodes = nodes[:min(len(nodes), mostHoles)]
		pod := Resources{corev1.ResourceCPU: int64(rapid.IntRange(1, 64).Draw(t, "cores")) * 1000, testGPU: int64(rapid.IntRange(0, 8).Draw(t, "GPUs"))}
		fits := slices.ContainsFunc(nodes, func(node Resources) bool {
			return node[corev1.ResourceCPU] >= pod[corev1.ResourceCPU] && node[testGPU] >= pod[testGPU]
		})
		if got := HolesOf(nodes).take([]Resources{pod}); got != fits && len(nodes) > 0 {
			t.Fatalf("%v fits: %t, said is %t", pod, fits, got)
		}
	})
}

// A pod that requests nothing runs on a node that has nothing free.
func TestAPodThatRequestsNothingFitsOnFullNodes(t *testing.T) {
	full := HolesOf([]Resources{{corev1.ResourceCPU: 0}})
	if !full.take([]Resources{{corev1.ResourceCPU: 0}}) {
		t.Error("it is refused")
	}
	if full.take([]Resources{{corev1.ResourceCPU: 1}}) {
		t.Error("a pod that requests a thousandth of a core is taken")
	}
}

// A cluster none of whose nodes is ready has no holes, and one may have a node that advertises nothing; pods that
// instances hold there change neither.
func TestNodesThatHaveNothing(t *testing.T) {
	held := book{reserved: Resources{corev1.ResourceCPU: 1000}, pods: []podsHeld{{Resources{corev1.ResourceCPU: 1000}, 1}}}
	for _, nodes := range [][]Resources{{}, {{}}, {{}, {}}} {
		c := &Cluster{Holes: HolesOf(nodes)}
		if left := c.holesLeft(held); len(left.rows) > 0 {
			t.Errorf("%d nodes that have nothing have the holes %v", len(nodes), left.rows)
		}
	}
}

// What a pod leaves of a node counts with the nodes that have as much.
func TestNodesThatPodsMakeTheSameCountTogether(t *testing.T) {
	pod := func(cores int64) Resources { return Resources{corev1.ResourceCPU: cores} }
	c := withNodes(inRegion("eu", "eu", 7), 5, 2)
	left := c.holesLeft(book{reserved: pod(3), pods: []podsHeld{{pod(3), 1}}}).API()
	if len(left.Nodes) != 1 || left.Nodes[0].Count != 2 {
		t.Errorf("two nodes with 2 are left, and it says %+v", left)
	}
}

// Pods are ordered by the last of their resources that differs, the largest first.
func TestComparePods(t *testing.T) {
	pod := func(cpu, memory, gpus int64) Resources {
		return Resources{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory, testGPU: gpus}
	}
	inOrder := []Resources{pod(0, 0, 2), pod(9, 5, 1), pod(8, 5, 1), pod(9, 4, 1), {corev1.ResourceMemory: 7}, {corev1.ResourceCPU: 9}, {}}
	for i, a := range inOrder {
		for k, b := range inOrder {
			if got := comparePods(a, b); got != cmp.Compare(i, k) {
				t.Errorf("%v and %v: %d", a, b, got)
			}
		}
	}
}

// Rows are similar if each amount differs by at most so many 64ths of the greater one.
func TestSimilarRows(t *testing.T) {
	for _, row := range []struct {
		a, b  []int64 // and the number of nodes, which does not count
		share int64
		want  bool
	}{
		{[]int64{64, 1}, []int64{64, 9}, 1, true},
		{[]int64{64, 1}, []int64{63, 1}, 1, true},
		{[]int64{63, 1}, []int64{64, 1}, 1, true},
		{[]int64{64, 1}, []int64{62, 1}, 1, false},
		{[]int64{64, 1}, []int64{62, 1}, 2, true},
		{[]int64{640, 1}, []int64{630, 1}, 1, true},
		{[]int64{640, 1}, []int64{629, 1}, 1, false},
		{[]int64{32, 1}, []int64{31, 1}, 1, false},
		{[]int64{32, 1}, []int64{31, 1}, 2, true},
		{[]int64{96, 1}, []int64{93, 1}, 2, true},
		{[]int64{96, 1}, []int64{92, 1}, 2, false},
		{[]int64{64, 64, 1}, []int64{64, 60, 1}, 2, false},
		{[]int64{5, 0, 1}, []int64{0, 0, 1}, 64, true},
	} {
		if got := similar(row.a, row.b, row.share); got != row.want {
			t.Errorf("%v and %v by %d: %t", row.a, row.b, row.share, got)
		}
	}
}

// Of more kinds of nodes than are kept, those that are nearly the same count together, and none is lost.
func TestNodesThatAreNearlyTheSameCountTogether(t *testing.T) {
	nodes := []Resources{{corev1.ResourceCPU: 9000, corev1.ResourceMemory: 9 << 30}}
	for i := range int64(20) {
		nodes = append(nodes, Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 4<<30 + i<<20})
	}
	h, kinds, count := HolesOf(nodes), 0, int64(0)
	for row := range h.each() {
		kinds, count = kinds+1, count+row[len(h.names)]
	}
	if kinds > mostHoles || kinds < 2 || count != 21 || !h.take(nodes[:2]) {
		t.Errorf("21 nodes are %d of %d kinds: %+v", count, kinds, h.API())
	}
}

// The resources that every node has count before those that only some have, of which the first by name count.
func TestTheResourcesThatCount(t *testing.T) {
	of := Resources{corev1.ResourceCPU: 1, corev1.ResourceMemory: 1, corev1.ResourceEphemeralStorage: 1, corev1.ResourcePods: 1}
	for _, kind := range []corev1.ResourceName{"a.example/a", "a.example/b", "a.example/c", "a.example/d", "a.example/e", "z.example/f"} {
		of[kind] = 1
	}
	want := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "a.example/a", "a.example/b", "a.example/c", "a.example/d", "a.example/e"}
	if got := counted(of); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The largest hole is named of the resource of which there is too little; if each is enough on some node, those that the pod asks for.
func TestWhatAHoleLacks(t *testing.T) {
	h := HolesOf([]Resources{
		{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 1 << 30, testGPU: 0}, {corev1.ResourceCPU: 1000, corev1.ResourceMemory: 4 << 30, testGPU: 2},
	})
	for _, row := range []struct {
		pod  Resources
		want string
	}{
		{Resources{testGPU: 3}, "no node has 3 nvidia.com/gpu free; the largest hole is 2"},
		{Resources{corev1.ResourceCPU: 5000}, "no node has 5 cpu free; the largest hole is 4"},
		{Resources{corev1.ResourceCPU: 2000, testGPU: 1}, "no node has 2 cpu and 1 nvidia.com/gpu free together"},
		{Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 2 << 30}, "no node has 2 cpu and 2Gi memory free together"},
	} {
		if got := h.lacks(row.pod); h.takes(row.pod) || got != row.want {
			t.Errorf("%v: %q, want %q", row.pod, got, row.want)
		}
	}
}

// A cluster with further nodes is the one that has them all, as far as is known.
func TestWithNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Resources
		for range rapid.IntRange(0, mostHoles).Draw(t, "few") { // all of them are kept
			nodes = append(nodes, Resources{corev1.ResourceCPU: int64(rapid.IntRange(1, 64).Draw(t, "cores")), corev1.ResourceMemory: 1})
		}
		at := rapid.IntRange(0, len(nodes)).Draw(t, "further")
		sum := Resources{}
		for _, node := range nodes {
			sum.Add(node, 1)
		}
		first := &Cluster{Allocatable: Resources{}, Holes: HolesOf(nodes[:at])}
		for _, node := range nodes[:at] {
			first.Allocatable.Add(node, 1)
		}
		more := first.WithNodes(nodes[at:])
		if !maps.Equal(more.Allocatable, sum) || !reflect.DeepEqual(more.Holes, HolesOf(nodes)) {
			t.Fatalf("%v and %+v, want %v and %+v", more.Allocatable, more.Holes, sum, HolesOf(nodes))
		}
	})
	unknown := &Cluster{Allocatable: cores(4), Sold: cores(8)}
	if more := unknown.WithNodes([]Resources{cores(2)}); more.Holes != nil || !maps.Equal(more.Sold, cores(12)) || !maps.Equal(unknown.Allocatable, cores(4)) {
		t.Errorf("%+v of %+v", more, unknown)
	}
}
