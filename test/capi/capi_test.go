package capi_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/capi"
	"github.com/sluice-dev/sluice/test/hosted"
)

const cluster = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: one, namespace: default}
spec:
  topology:
    classRef: {name: simulated}
    version: v1.34.4
    workers:
      machineDeployments: [{class: worker, name: pool, replicas: 1}]
`

// A topology becomes a cluster with a node, and leaves nothing when it is deleted.
func TestACluster(t *testing.T) {
	bed := capi.Start(t, capi.Options{})
	for _, documents := range [][]byte{capi.Class, []byte(cluster)} {
		if err := bed.Apply(t.Context(), documents); err != nil {
			t.Fatal(err)
		}
	}
	made := &unstructured.Unstructured{}
	made.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	made.SetKind("Cluster")
	key := client.ObjectKey{Namespace: "default", Name: "one"}
	started := time.Now()
	await(t, "Available", func(ctx context.Context) (bool, error) {
		if err := bed.Client.Get(ctx, key, made); err != nil {
			return false, err
		}
		return hosted.HasCondition(made, "Available"), nil
	})
	t.Logf("available after %s", time.Since(started).Round(100*time.Millisecond))
	if bed.Workload("default", "one") == nil || bed.Workloads() != 1 {
		t.Fatal("there is no control plane")
	}
	if err := bed.Client.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	await(t, "gone", func(ctx context.Context) (bool, error) {
		err := bed.Client.Get(ctx, key, made)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if bed.Workloads() != 0 {
		t.Fatal("its control plane is left")
	}
}

func await(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true, condition); err != nil {
		t.Fatalf("not %s: %v", what, err)
	}
}
