package reader

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// A simulated driver publishes GPUs with a capacity "memory", and an attribute "model".
const simulated = "gpu.simulated.example"

func deviceClass(name, expression string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if expression != "" {
		class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	}
	return class
}

// atLeast selects the simulated GPUs with an amount of memory.
func atLeast(memory string) string {
	return fmt.Sprintf("device.driver == '%s' && device.capacity['%s'].memory.compareTo(quantity('%s')) >= 0", simulated, simulated, memory)
}

// published is a slice of a pool of one generation, which is complete with it.
func published(node string, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-gpus"},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: simulated, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: devices,
		},
	}
}

func gpu(name, memory string, change ...func(*resourcev1.Device)) resourcev1.Device {
	d := resourcev1.Device{Name: name, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(memory)}}}
	for _, c := range change {
		c(&d)
	}
	return d
}

// slice of a GPU: a partition that draws on the counter "slices" of a set.
func part(set, slices string) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: set, Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(slices)}}}}
	}
}

func partitioned(s *resourcev1.ResourceSlice, slices string, sets ...string) *resourcev1.ResourceSlice {
	for _, set := range sets {
		s.Spec.SharedCounters = append(s.Spec.SharedCounters, resourcev1.CounterSet{Name: set, Counters: map[string]resourcev1.Counter{"slices": {Value: resource.MustParse(slices)}}})
	}
	return s
}

// claimed is a claim to which devices of the pools of nodes are allocated, as NODE/DEVICE.
func claimed(namespace string, devices ...string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "claim"}}
	if len(devices) == 0 {
		return claim
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range devices {
		pool, name, _ := strings.Cut(d, "/")
		claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Request: "gpus", Driver: simulated, Pool: pool, Device: name})
	}
	return claim
}

func tainted(effect resourcev1.DeviceTaintEffect) func(*resourcev1.Device) {
	return func(d *resourcev1.Device) { d.Taints = []resourcev1.DeviceTaint{{Key: "broken", Effect: effect}} }
}

