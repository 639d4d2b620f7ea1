package placement

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func soldTogether(t rapid.TB, inventory *Inventory, selector, platform string) Fleet {
	t.Helper()
	clusters, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return inventory.Snapshot().Fleet(clusters, platform)
}

// TestFleet: what clusters sell together is what each sells, after its share, its limits and what it hides. What the
// reader's own platform has is not used by others.
func TestFleet(t *testing.T) {
	has := placementtest.Quantities("cpu=10,memory=100Gi,nvidia.com/gpu=4,pods=110")
	own, other := Consumer{Platform: "upper", Organization: "o"}, Consumer{Platform: "cf", Organization: "o"}
	machine := func(architecture, system string) map[string]string {
		return map[string]string{corev1.LabelArchStable: architecture, corev1.LabelOSStable: system}
	}
	inventory := NewInventory()
	for _, row := range []placementtest.Cluster{
		{Name: "whole", Region: "eu", Has: has, Foreign: placementtest.Quantities("cpu=1"), Classes: []string{"fast"}, Labels: machine("riscv64", "linux")},
		{Name: "half", Region: "eu", Has: has, Labels: machine("arm64", ""), Foreign: placementtest.Quantities("cpu=6"), Classes: []string{"slow"}, Sell: &v1alpha1.Sale{Share: 50}},
		{Name: "bounded", Region: "eu", Has: has, Sell: &v1alpha1.Sale{AtMost: placementtest.Quantities("cpu=3"), Hide: []corev1.ResourceName{"nvidia.com/gpu"}}},
		{Name: "elsewhere", Region: "us", Has: has, Labels: machine("amd64", "windows")},
		{Name: "silent", Region: "eu", Has: has, Unreachable: "connection refused", Classes: []string{"lost"}},
		{Name: "unread", Region: "eu", Has: has, Uncounted: "it has not answered yet"},
		{Name: "cordoned", Region: "eu", Has: has, Cordoned: true},
		{Name: "tainted", Region: "eu", Has: has, Taints: []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}},
	} {
		mc := row.MemberCluster()
		mc.Spec.Exposure = &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: 9000, Last: 9009}}
		inventory.UpsertCluster(ClusterOf(mc, time.Time{}))
	}
	reserve := func(name string, of Consumer, on string, cores int64) {
		inventory.Reserve(Holding{Instance: name, Consumer: of, Held: map[string]Resources{on: {corev1.ResourceCPU: 1000 * cores}}})
	}
	const eu = "topology.kubernetes.io/region=eu"
	for _, row := range []struct {
		what             string
		change           func()
		selector         string
		sold, used, gpus int64 // cores, and pieces
	}{
		// Of half, five cores are sold, and six of ten are used: one of the five.
		{"the sum", func() {}, eu, 10 + 5 + 3, 1 + 1, 4 + 2},
		{"another's instance", func() { reserve("theirs", other, "whole", 2) }, eu, 18, 4, 6},
		{"the reader's own", func() { reserve("ours", own, "bounded", 3) }, eu, 18, 4, 6},
		{"one on a cluster that is left out", func() { reserve("away", own, "elsewhere", 3) }, eu, 18, 4, 6},
		{"more than there is", func() { reserve("much", other, "bounded", 9) }, eu, 18, 4, 6},
		{"one cluster", func() {}, "sluice.dev/cluster=whole", 10, 3, 4},
		{"none", func() {}, "topology.kubernetes.io/region=ap", 0, 0, 0},
		{"everything", func() {}, "", 28, 4, 10},
	} {
		row.change()
		f := soldTogether(t, inventory, row.selector, "upper")
		if f.Sold[corev1.ResourceCPU] != 1000*row.sold || f.Used[corev1.ResourceCPU] != 1000*row.used || f.Sold["nvidia.com/gpu"] != row.gpus {
			t.Errorf("%s: %v sold, %v used; want %d of %d cores, and %d GPUs", row.what, f.Sold, f.Used, row.used, row.sold, row.gpus)
		}
		for name, sold := range f.Sold {
			if sold == 0 || name == v1alpha1.ResourcePublicPorts {
				t.Errorf("%s: %d %s sold; a fleet has no ports, and what none sells is not there", row.what, sold, name)
			}
		}
	}
	f := soldTogether(t, inventory, eu, "upper")
	if !slices.Equal(f.StorageClasses, []string{"fast", "slow"}) || !slices.Equal(f.Architectures, []string{"arm64", "riscv64"}) || !slices.Equal(f.OperatingSystems, []string{"linux"}) {
		t.Errorf("storage classes %v, architectures %v, operating systems %v", f.StorageClasses, f.Architectures, f.OperatingSystems)
	}
}

