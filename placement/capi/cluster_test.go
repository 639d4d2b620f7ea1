package capi

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// A cluster runs while its parts do, whatever is the matter with its class.
func TestUnavailable(t *testing.T) {
	const available, topology, workers = clusterv1.ClusterAvailableCondition, clusterv1.ClusterTopologyReconciledCondition, clusterv1.ClusterWorkersAvailableCondition
	for _, test := range []struct {
		name string
		not  []string
		want string
	}{
		{"all is well", nil, ""},
		{"the class is being read, or wrong", []string{available, topology}, ""},
		{"so it is, and workers are lost", []string{available, topology, workers}, workers},
		{"workers are lost", []string{available, workers}, available},
		{"a gate of its own", []string{available}, available},
	} {
		made := &clusterv1.Cluster{}
		for _, condition := range []string{available, topology, workers, clusterv1.ClusterRemoteConnectionProbeCondition, clusterv1.ClusterInfrastructureReadyCondition, clusterv1.ClusterControlPlaneAvailableCondition} {
			made.Status.Conditions = append(made.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		}
		for i := range made.Status.Conditions {
			for _, not := range test.not {
				if c := &made.Status.Conditions[i]; c.Type == not {
					c.Status = metav1.ConditionFalse
				}
			}
		}
		if got := unavailable(made); got != test.want {
			t.Errorf("%s: %q fails, want %q", test.name, got, test.want)
		}
	}
	if got := unavailable(&clusterv1.Cluster{}); got != available {
		t.Errorf("nothing is known yet: %q fails, want %q", got, available)
	}
}
