package kube

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Names of the objects in an instance's namespace.
const (
	// objectName is the name of the quota and the limit range.
	objectName = "sluice"
	// denyName and allowName are the names of the NetworkPolicies.
	denyName  = "sluice-deny"
	allowName = "sluice-allow"
)

// ConsumerRoles returns the ClusterRoles that bindings choose from. They give nothing until a binding
// binds one of them in its instance's namespace.
func ConsumerRoles() []tenant.Object {
	var roles []tenant.Object
	for _, role := range consumerRoles() {
		roles = append(roles, rbacv1ac.ClusterRole(role.name).WithRules(ApplyRules(role.rules)...))
	}
	return roles
}

// ApplyRules converts rules to their apply configuration.
func ApplyRules(rules []rbacv1.PolicyRule) []*rbacv1ac.PolicyRuleApplyConfiguration {
	var apply []*rbacv1ac.PolicyRuleApplyConfiguration
	for _, rule := range rules {
		apply = append(apply, rbacv1ac.PolicyRule().WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).
			WithResourceNames(rule.ResourceNames...).WithNonResourceURLs(rule.NonResourceURLs...).WithVerbs(rule.Verbs...))
	}
	return apply
}

func (t *target) quotaObject(hard corev1.ResourceList) *corev1ac.ResourceQuotaApplyConfiguration {
	return corev1ac.ResourceQuota(objectName, t.Namespace).
		WithLabels(t.Labels()).
		WithSpec(corev1ac.ResourceQuotaSpec().WithHard(maps.Clone(hard))) // the answer is decoded into it, while others read hard
}

func (t *target) limitRangeObject(hard corev1.ResourceList) *corev1ac.LimitRangeApplyConfiguration {
	share, minimum := containerLimits(hard)
	if t.of.Workload.Runs() { // what its containers do not state was not counted when it was reserved
		delete(share, corev1.ResourceEphemeralStorage)
		delete(minimum, corev1.ResourceEphemeralStorage)
	}
	return corev1ac.LimitRange(objectName, t.Namespace).
		WithLabels(t.Labels()).
		WithSpec(corev1ac.LimitRangeSpec().WithLimits(
			corev1ac.LimitRangeItem().WithType(corev1.LimitTypeContainer).
				WithMin(minimum).WithDefault(share).WithDefaultRequest(share)))
}

// networkPolicies deny all traffic, except within the namespace, to the cluster's DNS and, if
// the operator allows it or the workload is a probe of Sluice's own, to the internet.
func (t *target) networkPolicies() []tenant.Object {
	namespace := t.Namespace
	bothWays := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	sameNamespace := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector())
	allow := networkingv1ac.NetworkPolicySpec().WithPodSelector(metav1ac.LabelSelector()).
		WithEgress(
			networkingv1ac.NetworkPolicyEgressRule().WithTo(sameNamespace), ToDNS())
	if !t.of.Workload.Runs() {
		allow.WithPolicyTypes(bothWays...).WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(sameNamespace))
	} else {
		// A workload has policies for its own ports. This one is of type Egress only: for a policy of
		// both types kube-router would also admit ingress by the egress rules.
		allow.WithPolicyTypes(networkingv1.PolicyTypeEgress)
	}
	isProbe := t.Instance.MeasuredCluster() != ""
	if t.InternetEgress || isProbe {
		allow.WithEgress(ToInternet())
	}
	if isProbe && len(t.ProbeAddresses) > 0 {
		allow.WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(workload.Ranges(t.ProbeAddresses)...))
	}
	return []tenant.Object{
		networkingv1ac.NetworkPolicy(denyName, namespace).WithLabels(t.Labels()).WithSpec(
			networkingv1ac.NetworkPolicySpec().WithPodSelector(metav1ac.LabelSelector()).WithPolicyTypes(bothWays...)),
		networkingv1ac.NetworkPolicy(allowName, namespace).WithLabels(t.Labels()).WithSpec(allow),
	}
}

// ToDNS allows traffic from pods to the cluster's DNS.
func ToDNS() *networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration {
	return networkingv1ac.NetworkPolicyEgressRule().
		WithTo(networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(
			metav1ac.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: "kube-system"}))).
		WithPorts(port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53))
}

// ToInternet allows traffic from pods to the internet, but not to the cluster's or the provider's own addresses: those at which
// clouds serve their machines' credentials, and those that lead to any other, as NAT64 does, are none of the internet.
func ToInternet() *networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration {
	four, six := networkingv1ac.IPBlock().WithCIDR("0.0.0.0/0"), networkingv1ac.IPBlock().WithCIDR(guarded.Unicast6.String())
	for _, prefix := range guarded.NotPublic {
		if prefix.Addr().Is4() {
			four.WithExcept(prefix.String())
		} else {
			six.WithExcept(prefix.String())
		}
	}
	return networkingv1ac.NetworkPolicyEgressRule().WithTo(
		networkingv1ac.NetworkPolicyPeer().WithIPBlock(four), networkingv1ac.NetworkPolicyPeer().WithIPBlock(six))
}

func port(protocol corev1.Protocol, number int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(number))
}