// TestAFleetAddsUp: over a synthetic fleet, the sum is that of the clusters one by one.
func TestAFleetAddsUp(t *testing.T) {
	inventory := syntheticFleet(700)
	s, want := inventory.Snapshot(), Fleet{Sold: Resources{}, Used: Resources{}}
	for _, c := range s.Clusters() {
		if c.Labels["stage"] != "prod" || len(c.Taints) > 0 {
			continue
		}
		for name := range c.Allocatable {
			want.Sold[name] += c.sold(name)
			want.Used[name] += c.sold(name) - max(s.Free(c.Name, name), 0)
		}
	}
	maps.DeleteFunc(want.Used, func(_ corev1.ResourceName, used int64) bool { return used == 0 })
	if got := soldTogether(t, inventory, "stage=prod", "upper"); !maps.Equal(got.Sold, want.Sold) || !maps.Equal(got.Used, want.Used) || got.Sold[corev1.ResourceCPU] == 0 {
		t.Errorf("%v sold, %v used; one by one %v, %v", got.Sold, got.Used, want.Sold, want.Used)
	}
}

// TestTheLargestHolesOfAFleet: a pod fits into the holes of a fleet if one of its clusters takes it, and only then; without what
// a cluster hides, and for as long as no cluster is one of which that is not known.
func TestTheLargestHolesOfAFleet(t *testing.T) {
	fitted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		drawn := func(label string) corev1.ResourceList {
			return placementtest.Quantities(fmt.Sprintf("cpu=%d,memory=%dGi,nvidia.com/gpu=%d", rapid.IntRange(0, 4).Draw(t, label), rapid.IntRange(0, 3).Draw(t, label), rapid.IntRange(0, 2).Draw(t, label)))
		}
		inventory := NewInventory()
		for i := range rapid.IntRange(1, 4).Draw(t, "clusters") {
			row := placementtest.Cluster{Name: fmt.Sprint("c", i), Has: placementtest.Quantities("cpu=100,memory=100Gi,nvidia.com/gpu=100,pods=110"), Cordoned: rapid.IntRange(0, 3).Draw(t, "cordoned") == 0}
			if rapid.Bool().Draw(t, "hides") {
				row.Sell = &v1alpha1.Sale{Hide: []corev1.ResourceName{"nvidia.com/gpu"}}
			}
			for range rapid.IntRange(1, 2).Draw(t, "nodes") {
				row.Nodes = append(row.Nodes, v1alpha1.NodesFree{Count: int32(rapid.IntRange(1, 3).Draw(t, "count")), Free: drawn("free")})
			}
			inventory.UpsertCluster(ClusterOf(row.MemberCluster(), time.Time{}))
		}
		f, pod := soldTogether(t, inventory, "", "upper"), ResourcesOf(drawn("pod"))
		fits := false
		for _, c := range inventory.Snapshot().Clusters() {
			hides := c.sold("nvidia.com/gpu") == 0 && pod["nvidia.com/gpu"] > 0
			fits = fits || !c.Cordoned && !hides && c.Holes.take([]Resources{pod})
		}
		isEmpty := !slices.ContainsFunc(slices.Collect(maps.Values(pod)), func(n int64) bool { return n > 0 })
		sold := Resources{} // of what no cluster sells, the sum says that it is not there
		for name, n := range pod {
			if f.Sold[name] > 0 || n == 0 {
				sold[name] = n
			}
		}
		if len(sold) < len(pod) {
			return
		}
		if got := f.Holes.take([]Resources{pod}); got != (fits || isEmpty) {
			t.Fatalf("a pod of %v fits: %t; into the holes %+v: %t", pod, fits, f.Holes.API(), got)
		}
		if fits {
			fitted++
		} else {
			refused++
		}
	})
	if fitted == 0 || refused == 0 {
		t.Errorf("%d pods fitted, and %d did not", fitted, refused)
	}

	inventory := NewInventory()
	has := placementtest.Quantities("cpu=10,memory=10Gi")
	nodes := []v1alpha1.NodesFree{{Count: 2, Free: placementtest.Quantities("cpu=3,memory=2Gi")}, {Count: 1, Free: placementtest.Quantities("cpu=1,memory=1Gi")}}
	for _, row := range []placementtest.Cluster{{Name: "a", Has: has, Nodes: nodes}, {Name: "b", Has: has, Nodes: nodes[:1], Sell: &v1alpha1.Sale{Share: 50}}} {
		inventory.UpsertCluster(ClusterOf(row.MemberCluster(), time.Time{}))
	}
	want := &v1alpha1.Holes{Free: placementtest.Quantities("cpu=8,memory=5Gi"), Nodes: []v1alpha1.NodesFree{{Count: 4, Free: placementtest.Quantities("cpu=3,memory=2Gi")}}}
	if got := soldTogether(t, inventory, "", "upper").Holes.API(); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the holes are %+v, want %+v", got, want)
	}
	inventory.UpsertCluster(ClusterOf((placementtest.Cluster{Name: "declared", Has: has}).MemberCluster(), time.Time{}))
	if got := soldTogether(t, inventory, "", "upper").Holes; got != nil {
		t.Errorf("beside a cluster whose holes are not known, they are %+v", got.API())
	}
}

