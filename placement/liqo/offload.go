package liqo

import (
	"context"
	"fmt"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// extension returns the NamespaceOffloading that extends the instance's namespace on a cluster
// to other clusters behind virtual nodes of the instance there, by the values of a label that all nodes of a cluster have in
// common. It selects clusters, not nodes.
// If there are two virtual nodes for one cluster, Liqo (v1.2) evaluates the offloading for each
// node, and the last result applies to the cluster. So another instance's node would end the
// extension, and delete the namespace on that cluster.
func (s *side) extension(t *tenant.Tenant, how v1alpha1.Offloading, key string, to []string) *offloadingv1beta1.NamespaceOffloading {
	return &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: consts.DefaultNamespaceOffloadingName, Labels: t.Labels()},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloadingv1beta1.NamespaceMappingStrategyType(how.Mapping),
			RemoteNamespaceName:      how.Name,
			PodOffloadingStrategy:    offloadingv1beta1.PodOffloadingStrategyType(how.Pods),
			ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: key, Operator: corev1.NodeSelectorOpIn, Values: to,
				}},
			}}},
		},
	}
}

// extended returns nil while the instance's namespace exists on all clusters that it extends
// to.
func (s *side) extended(ctx context.Context, t *tenant.Tenant) error {
	now := &offloadingv1beta1.NamespaceOffloading{}
	key := client.ObjectKey{Namespace: t.Namespace, Name: consts.DefaultNamespaceOffloadingName}
	if err := s.Get(ctx, key, now); err != nil {
		return s.failed(fmt.Errorf("read the NamespaceOffloading of %s: %w", t.Namespace, err))
	}
	if now.Status.OffloadingPhase == offloadingv1beta1.ReadyOffloadingPhaseType && now.Status.ObservedGeneration == now.Generation {
		return nil
	}
	detail := fmt.Sprintf("is %q", now.Status.OffloadingPhase)
	for cluster, conditions := range now.Status.RemoteNamespacesConditions {
		for _, c := range conditions {
			if c.Type == offloadingv1beta1.NamespaceReady && c.Status != corev1.ConditionTrue {
				detail += fmt.Sprintf("; on %s: %s", cluster, c.Message)
			}
		}
	}
	return s.pending("NamespaceOffloading of "+t.Namespace, detail)
}

// withdraw ends the extension, and waits until the namespace is gone from the other clusters.
func (s *side) withdraw(ctx context.Context, t *tenant.Tenant) error {
	key := client.ObjectKey{Namespace: t.Namespace, Name: consts.DefaultNamespaceOffloadingName}
	offloading := &offloadingv1beta1.NamespaceOffloading{}
	err := s.Get(ctx, key, offloading)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && offloading.DeletionTimestamp.IsZero() {
		err = client.IgnoreNotFound(s.Delete(ctx, offloading))
	}
	if err != nil {
		return s.failed(fmt.Errorf("delete the NamespaceOffloading of %s: %w", t.Namespace, err))
	}
	return s.pending("delete the NamespaceOffloading of "+t.Namespace, fmt.Sprintf("is %q", offloading.Status.OffloadingPhase))
}

// openTo returns a delivery whose workload opens its ports with reach consumer to the other cluster's
// pods.
func (s *side) openTo(ctx context.Context, d delivery.Delivery) (delivery.Delivery, error) {
	ranges, err := s.mappedRanges(ctx)
	if err != nil {
		return d, err
	}
	order := *d.Workload
	order.Consumers = ranges
	d.Workload = &order
	return d, nil
}

// mappedRanges returns the other cluster's addresses as this one sees them, once Liqo has mapped them.
func (s *side) mappedRanges(ctx context.Context) ([]string, error) {
	var configuration networkingv1beta1.Configuration
	if err := s.get(ctx, s.remote.ClusterID, &configuration); err != nil {
		return nil, err
	}
	remote := configuration.Status.Remote
	if remote == nil {
		return nil, s.pending("Configuration "+configuration.Name, "Liqo has not mapped its address ranges yet")
	}
	var ranges []string
	for _, cidr := range append(remote.CIDR.Pod, remote.CIDR.External...) {
		ranges = append(ranges, string(cidr))
	}
	return ranges, nil
}

// letIn applies opening.
func (s *side) letIn(ctx context.Context, t *tenant.Tenant) error {
	opening, err := s.opening(ctx, t)
	if err != nil {
		return err
	}
	return s.apply(ctx, opening)
}

// opening returns the NetworkPolicy that lets the other cluster's pods into the instance's
// namespace on this side, by their addresses as this cluster sees them. Without it nothing from
// outside is let in.
func (s *side) opening(ctx context.Context, t *tenant.Tenant) (*networkingv1.NetworkPolicy, error) {
	ranges, err := s.mappedRanges(ctx)
	if err != nil {
		return nil, err
	}
	var from []networkingv1.NetworkPolicyPeer
	for _, cidr := range ranges {
		from = append(from, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: "sluice-peering", Labels: t.Labels()},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: from}},
		},
	}, nil
}
