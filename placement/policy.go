package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Consumer is the consumer that a request is made for. Application is the consumer's name for
// the application of the instance, within its space; empty if there is none.
type Consumer struct {
	Platform     string `json:"platform,omitempty"`
	Organization string `json:"organization,omitempty"`
	Space        string `json:"space,omitempty"`
	Application  string `json:"application,omitempty"`
	Plan         string `json:"plan,omitempty"`
	// Pool that has ordered the instance to carry out an order of the consumer; empty if it is the consumer's own order.
	// The consumer holds its own orders only.
	Pool string `json:"pool,omitempty"`
}

// holder returns the consumer's name in a scope; empty if it has none.
func (c Consumer) holder(scope v1alpha1.Scope) string {
	if c.Pool != "" {
		return ""
	}
	return v1alpha1.HolderName(scope, c.Platform, c.Organization, c.Space, c.Application)
}

// holders returns the names in all scopes.
func (c Consumer) holders() []string {
	if c.Pool != "" {
		return []string{holderOfPool(c.Pool)}
	}
	var names []string
	for _, scope := range []v1alpha1.Scope{v1alpha1.ScopePlatform, v1alpha1.ScopeOrganization, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication} {
		if name := c.holder(scope); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// scopeOf returns the scope of a holder's name.
func scopeOf(holder string) v1alpha1.Scope {
	scope, _, _ := strings.Cut(holder, " ")
	return v1alpha1.Scope(scope)
}

// Policy is a compiled PlacementPolicy.
type Policy struct {
	Name        string
	InForce     v1alpha1.PolicyInForce
	Match       v1alpha1.PolicyMatch
	Rules       []Rule
	Preferences []Preference
	Score       v1alpha1.ScoreWeights
	Quota       *v1alpha1.Quota
	Elastic     *v1alpha1.Elastic
	MakeRoom    *v1alpha1.MakeRoom
	Classes     []v1alpha1.PriorityClass
}

// CompilePolicy compiles a policy. The error names all rules that do not compile; the returned
// policy rejects every cluster that those rules apply to.
func CompilePolicy(from *v1alpha1.PlacementPolicy) (*Policy, error) {
	p := &Policy{Name: from.Name, InForce: from.InForce(), Match: from.Spec.Concerned(), Score: from.Spec.Score, Quota: from.Spec.Quota, Elastic: from.Spec.Elastic}
	if from.Spec.Provider == "" && from.Spec.Platform == "" {
		p.Classes = from.Spec.PriorityClasses
	}
	if from.Spec.Provider == "" {
		p.MakeRoom = from.Spec.MakeRoom
	}
	by := "policy " + from.Name
	var problems []error
	if err := checkAmounts(&from.Spec); err != nil {
		problems = append(problems, err)
		p.Rules = append(p.Rules, Rule{By: by, Name: "amounts", Provider: from.Spec.Provider, appliesTo: v1alpha1.RulePath, entry: true, broken: "does not compile: " + err.Error()})
	}
	for _, rule := range from.Spec.Require {
		compiled, err := CompileRule(by, from.Spec.Provider, rule)
		problems = append(problems, err)
		compiled.entry = true
		p.Rules = append(p.Rules, compiled)
	}
	if from.Spec.Workloads != nil {
		p.Rules = append(p.Rules, workloadsRule(by, from.Spec.Provider, from.Spec.Workloads))
	}
	for _, preference := range from.Spec.Prefer {
		compiled, err := CompileRule(by, from.Spec.Provider, preference.PolicyRule)
		if preference.AppliesTo == v1alpha1.RuleConsumer {
			err = fmt.Errorf("rule %s: appliesTo: what a consumer has proven prefers no cluster to another", preference.Name)
		}
		problems = append(problems, err)
		p.Preferences = append(p.Preferences, Preference{compiled, preference.Weight})
	}
	return p, errors.Join(problems...)
}

// checkAmounts checks the amounts of resources and money in a policy.
func checkAmounts(spec *v1alpha1.PlacementPolicySpec) error {
	if err := spec.Quota.Check(); err != nil {
		return fmt.Errorf("quota.%w", err)
	}
	if e := spec.Elastic; e != nil {
		if err := e.Budget.Check(); err != nil {
			return fmt.Errorf("elastic.budget.%w", err)
		}
		if err := e.Member.Prices.Check(); err != nil {
			return fmt.Errorf("elastic.member.prices.%w", err)
		}
	}
	return nil
}

// Concerns reports whether the policy applies to a consumer's requests.
func (p *Policy) Concerns(c Consumer) bool {
	return p.Match.Selects(c.Platform, c.Organization, c.Space, c.Plan)
}

// Policies are all policies of a hub, in the order of their names.
type Policies []*Policy

// class returns the priority class of that name, nil if none is declared.
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

// MakeRoom returns how many instances may move together at most, to make room for an order; zero if no policy lets any move.
func (ps Policies) MakeRoom() int { return ps.makeRoom(func(*Policy) bool { return true }) }

// mostMoves returns how many instances may move together with one of a consumer, to make room for an order.
func (ps Policies) mostMoves(c Consumer) int {
	return ps.makeRoom(func(p *Policy) bool { return p.Concerns(c) })
}

func (ps Policies) makeRoom(counts func(*Policy) bool) (most int) {
	for _, p := range ps {
		if p.MakeRoom != nil && counts(p) {
			most = max(most, int(p.MakeRoom.AtMost))
		}
	}
	return most
}

// DeclaredBefore returns a class of a policy that another policy has declared before, and that
// policy.
func (ps Policies) DeclaredBefore(policy *v1alpha1.PlacementPolicy) (class, first string) {
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

// CompilePolicies compiles all policies. A rule that does not compile rejects clusters.
func CompilePolicies(from []v1alpha1.PlacementPolicy) Policies {
	all := make(Policies, 0, len(from))
	for i := range from {
		policy, _ := CompilePolicy(&from[i])
		all = append(all, policy)
	}
	slices.SortFunc(all, func(x, y *Policy) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// Govern adds the policies for a request's consumer to it: all their rules must be met, except by probes those about what
// is measured, all their quotas apply, and all their weights count.
func (ps Policies) Govern(r Request, consumer Consumer) Request {
	consumer.Plan, consumer.Pool = r.Consumer.Plan, r.Consumer.Pool
	if consumer.Application == "" {
		consumer.Application = r.Consumer.Application
	}
	r.Consumer = consumer
	r.Rules, r.Preferences, r.Quotas, r.Policies = slices.Clip(r.Rules), slices.Clip(r.Preferences), slices.Clip(r.Quotas), slices.Clip(r.Policies)
	for _, p := range ps {
		if p.Concerns(consumer) {
			r.Policies = append(r.Policies, p.InForce)
			rules := p.Rules
			if r.measures() {
				rules = slices.DeleteFunc(slices.Clone(rules), func(rule Rule) bool { return rule.claim != nil && rule.claim.measured() })
			}
			r.Rules = append(r.Rules, rules...)
			r.Preferences = append(r.Preferences, p.Preferences...)
			r.Weights = addWeights(r.Weights, p.Score)
			if p.Quota != nil {
				r.Quotas = append(r.Quotas, quotaOf("policy "+p.Name, p.Quota))
			}
		}
	}
	return r
}

// measures reports whether the request is for a probe of Sluice's own. It measures a cluster that does not meet rules about
// what is measured, or not yet.
func (r *Request) measures() bool {
	return r.Consumer.Platform == v1alpha1.PlatformSelf && r.Workload != nil
}

// ConsumerOf returns the consumer that ordered an instance.
//
// If a pool has ordered it, that is the consumer whose order it carries out.
func ConsumerOf(instance *v1alpha1.ServiceInstance) Consumer {
	if order := instance.Spec.Pool; order != nil {
		return Consumer{Platform: order.Platform, Organization: order.OrganizationGUID, Space: order.SpaceGUID, Plan: instance.Spec.Desired.PlanID, Pool: order.Pool}
	}
	return Consumer{
		Platform: instance.Spec.Platform, Organization: instance.Spec.OrganizationGUID, Space: instance.Spec.SpaceGUID,
		Application: catalog.ApplicationOf(instance.Spec.Desired.Parameters), Plan: instance.Spec.Desired.PlanID,
	}
}

// Member returns the member cluster that a cluster of a plan becomes if the policy made it.
func (p *Policy) Member(of *v1alpha1.ClusterPlan) *v1alpha1.ShapeMember {
	member := &v1alpha1.ShapeMember{MemberTemplate: *p.Elastic.Member.DeepCopy()}
	if of.Join != nil {
		member.GatewayService = of.Join.GatewayService
	}
	if member.Labels == nil {
		member.Labels = map[string]string{}
	}
	member.Labels[v1alpha1.LabelElastic] = p.Name
	return member
}

// Supposed returns a member cluster of that name that the policy might make, in a shape whose Member is of
// the policy, without its access.
func Supposed(name string, shape *v1alpha1.ClusterShape) *v1alpha1.MemberCluster {
	mc := shape.MemberCluster("", v1alpha1.InstanceName(v1alpha1.PlatformSelf, name))
	mc.Name = name
	return mc
}
