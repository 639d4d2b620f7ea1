package liqo

import (
	"fmt"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// maxNamespaces is how many namespaces a consumer's cluster may have at a provider.
const maxNamespaces = 100

const (
	create = admissionregistrationv1.Create
	change = admissionregistrationv1.Update
	remove = admissionregistrationv1.Delete
)

// remoteNamespaces selects the namespaces that Liqo creates at a provider for another cluster's
// pods. Liqo labels them with that cluster's ID, as it does tenant namespaces, which hold its
// gateways.
func remoteNamespaces() *kube.Where {
	return admissionregistrationv1ac.MatchResources().WithNamespaceSelector(metav1ac.LabelSelector().WithMatchExpressions(
		metav1ac.LabelSelectorRequirement().WithKey(consts.RemoteClusterID).WithOperator("Exists"),
		metav1ac.LabelSelectorRequirement().WithKey(consts.TenantNamespaceLabel).WithOperator("DoesNotExist"),
		// The consumer's own namespaces made by Sluice have other guards.
		metav1ac.LabelSelectorRequirement().WithKey(v1alpha1.LabelHub).WithOperator("DoesNotExist")))
}

// consumers is the CEL expression that is true if a request comes from a virtual kubelet, which
// is in the group of its cluster's ID.
const consumers = "namespaceObject.metadata.?labels['" + consts.RemoteClusterID + "'].orValue('') in request.userInfo.?groups.orValue([])"

// Guards returns the admission policies of a cluster that sells over Liqo. account is the
// namespace of Sluice's ServiceAccount there.
func Guards(account string) []tenant.Object {
	objects := slicesPolicy()
	objects = append(objects, ownWritesPolicy(account)...)
	objects = append(objects, isolatedFirst(kube.Matching("", "v1", "pods", create), shadow("shadowpods", create))...)
	objects = append(objects, AgreedGuard()...)
	objects = append(objects, exposurePolicy()...)
	objects = append(objects, kube.PodsGuard("sluice-liqo-pods", podSpec, remoteNamespaces(),
		kube.Matching("", "v1", "pods", create, change), shadow("shadowpods", create, change))...)
	objects = append(objects, kube.PrioritiesGuard("sluice-liqo-priorities", remoteNamespaces())...)
	objects = append(objects, kube.EndsGuard("sluice-liqo-pod-ends", remoteNamespaces())...)
	return append(objects, kube.ObjectsGuard("sluice-liqo-objects", consumers, remoteNamespaces(),
		kube.Matching("", "v1", "configmaps", create, change).WithResources("persistentvolumeclaims", "pods", "secrets", "services"),
		shadow("shadowpods", create, change).WithResources("shadowendpointslices"))...)
}

// podSpec is the CEL expression of the pod spec in a Pod, or in Liqo's object for one.
const podSpec = "request.resource.resource == 'shadowpods' ? dyn(object).spec.?pod.orValue({}) : dyn(object).spec"

// shadow matches operations on one of Liqo's objects that are made into a provider's.
func shadow(resource string, operations ...admissionregistrationv1.OperationType) *kube.What {
	return kube.Matching(offloadingGroup, offloadingv1beta1.SchemeGroupVersion.Version, resource, operations...)
}

// AgreedGuard holds consumers' pods to the rules that policies add for their namespaces. The rules are on the NetworkPolicy,
// without which no pod is created.
func AgreedGuard() []tenant.Object {
	return byIsolation(kube.LiqoAgreedName, admissionregistrationv1.AllowAction,
		kube.AgreedPolicy(podSpec, "params.metadata.?annotations.orValue({})", kube.Matching("", "v1", "pods", create, change), kube.Ephemeral(), shadow("shadowpods", create, change)))
}

// isolatedFirst denies objects that run pods until the namespace has its NetworkPolicy, so that
// no pod ever runs without it. That NetworkPolicy is the policy's parameter: requests without
// it are denied.
func isolatedFirst(what ...*kube.What) []tenant.Object {
	return byIsolation("sluice-liqo-isolated-first", admissionregistrationv1.DenyAction, admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(what...)).
		WithValidations(kube.Validation("params != null", "Sluice has not isolated the namespace yet")))
}

// byIsolation returns an admission policy whose parameter is the NetworkPolicy of the namespace, and its binding; without
// is the action in a namespace that has none.
func byIsolation(name string, without admissionregistrationv1.ParameterNotFoundActionType, spec *admissionregistrationv1ac.ValidatingAdmissionPolicySpecApplyConfiguration) []tenant.Object {
	return []tenant.Object{
		admissionregistrationv1ac.ValidatingAdmissionPolicy(name).WithSpec(
			spec.WithParamKind(admissionregistrationv1ac.ParamKind().WithAPIVersion(networkingv1.SchemeGroupVersion.String()).WithKind("NetworkPolicy"))),
		admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
			WithPolicyName(name).
			WithParamRef(admissionregistrationv1ac.ParamRef().WithName(isolationName).WithParameterNotFoundAction(without)).
			WithMatchResources(remoteNamespaces()).
			WithValidationActions(admissionregistrationv1.Deny)),
	}
}

// exposurePolicy denies consumers the provider's node ports, load balancers, external addresses
// and Ingress controllers, and writing its events.
func exposurePolicy() []tenant.Object {
	return kube.Policy("sluice-liqo-exposure",
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				kube.Matching("", "v1", "services", create, change),
				kube.Matching("", "v1", "events", create, change),
				kube.Matching("networking.k8s.io", "v1", "ingresses", create, change))).
			WithValidations(
				// A quota does not count events.
				kube.Validation("request.resource.resource != 'events' || !("+consumers+")",
					"events are the provider's to write"),
				kube.Validation("request.resource.resource != 'services' || dyn(object).spec.?type.orValue('ClusterIP') == 'ClusterIP'",
					"Services of other types than ClusterIP are refused: ports, addresses and names of the provider are not for sale"),
				kube.Validation("request.resource.resource != 'services' || dyn(object).spec.?externalIPs.orValue([]).size() == 0",
					"external IPs are not for sale"),
				kube.Validation("request.resource.resource != 'ingresses'",
					"Ingresses are refused: the provider's Ingress controllers are not for sale")),
		remoteNamespaces())
}

// ownWritesPolicy limits Sluice's writes outside of its own namespaces to those of Liqo's
// namespaces in which consumers' pods run.
func ownWritesPolicy(account string) []tenant.Object {
	return kube.Policy("sluice-liqo-own-writes",
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				kube.Matching("networking.k8s.io", "v1", "networkpolicies", create, change, remove),
				kube.Matching("", "v1", "resourcequotas", create, change, remove))).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().WithName("by-sluice").
				WithExpression(fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", account, kube.ServiceAccountName))).
			WithValidations(kube.Validation(
				fmt.Sprintf("'%s' in namespaceObject.metadata.?labels.orValue({}) || ('%s' in namespaceObject.metadata.?labels.orValue({}) && !('%s' in namespaceObject.metadata.?labels.orValue({})))",
					v1alpha1.LabelHub, consts.RemoteClusterID, consts.TenantNamespaceLabel),
				"Sluice isolates only namespaces in which consumers' pods run")),
		admissionregistrationv1ac.MatchResources())
}
