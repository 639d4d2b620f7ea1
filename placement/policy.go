package placement

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Consumer is on whose behalf a request is made. Application is what the consumer
// calls what the instance belongs to, within its space; empty where it does not say.
type Consumer struct{ Platform, Organization, Space, Application, Plan string }

// holder names what a scope means for the consumer, for instance "space cf/b7c1…";
// empty where the consumer has none. Organizations and spaces are those of their
// platform, applications those of their space.
func (c Consumer) holder(scope v1alpha1.Scope) string {
	parts := []string{c.Platform}
	switch scope {
	case v1alpha1.ScopeOrganization:
		parts = append(parts, c.Organization)
	case v1alpha1.ScopeSpace:
		parts = append(parts, c.Space)
	case v1alpha1.ScopeApplication:
		parts = append(parts, c.Space, c.Application)
	}
	if parts[len(parts)-1] == "" {
		return ""
	}
	return string(scope) + " " + strings.Join(parts, "/")
}

// holders are all of them.
func (c Consumer) holders() []string {
	var names []string
	for _, scope := range []v1alpha1.Scope{v1alpha1.ScopePlatform, v1alpha1.ScopeOrganization, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication} {
		if name := c.holder(scope); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Policy is a compiled PlacementPolicy.
type Policy struct {
	Name        string
	Match       v1alpha1.PolicyMatch
	Rules       []Rule
	Preferences []Preference
	Score       v1alpha1.ScoreWeights
	Quota       *v1alpha1.Quota
	Elastic     *v1alpha1.Elastic
	Classes     []v1alpha1.PriorityClass
}

// CompilePolicy compiles a policy. The error names all rules that do not compile; the
// policy that comes with it refuses every cluster that those rules concern.
func CompilePolicy(from *v1alpha1.PlacementPolicy) (*Policy, error) {
	p := &Policy{Name: from.Name, Match: from.Spec.Match, Score: from.Spec.Score, Quota: from.Spec.Quota, Elastic: from.Spec.Elastic}
	if from.Spec.Provider == "" {
		p.Classes = from.Spec.PriorityClasses
	}
	by := "policy " + from.Name
	var problems []error
	for _, rule := range from.Spec.Require {
		compiled, err := CompileRule(by, from.Spec.Provider, rule)
		problems = append(problems, err)
		compiled.entry = true
		p.Rules = append(p.Rules, compiled)
	}
	for _, preference := range from.Spec.Prefer {
		compiled, err := CompileRule(by, from.Spec.Provider, preference.PolicyRule)
		problems = append(problems, err)
		p.Preferences = append(p.Preferences, Preference{compiled, preference.Weight})
	}
	return p, errors.Join(problems...)
}

// concerns tells whether the policy is about a consumer's requests.
func (p *Policy) concerns(c Consumer) bool {
	within := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	m := &p.Match
	return within(m.Platforms, c.Platform) && within(m.Organizations, c.Organization) &&
		within(m.Spaces, c.Space) && within(m.Plans, c.Plan)
}

// Policies are all policies of a hub, in the order of their names.
type Policies []*Policy

// class is the priority class of that name, nil where none is declared.
func (ps Policies) class(name string) *v1alpha1.PriorityClass {
	if name == "" {
		return nil
	}
	for _, p := range ps {
		for i := range p.Classes {
			if p.Classes[i].Name == name {
				return &p.Classes[i]
			}
		}
	}
	return nil
}

// declaredBefore names a class that a policy declares and another one before it.
func (ps Policies) declaredBefore(policy *v1alpha1.PlacementPolicy) (class, first string) {
	for _, p := range ps {
		if p.Name == policy.Name {
			break
		}
		for _, declared := range policy.Spec.PriorityClasses {
			if slices.ContainsFunc(p.Classes, func(c v1alpha1.PriorityClass) bool { return c.Name == declared.Name }) {
				return declared.Name, p.Name
			}
		}
	}
	return "", ""
}

// CompilePolicies compiles all policies. What does not compile refuses.
func CompilePolicies(from []v1alpha1.PlacementPolicy) Policies {
	all := make(Policies, 0, len(from))
	for i := range from {
		policy, _ := CompilePolicy(&from[i])
		all = append(all, policy)
	}
	slices.SortFunc(all, func(x, y *Policy) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// Govern adds to a request what the policies that concern its consumer ask: all
// their rules must hold, all their quotas bind, and all their weights count.
func (ps Policies) Govern(r Request, consumer Consumer) Request {
	consumer.Plan = r.Consumer.Plan
	if consumer.Application == "" {
		consumer.Application = r.Consumer.Application
	}
	r.Consumer = consumer
	r.Rules, r.Preferences, r.Quotas = slices.Clip(r.Rules), slices.Clip(r.Preferences), slices.Clip(r.Quotas)
	for _, p := range ps {
		if p.concerns(consumer) {
			r.Rules = append(r.Rules, p.Rules...)
			r.Preferences = append(r.Preferences, p.Preferences...)
			r.Weights = addWeights(r.Weights, p.Score)
			if p.Quota != nil {
				r.Quotas = append(r.Quotas, Quota{By: "policy " + p.Name, Per: p.Quota.Per, Limits: ResourcesOf(p.Quota.Limits)})
			}
		}
	}
	return r
}

// ConsumerOf is who ordered an instance.
func ConsumerOf(instance *v1alpha1.ServiceInstance) Consumer {
	return Consumer{
		Platform: instance.Spec.Platform, Organization: instance.Spec.OrganizationGUID, Space: instance.Spec.SpaceGUID,
		Application: catalog.ApplicationOf(instance.Spec.Desired.Parameters), Plan: instance.Spec.Desired.PlanID,
	}
}