func TestDevicesAreCountedByClass(t *testing.T) {
	large, small := deviceClass("large", atLeast("40Gi")), deviceClass("small", fmt.Sprintf("device.driver == '%s' && !(%s)", simulated, atLeast("40Gi")))
	every := deviceClass("every", "")
	classes := func(c ...*resourcev1.DeviceClass) []*resourcev1.DeviceClass { return c }
	for _, c := range []struct {
		name    string
		devices devices
		// allocatable, foreign use and holes by class; NODE=AMOUNT in the order of the nodes.
		allocatable, foreign, free string
		// uncounted has parts of the reasons, by class.
		uncounted map[string]string
	}{
		{"by what they have", devices{classes: classes(large, small), slices: []*resourcev1.ResourceSlice{
			published("a", gpu("0", "80Gi"), gpu("1", "80Gi"), gpu("2", "16Gi")), published("b", gpu("0", "80Gi")),
		}}, "large=3,small=1", "", "large: 1 2; small: 0 1", nil},
		{"a class without devices", devices{classes: classes(large)}, "large=0", "", "", nil},
		{"no classes", devices{slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"))}}, "", "", "", nil},
		{"nodes that take no workloads", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{
			published("cordoned", gpu("0", "80Gi")), published("gone", gpu("0", "80Gi")), published("a", gpu("0", "80Gi")),
		}}, "large=1", "", "large: 0 1", nil},
		{"tainted devices", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{published("a",
			gpu("0", "80Gi", tainted(resourcev1.DeviceTaintEffectNoSchedule)), gpu("1", "80Gi", tainted(resourcev1.DeviceTaintEffectNoExecute)),
			gpu("2", "80Gi", tainted(resourcev1.DeviceTaintEffectNone)),
		)}}, "large=1", "", "large: 0 1", nil},
		{"only the newest generation", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{
			published("a", gpu("0", "80Gi"), gpu("1", "80Gi")), generation(published("a", gpu("0", "80Gi")), 2, 1),
		}}, "large=1", "", "large: 0 1", nil},
		{"only a complete generation", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{
			published("a", gpu("0", "80Gi")), generation(published("a", gpu("1", "80Gi")), 2, 2), published("b", gpu("0", "80Gi")),
		}}, "large=1", "", "large: 0 1", nil},
		{"only a valid pool", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"), gpu("0", "80Gi"))}}, "large=0", "", "", nil},
		{"all slices of a pool", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{
			generation(published("a", gpu("0", "80Gi")), 2, 2), generation(published("a", gpu("1", "80Gi")), 2, 2),
		}}, "large=2", "", "large: 0 2", nil},
		{"devices of no node", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{
			published("a", gpu("0", "80Gi")), everywhere(published("network", gpu("0", "80Gi"))),
		}}, "large=2", "", "", nil},
		{"a device of two classes", devices{classes: classes(large, every), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"), gpu("1", "16Gi"))}},
			"every=1,large=0", "", "every: 0 1", map[string]string{"every": "1 of its devices overlap with those of large", "large": "1 of its devices overlap with those of every"}},
		{"a device of a class that is not sold, too", devices{classes: classes(large, every), hidden: func(class string) bool { return class == "every" },
			slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"), gpu("1", "16Gi"))}}, "large=1", "", "large: 0 1", nil},
		{"a selector that fails", devices{classes: classes(large, deviceClass("wrong", "device.attributes['"+simulated+"'].model == 'x'")),
			slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"))}}, "large=1,wrong=0", "", "large: 0 1", map[string]string{"wrong": "its selector fails on device 0 of pool a: no such key: model"}},
		{"a selector that fails selects what it selects", devices{classes: classes(large, deviceClass("wrong", "device.capacity['"+simulated+"'].memory.compareTo(quantity('1Gi')) > 0")),
			slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"), resourcev1.Device{Name: "1"})}}, "large=0,wrong=0", "", "", map[string]string{"wrong": "no such key: memory", "large": "no such key"}},
		{"a class that nodes have as an extended resource, too", devices{classes: classes(extended(large, "example.com/fpga")), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"))}},
			"large=0", "", "", map[string]string{"large": "nodes have example.com/fpga, too"}},
		{"claims of others", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"), gpu("1", "80Gi"), gpu("2", "80Gi"), gpu("3", "80Gi"))},
			claims: []*resourcev1.ResourceClaim{claimed("others", "a/0"), claimed("ours", "a/1"), claimed("others"), claimed("theirs", "a/2"), admin(claimed("others", "a/3"))}},
			"large=4", "large=1", "large: 0 1", nil},
		{"claims of devices that do not count", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "16Gi")), published("cordoned", gpu("0", "80Gi"))},
			claims: []*resourcev1.ResourceClaim{claimed("others", "a/0", "cordoned/0", "gone/7")}}, "large=0", "", "", nil},
		{"equal partitions", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{partitioned(published("a",
			gpu("0", "40Gi", part("gpu-0", "3")), gpu("1", "40Gi", part("gpu-0", "3")), gpu("2", "40Gi", part("gpu-0", "3")), gpu("3", "40Gi", part("gpu-1", "3"))),
			"7", "gpu-0", "gpu-1")}}, "large=3", "", "large: 0 3", nil},
		{"partitions that exclude each other", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{partitioned(published("a",
			gpu("all", "80Gi", part("gpu-0", "7")), gpu("half", "40Gi", part("gpu-0", "3")), gpu("other", "40Gi", part("gpu-0", "3"))), "7", "gpu-0")}}, "large=1", "", "large: 0 1", nil},
		{"partitions of two classes", devices{classes: classes(large, small), slices: []*resourcev1.ResourceSlice{partitioned(published("a",
			gpu("0", "80Gi", part("gpu-0", "7")), gpu("1", "10Gi", part("gpu-0", "1")), gpu("2", "10Gi", part("gpu-1", "1"))), "7", "gpu-0", "gpu-1")}},
			"large=0,small=1", "", "small: 0 1", map[string]string{"large": "1 of its devices overlap with those of small", "small": "1 of its devices overlap with those of large"}},
		{"a partition in use", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{partitioned(published("a",
			gpu("0", "40Gi", part("gpu-0", "2")), gpu("1", "40Gi", part("gpu-0", "2")), gpu("2", "40Gi", part("gpu-0", "2")), gpu("3", "10Gi", part("gpu-0", "3"))), "6", "gpu-0")},
			claims: []*resourcev1.ResourceClaim{claimed("others", "a/3"), claimed("ours", "a/0")}}, "large=3", "large=2", "large: 0 0", nil},
		{"a partition of what the pool has not", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{partitioned(published("a", gpu("0", "40Gi", part("gpu-9", "1"))), "7", "gpu-0")}}, "large=0", "", "", nil},
		{"more classes than count", devices{classes: manyClasses(), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi"))}},
			"", "", "", map[string]string{"class-00": "the cluster has 65 device classes, and none counts with more than 64"}},
		{"more devices than count", devices{classes: classes(large), slices: []*resourcev1.ResourceSlice{published("a", gpu("0", "80Gi")), published("b", make([]resourcev1.Device, mostDevices)...)}},
			"large=0", "", "", map[string]string{"large": "the cluster has 65537 devices, and none counts with more than 65536"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.devices.selects = selectedBy(t)
			slim(t, c.devices.classes)
			slim(t, c.devices.slices)
			slim(t, c.devices.claims)
			node := func(name string) *corev1.Node {
				return placementtest.Node(name, func(n *corev1.Node) {
					n.Status.Allocatable["example.com/fpga"] = resource.MustParse("1")
					n.Spec.Unschedulable = name == "cordoned"
				})
			}
			quotas := []*corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs"}}}
			u := usageOf([]*corev1.Node{node("a"), node("b"), node("cordoned")}, nil, quotas, c.devices, func(namespace string) bool { return namespace == "ours" }, none)
			if got := byClass(u.Allocatable); got != c.allocatable && len(c.devices.classes) <= mostClasses {
				t.Errorf("allocatable are %s, want %s", got, c.allocatable)
			}
			if got := byClass(u.Foreign); got != c.foreign {
				t.Errorf("foreign use is %s, want %s", got, c.foreign)
			}
			if got := holesByClass(u.Holes); got != c.free {
				t.Errorf("holes are %s, want %s", got, c.free)
			}
			for _, class := range u.DeviceClasses {
				if want := c.uncounted[class.Name]; !strings.Contains(class.Uncounted, want) || want == "" && class.Uncounted != "" && len(c.devices.classes) <= mostClasses {
					t.Errorf("class %s: %q, want %q", class.Name, class.Uncounted, want)
				}
			}
			if want := min(len(c.devices.classes), mostClasses); len(u.DeviceClasses) != want {
				t.Errorf("%d classes, want %d", len(u.DeviceClasses), want)
			}
		})
	}
}

