package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/reader/readertest"
)

// The reader follows the spec; what is known of the cluster's health stays.
func TestTheReaderFollowsTheSpec(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil), placementtest.Pod("others", "n", nil))
	m.wantReady(m.look(), true, "")
	w := m.reconciler.watchOf("eu")
	for _, row := range []struct {
		capacity corev1.ResourceList
		free     int64
		says     string
	}{
		{placementtest.Quantities("cpu=2"), 2000, "declared by the operator"},
		{placementtest.Quantities("cpu=5"), 5000, "declared by the operator"},
		{nil, 3000, "read from its nodes"},
	} {
		mc, answers := m.look(), w.health.answers
		mc.Spec.Capacity = row.capacity
		mc.Generation++
		m.must(m.hub.Update(t.Context(), mc))
		mc = m.look()
		known := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionCapacityKnown)
		if free := m.inventory.Snapshot().Free("eu", corev1.ResourceCPU); free != row.free || known.Message != row.says {
			t.Errorf("%v: %d thousandths of a core are free, want %d; %+v", row.capacity, free, row.free, known)
		}
		if w.health.answers != answers+1 {
			t.Errorf("%v: %d answers, want %d", row.capacity, w.health.answers, answers+1)
		}
	}
}

// A cluster without a node that takes pods is ready, and says why nothing can be placed there.
func TestAClusterWithoutNodesThatTakePodsSaysWhy(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	}))
	known := func() *metav1.Condition {
		return meta.FindStatusCondition(m.look().Status.Conditions, v1alpha1.ConditionCapacityKnown)
	}
	m.wantReady(m.look(), true, "")
	if c := known(); c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonNoNodes || !strings.Contains(c.Message, "1 with the taint node-role.kubernetes.io/control-plane:NoSchedule") {
		t.Errorf("%+v", c)
	}
	_, err := m.kube.CoreV1().Nodes().Create(t.Context(), placementtest.Node("worker", nil), metav1.CreateOptions{})
	m.must(err)
	eventually(t, "a node takes pods", func() bool { c := known(); return c.Reason == reasonRead && c.Message == "read from its nodes" })
}

// A server's word is followed, and when it is silent or lies, nothing is placed by it. Decisions do not wait.
func TestAnExternalReaderFeedsTheInventory(t *testing.T) {
	server := readertest.Start(t)
	server.Has("cpu", "8", "pods", "10")
	m := newMemberWorld(t)
	m.must(m.hub.Delete(t.Context(), m.eu()))
	eu, spec := m.eu(), server.Spec(v1alpha1.ReaderProtocolV1)
	eu.Spec.Reader = &spec
	m.must(m.hub.Create(t.Context(), eu))
	place := func(pods ...placement.Resources) error {
		_, err := placement.Place(placement.Request{ID: "si-a", Resources: placement.Resources{corev1.ResourceCPU: 1}, LargestPods: pods}, m.inventory.Snapshot())
		return err
	}
	until := func(what string, holds func(*v1alpha1.MemberCluster) bool) {
		t.Helper()
		eventually(t, what, func() bool { return holds(m.look()) })
	}
	sells := func(cores int64) func(*v1alpha1.MemberCluster) bool {
		return func(mc *v1alpha1.MemberCluster) bool {
			return conditionTrue(mc, v1alpha1.ConditionReady) && m.inventory.Snapshot().Free("eu", corev1.ResourceCPU) == 1000*cores
		}
	}
	says := func(words string) func(*v1alpha1.MemberCluster) bool {
		return func(mc *v1alpha1.MemberCluster) bool {
			_, otherwise := mc.Holds(v1alpha1.ConditionCapacityKnown)
			return strings.Contains(otherwise, words)
		}
	}
	until("it sells 8 cores", sells(8))
	looks := m.looks.Load()
	server.Has("cpu", "4", "pods", "10")
	eventually(t, "a change wakes the reconciler", func() bool { return m.looks.Load() > looks })
	until("it sells 4 cores", sells(4))
	large := placement.Resources{corev1.ResourceCPU: 3000}
	if err := place(large); err != nil {
		t.Error(err)
	}
	server.Answer(&resourcesv1.ReadResponse{
		Resources: map[string]string{"cpu": "4", "pods": "10"},
		Holes:     &resourcesv1.Holes{Free: map[string]string{"cpu": "4"}, Nodes: []*resourcesv1.NodesFree{{Count: 2, Free: map[string]string{"cpu": "2"}}}},
	})
	eventually(t, "a pod of three cores fits on no node of two", func() bool {
		m.look()
		err := place(large)
		return err != nil && strings.Contains(err.Error(), "no node has 3 cpu free; the largest hole is 2")
	})
	if err := place(placement.Resources{corev1.ResourceCPU: 2000}); err != nil {
		t.Error(err)
	}
	for _, row := range []struct {
		fault func()
		words string
	}{
		{func() { server.Has("cpu", "-4") }, `resources: cpu: "-4" is not between 0 and`},
		{func() { server.Hang(true) }, "has been silent since"},
	} {
		row.fault()
		until(row.words, says(row.words))
		if err := place(); err == nil || !strings.Contains(err.Error(), "CapacityUnknown") {
			t.Errorf("%s: Place says %v", row.words, err)
		}
		if c := m.inventory.Snapshot().Cluster("eu"); !c.Ready || len(c.Taints) > 0 {
			t.Error("it counts as lost: instances would leave it")
		}
		server.Hang(false)
		server.Has("cpu", "4", "pods", "10")
		until("it sells 4 cores again", sells(4))
	}
	m.reconciler.drop("eu")
	eventually(t, "the server is told", func() bool { return len(server.Forgotten()) == 1 })
}
