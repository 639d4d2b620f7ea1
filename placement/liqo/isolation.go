package liqo

import (
	"context"
	"fmt"
	"maps"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// isolationName is the name of the NetworkPolicy and the ResourceQuota in the namespaces that
// Liqo creates at a provider, and of the ClusterRole that lets Sluice write them.
const isolationName = "sluice-isolation"

// isolationPowers let Sluice's account write NetworkPolicies and quotas; ownWritesPolicy limits
// where.
func isolationPowers(account string) []tenant.Object {
	keep := []string{"get", "create", "patch"}
	return []tenant.Object{
		rbacv1ac.ClusterRole(isolationName).WithRules(kube.ApplyRules([]rbacv1.PolicyRule{
			{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"networkpolicies"}, Verbs: keep},
			{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: keep},
		})...),
		rbacv1ac.ClusterRoleBinding(isolationName).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(isolationName)).
			WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(account).WithName(kube.ServiceAccountName)),
	}
}

// isolate isolates the namespaces that Liqo has created on this side for the other cluster's pods.
// Their pods reach, and are reached by, only each other, that cluster and DNS; and the number of
// objects there is limited. Without the NetworkPolicy no pod runs there (isolatedFirst); its annotations have the rules
// of policies for the pods. It is idempotent, and writes only what differs.
func (s *side) isolate(ctx context.Context, how isolating) error {
	theirs, err := labels.Parse(consts.RemoteClusterID + "=" + s.remote.ClusterID + ",!" + consts.TenantNamespaceLabel)
	if err != nil {
		return s.failed(fmt.Errorf("select the namespaces of %s: %w", s.remote.ClusterID, err))
	}
	var namespaces corev1.NamespaceList
	if err := s.List(ctx, &namespaces, client.MatchingLabelsSelector{Selector: theirs}); err != nil {
		return s.failed(fmt.Errorf("list the namespaces of %s: %w", s.remote.ClusterID, err))
	}
	if len(namespaces.Items) == 0 {
		return nil
	}
	remote, err := s.remoteRanges(ctx)
	if err != nil {
		return err
	}
	agreed, err := how.agreed(ctx, false)
	if err != nil {
		return err
	}
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		if !namespace.DeletionTimestamp.IsZero() {
			continue
		}
		policy := networkingv1ac.NetworkPolicy(isolationName, namespace.Name).WithLabels(s.labels()).WithSpec(s.isolation(remote, how.internet))
		if err := s.isolateOne(ctx, namespace, policy, agreed, how); err != nil {
			return err
		}
	}
	return nil
}

// remoteRanges returns the other cluster's addresses as this one sees them; none if the two
// have no network.
func (s *side) remoteRanges(ctx context.Context) ([]string, error) {
	ranges, err := s.mappedRanges(ctx)
	if apierrors.IsNotFound(err) || isPending(err) {
		return nil, nil
	}
	return ranges, err
}

func (s *side) isolateOne(ctx context.Context, namespace *corev1.Namespace, policy *networkingv1ac.NetworkPolicyApplyConfiguration, agreed agreements, how isolating) error {
	t := &tenant.Tenant{Connection: s.connection}
	changes, err := s.agree(ctx, namespace, policy, agreed, how)
	if err != nil {
		return err
	}
	for _, o := range []tenant.Object{
		// The quota first: the NetworkPolicy opens the namespace for pods.
		corev1ac.ResourceQuota(isolationName, namespace.Name).WithLabels(s.labels()).WithSpec(corev1ac.ResourceQuotaSpec().WithHard(remoteCounts())),
		policy,
	} {
		if (o != tenant.Object(policy) || !changes) && t.Compare(ctx, o) == nil {
			continue
		}
		err := t.Apply(ctx, o)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		case apierrors.IsConflict(err):
			return s.pending("isolate namespace "+namespace.Name, "its rules are being changed at the same time")
		case apierrors.IsForbidden(err):
			return s.failed(fmt.Errorf("isolate namespace %s: %w: Sluice was registered here before it isolated pods: register the cluster again, or accept the invitation again", namespace.Name, err))
		case err != nil:
			return s.failed(fmt.Errorf("isolate namespace %s: %w", namespace.Name, err))
		}
	}
	return nil
}

// agree adds the rules for a namespace's pods to the NetworkPolicy that is to be applied there, and reports whether they
// differ from those there. Then it is applied only if nobody else changes it at the same time: of two orders that
// add a rule each, the namespace has both, and an order that is decided now keeps its rule.
func (s *side) agree(ctx context.Context, namespace *corev1.Namespace, policy *networkingv1ac.NetworkPolicyApplyConfiguration, agreed agreements, how isolating) (changes bool, err error) {
	now := &networkingv1.NetworkPolicy{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: isolationName}, now); client.IgnoreNotFound(err) != nil {
		return false, s.failed(fmt.Errorf("read the NetworkPolicy of namespace %s: %w", namespace.Name, err))
	}
	holder, original := s.remoteCluster, namespace.Annotations[consts.RemoteNamespaceOriginalNameAnnotationKey]
	want := agreed.annotations(holder, s.cluster.Name, original)
	narrowed := podrules.Both(now.Annotations, want)
	switch {
	case maps.Equal(narrowed, want):
	case how.narrows:
		want = narrowed
	default: // it loses a rule, so the cache has to be right
		if agreed, err = how.agreed(ctx, true); err != nil {
			return false, err
		}
		want = agreed.annotations(holder, s.cluster.Name, original)
	}
	if len(want) > 0 {
		policy.WithAnnotations(want)
	}
	if maps.Equal(podrules.Both(now.Annotations, nil), want) {
		return false, nil
	}
	if now.ResourceVersion != "" {
		policy.WithResourceVersion(now.ResourceVersion)
	}
	return true, nil
}

// remoteCounts limit the number of a namespace's objects. Liqo's own Quota limits the resources
// of its pods.
func remoteCounts() corev1.ResourceList {
	const pods = 110 // the default maximum of a node
	counts := kube.Counts(pods)
	counts["count/shadowpods."+offloadingGroup] = counts["count/pods"]
	counts["count/shadowendpointslices."+offloadingGroup] = counts["count/services"]
	return counts
}

// isolation lets pods reach the namespaces of the same cluster, that cluster, DNS and, if the
// operator allows it, the internet; and lets the first two reach them.
func (s *side) isolation(remote []string, internet bool) *networkingv1ac.NetworkPolicySpecApplyConfiguration {
	between := []*networkingv1ac.NetworkPolicyPeerApplyConfiguration{
		networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(metav1ac.LabelSelector().
			WithMatchLabels(map[string]string{consts.RemoteClusterID: s.remote.ClusterID}).
			WithMatchExpressions(metav1ac.LabelSelectorRequirement().WithKey(consts.TenantNamespaceLabel).WithOperator(metav1.LabelSelectorOpDoesNotExist))),
	}
	for _, cidr := range remote {
		between = append(between, networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR(cidr)))
	}
	spec := networkingv1ac.NetworkPolicySpec().WithPodSelector(metav1ac.LabelSelector()).
		WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
		WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(between...)).
		WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(between...), kube.ToDNS())
	if internet {
		spec.WithEgress(kube.ToInternet())
	}
	return spec
}
