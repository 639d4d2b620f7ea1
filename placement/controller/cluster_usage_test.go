package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func node(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: placementtest.Quantities("cpu=4,memory=16Gi,pods=110"), Allocatable: placementtest.Quantities("cpu=3500m,memory=15Gi,pods=110"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(n)
	}
	return n
}

func container(requests string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: placementtest.Quantities(requests)}}
}

func pod(namespace, onNode string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: onNode, Containers: []corev1.Container{container("cpu=500m,memory=1Gi")}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}

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
			nodes := []*corev1.Node{node("plain", nil), node("special", c.change)}
			pods := []*corev1.Pod{pod("others", "special", nil)}
			u := usageOf(nodes, pods, nil, func(string) bool { return false })
			wantCPU, wantForeign := "3500m", ""
			if c.counted {
				wantCPU, wantForeign = "7", "500m"
			}
			if got := u.allocatable.Cpu().String(); got != wantCPU {
				t.Errorf("allocatable cpu is %s, want %s", got, wantCPU)
			}
			if foreign, ok := u.foreign["cpu"]; ok != c.counted || ok && foreign.String() != wantForeign {
				t.Errorf("foreign use is %v", u.foreign)
			}
		})
	}
}

func TestForeignUseIsWhatTheSchedulerCountsOfOtherPeoplesPods(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want string // cpu
	}{
		{"containers add up", pod("others", "n", func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, container("cpu=250m"))
		}), "750m"},
		{"the largest init container counts if it is larger", pod("others", "n", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("cpu=2"), container("cpu=1")}
		}), "2"},
		{"a sidecar adds up", pod("others", "n", func(p *corev1.Pod) {
			sidecar := container("cpu=100m")
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{sidecar}
		}), "600m"},
		{"overhead adds up", pod("others", "n", func(p *corev1.Pod) { p.Spec.Overhead = placementtest.Quantities("cpu=50m") }), "550m"},
		{"a finished pod uses nothing", pod("others", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "0"},
		{"a failed pod uses nothing", pod("others", "n", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), "0"},
		{"a pod that is not bound uses nothing", pod("others", "", nil), "0"},
		{"a pod within a reservation is not foreign", pod("ours", "n", nil), "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			slim, err := strip(c.pod)
			if err != nil {
				t.Fatal(err)
			}
			reserved := func(namespace string) bool { return namespace == "ours" }
			nodes := []*corev1.Node{node("n", nil)}
			full := usageOf(nodes, []*corev1.Pod{c.pod}, nil, reserved)
			stripped := usageOf(nodes, []*corev1.Pod{slim.(*corev1.Pod)}, nil, reserved)
			if got := full.foreign.Cpu().String(); got != c.want {
				t.Errorf("foreign cpu is %s, want %s", got, c.want)
			}
			if !equality.Semantic.DeepEqual(full.foreign, stripped.foreign) {
				t.Errorf("a stripped pod uses %v, the full one %v", stripped.foreign, full.foreign)
			}
		})
	}
}

func TestEachForeignPodIsOneOfTheClustersPods(t *testing.T) {
	pods := []*corev1.Pod{pod("others", "n", nil), pod("others", "n", nil)}
	u := usageOf([]*corev1.Node{node("n", nil)}, pods, nil, func(string) bool { return false })
	if got := u.foreign.Pods().Value(); got != 2 {
		t.Errorf("%d pods", got)
	}
}

func TestStrippedObjectsKeepNoSpecOfContainersAndNoHeartbeat(t *testing.T) {
	full := pod("others", "n", func(p *corev1.Pod) { p.Annotations = map[string]string{"large": "annotation"} })
	slim, _ := strip(full)
	if p := slim.(*corev1.Pod); p.Annotations != nil || len(p.Spec.Containers) != 1 {
		t.Errorf("pod %+v", p)
	}
	slim, _ = strip(node("n", func(n *corev1.Node) {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"image"}}}
	}))
	n := slim.(*corev1.Node)
	if n.Status.Images != nil || !n.Status.Conditions[0].LastHeartbeatTime.IsZero() || !takesWorkloads(n) {
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
	pods := []*corev1.Pod{pod("theirs", "n", nil), pod("others", "n", nil)} // 500m of cpu each
	u := usageOf([]*corev1.Node{node("n", nil)}, pods, []*corev1.ResourceQuota{slim.(*corev1.ResourceQuota)}, func(string) bool { return false })
	want := placementtest.Quantities("cpu=2500m,memory=5Gi,pods=11,nvidia.com/gpu=1,fast.storageclass.storage.k8s.io/requests.storage=10Gi")
	if !equality.Semantic.DeepEqual(u.foreign, want) {
		t.Errorf("foreign use is %v, want %v", u.foreign, want)
	}
}

func TestHolesAreWhatPodsLeaveOnEachNodeThatTakesOneMore(t *testing.T) {
	full := node("full", func(n *corev1.Node) { n.Status.Allocatable = placementtest.Quantities("cpu=64,memory=64Gi,pods=1") })
	cordoned := node("cordoned", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	nodes := []*corev1.Node{node("a", nil), node("b", nil), node("c", nil), full, cordoned}
	ended := pod("ours", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pods := []*corev1.Pod{pod("ours", "a", nil), ended, pod("others", "b", nil), pod("others", "full", nil), pod("others", "cordoned", nil), pod("others", "", nil)}
	got := usageOf(nodes, pods, nil, func(namespace string) bool { return namespace == "ours" }).holes
	want := &v1alpha1.Holes{Free: placementtest.Quantities("cpu=9500m,memory=43Gi"), Nodes: []v1alpha1.NodesFree{
		{Count: 1, Free: placementtest.Quantities("cpu=3500m,memory=15Gi")}, {Count: 2, Free: placementtest.Quantities("cpu=3,memory=14Gi")},
	}}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("holes are %+v, want %+v", got, want)
	}
}
