package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestWhatAPolicyHasIsListed: also what is neither a requirement nor a preference.
func TestWhatAPolicyHasIsListed(t *testing.T) {
	rule, preference := v1alpha1.PolicyRule{}, v1alpha1.PolicyPreference{}
	for want, spec := range map[string]v1alpha1.PlacementPolicySpec{
		"without any rule":               {},
		"1 requirement":                  {Require: []v1alpha1.PolicyRule{rule}},
		"1 requirement and 1 preference": {Require: []v1alpha1.PolicyRule{rule}, Prefer: []v1alpha1.PolicyPreference{preference}},
		"quota":                          {Quota: &v1alpha1.Quota{}},
		"2 requirements, rebalance and priorityClasses": {
			Require: []v1alpha1.PolicyRule{rule, rule}, Rebalance: &v1alpha1.Rebalance{}, PriorityClasses: []v1alpha1.PriorityClass{{}},
		},
		"workloads, score, makeRoom, elastic and measure": {
			Workloads: &v1alpha1.WorkloadRules{}, Score: v1alpha1.ScoreWeights{Fit: 1}, MakeRoom: &v1alpha1.MakeRoom{}, Elastic: &v1alpha1.Elastic{}, Measure: &v1alpha1.Measure{},
		},
	} {
		if got := contents(&spec); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRemarksOnAPolicy(t *testing.T) {
	for message, want := range map[string]string{
		"in force": "", "in force; match.plans: no plan": "; match.plans: no plan", "in force, except priority class gold": ", except priority class gold",
	} {
		policy := &v1alpha1.PlacementPolicy{}
		if got := remark(policy); got != "" {
			t.Errorf("%q of one that is not read yet", got)
		}
		v1alpha1.SetCondition(&policy.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready", message)
		if got := remark(policy); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