// byClass shows the devices among resources, as CLASS=AMOUNT.
func byClass(list corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if class, is := v1alpha1.DeviceClassOf(name); is {
			amount := list[name]
			out = append(out, class+"="+amount.String())
		}
	}
	return strings.Join(out, ",")
}

// holesByClass shows how many devices of each class nodes have free, in order.
func holesByClass(h *v1alpha1.Holes) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(h.Free)) {
		class, is := v1alpha1.DeviceClassOf(name)
		if !is {
			continue
		}
		var each []int
		for _, nodes := range h.Nodes {
			amount := nodes.Free[name]
			for range nodes.Count {
				each = append(each, int(amount.Value()))
			}
		}
		slices.Sort(each)
		out = append(out, class+": "+strings.Trim(fmt.Sprint(each), "[]"))
	}
	return strings.Join(out, "; ")
}

func generation(s *resourcev1.ResourceSlice, generation, slices int64) *resourcev1.ResourceSlice {
	s.Spec.Pool.Generation, s.Spec.Pool.ResourceSliceCount = generation, slices
	return s
}

func everywhere(s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	s.Spec.NodeName, s.Spec.AllNodes = nil, ptr.To(true)
	return s
}

func extended(class *resourcev1.DeviceClass, name string) *resourcev1.DeviceClass {
	out := class.DeepCopy()
	out.Spec.ExtendedResourceName = &name
	return out
}

func admin(claim *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	claim.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	return claim
}

func manyClasses() (classes []*resourcev1.DeviceClass) {
	for i := range mostClasses + 1 {
		classes = append(classes, deviceClass(fmt.Sprintf("class-%02d", i), ""))
	}
	return classes
}

// selectedBy evaluates selectors until the test ends.
func selectedBy(t *testing.T) func(*resourcev1.DeviceClass, *resourcev1.ResourceSlice) selection {
	return func(class *resourcev1.DeviceClass, slice *resourcev1.ResourceSlice) selection {
		return selectionOf(t.Context(), class, slice)
	}
}

// slim strips objects, as the informers do.
func slim[T any](t *testing.T, objects []T) {
	t.Helper()
	for i := range objects {
		stripped, err := strip(any(objects[i]))
		if err != nil {
			t.Fatal(err)
		}
		objects[i] = stripped.(T)
	}
}

func TestWhatAnotherHubHasReservedOfDevicesCountsOnce(t *testing.T) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "theirs"},
		Spec: corev1.ResourceQuotaSpec{Hard: placementtest.Quantities("large.deviceclass.resource.k8s.io/devices=2,requests.deviceclass.resource.kubernetes.io/large=2," +
			"requests.example.com/gpu=3,requests.example.com/large=2")},
	}
	classes := []*resourcev1.DeviceClass{extended(deviceClass("large", ""), "example.com/large"), extended(deviceClass("small", ""), "example.com/gpu")}
	if got, want := reservedBy(quota, classes), placementtest.Quantities("large.deviceclass.resource.k8s.io/devices=2,example.com/gpu=3"); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("reserved are %v, want %v", got, want)
	}
}

