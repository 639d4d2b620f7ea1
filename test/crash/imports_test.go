//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// byHand is the same cluster as the plan's, as somebody would apply it.
const byHand = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: hand, namespace: default, labels: {fleet: shared}}
spec:
  topology:
    classRef: {name: simulated}
    version: v1.34.4
    variables: [{name: workerCPU, value: "8"}, {name: workerMemory, value: 16Gi}]
    workers:
      machineDeployments: [{class: worker, name: pool, replicas: 1}]
`

// made reads a Cluster of the management cluster.
func (m *makers) made(ctx context.Context, namespace, name string) (*clusterv1.Cluster, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	if err := m.management.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		return nil, err
	}
	c := &clusterv1.Cluster{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c)
}

// A cluster that somebody has made by hand becomes a member cluster by its label; what
// its making takes is printed for comparison.
func (m *makers) imports(ctx context.Context, t *testing.T) {
	t.Helper()
	m.step(ctx, t, "by hand: create", func(ctx context.Context) error {
		if err := m.management.Apply(ctx, []byte(byHand)); err != nil {
			return err
		}
		return until(ctx, func(ctx context.Context) error {
			hand, err := m.made(ctx, "default", "hand")
			if err == nil && !meta.IsStatusConditionTrue(hand.Status.Conditions, clusterv1.ClusterAvailableCondition) {
				err = errors.New("it is not available")
			}
			return err
		})
	})
	m.step(ctx, t, "import it", func(ctx context.Context) error {
		if err := m.operate(ctx, "cluster", "import", "--from-kubeconfig", m.kubeconfig, "--selector", "fleet=shared", "--region", "eu"); err != nil {
			return err
		}
		return m.withHub(ctx, func(hub client.Client) error {
			var member v1alpha1.MemberCluster
			err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hand"}, &member)
			if err == nil && (member.Labels["fleet"] != "shared" || member.Status.Allocatable.Cpu().Value() != 8) {
				err = fmt.Errorf("its labels are %v and it has %v", member.Labels, member.Status.Allocatable)
			}
			return err
		})
	})
	m.step(ctx, t, "by hand: delete", func(ctx context.Context) error {
		if err := m.operate(ctx, "cluster", "remove", "hand"); err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
		o.SetNamespace("default")
		o.SetName("hand")
		if err := m.management.Client.Delete(ctx, o); err != nil {
			return err
		}
		return until(ctx, func(ctx context.Context) error {
			if _, err := m.made(ctx, "default", "hand"); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	})
}
