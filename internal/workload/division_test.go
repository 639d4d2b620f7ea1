package workload

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// What a cluster takes grows by the same for each replica, whatever renders the pods; a plan where it
// does not is refused.
func TestWhatAReplicaTakes(t *testing.T) {
	const pods = "template: {spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}"
	divided := func(more string) string {
		return manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: '${cluster.replicas}', " + more + pods + "}}")
	}
	for _, test := range []struct{ name, plan, takes, replica, because string }{
		{"a pod", container("replicas: '${cluster.replicas}'"), "2", "1", ""},
		{"as many as the autoscaler allows for it", container("replicas: '${cluster.replicas}', autoscaling: {max: '${cluster.replicas * 3}'}"), "4", "3", ""},
		{"a pod of a manifest", divided("strategy: {rollingUpdate: {maxSurge: 2}}, "), "3", "1", ""},
		{"a share of a rollout", divided(""), "", "", "replicas of resources: with 8 on a cluster it takes 10 cpu, and 9 are expected after the first two: each replica must take the same, and so must a rollout (maxSurge as a number)"},
		{"nothing", container("replicas: 2"), "", "", "replicas of resources: are divided by no component: what uses ${cluster.replicas} has its share of them"},
		{"less", container("replicas: '${9 - cluster.replicas}'"), "", "", "replicas of resources: with two on a cluster it takes less cpu than with one"},
		{"a volume", container("volumes: [{name: v, mountPath: /v, storageClass: s, size: 2Gi}]"), "", "", "replicas of resources: do not go with volumes: a share that moves would start anew with an empty one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := FootprintOf(planOf(t, test.plan), nil, nil, 8)
			if test.because != "" {
				if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Reason != test.because {
					t.Errorf("got  %v\nwant %s", err, test.because)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			takes, replica := f.Takes[corev1.ResourceCPU], f.Replica[corev1.ResourceCPU]
			if takes.String() != test.takes || replica.String() != test.replica {
				t.Errorf("takes %s cpu with one, and %s more with each; want %s and %s", takes.String(), replica.String(), test.takes, test.replica)
			}
		})
	}
}

// Each cluster runs its share of the replicas; without a division, one.
func TestAClusterRunsItsShare(t *testing.T) {
	o := sample(planOf(t, container("replicas: '${cluster.replicas}', autoscaling: {max: '${cluster.replicas * 3}'}")), nil)
	shares := []v1alpha1.Placement{{Cluster: "a", Replicas: 3}, {Cluster: "b", Replicas: 2}, {Cluster: "c"}}
	for i, want := range []int64{9, 6, 3} {
		objects, err := o.On(&shares[i], shares).Render(nil, Cluster{}, "n")
		if err != nil {
			t.Fatal(err)
		}
		most, err := scaled(objects)
		if err != nil {
			t.Fatal(err)
		}
		if most["Deployment/a"] != want {
			t.Errorf("on %s at most %v, want %d pods", shares[i].Cluster, most, want)
		}
	}
}
