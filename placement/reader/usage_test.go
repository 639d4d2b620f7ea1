package reader

import (
	"slices"
	"testing"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// none is no namespace.
func none(string) bool { return false }

func TestUsageCountsNodesThatTakeWorkloads(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*corev1.Node)
		counted bool
	}{
		{"a ready node counts", nil, true},
		{"a node that is not ready does not", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
		{"a node that says nothing does not", func(n *corev1.Node) { n.Status.Conditions = nil }, false},
		{"a cordoned node does not", func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		{"a control-plane node does not", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
		}, false},
		{"a node that evicts does not", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}}
		}, false},
		{"a node that is only disliked counts", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule}}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes := []*corev1.Node{placementtest.Node("plain", nil), placementtest.Node("special", c.change)}
			pods := []*corev1.Pod{placementtest.Pod("others", "special", nil)}
			u := usageOf(nodes, pods, nil, devices{}, none, none)
			wantCPU, wantForeign := "3500m", ""
			if c.counted {
				wantCPU, wantForeign = "7", "500m"
			}
			if got := u.Allocatable.Cpu().String(); got != wantCPU {
				t.Errorf("allocatable cpu is %s, want %s", got, wantCPU)
			}
			if foreign, ok := u.Foreign["cpu"]; ok != c.counted || ok && foreign.String() != wantForeign {
				t.Errorf("foreign use is %v", u.Foreign)
			}
		})
	}
}

