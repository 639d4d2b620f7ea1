package faults

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/reader/readertest"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// change updates the member cluster on the hub.
func (b *bed) change(t *testing.T, name string, change func(*v1alpha1.MemberClusterSpec)) {
	t.Helper()
	eventually(t, name+" is changed", func(ctx context.Context) (bool, error) {
		mc := &v1alpha1.MemberCluster{}
		if err := b.hub.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, mc); err != nil {
			return false, err
		}
		change(&mc.Spec)
		return b.hub.Update(ctx, mc) == nil, nil // or somebody else has changed it meanwhile
	})
}

// says waits until a condition of the cluster has a status, and a message with these words.
func (b *bed) says(t *testing.T, name, condition string, status metav1.ConditionStatus, words string) {
	t.Helper()
	eventually(t, name+" says "+words, func(ctx context.Context) (bool, error) {
		mc := &v1alpha1.MemberCluster{}
		if err := b.hub.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: name}, mc); err != nil {
			return false, err
		}
		for _, c := range mc.Status.Conditions {
			if c.Type == condition && c.Status == status && strings.Contains(c.Message, words) {
				return true, nil
			}
		}
		return false, nil
	})
}

// A provider that gives no right on its nodes sells the capacity that it has declared, and no more.
func TestAClusterWhoseNodesAreNotReadSellsWhatIsDeclared(t *testing.T) {
	b := emptyBed(t)
	var sluice *kubernetes.Clientset
	declared := v1alpha1.MemberClusterSpec{Capacity: placementtest.Quantities("cpu=25m,pods=10")}
	b.join(t, faulty, declared, func(_ *controlplane.ControlPlane, kubeconfig []byte) []byte {
		config, err := member.Config(kubeconfig)
		must(t, err)
		sluice = kubernetes.NewForConfigOrDie(config)
		return kubeconfig
	})
	_, nodes := sluice.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	_, pods := sluice.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	_, classes := sluice.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
	for _, err := range []error{nodes, pods, classes} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("Sluice may read its nodes, pods and storage classes: %v", err)
		}
	}
	b.run(t)
	b.says(t, faulty, v1alpha1.ConditionReady, metav1.ConditionTrue, "takes placements")
	b.says(t, faulty, v1alpha1.ConditionCapacityKnown, metav1.ConditionTrue, "declared by the operator")

	b.accepted(t, "PUT", "/v2/service_instances/first", order(faulty+"-small"))
	b.ends(t, "/v2/service_instances/first", "succeeded")
	b.accepted(t, "PUT", "/v2/service_instances/second", order(faulty+"-small"))
	b.ends(t, "/v2/service_instances/second", "succeeded")
	// 25m are declared, and 20m sold.
	b.accepted(t, "PUT", "/v2/service_instances/third", order(faulty+"-small"))
	free := func() int64 { return b.inventory.Snapshot().Free(faulty, corev1.ResourceCPU) }
	if free() != 5 {
		t.Errorf("%dm are free, want 5m", free())
	}
	b.change(t, faulty, func(spec *v1alpha1.MemberClusterSpec) { spec.Capacity = placementtest.Quantities("cpu=30m,pods=10") })
	b.ends(t, "/v2/service_instances/third", "succeeded")
	if free() != 0 {
		t.Errorf("%dm are free, want none", free())
	}

	// Without a declaration Sluice needs rights that it does not have, and says so.
	b.change(t, faulty, func(spec *v1alpha1.MemberClusterSpec) { spec.Capacity = nil })
	b.says(t, faulty, v1alpha1.ConditionReady, metav1.ConditionFalse, "may not get nodes")
	b.change(t, faulty, func(spec *v1alpha1.MemberClusterSpec) { spec.Capacity = placementtest.Quantities("cpu=64,pods=10") })
	b.says(t, faulty, v1alpha1.ConditionReady, metav1.ConditionTrue, "takes placements")
}

// A reader that lies or hangs stops new orders on its own cluster only; what is there stays, and one that floods
// stops nothing.
func TestAReaderThatLiesHangsAndFloods(t *testing.T) {
	b := emptyBed(t)
	server := readertest.Start(t)
	server.Has("cpu", "1", "pods", "100")
	spec := server.Spec(v1alpha1.ReaderProtocolV1)
	as := func(_ *controlplane.ControlPlane, kubeconfig []byte) []byte { return kubeconfig }
	b.join(t, faulty, v1alpha1.MemberClusterSpec{Reader: &spec}, as)
	b.join(t, healthy, v1alpha1.MemberClusterSpec{}, as)
	b.run(t)
	eventually(t, "both clusters are ready", func(ctx context.Context) (bool, error) {
		return b.ready(ctx, faulty) && b.ready(ctx, healthy), nil
	})
	orders := func(name, on string) string {
		t.Helper()
		b.accepted(t, "PUT", "/v2/service_instances/"+name, order(on+"-small"))
		return "/v2/service_instances/" + name
	}
	b.ends(t, orders("before", faulty), "succeeded")
	known := func(status metav1.ConditionStatus, words string) {
		t.Helper()
		b.says(t, faulty, v1alpha1.ConditionCapacityKnown, status, words)
	}
	for name, fault := range map[string]struct {
		begins, ends func()
		words        string
	}{
		"lies":  {func() { server.Has("cpu", "-1") }, func() { server.Has("cpu", "1", "pods", "100") }, `resources: cpu: "-1" is not between 0 and`},
		"hangs": {func() { server.Hang(true) }, func() { server.Hang(false) }, "has been silent since"},
	} {
		fault.begins()
		known(metav1.ConditionFalse, fault.words)
		waits := orders("on-faulty-while-it-"+name, faulty)
		b.ends(t, orders("on-healthy-while-it-"+name, healthy), "succeeded")
		if _, answer, err := b.call(t.Context(), "GET", waits+"/last_operation", nil); err != nil || answer["state"] != "in progress" {
			t.Errorf("%s: the order is %v, %v", name, answer, err)
		}
		b.ends(t, "/v2/service_instances/before", "succeeded")
		fault.ends()
		known(metav1.ConditionTrue, "read from "+server.Address)
		b.ends(t, waits, "succeeded")
	}
	server.Flood(true)
	server.Has("cpu", "500m", "pods", "100")
	eventually(t, "the flood's last word is followed", func(context.Context) (bool, error) {
		return b.inventory.Snapshot().Free(faulty, corev1.ResourceCPU) == 470, nil // three instances hold 10m each
	})
	b.ends(t, orders("while-it-floods", faulty), "succeeded")
}
