package controller

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestARestoredHubPlacesNothingBlindly: what a restored hub has read of a cluster before its backup does not count. A
// cluster takes instances again when its nodes have been read, which shows an instance that the hub does not know; one
// with a declared capacity only when the operator has released the hub.
func TestARestoredHubPlacesNothingBlindly(t *testing.T) {
	lost := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.MemberNamespace("si-lost"), Labels: map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelInstance: "si-lost"},
	}}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: lost.Name, Name: "sluice", Labels: lost.Labels},
		Spec:       corev1.ResourceQuotaSpec{Hard: placementtest.Quantities("requests.cpu=2")},
	}
	m := newMemberWorld(t, placementtest.Node("n", nil), lost, quota)
	unknown := func() string { return m.inventory.Snapshot().Clusters()[0].CapacityUnknown }
	mc := &v1alpha1.MemberCluster{}
	m.must(m.hub.Get(t.Context(), m.key(), mc))
	for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified, v1alpha1.ConditionCapacityKnown} {
		v1alpha1.SetCondition(&mc.Status.Conditions, 1, condition, metav1.ConditionTrue, "Before", "as of the backup")
	}
	m.must(m.hub.Status().Update(t.Context(), mc))
	held := errors.New("the hub was restored")
	m.reconciler.Hold = func(context.Context) error { return held }
	m.reconciler.recovery.held = m.reconciler.held
	m.must(m.reconciler.recovery.ensure(t.Context()))
	if unknown() == "" {
		t.Error("before the cluster has been read, its capacity is known")
	}
	m.probe = errors.New("connection refused")
	open := m.reconciler.open
	m.reconciler.open = func(context.Context, *v1alpha1.MemberCluster) (clients, error) { return clients{}, m.probe }
	if m.look(); unknown() == "" {
		t.Error("after a look that failed, its capacity is known")
	}
	m.probe, m.reconciler.open = nil, open
	if mc = m.look(); unknown() != "" || mc.Status.ForeignUse.Cpu().String() != "2" {
		t.Errorf("when its nodes have been read: %q, foreign use %v", unknown(), mc.Status.ForeignUse)
	}
	mc.Spec.Capacity = placementtest.Quantities("cpu=8")
	m.must(m.hub.Update(t.Context(), mc))
	m.wantReady(m.look(), false, "the hub was restored")
	if unknown() == "" {
		t.Error("a declared capacity is believed")
	}
	held = nil
	m.wantReady(m.look(), true, "")
}
