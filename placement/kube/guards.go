package kube

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Limits on objects that a consumer writes.
const (
	// maxData limits the size of a ConfigMap or Secret, in bytes as the API server reads it, and
	// maxObject that of all other objects. Multiplied by the counts in the quota, they limit the
	// storage of a plan in etcd.
	maxData   = 256 << 10
	maxObject = 128 << 10
)

type (
	// Where selects the namespaces in which a guard applies.
	Where = admissionregistrationv1ac.MatchResourcesApplyConfiguration
	// What selects operations on resources, see Matching.
	What = admissionregistrationv1ac.NamedRuleWithOperationsApplyConfiguration
)

// maxGrace is podrules.MaxGrace in seconds.
const maxGrace = int64(podrules.MaxGrace / 1e9)

const (
	create = admissionregistrationv1.Create
	change = admissionregistrationv1.Update
	remove = admissionregistrationv1.Delete
)

// PodsGuard is the admission policy for consumers' pods and for objects that become such pods.
// spec is the CEL expression of the pod spec in object. It enforces the rules of package podrules.
func PodsGuard(name, spec string, where *Where, what ...*What) []tenant.Object {
	policy := podsPolicy(what, podrules.Variables, variable("spec", spec))
	for _, rule := range podrules.Rules {
		policy.WithValidations(Validation(rule.Holds, rule.Otherwise))
	}
	return Policy(name, policy, where)
}

// AgreedGuard holds the pods of instances to the rules that policies add for their namespaces.
func AgreedGuard() []tenant.Object {
	return Policy(AgreedName, AgreedPolicy("object.spec", "namespaceObject.metadata.?annotations.orValue({})",
		Matching("", "v1", "pods", create, change), Ephemeral()), instances())
}

// AgreedPolicy is the spec of an admission policy that enforces the rules that policies add for a namespace, the table
// podrules.Agreed. spec is the CEL expression of the pod spec in object, and annotations that of the annotations with the
// rules.
func AgreedPolicy(spec, annotations string, what ...*What) *admissionregistrationv1ac.ValidatingAdmissionPolicySpecApplyConfiguration {
	policy := podsPolicy(what, podrules.AgreedVariables, variable("spec", spec), variable("agreed", annotations))
	for _, rule := range podrules.Agreed {
		policy.WithValidations(Validation(rule.Holds, rule.Otherwise).WithMessageExpression(rule.Because))
	}
	return policy
}

// podsPolicy is the spec of an admission policy for new pods, still without rules, which use variables and those given first.
func podsPolicy(what []*What, variables []podrules.Variable, first ...*admissionregistrationv1ac.VariableApplyConfiguration) *admissionregistrationv1ac.ValidatingAdmissionPolicySpecApplyConfiguration {
	policy := admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(what...)).
		// A pod that was admitted before may still be labelled, and may end.
		WithMatchConditions(admissionregistrationv1ac.MatchCondition().WithName("what-is-new").
			WithExpression("request.operation == 'CREATE' || object.spec != oldObject.spec")).
		WithVariables(first...)
	for _, v := range variables {
		policy.WithVariables(variable(v.Name, v.Expression))
	}
	return policy
}

// Ephemeral matches containers that are added to a pod that runs.
func Ephemeral() *What { return Matching("", "v1", "pods/ephemeralcontainers", change) }

func variable(name, expression string) *admissionregistrationv1ac.VariableApplyConfiguration {
	return admissionregistrationv1ac.Variable().WithName(name).WithExpression(expression)
}

// EndsGuard denies deleting or evicting a pod with a longer grace period than the pod itself
// may have.
func EndsGuard(name string, where *Where) []tenant.Object {
	return Policy(name,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				Matching("", "v1", "pods", remove), Matching("", "v1", "pods/eviction", create))).
			WithValidations(Validation(
				fmt.Sprintf("(request.operation == 'DELETE' ? request.?options.?gracePeriodSeconds : object.?deleteOptions.?gracePeriodSeconds).orValue(0) <= %d", maxGrace),
				fmt.Sprintf("a pod ends within %d s: gracePeriodSeconds is at most that", maxGrace))),
		where)
}

// PrioritiesGuard denies pods every priority class except the cluster's default, which Kubernetes gives to pods that name none:
// a pod of a higher one evicts those of other consumers. Its parameters are all priority classes of the cluster.
func PrioritiesGuard(name string, where *Where) []tenant.Object {
	return []tenant.Object{
		admissionregistrationv1ac.ValidatingAdmissionPolicy(name).WithSpec(admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithParamKind(admissionregistrationv1ac.ParamKind().WithAPIVersion(schedulingv1.SchemeGroupVersion.String()).WithKind("PriorityClass")).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(Matching("", "v1", "pods", create))).
			// Of the system's, package podrules says that they are not for sale.
			WithValidations(Validation("object.spec.?priorityClassName.orValue('') != params.metadata.name || params.?globalDefault.orValue(false) || params.metadata.name.startsWith('system-')",
				"a pod has the cluster's default priority: priorityClassName is refused, as a higher one evicts the pods of others"))),
		admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(
			admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
				WithPolicyName(name).
				WithParamRef(admissionregistrationv1ac.ParamRef().WithSelector(metav1ac.LabelSelector()).WithParameterNotFoundAction(admissionregistrationv1.AllowAction)).
				WithMatchResources(where).
				WithValidationActions(admissionregistrationv1.Deny)),
	}
}