// TestChanged: whoever asks for changes learns of clusters and reservations, and of nothing else.
func TestChanged(t *testing.T) {
	inventory := syntheticFleet(3)
	c := *inventory.Snapshot().Clusters()[0]
	for _, row := range []struct {
		what    string
		do      func()
		changes bool
	}{
		{"a cluster that is the same", func() { again := c; inventory.UpsertCluster(&again) }, false},
		{"another version", func() { again := c; again.Ready = false; inventory.UpsertCluster(&again) }, true},
		{"a reservation", func() {
			inventory.Reserve(Holding{Instance: "a", Held: map[string]Resources{c.Name: {corev1.ResourceCPU: 1}}})
		}, true},
		{"the same again", func() {
			inventory.Reserve(Holding{Instance: "a", Held: map[string]Resources{c.Name: {corev1.ResourceCPU: 1}}})
		}, false},
		{"a decision", func() { _, _ = inventory.Place(Request{ID: "b", Resources: Resources{corev1.ResourceCPU: 1}}) }, true},
		{"its release", func() { inventory.Release("a") }, true},
		{"its release again", func() { inventory.Release("a") }, false},
		{"a recovery", func() { inventory.ReserveAll([]Holding{{Instance: "c"}}) }, true},
		{"a policy", func() { inventory.SetPolicies(nil) }, true},
		{"a deletion", func() { inventory.DeleteCluster(c.Name) }, true},
		{"a deletion of nothing", func() { inventory.DeleteCluster(c.Name) }, false},
	} {
		changed := inventory.Changed()
		row.do()
		select {
		case <-changed:
			if !row.changes {
				t.Errorf("%s is a change", row.what)
			}
		default:
			if row.changes {
				t.Errorf("%s is no change", row.what)
			}
		}
	}
}

// BenchmarkFleet: issue 17 asks for at most 1 ms over 1,000 members.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		for _, own := range []int{0, 10000} {
			inventory := syntheticFleet(n)
			var all []Holding
			for i := range own {
				all = append(all, Holding{
					Instance: fmt.Sprint("si-", i), Consumer: Consumer{Platform: "upper"},
					Held: map[string]Resources{fmt.Sprintf("cluster-%05d", i%n): {corev1.ResourceCPU: 100, corev1.ResourceMemory: 1 << 28}},
				})
			}
			inventory.ReserveAll(all)
			s, prod := inventory.Snapshot(), labels.Set{"stage": "prod"}.AsSelector()
			for name, clusters := range map[string]labels.Selector{"all": labels.Everything(), "half": prod} {
				b.Run(fmt.Sprintf("%s/%d/%d_own", name, n, own), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						s.Fleet(clusters, "upper")
					}
				})
			}
		}
	}
}
