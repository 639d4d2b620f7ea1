package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// TestRulesForPodsAreDecidedWithThePlacement: an order has the rules of its day until it is changed. Then it needs those
// of that day, and is refused if its pods do not meet them. A move keeps what was sold.
func TestRulesForPodsAreDecidedWithThePlacement(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.cluster("us", 8)
	first := v1alpha1.WorkloadRules{Registries: []string{"docker.io/library"}}
	changes := func(rules v1alpha1.WorkloadRules) {
		w.inventory.SetPolicies(placement.CompilePolicies([]v1alpha1.PlacementPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: v1alpha1.PlacementPolicySpec{Workloads: &rules},
		}}))
	}
	w.policy("pods", v1alpha1.PlacementPolicySpec{Workloads: &first})
	w.provision("si-web", "plan-shares", "")
	a := w.passes("si-web")
	w.wantOperation(a, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	wants := func(a *v1alpha1.ServiceInstance, want map[string]v1alpha1.WorkloadRules) {
		t.Helper()
		got := map[string]v1alpha1.WorkloadRules{}
		for _, p := range a.Status.Delivered.Decision.Placements {
			for _, rules := range p.Workloads {
				got[p.Cluster] = rules
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	sold := map[string]v1alpha1.WorkloadRules{"eu": first, "us": first}
	wants(a, sold)

	changes(v1alpha1.WorkloadRules{Digests: true})
	wants(w.passes("si-web"), sold)
	w.provision("si-later", "plan-shares", "")
	w.wantOperation(w.passes("si-later"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "policy pods, workloads: images are named by their digest (NAME@sha256:...): web is refused")
	w.update("si-web", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 6}`) })
	w.wantOperation(w.passes("si-web"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "PodsRefused")
	wants(w.instance("si-web"), sold)

	wider := v1alpha1.WorkloadRules{Registries: []string{"docker.io"}}
	changes(wider)
	w.cluster("ap", 8)
	w.drain("us")
	wants(w.settle("si-web"), map[string]v1alpha1.WorkloadRules{"eu": first, "ap": wider})
}
