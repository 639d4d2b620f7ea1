package peers

import (
	"context"
	"fmt"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
	"github.com/sluice-dev/sluice/test/loopback"
)

// ocmHub are the objects that an administrator gives OCM: a cluster, accepted, in the set that placements may choose from, and a
// placement. Whoever orders does not wait for the decision, which is made once.
const ocmHub = `
apiVersion: v1
kind: Namespace
metadata: {name: member}
---
apiVersion: v1
kind: Namespace
metadata: {name: orders}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSet
metadata: {name: default}
spec: {clusterSelector: {selectorType: ExclusiveClusterSetLabel}}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: member, labels: {cluster.open-cluster-management.io/clusterset: default}}
spec: {hubAcceptsClient: true}
---
apiVersion: cluster.open-cluster-management.io/v1beta2
kind: ManagedClusterSetBinding
metadata: {name: default, namespace: orders}
spec: {clusterSet: default}
---
apiVersion: cluster.open-cluster-management.io/v1beta1
kind: Placement
metadata: {name: all, namespace: orders}
spec: {clusterSets: [default]}
`

var (
	replicaSetKind = schema.GroupVersionKind{Group: "work.open-cluster-management.io", Version: "v1alpha1", Kind: "ManifestWorkReplicaSet"}
	setBindingKind = schema.GroupVersionKind{Group: "cluster.open-cluster-management.io", Version: "v1beta2", Kind: "ManagedClusterSetBinding"}
	placementKind  = schema.GroupVersionKind{Group: "cluster.open-cluster-management.io", Version: "v1beta1", Kind: "Placement"}
)

// ocm orders by a ManifestWorkReplicaSet each.
type ocm struct{ *hub }

// StartOCM runs OCM with a member cluster: the placement controller and the work controller beside the hub, the work
// agent beside the member. Registration is left out: the cluster is registered by hand. It blocks until orders are taken.
func StartOCM(ctx context.Context, folder string, cluster *controlplane.ControlPlane) (Peer, error) {
	h, err := newHub(ctx, "ocm", folder, cluster, controlplane.Options{})
	if err != nil {
		return nil, err
	}
	o := &ocm{h}
	if err := o.start(ctx, folder, cluster); err != nil {
		_ = o.Stop() // after the error that matters
		return nil, err
	}
	return o, nil
}

func (o *ocm) start(ctx context.Context, folder string, cluster *controlplane.ControlPlane) error {
	there, err := client.New(cluster.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(o.manifests, "*.yaml"))
	if err != nil {
		return err
	}
	const applied = "0000_01_work.open-cluster-management.io_appliedmanifestworks.crd.yaml"
	if err := define(ctx, there, filepath.Join(o.manifests, applied)); err != nil {
		return err
	}
	if err := define(ctx, o.client, files...); err != nil {
		return err
	}
	if err := o.apply(ctx, ocmHub); err != nil {
		return err
	}
	// The controllers of registration say that a set is bound.
	binding := object(setBindingKind, "orders", "default")
	bound := []byte(`{"status": {"conditions": [{"type": "Bound", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`)
	if err := o.client.Status().Patch(ctx, binding, client.RawPatch(types.MergePatchType, bound)); err != nil {
		return err
	}
	common := []string{"--disable-leader-election", "--kube-api-qps=1000", "--kube-api-burst=2000"}
	for _, run := range []struct {
		program string
		flags   []string
	}{
		{"placement", []string{"controller", "--kubeconfig=" + o.kubeconfig, "--namespace=orders"}},
		{"work", []string{"manager", "--kubeconfig=" + o.kubeconfig, "--namespace=orders", "--feature-gates=ManifestWorkReplicaSet=true"}},
		{"work", []string{
			"agent", "--kubeconfig=" + o.member, "--namespace=" + Namespace, "--workload-source-config=" + o.kubeconfig,
			"--spoke-cluster-name=" + member, "--agent-id=" + member, "--hub-kube-api-qps=1000", "--hub-kube-api-burst=2000",
		}},
	} {
		server, err := hosted.NewServer(filepath.Join(folder, "ocm-"+run.program+"-"+run.flags[0]), loopback.Port()) // all listen at the same port otherwise
		if err != nil {
			return err
		}
		flags := append(run.flags, fmt.Sprintf("--listen=127.0.0.1:%d", server.Port))
		if err := o.Run(filepath.Join(o.programs, run.program), nil, append(flags, common...)...); err != nil {
			return err
		}
	}
	return await(ctx, o.client, object(placementKind, "orders", "all"), func(o *unstructured.Unstructured) bool { return hosted.HasCondition(o, "PlacementSatisfied") })
}

func (o *ocm) Order(ctx context.Context, d *appsv1.Deployment) error {
	deployment, err := manifest(d)
	if err != nil {
		return err
	}
	order := object(replicaSetKind, "orders", d.Name)
	order.Object["spec"] = map[string]any{
		"placementRefs":        []any{map[string]any{"name": "all"}},
		"manifestWorkTemplate": map[string]any{"workload": map[string]any{"manifests": []any{deployment}}},
	}
	return o.client.Create(ctx, order)
}

func (o *ocm) Settle(ctx context.Context, name string) error {
	return await(ctx, o.client, object(replicaSetKind, "orders", name), func(o *unstructured.Unstructured) bool { return hosted.HasCondition(o, "ManifestworkApplied") })
}

func (o *ocm) Cancel(ctx context.Context, name string) error {
	return o.client.Delete(ctx, object(replicaSetKind, "orders", name), client.PropagationPolicy(metav1.DeletePropagationBackground))
}
