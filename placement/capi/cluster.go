package capi

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// clusterOf returns the Cluster for a shape: its topology and networks, and no other field.
func clusterOf(t *tenant.Tenant, shape *v1alpha1.ClusterShape) (*unstructured.Unstructured, error) {
	topology := clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: shape.Class, Namespace: shape.ClassNamespace},
		Version:  shape.Version,
	}
	topology.ControlPlane.Replicas = shape.ControlPlane
	for _, pool := range shape.Workers {
		topology.Workers.MachineDeployments = append(topology.Workers.MachineDeployments, clusterv1.MachineDeploymentTopology{
			Name: pool.Name, Class: pool.Class, Replicas: &pool.Replicas,
		})
	}
	if shape.Variables != nil {
		values := map[string]stdjson.RawMessage{}
		if err := stdjson.Unmarshal(shape.Variables.Raw, &values); err != nil {
			return nil, fmt.Errorf("variables of the cluster: %w", err)
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			topology.Variables = append(topology.Variables, clusterv1.ClusterVariable{Name: name, Value: apiextensionsv1.JSON{Raw: values[name]}})
		}
	}
	spec := clusterv1.ClusterSpec{Topology: topology}
	spec.ClusterNetwork.Pods.CIDRBlocks = shape.PodCIDRs
	spec.ClusterNetwork.Services.CIDRBlocks = shape.ServiceCIDRs
	document, err := stdjson.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, fmt.Errorf("render the cluster: %w", err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(document, &o.Object); err != nil { // decodes integers as integers
		return nil, fmt.Errorf("render the cluster: %w", err)
	}
	o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	o.SetNamespace(t.Namespace)
	o.SetName(v1alpha1.InstanceClusterName(t.Instance.Name))
	o.SetLabels(t.Labels())
	digest := sha256.Sum256(document)
	o.SetAnnotations(map[string]string{annotationApplied: hex.EncodeToString(digest[:8])})
	return o, nil
}

// annotationApplied holds a digest of what was last applied.
const annotationApplied = "sluice.dev/applied"

// often is how often a Cluster is checked while it is being created.
const often = time.Second

// progress returns nil once the Cluster is as it should be, and otherwise
// *delivery.PendingError with its progress and what Cluster API reports as missing.
//
// The condition Available alone is not enough. It stays true while the topology of an update
// has not been processed (TopologyReconciled of this generation), while machines are replaced,
// and while there are fewer than wanted.
func progress(made *clusterv1.Cluster, shape *v1alpha1.ClusterShape) error {
	pending := &delivery.PendingError{Step: "cluster " + made.Name, Every: often}
	reconciled := meta.FindStatusCondition(made.Status.Conditions, clusterv1.ClusterTopologyReconciledCondition)
	var stages []string
	if !meta.IsStatusConditionTrue(made.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		stages = append(stages, "control plane not initialised yet")
	} else {
		stages = append(stages, "control plane initialised")
	}
	have := made.Status.Workers
	if have == nil {
		have = &clusterv1.WorkersStatus{}
	}
	want := int32(0)
	for _, pool := range shape.Workers {
		want += pool.Replicas
	}
	ready := min(value(have.AvailableReplicas), value(have.UpToDateReplicas))
	stages = append(stages, fmt.Sprintf("%d of %d workers ready", min(ready, want), want))
	complete := ready == want && value(have.Replicas) == want
	if n := shape.ControlPlane; n != nil {
		cp := made.Status.ControlPlane
		if cp == nil {
			cp = &clusterv1.ClusterControlPlaneStatus{}
		}
		has := controlPlaneReady(made, cp)
		stages = append(stages, fmt.Sprintf("%d of %d control plane machines ready", min(has, *n), *n))
		complete = complete && has == *n && value(cp.Replicas) == *n
	}
	pending.Detail = strings.Join(stages, ", ")
	pending.Consumer = pending.Detail
	for _, machines := range []string{clusterv1.ClusterControlPlaneMachinesReadyCondition, clusterv1.ClusterWorkerMachinesReadyCondition} {
		if meta.IsStatusConditionFalse(made.Status.Conditions, machines) {
			pending.Detail += "; " + complaint(made, machines)
		}
	}
	for _, blocking := range []string{clusterv1.ClusterTopologyReconciledCondition, clusterv1.ClusterAvailableCondition} {
		if !meta.IsStatusConditionTrue(made.Status.Conditions, blocking) {
			pending.Detail += "; " + complaint(made, blocking)
			return pending
		}
	}
	if reconciled.ObservedGeneration != made.Generation || !complete || meta.IsStatusConditionTrue(made.Status.Conditions, clusterv1.ClusterRollingOutCondition) {
		return pending
	}
	return nil
}

// controlPlaneReady returns how many control plane machines are as they should be. Providers of
// contract v1beta1 (K3s, for instance) report how many machines are unavailable, and many omit
// the field once there are none. Cluster API then keeps its previous number of available
// machines, or has none. So if the control plane is reported as available, ready machines count
// as available ones. Such providers need not report how many machines are up to date either;
// the condition RollingOut shows it.
func controlPlaneReady(made *clusterv1.Cluster, cp *clusterv1.ClusterControlPlaneStatus) int32 {
	has := value(cp.AvailableReplicas)
	if meta.IsStatusConditionTrue(made.Status.Conditions, clusterv1.ClusterControlPlaneAvailableCondition) {
		has = max(has, value(cp.ReadyReplicas))
	}
	if cp.UpToDateReplicas != nil {
		has = min(has, *cp.UpToDateReplicas)
	}
	return has
}

// unavailable returns the condition that shows that a delivered cluster does not run; empty if
// it runs. Cluster API also reports a cluster as unavailable while its class is being read or
// is wrong (proposal 20240916-improve-status-in-CAPI-resources), but its machines run all the
// same.
func unavailable(made *clusterv1.Cluster) string {
	const all, topology = clusterv1.ClusterAvailableCondition, clusterv1.ClusterTopologyReconciledCondition
	if meta.IsStatusConditionTrue(made.Status.Conditions, all) {
		return ""
	}
	if !meta.IsStatusConditionFalse(made.Status.Conditions, topology) {
		return all
	}
	for _, gate := range []string{
		clusterv1.ClusterRemoteConnectionProbeCondition,
		clusterv1.ClusterInfrastructureReadyCondition,
		clusterv1.ClusterControlPlaneAvailableCondition,
		clusterv1.ClusterWorkersAvailableCondition,
	} {
		if !meta.IsStatusConditionTrue(made.Status.Conditions, gate) {
			return gate
		}
	}
	return ""
}

func value(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// complaint returns Cluster API's message for a condition, on one line.
func complaint(made *clusterv1.Cluster, condition string) string {
	c := meta.FindStatusCondition(made.Status.Conditions, condition)
	if c == nil {
		return condition + " is not known yet"
	}
	text := fmt.Sprintf("%s is %s", condition, c.Status)
	if c.Reason != "" && c.Reason != condition && c.Status != metav1.ConditionTrue {
		text += " (" + c.Reason + ")"
	}
	if message := strings.Join(strings.Fields(c.Message), " "); message != "" {
		text += ": " + message
	}
	return text
}