// TestAReadingWithoutNodesNamesTheReasons: a node is counted by its first reason, and the taints that follow from it are not named.
func TestAReadingWithoutNodesNamesTheReasons(t *testing.T) {
	const remedy = "; add a node, or repair, uncordon or untaint one"
	tainted := func(taints ...corev1.Taint) *corev1.Node {
		return placementtest.Node("n", func(n *corev1.Node) { n.Spec.Taints = taints })
	}
	controlPlane := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	cordoned := tainted(corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	cordoned.Spec.Unschedulable = true
	silent := tainted(corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
	silent.Status.Conditions = nil
	virtual := placementtest.Node("n", func(n *corev1.Node) { n.Labels = map[string]string{consts.TypeLabel: consts.TypeNode} })
	for _, c := range []struct {
		nodes []*corev1.Node
		want  string
	}{
		{nil, "no node takes pods: there is none" + remedy},
		{[]*corev1.Node{tainted(controlPlane)}, "no node takes pods: 1 with the taint node-role.kubernetes.io/control-plane:NoSchedule" + remedy},
		{[]*corev1.Node{tainted(controlPlane, corev1.Taint{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute}, corev1.Taint{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule})},
			"no node takes pods: 1 with the taints a=b:NoExecute and node-role.kubernetes.io/control-plane:NoSchedule" + remedy},
		{[]*corev1.Node{tainted(controlPlane), cordoned, silent, virtual, tainted(controlPlane)},
			"no node takes pods: 1 cordoned, 1 not ready, 1 virtual, 2 with the taint node-role.kubernetes.io/control-plane:NoSchedule" + remedy},
		{[]*corev1.Node{tainted(controlPlane), cordoned, placementtest.Node("n", nil)}, ""},
	} {
		if got := usageOf(c.nodes, nil, nil, devices{}, none, none).Idle; got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestForeignUseIsWhatTheSchedulerCountsOfOtherPeoplesPods(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want string // cpu
	}{
		{"containers add up", placementtest.Pod("others", "n", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, placementtest.Container("cpu=250m"))
		}), "750m"},
		{"the largest init container counts if it is larger", placementtest.Pod("others", "n", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{placementtest.Container("cpu=2"), placementtest.Container("cpu=1")}
		}), "2"},
		{"a sidecar adds up", placementtest.Pod("others", "n", func(p *corev1.Pod) {
			sidecar := placementtest.Container("cpu=100m")
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{sidecar}
		}), "600m"},
		{"overhead adds up", placementtest.Pod("others", "n", func(p *corev1.Pod) { p.Spec.Overhead = placementtest.Quantities("cpu=50m") }), "550m"},
		{"a finished pod uses nothing", placementtest.Pod("others", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "0"},
		{"a failed pod uses nothing", placementtest.Pod("others", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "0"},
		{"a pod that is not bound uses nothing", placementtest.Pod("others", "", nil), "0"},
		{"a pod within a reservation is not foreign", placementtest.Pod("ours", "n", nil), "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			slim, err := strip(c.pod)
			if err != nil {
				t.Fatal(err)
			}
			reserved := func(namespace string) bool { return namespace == "ours" }
			nodes := []*corev1.Node{placementtest.Node("n", nil)}
			full := usageOf(nodes, []*corev1.Pod{c.pod}, nil, devices{}, reserved, none)
			stripped := usageOf(nodes, []*corev1.Pod{slim.(*corev1.Pod)}, nil, devices{}, reserved, none)
			if got := full.Foreign.Cpu().String(); got != c.want {
				t.Errorf("foreign cpu is %s, want %s", got, c.want)
			}
			if !equality.Semantic.DeepEqual(full.Foreign, stripped.Foreign) {
				t.Errorf("a stripped pod uses %v, the full one %v", stripped.Foreign, full.Foreign)
			}
		})
	}
}

func TestEachForeignPodIsOneOfTheClustersPods(t *testing.T) {
	pods := []*corev1.Pod{placementtest.Pod("others", "n", nil), placementtest.Pod("others", "n", nil)}
	u := usageOf([]*corev1.Node{placementtest.Node("n", nil)}, pods, nil, devices{}, none, none)
	if got := u.Foreign.Pods().Value(); got != 2 {
		t.Errorf("%d pods", got)
	}
}

func TestStrippedObjectsKeepNoSpecOfContainersAndNoHeartbeat(t *testing.T) {
	full := placementtest.Pod("others", "n", func(p *corev1.Pod) { p.Annotations = map[string]string{"large": "annotation"} })
	slim, _ := strip(full)
	if p := slim.(*corev1.Pod); p.Annotations != nil || len(p.Spec.Containers) != 1 {
		t.Errorf("pod %+v", p)
	}
	slim, _ = strip(placementtest.Node("n", func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	}))
	n := slim.(*corev1.Node)
	if n.Status.Images != nil || !n.Status.Conditions[0].LastHeartbeatTime.IsZero() || idleness(n) != "" {
		t.Errorf("node %+v", n)
	}
	if slices.ContainsFunc([]any{"tombstone"}, func(o any) bool { got, _ := strip(o); return got != o }) {
		t.Error("a tombstone was changed")
	}
}

func TestWhatAnotherHubHasReservedIsUsedInFull(t *testing.T) {
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: "sluice", Annotations: map[string]string{"large": "annotation"}},
		Spec: corev1.ResourceQuotaSpec{Hard: placementtest.Quantities("requests.cpu=2,limits.cpu=2,requests.memory=4Gi,pods=10,requests.nvidia.com/gpu=1,requests.example.com/fpga=0," +
			"fast.storageclass.storage.k8s.io/requests.storage=10Gi,requests.storage=10Gi,services.nodeports=0")},
	}
	slim, err := strip(quota)
	if err != nil || slim.(*corev1.ResourceQuota).Annotations != nil {
		t.Fatalf("stripped to %+v, %v", slim, err)
	}
	pods := []*corev1.Pod{placementtest.Pod("theirs", "n", nil), placementtest.Pod("others", "n", nil)} // 500m of cpu each
	u := usageOf([]*corev1.Node{placementtest.Node("n", nil)}, pods, []*corev1.ResourceQuota{slim.(*corev1.ResourceQuota)}, devices{}, none, none)
	want := placementtest.Quantities("cpu=2500m,memory=5Gi,pods=11,nvidia.com/gpu=1,fast.storageclass.storage.k8s.io/requests.storage=10Gi")
	if !equality.Semantic.DeepEqual(u.Foreign, want) {
		t.Errorf("foreign use is %v, want %v", u.Foreign, want)
	}
}

