package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Names of the objects in an instance's namespace, beside v1alpha1.MemberRole.
const (
	// objectName is the quota's, the limit range's and the self-binding's.
	objectName = "sluice"
	// denyName and allowName are the NetworkPolicies'.
	denyName  = "sluice-deny"
	allowName = "sluice-allow"
)

// Object is an apply configuration: the fields of a Kubernetes object that Sluice
// owns, and no others.
type Object interface {
	runtime.ApplyConfiguration
	GetKind() *string
	GetAPIVersion() *string
	GetName() *string
	GetNamespace() *string
}

// labels mark what belongs to an instance.
func (d *Driver) labels(instance *v1alpha1.ServiceInstance) map[string]string {
	return map[string]string{
		v1alpha1.LabelHub:              d.Hub,
		v1alpha1.LabelInstance:         instance.Name,
		"app.kubernetes.io/managed-by": v1alpha1.FieldManager,
	}
}

// namespaceLabels add the pod security level: baseline is enforced, so that no
// pod reaches its node; what is not restricted gets a warning.
func (d *Driver) namespaceLabels(instance *v1alpha1.ServiceInstance) map[string]string {
	labels := d.labels(instance)
	labels["pod-security.kubernetes.io/enforce"] = "baseline"
	labels["pod-security.kubernetes.io/warn"] = "restricted"
	return labels
}

func namespaceAnnotations(instance *v1alpha1.ServiceInstance) map[string]string {
	return map[string]string{v1alpha1.AnnotationOwner: string(instance.UID)}
}

func (d *Driver) namespaceObject(instance *v1alpha1.ServiceInstance) *corev1ac.NamespaceApplyConfiguration {
	return corev1ac.Namespace(v1alpha1.MemberNamespace(instance.Name)).
		WithLabels(d.namespaceLabels(instance)).WithAnnotations(namespaceAnnotations(instance))
}

// selfBinding gives Sluice the tenant's rules in this one namespace, which is what
// lets it create everything else there.
func (d *Driver) selfBinding(instance *v1alpha1.ServiceInstance, username string) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(objectName, v1alpha1.MemberNamespace(instance.Name)).
		WithLabels(d.labels(instance)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(TenantClusterRole)).
		WithSubjects(subject(username))
}

// subject turns the user name that an API server reports into an RBAC subject.
func subject(username string) *rbacv1ac.SubjectApplyConfiguration {
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).WithName(name)
		}
	}
	return rbacv1ac.Subject().WithKind(rbacv1.UserKind).WithAPIGroup(rbacv1.GroupName).WithName(username)
}

// roles are what bindings choose from.
func (d *Driver) roles(instance *v1alpha1.ServiceInstance) []Object {
	role := func(name string, rules []rbacv1.PolicyRule) Object {
		return rbacv1ac.Role(v1alpha1.MemberRole(name), v1alpha1.MemberNamespace(instance.Name)).
			WithLabels(d.labels(instance)).WithRules(applyRules(rules)...)
	}
	return []Object{role("edit", EditRules()), role("view", ViewRules())}
}

func applyRules(rules []rbacv1.PolicyRule) []*rbacv1ac.PolicyRuleApplyConfiguration {
	var apply []*rbacv1ac.PolicyRuleApplyConfiguration
	for _, rule := range rules {
		apply = append(apply, rbacv1ac.PolicyRule().WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).
			WithResourceNames(rule.ResourceNames...).WithNonResourceURLs(rule.NonResourceURLs...).WithVerbs(rule.Verbs...))
	}
	return apply
}

func (d *Driver) quotaObject(instance *v1alpha1.ServiceInstance, hard corev1.ResourceList) *corev1ac.ResourceQuotaApplyConfiguration {
	return corev1ac.ResourceQuota(objectName, v1alpha1.MemberNamespace(instance.Name)).
		WithLabels(d.labels(instance)).
		WithSpec(corev1ac.ResourceQuotaSpec().WithHard(hard))
}

func (d *Driver) limitRangeObject(instance *v1alpha1.ServiceInstance, hard corev1.ResourceList) *corev1ac.LimitRangeApplyConfiguration {
	share, minimum := containerLimits(hard)
	return corev1ac.LimitRange(objectName, v1alpha1.MemberNamespace(instance.Name)).
		WithLabels(d.labels(instance)).
		WithSpec(corev1ac.LimitRangeSpec().WithLimits(
			corev1ac.LimitRangeItem().WithType(corev1.LimitTypeContainer).
				WithMin(minimum).WithDefault(share).WithDefaultRequest(share)))
}

// networkPolicies deny all traffic, and allow it within the namespace, to the
// cluster's DNS and, where the operator says so, to the internet.
func (d *Driver) networkPolicies(instance *v1alpha1.ServiceInstance) []Object {
	namespace := v1alpha1.MemberNamespace(instance.Name)
	bothWays := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	sameNamespace := networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector())
	allow := networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector()).WithPolicyTypes(bothWays...).
		WithIngress(networkingv1ac.NetworkPolicyIngressRule().WithFrom(sameNamespace)).
		WithEgress(
			networkingv1ac.NetworkPolicyEgressRule().WithTo(sameNamespace),
			networkingv1ac.NetworkPolicyEgressRule().
				WithTo(networkingv1ac.NetworkPolicyPeer().WithNamespaceSelector(
					metav1ac.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: "kube-system"}))).
				WithPorts(port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53)))
	if d.InternetEgress {
		allow.WithEgress(networkingv1ac.NetworkPolicyEgressRule().WithTo(
			networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR("0.0.0.0/0").WithExcept(notInternet4...)),
			networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR("::/0").WithExcept(notInternet6...))))
	}
	return []Object{
		networkingv1ac.NetworkPolicy(denyName, namespace).WithLabels(d.labels(instance)).WithSpec(
			networkingv1ac.NetworkPolicySpec().WithPodSelector(metav1ac.LabelSelector()).WithPolicyTypes(bothWays...)),
		networkingv1ac.NetworkPolicy(allowName, namespace).WithLabels(d.labels(instance)).WithSpec(allow),
	}
}

func port(protocol corev1.Protocol, number int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(number))
}

// Addresses that are not the internet's: the cluster's and the provider's own, and
// the link-local ones at which clouds serve their machines' credentials (RFC 1918,
// RFC 3927, RFC 6598; RFC 4193, RFC 4291).
var (
	notInternet4 = []string{"10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
	notInternet6 = []string{"::1/128", "fc00::/7", "fe80::/10"}
)
