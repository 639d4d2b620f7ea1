package controller

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// memberWorld is a world with a reconciler of member clusters, whose clusters are
// client-go's fake API servers.
type memberWorld struct {
	*world
	reconciler *clusterReconciler
	kube       *fake.Clientset
	probe      error
	denied     string // the verb that Sluice lacks
	unasked    error  // that answers questions about verbs; nil for none
	looks      atomic.Int32
	opens      int
	write      func(context.Context) error
}

func newMemberWorld(t *testing.T, objects ...runtime.Object) *memberWorld {
	t.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-" + "eu"}}
	m := &memberWorld{world: newWorld(t), kube: fake.NewClientset(append(objects, system)...)}
	m.kube.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		review.Status.Allowed = sentence(review.Spec) != m.denied
		return true, review, m.unasked
	})
	connection := &member.Connection{Cluster: "eu", Server: "https://eu.example", Username: "sluice"}
	m.reconciler = newClusterReconciler(m.hub, m.hub, Options{
		Namespace: m.namespace, HubID: "hub", Inventory: m.inventory, Clock: m.clock, Leadership: soleWriter{},
		Rules: func(cluster *v1alpha1.MemberCluster) []rbacv1.PolicyRule {
			if cluster.DriverName() != v1alpha1.DriverKube {
				return nil
			}
			return []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create"}},
				{NonResourceURLs: []string{"/readyz"}, Verbs: []string{"get"}},
			}
		},
	}.complete(), m.world.reconciler.recovery)
	m.reconciler.open = func(context.Context, *v1alpha1.MemberCluster) (clients, error) {
		m.opens++
		return clients{connection: connection, kube: m.kube,
			metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
			readyz:  func(context.Context) error { return m.probe },
			keyHash: func(context.Context) (string, error) { return "sha256-key", nil }, write: m.write}, nil
	}
	m.reconciler.wake = func(string) { m.looks.Add(1) }
	m.reconciler.wakeNow = m.reconciler.wake
	m.reconciler.running = t.Context()

	m.must(m.hub.Create(t.Context(), m.eu()))
	return m
}

// eu is the member cluster as the operator adds it.
func (m *memberWorld) eu() *v1alpha1.MemberCluster {
	mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "eu"}}
	mc.Spec.Access.SecretRef = &v1alpha1.SecretKeyReference{Name: "eu"}
	return mc
}

// look is one pass over the cluster, after the time between two probes.
func (m *memberWorld) look() *v1alpha1.MemberCluster {
	m.Helper()
	m.clock.SetTime(m.clock.Now().Add(m.reconciler.ProbeEvery))
	_, err := m.reconciler.Reconcile(m.Context(), ctrl.Request{NamespacedName: m.key()})
	m.must(err)
	mc := &v1alpha1.MemberCluster{}
	m.must(m.hub.Get(m.Context(), m.key(), mc))
	return mc
}

func (m *memberWorld) key() client.ObjectKey {
	return client.ObjectKey{Namespace: m.namespace, Name: "eu"}
}

func (m *memberWorld) wantReady(mc *v1alpha1.MemberCluster, ready bool, says string) {
	m.Helper()
	c := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || (c.Status == metav1.ConditionTrue) != ready || !strings.Contains(c.Message, says) {
		m.Fatalf("Ready is %+v, want %t saying %q", c, ready, says)
	}
}

// eventually waits for the effect of informers.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

func TestAMemberClusterIsMeasuredAndFedToTheInventory(t *testing.T) {
	ours := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.MemberNamespace("si-a"), Labels: map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelInstance: "si-a"},
	}}
	m := newMemberWorld(t, placementtest.Node("n", nil), ours, placementtest.Pod(ours.Name, "n", nil), placementtest.Pod("others", "n", nil),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}})
	m.inventory.Reserve(placement.Holding{Instance: "si-a", Held: map[string]placement.Resources{"eu": {corev1.ResourceCPU: 1000}}})
	m.reconciler.recovery.done = true

	mc := m.look()
	m.wantReady(mc, true, "")
	if mc.Status.UID != "uid-eu" || mc.Status.Server != "https://eu.example" || mc.Status.Nodes != 1 || len(mc.Status.StorageClasses) != 1 {
		t.Errorf("status is %+v", mc.Status)
	}
	if got := mc.Status.ForeignUse.Cpu().String(); got != "500m" {
		t.Errorf("foreign use is %s: the instance's own pod must not count", got)
	}
	// 3.5 allocatable − 0.5 foreign − 1 reserved
	if free := m.inventory.Snapshot().Free("eu", corev1.ResourceCPU); free != 2000 {
		t.Errorf("%d thousandths of a core are free", free)
	}

	m.inventory.Release("si-a")
	if got := m.look().Status.ForeignUse.Cpu().String(); got != "1" {
		t.Errorf("foreign use is %s: what is left of an instance without reservation must count", got)
	}
}

