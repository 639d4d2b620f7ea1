package kube

import (
	"bytes"
	"cmp"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Names of admission policies and of their bindings.
const (
	ownNamespacesName = "sluice-own-namespaces"
	tenantsName       = "sluice-tenants"
)

// ManifestOptions select what Sluice is given on a member cluster. The zero value is the
// recommended one.
type ManifestOptions struct {
	// Namespace of Sluice's ServiceAccount; none means DefaultNamespace.
	Namespace string
	// WithoutAdmissionPolicies leaves out the ValidatingAdmissionPolicies, for
	// clusters before Kubernetes 1.30. The package documentation says what then
	// guards the cluster, and what does not.
	WithoutAdmissionPolicies bool
	// Reader of the cluster's capacity; none means v1alpha1.ReaderNodes.
	Reader string
	// Rules and TenantRules are Sluice's rights in the whole cluster, and in instances'
	// namespaces, for another driver; nil means this driver's.
	Rules, TenantRules []rbacv1.PolicyRule
	// Guards and Powers are another driver's, in addition to this one's. Guards are applied
	// before any right is given.
	Guards, Powers []tenant.Object
}

func (o ManifestOptions) namespace() string {
	if o.Namespace == "" {
		return DefaultNamespace
	}
	return o.Namespace
}

// ReaderName returns the reader of the cluster's capacity.
func (o ManifestOptions) ReaderName() string { return cmp.Or(o.Reader, v1alpha1.ReaderNodes) }

// powers returns the rules of the options.
func (o ManifestOptions) powers() (anywhere, inside []rbacv1.PolicyRule) {
	if o.Rules == nil {
		return append(Rules(o.ReaderName()), WatchRules(o.ReaderName())...), TenantRules()
	}
	return o.Rules, o.TenantRules
}

// Objects returns the objects that a member cluster needs so that Sluice can deliver to it, in
// the order in which to apply them: guards before powers.
func Objects(o ManifestOptions) []tenant.Object {
	anywhere, inside := o.powers()
	objects := []tenant.Object{
		corev1ac.Namespace(o.namespace()).WithLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}),
		corev1ac.ServiceAccount(ServiceAccountName, o.namespace()).WithAutomountServiceAccountToken(false),
	}
	if !o.WithoutAdmissionPolicies {
		// In this order, because Register waits for the last of these to be enforced.
		objects = append(objects, tenantGuards()...)
		objects = append(objects, ownNamespacesPolicy(o.namespace())...)
		objects = append(objects, o.Guards...)
	}
	if o.Rules == nil {
		objects = append(objects, ConsumerRoles()...)
	}
	objects = append(objects, o.Powers...)
	return append(objects,
		rbacv1ac.ClusterRole(tenant.ClusterRole).WithRules(ApplyRules(inside)...),
		rbacv1ac.ClusterRole(ServiceAccountName).WithRules(ApplyRules(anywhere)...),
		rbacv1ac.ClusterRoleBinding(ServiceAccountName).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(ServiceAccountName)).
			WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(o.namespace()).WithName(ServiceAccountName)),
		corev1ac.Secret(tokenSecretName, o.namespace()).
			WithType(corev1.SecretTypeServiceAccountToken).
			WithAnnotations(map[string]string{corev1.ServiceAccountNameKey: ServiceAccountName}),
	)
}

// Manifest renders Objects as YAML, for kubectl apply --server-side.
func Manifest(o ManifestOptions) ([]byte, error) {
	var out bytes.Buffer
	for i, object := range Objects(o) {
		if i > 0 {
			out.WriteString("---\n")
		}
		document, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("render %s %s: %w", *object.GetKind(), *object.GetName(), err)
		}
		out.Write(document)
	}
	return out.Bytes(), nil
}

