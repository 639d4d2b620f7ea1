package escape

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Guards are admission policies that are evaluated as an API server does, without one.
type Guards []guard

type guard struct {
	policy    admissionregistrationv1.ValidatingAdmissionPolicy
	evaluator validating.Validator
	// where selects the namespaces in which bindings put the policy in force.
	where []labels.Selector
}

// GuardsOf compiles the ValidatingAdmissionPolicies among some apply configurations, with the
// namespaces of their bindings. An expression that does not compile fails the test.
func GuardsOf[O any](t *testing.T, objects []O) (guards Guards) {
	t.Helper()
	bound := map[string][]labels.Selector{}
	for _, o := range objects {
		var b admissionregistrationv1.ValidatingAdmissionPolicyBinding
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &b); err != nil || b.Kind != "ValidatingAdmissionPolicyBinding" {
			continue // another kind has other fields
		}
		selector := labels.Everything()
		if r := b.Spec.MatchResources; r != nil && r.NamespaceSelector != nil {
			if selector, err = metav1.LabelSelectorAsSelector(r.NamespaceSelector); err != nil {
				t.Fatal(err)
			}
		}
		bound[b.Spec.PolicyName] = append(bound[b.Spec.PolicyName], selector)
	}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var g guard
		if err := json.Unmarshal(text, &g.policy); err != nil || g.policy.Kind != "ValidatingAdmissionPolicy" {
			continue // another kind has other fields
		}
		g.where = bound[g.policy.Name]
		compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
		if err != nil {
			t.Fatal(err)
		}
		declared := plugincel.OptionalVariableDeclarations{HasParams: g.policy.Spec.ParamKind != nil}
		for _, v := range g.policy.Spec.Variables {
			if r := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, environment.NewExpressions); r.Error != nil {
				t.Fatalf("%s: variable %s: %v", g.policy.Name, v.Name, r.Error)
			}
		}
		compile := func(accessors ...plugincel.ExpressionAccessor) plugincel.ConditionEvaluator {
			for _, a := range accessors {
				if r := compiler.CompileCELExpression(a, declared, environment.NewExpressions); r.Error != nil {
					t.Fatalf("%s: %v in %s", g.policy.Name, r.Error, a.GetExpression())
				}
			}
			return compiler.CompileCondition(accessors, declared, environment.NewExpressions)
		}
		var rules, conditions []plugincel.ExpressionAccessor
		for _, v := range g.policy.Spec.Validations {
			rules = append(rules, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message})
		}
		for i := range g.policy.Spec.MatchConditions {
			conditions = append(conditions, (*matchconditions.MatchCondition)(&g.policy.Spec.MatchConditions[i]))
		}
		var matcher matchconditions.Matcher
		if len(conditions) > 0 {
			matcher = matchconditions.NewMatcher(compile(conditions...), g.policy.Spec.FailurePolicy, "policy", "validate", g.policy.Name)
		}
		g.evaluator = validating.NewValidator(compile(rules...), matcher, compile(), compile(), g.policy.Spec.FailurePolicy, nil)
		guards = append(guards, g)
	}
	return guards
}

// Request is a request that an API server checks by its policies.
type Request struct {
	Operation             admission.Operation
	Group, Resource, Kind string
	Subresource           string
	Object, Old           client.Object
	Options               runtime.Object
	User                  user.DefaultInfo
	Namespace             corev1.Namespace
	Params                runtime.Object
}

// Refusals are the words of all policies that refuse a request; none lets it pass.
func (g Guards) Refusals(ctx context.Context, r Request) (words []string) {
	for _, one := range g {
		inForce := slices.ContainsFunc(one.where, func(where labels.Selector) bool { return where.Matches(labels.Set(r.Namespace.Labels)) })
		if !inForce || !slices.ContainsFunc(one.policy.Spec.MatchConstraints.ResourceRules, r.matches) {
			continue
		}
		kind := schema.GroupVersionKind{Group: r.Group, Version: "v1", Kind: r.Kind}
		resource := kind.GroupVersion().WithResource(r.Resource)
		var now, before runtime.Object
		if r.Object != nil {
			now = r.Object
		}
		if r.Old != nil {
			before = r.Old
		}
		attributes := admission.NewAttributesRecord(now, before, kind, r.Namespace.Name, "escape", resource, r.Subresource, r.Operation, r.Options, false, &r.User)
		versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(now), VersionedOldObject: admission.NewLazyObject(before)}
		result := one.evaluator.Validate(ctx, resource, versioned, r.Params, &r.Namespace, celconfig.RuntimeCELCostBudget, nil)
		for _, decision := range result.Decisions {
			if decision.Action == validating.ActionDeny {
				words = append(words, fmt.Sprintf("%s: %s", one.policy.Name, decision.Message))
			}
		}
	}
	return words
}

func (r Request) matches(rule admissionregistrationv1.NamedRuleWithOperations) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	return slices.Contains(rule.APIGroups, r.Group) && slices.Contains(rule.Resources, resource) &&
		slices.Contains(rule.Operations, admissionregistrationv1.OperationType(r.Operation))
}

// Create is the request to create an object in a namespace with labels.
func Create(group, resource, kind string, o client.Object, by user.DefaultInfo, labelled map[string]string) Request {
	return Request{
		Operation: admission.Create, Group: group, Resource: resource, Kind: kind, Object: o, Options: &metav1.CreateOptions{}, User: by,
		Namespace: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace(), Labels: labelled}},
	}
}