func TestAPodThatGoesIsNoticedAndFreesItsCapacity(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil), placementtest.Pod("others", "n", nil))
	m.look()
	before := m.looks.Load()
	m.must(m.kube.CoreV1().Pods("others").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
	eventually(t, "the pod's end wakes the reconciler", func() bool { return m.looks.Load() > before })
	m.look()
	if free := m.inventory.Snapshot().Free("eu", corev1.ResourceCPU); free != 3500 {
		t.Errorf("%d thousandths of a core are free", free)
	}
}

func TestThreeFailedProbesMakeAClusterUnreadyAndThreeAnsweredOnesReadyAgain(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.wantReady(m.look(), true, "")
	m.probe = errors.New("connection refused")
	m.wantReady(m.look(), true, "")
	m.wantReady(m.look(), true, "")
	m.wantReady(m.look(), false, "member cluster eu: probe /readyz: connection refused (check that")
	if m.inventory.Snapshot().Cluster("eu").Ready {
		t.Error("it is ready in the inventory")
	}
	m.probe = nil
	m.wantReady(m.look(), false, "answers again, 1 of 3 times in a row")
	m.probe = errors.New("connection refused")
	m.wantReady(m.look(), false, "connection refused")
	m.probe = nil
	m.wantReady(m.look(), false, "answers again, 1 of 3 times in a row")
	m.wantReady(m.look(), false, "answers again, 2 of 3 times in a row")
	m.wantReady(m.look(), true, "")
}

func TestAClusterThatNeverAnsweredIsUnreadyAtOnce(t *testing.T) {
	m := newMemberWorld(t)
	m.reconciler.open = func(context.Context, *v1alpha1.MemberCluster) (clients, error) {
		return clients{}, &member.Error{Cluster: "eu", Step: member.StepConnect, Err: errors.New("certificate expired"), Remedy: "renew it"}
	}
	m.wantReady(m.look(), false, "member cluster eu: connect: certificate expired (renew it)")
}

func TestMissingVerbsAreNamedAndCheckedAgain(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.denied = "create namespaces"
	mc := m.look()
	m.wantReady(mc, false, "sluice may not create namespaces (run `sluice cluster renew`")
	if meta.IsStatusConditionTrue(mc.Status.Conditions, v1alpha1.ConditionAccessVerified) {
		t.Error("the access is verified")
	}
	_, err := placement.Place(placement.Request{ID: "si-a", Resources: placement.Resources{corev1.ResourceCPU: 1}}, m.inventory.Snapshot())
	if err == nil || !strings.Contains(err.Error(), "AccessNotVerified") {
		t.Errorf("Place says %v", err)
	}
	m.denied = ""
	m.wantReady(m.look(), true, "")
}

// A busy API server that answers too late has taken no right away. A cluster that was never verified stays unverified.
func TestRightsThatCannotBeAskedForStayForThreeProbes(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.unasked = context.DeadlineExceeded
	m.wantReady(m.look(), false, "read Sluice's rights there: context deadline exceeded (check that")
	m.unasked = nil
	m.wantReady(m.look(), true, "")

	later := func() *v1alpha1.MemberCluster {
		m.clock.SetTime(m.clock.Now().Add(accessEvery))
		return m.look()
	}
	m.unasked = context.DeadlineExceeded
	m.wantReady(later(), true, "")
	m.wantReady(m.look(), true, "")
	m.wantReady(m.look(), false, "context deadline exceeded")
	m.unasked = nil
	m.wantReady(m.look(), true, "")

	m.unasked = context.DeadlineExceeded
	m.wantReady(later(), true, "")
	m.reconciler.drop("eu") // another process knows it from the status
	m.wantReady(m.look(), true, "")
	m.unasked, m.denied = nil, "create namespaces"
	m.wantReady(m.look(), false, "may not create namespaces")
}