// ownNamespacesPolicy denies Sluice's ServiceAccount every write to a namespace without the
// hub's label, and to RoleBindings in it. Outside of instances' namespaces RBAC allows Sluice
// no other writes except renewing its own Lease, so the policy needs only these two resources.
func ownNamespacesPolicy(namespace string) []tenant.Object {
	label := "'" + v1alpha1.LabelHub + "'"
	return Policy(ownNamespacesName,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				Matching("", "v1", "namespaces", admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
				Matching(rbacv1.GroupName, "v1", "rolebindings", admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete))).
			WithMatchConditions(admissionregistrationv1ac.MatchCondition().WithName("by-sluice").
				WithExpression(fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", namespace, ServiceAccountName))).
			WithValidations(
				Validation("request.resource.resource != 'namespaces' || request.operation == 'CREATE' || "+
					"(has(oldObject.metadata.labels) && "+label+" in oldObject.metadata.labels)",
					"Sluice may change and delete only namespaces that it has created"),
				Validation("request.resource.resource != 'namespaces' || request.operation == 'DELETE' || "+
					"(has(object.metadata.labels) && "+label+" in object.metadata.labels && "+
					"(request.operation == 'CREATE' || object.metadata.labels["+label+"] == oldObject.metadata.labels["+label+"]))",
					"Sluice labels the namespaces that it creates, for good"),
				Validation("request.resource.resource == 'namespaces' || "+
					"(has(namespaceObject.metadata.labels) && "+label+" in namespaceObject.metadata.labels)",
					"Sluice may give permissions only in namespaces that it has created")),
		admissionregistrationv1ac.MatchResources())
}

// tenantGuards deny what RBAC leaves open to anyone that may create workloads in an instance's
// namespace.
func tenantGuards() []tenant.Object {
	// A binding's account, or any other account of the namespace.
	const consumers = "request.userInfo.username.startsWith('system:serviceaccount:' + request.namespace + ':')"
	// dyn, because the kinds have different schemas, and each validation is for one of them.
	objects := Policy(tenantsName,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				Matching("", "v1", "pods", create),
				Matching("", "v1", "persistentvolumeclaims", create),
				Matching("", "v1", "secrets", create),
				Matching("", "v1", "services", create, change),
				Matching("", "v1", "configmaps", create, change, remove))).
			WithValidations(
				// A request for the deletion of all names none.
				Validation("request.resource.resource != 'configmaps' || !("+consumers+") || "+
					"(request.operation == 'DELETE' ? dyn(oldObject) : dyn(object)).metadata.?name.orValue('') != '"+setName+"'",
					"the ConfigMap "+setName+" is Sluice's own"),
				Validation("request.resource.resource != 'pods' || "+
					"!dyn(object).spec.?serviceAccountName.orValue('default').startsWith('sb-')",
					"a binding's ServiceAccount is not for pods"),
				Validation("request.resource.resource != 'persistentvolumeclaims' || "+
					"(dyn(object).spec.?storageClassName.orValue('default') != '' && !has(dyn(object).spec.volumeName))",
					"volumes come from a storage class: a volume of the provider's is not for sale"),
				Validation("request.resource.resource != 'secrets' || "+
					"dyn(object).?type.orValue('Opaque') != '"+string(corev1.SecretTypeServiceAccountToken)+"'",
					"tokens come from service bindings"),
				Validation("request.resource.resource != 'services' || "+
					"dyn(object).spec.?externalIPs.orValue([]).size() == 0",
					"external IPs are not for sale")),
		instances())
	objects = append(objects, PodsGuard("sluice-pods", "object.spec", instances(), Matching("", "v1", "pods", create, change))...)
	objects = append(objects, AgreedGuard()...)
	objects = append(objects, PrioritiesGuard("sluice-priorities", instances())...)
	objects = append(objects, devicesGuard()...)
	objects = append(objects, EndsGuard("sluice-pod-ends", instances())...)
	return append(objects, ObjectsGuard("sluice-objects", consumers, instances(), written()...)...)
}

// instances matches the namespaces of instances. It does not match the other namespaces that Sluice creates: in a tenant
// namespace of Liqo's run the gateways, which are privileged.
func instances() *Where {
	return admissionregistrationv1ac.MatchResources().WithNamespaceSelector(metav1ac.LabelSelector().WithMatchExpressions(
		metav1ac.LabelSelectorRequirement().WithKey(v1alpha1.LabelInstance).WithOperator("Exists")))
}

// Policy returns a ValidatingAdmissionPolicy and its binding, which denies.
func Policy(name string, spec *admissionregistrationv1ac.ValidatingAdmissionPolicySpecApplyConfiguration, where *admissionregistrationv1ac.MatchResourcesApplyConfiguration) []tenant.Object {
	return []tenant.Object{
		admissionregistrationv1ac.ValidatingAdmissionPolicy(name).WithSpec(spec),
		admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(
			admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
				WithPolicyName(name).
				WithMatchResources(where).
				WithValidationActions(admissionregistrationv1.Deny)),
	}
}

// Matching returns a rule for operations on a resource.
func Matching(group, version, resource string, operations ...admissionregistrationv1.OperationType) *admissionregistrationv1ac.NamedRuleWithOperationsApplyConfiguration {
	return admissionregistrationv1ac.NamedRuleWithOperations().
		WithAPIGroups(group).WithAPIVersions(version).WithResources(resource).WithOperations(operations...)
}

// Validation returns an expression that must hold, with its error message.
func Validation(expression, message string) *admissionregistrationv1ac.ValidationApplyConfiguration {
	return admissionregistrationv1ac.Validation().WithExpression(expression).WithMessage(message)
}
