package controller

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// TestAClusterSaysWhetherItEnforcesRulesForPods: with every probe while it does not, and seldom once it does. Where it
// does not answer, what it said before holds.
func TestAClusterSaysWhetherItEnforcesRulesForPods(t *testing.T) {
	m := newMemberWorld(t)
	const (
		unguarded = "member cluster eu: see that it enforces rules for pods: sluice-agreed not found (run `sluice cluster renew` for it; until then it gets no orders with such rules)"
		guarded   = "its admission policies for pods are there"
	)
	var missing string
	var silent error
	asked := 0
	m.reconciler.Unguarded = func(context.Context, *v1alpha1.MemberCluster, *member.Connection) (string, error) {
		asked++
		return missing, silent
	}
	for _, step := range []struct {
		name, missing string
		silent        error
		status        metav1.ConditionStatus
		says          string
		asks          int
	}{
		{"no answer yet", "", errors.New("timeout"), "", "", 1},
		{"a policy is missing", "sluice-agreed not found", nil, metav1.ConditionFalse, unguarded, 1},
		{"no answer", "", errors.New("timeout"), metav1.ConditionFalse, unguarded, 1},
		{"it was registered again", "", nil, metav1.ConditionTrue, guarded, 1},
		{"soon after", "sluice-agreed not found", nil, metav1.ConditionTrue, guarded, 0},
	} {
		before := asked
		missing, silent = step.missing, step.silent
		mc := m.look()
		got := metav1.Condition{}
		if found := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionRulesEnforced); found != nil {
			got = *found
		}
		if got.Status != step.status || got.Message != step.says || asked-before != step.asks {
			t.Errorf("%s: %q %q after %d questions, want %q %q after %d", step.name, got.Status, got.Message, asked-before, step.status, step.says, step.asks)
		}
		if known := m.inventory.Snapshot().Cluster("eu"); (known.Unguarded == "") != (step.status == metav1.ConditionTrue) {
			t.Errorf("%s: the inventory has %q", step.name, known.Unguarded)
		}
	}
	m.clock.SetTime(m.clock.Now().Add(accessEvery))
	if mc := m.look(); meta.IsStatusConditionTrue(mc.Status.Conditions, v1alpha1.ConditionRulesEnforced) {
		t.Error("the policy has been missing for as long as the access is trusted, and is taken to be there")
	}
}
