package placement

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Consumer is on whose behalf a request is made.
type Consumer struct{ Platform, Organization, Space, Plan string }

// Policy is a compiled PlacementPolicy.
type Policy struct {
	Name        string
	Match       v1alpha1.PolicyMatch
	Rules       []Rule
	Preferences []Preference
}

// CompilePolicy compiles a policy. The error names all rules that do not compile; the
// policy that comes with it refuses every cluster that those rules concern.
func CompilePolicy(from *v1alpha1.PlacementPolicy) (*Policy, error) {
	p := &Policy{Name: from.Name, Match: from.Spec.Match}
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
// their rules must hold, and the weights of all their preferences count.
func (ps Policies) Govern(r Request, consumer Consumer) Request {
	consumer.Plan = r.Consumer.Plan
	r.Consumer = consumer
	r.Rules, r.Preferences = slices.Clip(r.Rules), slices.Clip(r.Preferences)
	for _, p := range ps {
		if p.concerns(consumer) {
			r.Rules = append(r.Rules, p.Rules...)
			r.Preferences = append(r.Preferences, p.Preferences...)
		}
	}
	return r
}

// ConsumerOf is who ordered an instance.
func ConsumerOf(instance *v1alpha1.ServiceInstance) Consumer {
	return Consumer{
		Platform: instance.Spec.Platform, Organization: instance.Spec.OrganizationGUID, Space: instance.Spec.SpaceGUID,
		Plan: instance.Spec.Desired.PlanID,
	}
}