// devicesGuard holds claims of devices, whoever makes them, to the classes in the quota, and so to those that Sluice knows:
// Kubernetes bounds none that a quota does not name. It denies them devices that their provider has tainted. Admin access to
// devices, Kubernetes itself denies in a namespace without a label, which consumers cannot set.
func devicesGuard() []tenant.Object {
	const name = "sluice-devices"
	// Each request, and each alternative of one. Before resource.k8s.io/v1, a request was what is now in exactly.
	const each = "variables.requests.all(r, ([dyn(r), dyn(r).?exactly.orValue({})] + dyn(r).?firstAvailable.orValue([])).all(d, %s))"
	policy := admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
		WithFailurePolicy(admissionregistrationv1.Fail).
		WithParamKind(admissionregistrationv1ac.ParamKind().WithAPIVersion("v1").WithKind("ResourceQuota")).
		WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
			Matching(resourcev1.GroupName, "*", "resourceclaims", create).WithResources("resourceclaimtemplates"))).
		WithVariables(variable("requests", "(request.resource.resource == 'resourceclaims' ? dyn(object).spec : dyn(object).spec.spec).?devices.?requests.orValue([])")).
		WithValidations(
			Validation(fmt.Sprintf(each, "!has(d.deviceClassName) || (d.deviceClassName + '"+corev1.ResourceClaimsPerClass+"') in params.spec.?hard.orValue({})"),
				"devices of this class are not for sale here"),
			Validation(fmt.Sprintf(each, "d.?tolerations.orValue([]).size() == 0"), "tainted devices are not for sale"))
	return []tenant.Object{
		admissionregistrationv1ac.ValidatingAdmissionPolicy(name).WithSpec(policy),
		admissionregistrationv1ac.ValidatingAdmissionPolicyBinding(name).WithSpec(
			admissionregistrationv1ac.ValidatingAdmissionPolicyBindingSpec().
				WithPolicyName(name).
				WithParamRef(admissionregistrationv1ac.ParamRef().WithName(objectName).WithParameterNotFoundAction(admissionregistrationv1.DenyAction)).
				WithMatchResources(instances()).
				WithValidationActions(admissionregistrationv1.Deny)),
	}
}

// ObjectsGuard limits the size of the objects that consumers write, and denies them to set
// finalizers, which nothing would remove. by is the CEL expression that reports whether a request
// comes from a consumer.
func ObjectsGuard(name, by string, where *Where, what ...*What) []tenant.Object {
	const finalizers = "dyn(object).metadata.?finalizers.orValue([])"
	return Policy(name,
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(what...)).
			WithVariables(
				variable("template", "dyn(object).?spec.?jobTemplate.?spec.?template.orValue(dyn(object).?spec.?template.orValue({}))"),
				variable("limit", fmt.Sprintf("request.resource.resource in %s ? %d : %d", podrules.Among("configmaps", "secrets"), maxData, maxObject))).
			WithValidations(
				// Measured as text, because CEL cannot measure an object. An object that is too large
				// already may shrink.
				Validation("bytes('%s'.format([object])).size() <= variables.limit || "+
					"(request.operation == 'UPDATE' && bytes('%s'.format([object])).size() <= bytes('%s'.format([oldObject])).size())",
					fmt.Sprintf("the object is too large: a ConfigMap or Secret has %d KiB at most, anything else %d KiB", maxData>>10, maxObject>>10)),
				// The API server itself sets the finalizer of claims when a consumer creates
				// them.
				Validation("!("+by+") || "+finalizers+".all(f, (request.operation == 'UPDATE' && f in dyn(oldObject).metadata.?finalizers.orValue([])) || "+
					"(request.resource.resource == 'persistentvolumeclaims' && f == 'kubernetes.io/pvc-protection'))",
					"consumers may not set finalizers: nothing would remove them"),
				Validation("variables.template.?metadata.?finalizers.orValue([]).size() == 0 && "+
					"dyn(object).?spec.?volumeClaimTemplates.orValue([]).all(c, c.?metadata.?finalizers.orValue([]).size() == 0)",
					"templates may not have finalizers: nothing would remove them from the objects")),
		where)
}

// written are the kinds that consumers write.
func written() []*What {
	each := func(group, version string, resources ...string) *What {
		return Matching(group, version, resources[0], create, change).WithResources(resources[1:]...)
	}
	return []*What{
		each("", "v1", "configmaps", "persistentvolumeclaims", "pods", "secrets", "services"),
		each("apps", "v1", "daemonsets", "deployments", "replicasets", "statefulsets"),
		each("autoscaling", "*", "horizontalpodautoscalers"),
		each("batch", "v1", "cronjobs", "jobs"),
		each(resourcev1.GroupName, "*", "resourceclaims", "resourceclaimtemplates"),
	}
}
