package capi

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A cluster runs while its parts run, whatever the state of its class.
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

// Cluster API's controller of Clusters computes the status of a control plane by the contract
// of its provider: availableReplicas of v1beta1 is the wanted number minus
// status.unavailableReplicas, and does not change while that field is missing.
func TestProgressOfControlPlanes(t *testing.T) {
	const done = ""
	n := ptr.To[int32]
	for _, test := range []struct {
		name                              string
		want                              int32
		replicas, ready, available, fresh *int32
		unavailable                       bool // the condition ControlPlaneAvailable
		says                              string
	}{
		{"kubeadm, one machine", 1, n(1), n(1), n(1), n(1), false, done},
		{"kubeadm, three of them", 3, n(3), n(3), n(3), n(3), false, done},
		{"kubeadm, the second is not ready", 3, n(3), n(1), n(1), n(3), false, "1 of 3 control plane machines ready"},
		{"kubeadm, one of the version before", 3, n(3), n(3), n(3), n(2), false, "2 of 3 control plane machines ready"},
		{"kubeadm, one too many while they are replaced", 3, n(4), n(3), n(3), n(3), false, "3 of 3 control plane machines ready"},
		{"k3s, none unavailable any more", 1, n(1), n(1), n(0), n(1), false, done},
		{"k3s, three of them", 3, n(3), n(3), n(0), n(3), false, done},
		{"k3s, nothing ready yet", 1, n(1), n(0), n(0), n(1), true, "0 of 1 control plane machines ready"},
		{"k3s, the machine is ready and the API server is not", 1, n(1), n(1), n(0), n(1), true, "0 of 1 control plane machines ready"},
		{"k3s, grown from one, two ready", 3, n(3), n(2), n(1), n(3), false, "2 of 3 control plane machines ready"},
		{"k3s, one of the version before", 3, n(3), n(3), n(0), n(2), false, "2 of 3 control plane machines ready"},
		{"a provider that never said what is unavailable", 1, n(1), n(1), nil, n(1), false, done},
		{"a provider that says neither that nor what is up to date", 1, n(1), n(1), nil, nil, false, done},
		{"nothing said yet", 1, nil, nil, nil, nil, true, "0 of 1 control plane machines ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			made := &clusterv1.Cluster{}
			for _, condition := range []string{clusterv1.ClusterAvailableCondition, clusterv1.ClusterTopologyReconciledCondition, clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterControlPlaneAvailableCondition} {
				status := metav1.ConditionTrue
				if condition == clusterv1.ClusterControlPlaneAvailableCondition && test.unavailable {
					status = metav1.ConditionFalse
				}
				made.Status.Conditions = append(made.Status.Conditions, metav1.Condition{Type: condition, Status: status})
			}
			made.Status.ControlPlane = &clusterv1.ClusterControlPlaneStatus{
				DesiredReplicas: &test.want, Replicas: test.replicas, ReadyReplicas: test.ready, AvailableReplicas: test.available, UpToDateReplicas: test.fresh,
			}
			err := progress(made, &v1alpha1.ClusterShape{ControlPlane: &test.want})
			if test.says == done {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want it to wait with %q", err, test.says)
			}
		})
	}
}