func TestTheSameClusterUnderTwoNamesIsSoldOnce(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	twin := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: "a-twin"}}
	twin.Spec.Access.SecretRef = &v1alpha1.SecretKeyReference{Name: "eu"}
	m.must(m.hub.Create(t.Context(), twin))
	twin.Status.UID = "uid-eu"
	m.must(m.hub.Status().Update(t.Context(), twin))
	m.must(m.hub.Delete(t.Context(), m.eu()))
	m.must(m.hub.Create(t.Context(), m.eu())) // the younger one now, or of the same second
	m.wantReady(m.look(), false, "it is the same cluster as a-twin")
}

func TestAStatusThatSaysNothingNewIsNotWritten(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", func(n *corev1.Node) { n.Status.Allocatable = placementtest.Quantities("cpu=1000,pods=1000") }))
	m.look()
	m.look()
	m.writes = 0
	m.look()
	if m.writes != 0 {
		t.Errorf("%d writes though nothing changed", m.writes)
	}
	before := m.looks.Load()
	_, err := m.kube.CoreV1().Pods("others").Create(t.Context(), placementtest.Pod("others", "n", nil), metav1.CreateOptions{})
	m.must(err)
	eventually(t, "the pod wakes the reconciler", func() bool { return m.looks.Load() > before })
	m.look()
	if m.writes != 0 {
		t.Errorf("%d writes for half a core of a thousand", m.writes)
	}
	if free := m.inventory.Snapshot().Free("eu", corev1.ResourceCPU); free != 999500 {
		t.Errorf("the inventory is not exact: %d", free)
	}
	m.clock.SetTime(m.clock.Now().Add(time.Minute))
	if got := m.look().Status.ForeignUse.Cpu().String(); got != "500m" || m.writes != 1 {
		t.Errorf("foreign use is %q after a minute, %d writes", got, m.writes)
	}
}

func TestAMemberClusterStaysTillNoInstanceIsThere(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.look()
	m.inventory.Reserve(placement.Holding{Instance: "si-a", Held: map[string]placement.Resources{"eu": {corev1.ResourceCPU: 1000}}})
	mc := &v1alpha1.MemberCluster{}
	m.must(m.hub.Get(t.Context(), m.key(), mc))
	m.must(m.hub.Delete(t.Context(), mc))
	m.wantReady(m.look(), false, "it is in use by si-a")
	if _, err := m.inventory.Place(placement.Request{ID: "si-b", Resources: placement.Resources{corev1.ResourceCPU: 1}}); err == nil {
		t.Error("a cluster that is being removed takes a new instance")
	}

	m.inventory.Release("si-a")
	_, err := m.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: m.key()})
	m.must(err)
	if err := m.hub.Get(t.Context(), m.key(), mc); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("it is still there: %v", err)
	}
	if m.inventory.Snapshot().Len() != 0 {
		t.Error("it is still in the inventory")
	}
}

// While nodes cannot be listed, nothing is placed by what was read before, and nothing leaves.
func TestAClusterWhoseNodesAreNotListedYetTakesNothingNew(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.wantReady(m.look(), true, "")
	before := m.look().Status.Allocatable

	var listed atomic.Bool
	m.kube.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !listed.Load(), nil, errors.New("too many requests")
	})
	m.reconciler.ProbeTimeout /= 50
	m.reconciler.drop("eu") // as after a restart
	mc := m.look()
	m.wantReady(mc, false, "member cluster eu: reading its nodes, pods, namespaces and storage classes: not complete yet")
	if mc.Status.Allocatable.Cpu().Cmp(*before.Cpu()) != 0 || !m.inventory.Snapshot().Cluster("eu").Ready {
		t.Errorf("the status is %+v", mc.Status)
	}
	_, err := placement.Place(placement.Request{ID: "si-a", Resources: placement.Resources{corev1.ResourceCPU: 1}}, m.inventory.Snapshot())
	if err == nil || !strings.Contains(err.Error(), "CapacityUnknown") {
		t.Errorf("Place says %v", err)
	}
	listed.Store(true)
	eventually(t, "it is ready", func() bool { return conditionTrue(m.look(), v1alpha1.ConditionReady) })
}

func TestTheMedianLatencyForgivesOneSlowProbe(t *testing.T) {
	var h health
	for _, latency := range []time.Duration{4, 5, 900, 6, 5} {
		h.answered(latency * time.Millisecond)
	}
	if h.median() != 5*time.Millisecond {
		t.Errorf("median is %s", h.median())
	}
}