func TestSelectionsAreKeptUntilAnObjectChanges(t *testing.T) {
	var s selections
	class, slice := deviceClass("large", atLeast("40Gi")), published("a", gpu("0", "80Gi"))
	s.begin()
	first := s.of(t.Context(), class, slice)
	s.begin()
	if again := s.of(t.Context(), class, slice); !first.selected[0] || &again.selected[0] != &first.selected[0] {
		t.Error("the second reading evaluated again")
	}
	s.begin()
	if other := s.of(t.Context(), class, published("a", gpu("0", "16Gi"))); other.selected[0] {
		t.Error("a slice that has changed is as before")
	}
	s.begin()
	s.begin()
	if len(s.last)+len(s.next) != 0 {
		t.Error("selections of objects that are gone are kept")
	}
}

// A reading evaluates selectors for a bounded time. The next one evaluates the others.
func TestSelectionsEndWithTheirReading(t *testing.T) {
	var s selections
	class, slice := deviceClass("large", atLeast("40Gi")), published("a", gpu("0", "80Gi"))
	ended, end := context.WithCancel(t.Context())
	end()
	s.begin()
	if s.of(ended, class, slice).selected[0] {
		t.Error("a selector was evaluated after the reading")
	}
	s.begin()
	if again := s.of(t.Context(), class, slice); !again.selected[0] || again.failure != "" {
		t.Errorf("the next reading selects %+v", again)
	}

	n := readerOf(t, fake.NewClientset(placementtest.Node("a", nil), class, slice), placement.NewInventory())
	if _, err := n.Read(ended); err == nil || !strings.Contains(err.Error(), "selectors of its device classes: not complete yet") {
		t.Errorf("a reading that has no time: %v", err)
	}
	if r, err := n.Read(t.Context()); err != nil || byClass(r.Allocatable) != "large=1" {
		t.Errorf("the next one: %s, %v", byClass(r.Allocatable), err)
	}
}

// TestAnyScheduleLeavesEachClassItsDevices lets a scheduler take devices in any order, of any class within its count: the
// next one of a class that has not taken all must fit.
func TestAnyScheduleLeavesEachClassItsDevices(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	counted := 0
	for range 3000 {
		s := partitioned(published("a"), "6", "gpu-0", "gpu-1")
		for i := range 1 + random.IntN(10) {
			d := gpu(fmt.Sprint(i), fmt.Sprint(1+random.IntN(4)))
			if set := random.IntN(3); set < 2 {
				part(fmt.Sprintf("gpu-%d", set), []string{"1", "2", "5"}[random.IntN(3)])(&d)
			}
			s.Spec.Devices = append(s.Spec.Devices, d)
		}
		var classes []*resourcev1.DeviceClass
		for i := range 1 + random.IntN(3) {
			low := 1 + random.IntN(4)
			classes = append(classes, deviceClass(fmt.Sprint(i), fmt.Sprintf("%s && !(%s)", atLeast(fmt.Sprint(low)), atLeast(fmt.Sprint(low+1+random.IntN(4))))))
		}
		claims := []*resourcev1.ResourceClaim{claimed("others", fmt.Sprintf("a/%d", random.IntN(8)))}
		if random.IntN(2) == 0 {
			claims = nil
		}
		u := usageOf([]*corev1.Node{placementtest.Node("a", nil)}, nil, nil, devices{classes: classes, slices: []*resourcev1.ResourceSlice{s}, claims: claims, selects: selectedBy(t)}, none, none)

		left, taken := map[string]int64{"gpu-0": 6, "gpu-1": 6}, map[int]bool{}
		take := func(i int) bool {
			if taken[i] {
				return false
			}
			for _, c := range s.Spec.Devices[i].ConsumesCounters {
				amount := c.Counters["slices"].Value
				if amount.Value() > left[c.CounterSet] {
					return false
				}
				left[c.CounterSet] -= amount.Value()
			}
			taken[i] = true
			return true
		}
		for i := range s.Spec.Devices {
			if claims != nil && claims[0].Status.Allocation.Devices.Results[0].Device == s.Spec.Devices[i].Name {
				take(i)
			}
		}
		var orders []*resourcev1.DeviceClass
		for _, class := range classes {
			name := v1alpha1.DevicesResource(class.Name)
			has, others := u.Allocatable[name], u.Foreign[name]
			for range has.Value() - others.Value() {
				orders = append(orders, class)
				counted++
			}
		}
		random.Shuffle(len(orders), func(i, k int) { orders[i], orders[k] = orders[k], orders[i] })
		for _, class := range orders {
			chosen := selectionOf(t.Context(), class, s).selected
			if !slices.ContainsFunc(random.Perm(len(chosen)), func(i int) bool { return chosen[i] && take(i) }) {
				t.Fatalf("class %s, of %v less %v, finds no device among %+v; taken are %v", class.Name, u.Allocatable, u.Foreign, s.Spec.Devices, taken)
			}
		}
	}
	if counted < 3000 {
		t.Errorf("only %d devices were counted", counted)
	}
}