func TestStrippedQuotasKeepWhoseTheyAre(t *testing.T) {
	labels := map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelInstance: "si-1", "large": "label"}
	slim, _ := strip(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Labels: labels}})
	want := map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelInstance: "si-1"}
	if got := slim.(*corev1.ResourceQuota).Labels; !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("the labels are %v, want %v", got, want)
	}
}

func TestHolesAreWhatPodsLeaveOnEachNodeThatTakesOneMore(t *testing.T) {
	full := placementtest.Node("full", func(n *corev1.Node) { n.Status.Allocatable = placementtest.Quantities("cpu=64,memory=64Gi,pods=1") })
	cordoned := placementtest.Node("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	nodes := []*corev1.Node{placementtest.Node("a", nil), placementtest.Node("b", nil), placementtest.Node("c", nil), full, cordoned}
	ended := placementtest.Pod("ours", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pods := []*corev1.Pod{placementtest.Pod("ours", "a", nil), ended, placementtest.Pod("others", "b", nil), placementtest.Pod("others", "full", nil), placementtest.Pod("others", "cordoned", nil), placementtest.Pod("others", "", nil)}
	got := usageOf(nodes, pods, nil, devices{}, func(namespace string) bool { return namespace == "ours" }, none).Holes
	want := &v1alpha1.Holes{Free: placementtest.Quantities("cpu=9500m,memory=43Gi"), Nodes: []v1alpha1.NodesFree{
		{Count: 1, Free: placementtest.Quantities("cpu=3500m,memory=15Gi")}, {Count: 2, Free: placementtest.Quantities("cpu=3,memory=14Gi")},
	}}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("holes are %+v, want %+v", got, want)
	}
}

func TestArchitecturesAreThoseOfNodesThatTakeWorkloads(t *testing.T) {
	of := func(architecture string, ready bool) *corev1.Node {
		slim, err := strip(placementtest.Node(architecture, func(n *corev1.Node) {
			n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: architecture, OperatingSystem: "linux", KernelVersion: "6"}
			n.Spec.Unschedulable = !ready
		}))
		if err != nil {
			t.Fatal(err)
		}
		return slim.(*corev1.Node)
	}
	r := usageOf([]*corev1.Node{of("arm64", true), of("amd64", true), of("arm64", true), of("s390x", false)}, nil, nil, devices{}, nil, nil)
	if !slices.Equal(r.Architectures, []string{"amd64", "arm64"}) || !slices.Equal(r.OperatingSystems, []string{"linux"}) {
		t.Errorf("architectures %q, operating systems %q", r.Architectures, r.OperatingSystems)
	}
}

func TestADeclaredCapacityIsComplete(t *testing.T) {
	declared := Declared(placementtest.Quantities("cpu=8,fast.storageclass.storage.k8s.io/requests.storage=1Gi,cold.storageclass.storage.k8s.io/requests.storage=1Gi"))
	declared.Wait(t.Context())
	r, err := declared.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status := &v1alpha1.MemberClusterStatus{Nodes: 3, ForeignUse: placementtest.Quantities("cpu=1"), Holes: &v1alpha1.Holes{}, Architectures: []string{"amd64"}}
	r.Report(status)
	if status.Allocatable.Cpu().Value() != 8 || !slices.Equal(status.StorageClasses, []string{"cold", "fast"}) {
		t.Errorf("status is %+v", status)
	}
	if status.Nodes != 0 || status.ForeignUse != nil || status.Holes != nil || status.Architectures != nil {
		t.Errorf("something of the nodes is left: %+v", status)
	}
}
