package controller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// becomes gives the namespace kube-system the UID of another cluster.
func (m *memberWorld) becomes(uid types.UID) {
	m.Helper()
	namespaces := m.kube.CoreV1().Namespaces()
	m.must(namespaces.Delete(m.Context(), metav1.NamespaceSystem, metav1.DeleteOptions{}))
	_, err := namespaces.Create(m.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}, metav1.CreateOptions{})
	m.must(err)
}

// within probes the cluster at most that many times until it is ready, or is not.
func (m *memberWorld) within(probes int, ready bool, says string) {
	m.Helper()
	var mc *v1alpha1.MemberCluster
	for range probes {
		mc = m.look()
		if conditionTrue(mc, v1alpha1.ConditionReady) == ready {
			break
		}
	}
	m.wantReady(mc, ready, says)
}

func conditionTrue(mc *v1alpha1.MemberCluster, condition string) bool {
	ok, _ := mc.Holds(condition)
	return ok
}

func TestAnotherClusterAtTheSameAddressIsNotReady(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.within(1, true, "")
	m.becomes("uid-other")
	m.within(thoroughEvery+1, false, `its UID is "uid-other" instead of "uid-eu" (make its address`)
	if m.inventory.Snapshot().Cluster("eu").Ready {
		t.Error("something is still done there")
	}
	for range 2 * thoroughEvery {
		if mc := m.look(); mc.Status.UID != "uid-eu" {
			t.Fatalf("it is taken for %q now", mc.Status.UID)
		}
	}
	m.becomes("uid-eu")
	m.within(steadyAnswers, true, "")
}

// A cluster whose etcd is full still answers reads and /readyz. Its instances stay.
func TestAClusterThatRefusesWritesTakesNoPlacementsUntilItTakesThem(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	var full atomic.Bool
	m.write = func(context.Context) error {
		if full.Load() {
			return errors.New("etcdserver: mvcc: database space exceeded")
		}
		return nil
	}
	lookUntilSettled := func() *v1alpha1.MemberCluster {
		before := m.looks.Load()
		mc := m.look()
		if m.reconciler.watchOf("eu").writes.underway == nil {
			return mc // no write is due
		}
		eventually(t, "the write has come to something", func() bool { return m.looks.Load() > before })
		return m.look()
	}
	m.wantReady(lookUntilSettled(), true, "")
	full.Store(true)
	eventually(t, "it is not ready", func() bool { return !conditionTrue(lookUntilSettled(), v1alpha1.ConditionReady) })
	mc := lookUntilSettled()
	m.wantReady(mc, false, "member cluster eu: write to it: etcdserver: mvcc: database space exceeded (nothing is placed on it until")
	if !m.inventory.Snapshot().Cluster("eu").Ready || len(placement.ClusterOf(mc, time.Now()).Taints) > 0 {
		t.Error("it counts as lost: instances would leave it")
	}
	if _, err := placement.Place(placement.Request{ID: "si-a", Resources: placement.Resources{corev1.ResourceCPU: 1}}, m.inventory.Snapshot()); err == nil || !strings.Contains(err.Error(), "database space exceeded") {
		t.Errorf("Place says %v", err)
	}

	// Another process knows it from the status, until a write has succeeded.
	m.reconciler.drop("eu")
	m.wantReady(m.look(), false, "database space exceeded")

	full.Store(false)
	eventually(t, "it is ready again", func() bool { return conditionTrue(lookUntilSettled(), v1alpha1.ConditionReady) })
}

// The hub takes messages of a certain length only. A status that it refuses would keep a cluster that is lost in use.
func TestALongErrorDoesNotHideThatAClusterIsLost(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.within(1, true, "")
	m.probe = errors.New(strings.Repeat("😀", 40_000))
	m.within(toleratedFailures, false, "probe /readyz: 😀😀")
	since := meta.FindStatusCondition(m.look().Status.Conditions, v1alpha1.ConditionReachable)
	m.clock.SetTime(m.clock.Now().Add(v1alpha1.UnreachableSeconds * time.Second))
	lost := meta.FindStatusCondition(m.look().Status.Conditions, v1alpha1.ConditionReachable)
	if lost.Status != metav1.ConditionFalse || !lost.LastTransitionTime.Equal(&since.LastTransitionTime) || utf8.RuneCountInString(lost.Message) != v1alpha1.LongestText {
		t.Errorf("lost since %s, then since %s, %d characters", since.LastTransitionTime, lost.LastTransitionTime, utf8.RuneCountInString(lost.Message))
	}
	m.probe = nil
	m.within(steadyAnswers, true, "")
}

// A version or a UID that no API server of Kubernetes has is not stored as it is.
func TestTheIdentityOfAClusterIsBounded(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.kube.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.36.0-" + strings.Repeat("x", 4<<20)}
	if got := m.look().Status.KubernetesVersion; len(got) > 200 || !strings.HasPrefix(got, "v1.36.0-xxx") {
		t.Errorf("%d bytes of a version are stored", len(got))
	}
	m = newMemberWorld(t, placementtest.Node("n", nil))
	m.becomes(types.UID(strings.Repeat("u", 4<<20)))
	mc := m.look()
	m.wantReady(mc, false, "has a UID of 4194304 characters, and at most 128 are allowed")
	if mc.Status.UID != "" {
		t.Errorf("%d bytes of a UID are stored", len(mc.Status.UID))
	}
}

// Probes of other clusters do not wait for a write that hangs.
func TestAWriteThatHangsHoldsNoWorker(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	hanging := make(chan struct{})
	m.write = func(ctx context.Context) error { close(hanging); <-ctx.Done(); return ctx.Err() }
	m.reconciler.ProbeTimeout *= 100
	m.wantReady(m.look(), true, "")
	<-hanging
	m.wantReady(m.look(), true, "")
}

func TestProbesOpenTheClusterAnewNowAndThen(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	for range 2 * thoroughEvery {
		m.look()
	}
	if m.opens != 2 {
		t.Errorf("%d probes opened it %d times, want 2", 2*thoroughEvery, m.opens)
	}
	mc := m.look()
	opens := m.opens
	mc.Spec.ConsumerServer = "https://public.example"
	m.must(m.hub.Update(t.Context(), mc))
	m.look()
	if m.opens != opens+1 {
		t.Error("a change of its spec does not open it anew")
	}
}

func TestADriverMayChange(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	for _, driver := range []string{v1alpha1.DriverCAPI, v1alpha1.DriverKube, v1alpha1.DriverCAPI, v1alpha1.DriverLiqo} {
		mc := m.look()
		mc.Spec.Driver, mc.Spec.Capacity = driver, nil
		if driver == v1alpha1.DriverCAPI {
			mc.Spec.Capacity = placementtest.Quantities("cpu=8")
		}
		m.must(m.hub.Update(t.Context(), mc))
		m.within(1, true, "")
	}
	if nodes := m.look().Status.Nodes; nodes != 1 {
		t.Errorf("it has %d nodes", nodes)
	}
}
