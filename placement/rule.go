package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Rule is a requirement for clusters beyond resources and labels, of a policy, a plan or a
// consumer. It is compiled once and used for many requests.
type Rule struct {
	// By is the source of the rule, for instance "policy eu-only", and Name its name there.
	By, Name string
	// Provider is the provider whose clusters the rule applies to; empty means every cluster.
	Provider string

	// appliesTo is whether the rule applies to chosen clusters, hubs, both, or to what the consumer has proven.
	appliesTo v1alpha1.RuleScope
	// entry rules reject new placements, but do not evict an instance.
	entry bool

	claim      *claimRule
	expression *expression
	workloads  *v1alpha1.WorkloadRules
	// broken is the error of a rule that does not compile. It rejects every cluster that it
	// applies to.
	broken string
}

// Preference is a rule that raises the score of the clusters that meet it.
type Preference struct {
	Rule
	Weight int32
}

// CompileRule compiles one rule. If there is an error, the returned rule rejects every cluster,
// so that nothing is placed by half a policy.
func CompileRule(by, provider string, from v1alpha1.PolicyRule) (Rule, error) {
	rule := Rule{By: by, Name: from.Name, Provider: provider, appliesTo: cmp.Or(from.AppliesTo, v1alpha1.RulePath)}
	var err error
	switch {
	case from.Claim != nil:
		rule.claim, err = compileClaim(from.Claim)
	case rule.appliesTo == v1alpha1.RuleConsumer:
		err = errors.New("appliesTo: a rule for the consumer needs a claim; an expression reads consumer.claims")
	default:
		rule.expression, err = compileExpression(from.Expression)
	}
	if err != nil {
		rule.broken = "does not compile: " + err.Error()
		err = fmt.Errorf("rule %s: %w", from.Name, err)
	}
	return rule, err
}

// concerns returns the rows that the rule applies to.
func (r *Rule) concerns(p *page, among set) set {
	if r.Provider == "" {
		return among
	}
	return among.and(p.label[labelValue{v1alpha1.LabelProvider, r.Provider}])
}

// satisfied returns those of the given rows that meet the rule.
func (r *Rule) satisfied(p *page, among set, facts *facts) set {
	switch {
	case r.broken != "":
		return set{}
	case r.appliesTo == v1alpha1.RuleConsumer:
		if r.claim.holds(facts.proven) {
			return among
		}
		return set{}
	case r.claim != nil:
		return p.judged(r.claim.key, among, func(set) set { return r.claim.rows(p) })
	case r.workloads != nil:
		if facts.refusedBy(r).is() {
			return set{}
		}
		return among
	}
	return r.expression.rows(p, among, facts)
}

// ruled rejects the clusters that do not meet a rule.
func ruled(r *Rule, facts *facts) filter {
	reason, entry := ReasonPolicy, r.entry
	var told func(*page, int) string
	if r.workloads != nil {
		reason, entry, told = ReasonPodsRefused, facts.sold, func(*page, int) string { return facts.refusedBy(r).refused }
	}
	return filter{reason: reason, entry: entry, told: told, passing: r.claim != nil && r.claim.measured(),
		rejects: func(p *page, among set) set {
			concerned := r.concerns(p, among)
			if concerned == (set{}) {
				return concerned
			}
			return concerned.without(r.satisfied(p, concerned, facts))
		},
		message: func(p *page, row int) string {
			return fmt.Sprintf("%s, %s: %s", r.By, r.Name, r.why(p.clusters[row], facts))
		},
	}
}

// rulings returns the filters of the request's rules, in their order.
func (r *Request) rulings() (filters []filter) {
	facts := r.facts()
	for i := range r.Rules {
		filters = append(filters, ruled(&r.Rules[i], facts))
	}
	return filters
}

// why returns why a cluster does not meet the rule.
func (r *Rule) why(c *Cluster, facts *facts) string {
	switch {
	case r.broken != "":
		return r.broken
	case r.appliesTo == v1alpha1.RuleConsumer:
		return "of the consumer: " + r.claim.why(facts.proven)
	case r.claim != nil:
		return r.claim.why(c.Claims)
	case r.workloads != nil:
		return facts.refusedBy(r).because
	}
	if _, err := r.expression.holds(c, facts); err != nil {
		return "cannot be evaluated: " + err.Error()
	}
	return "does not hold: " + r.expression.source
}

// claimRule requires a claim (v1alpha1.ClaimRule).
type claimRule struct {
	v1alpha1.ClaimRule
	key   string // differs for rules that differ
	least int
	// matches accept values, one function for each value in the rule; none means any value.
	matches []func(value string) bool
	// order of values with bounds, from low to high.
	order     func(value string) (float64, bool)
	low, high float64
}

// rank orders assurances. It is −1 for measured claims and unknown assurances; see enough.
func rank(a v1alpha1.Assurance) int {
	return slices.Index([]v1alpha1.Assurance{v1alpha1.AssuranceSelf, v1alpha1.AssuranceNotary, v1alpha1.AssuranceLabel, v1alpha1.AssuranceCertified}, a)
}

// measured reports whether the rule is about facts that Sluice itself measures, repeatedly.
func (r *claimRule) measured() bool {
	return r.Assurance == v1alpha1.AssuranceMeasured || slices.Contains(v1alpha1.MeasuredClaims, r.Name)
}

// enough reports whether an assurance is high enough for the rule. A measured claim satisfies a
// rule that asks for measured claims or for no more than the provider's own statement.
func (r *claimRule) enough(a v1alpha1.Assurance) bool {
	if r.Assurance == v1alpha1.AssuranceMeasured || a == v1alpha1.AssuranceMeasured {
		return a == r.Assurance || a == v1alpha1.AssuranceMeasured && r.least <= 0
	}
	return rank(a) >= r.least
}

// accepts reports whether the value of a claim meets the rule.
func (r *claimRule) accepts(value string) bool {
	if r.order != nil {
		n, ok := r.order(value)
		return ok && n >= r.low && n <= r.high
	}
	return len(r.matches) == 0 || slices.ContainsFunc(r.matches, func(matches func(string) bool) bool { return matches(value) })
}

// rows returns the rows of a page that meet the rule.
func (r *claimRule) rows(p *page) set {
	var holds set
	for claimed, rows := range p.claims[r.Name] {
		if r.enough(claimed.assurance) && r.accepts(claimed.value) {
			holds = holds.or(rows)
		}
	}
	return holds
}

// holds reports whether one of the claims meets the rule.
func (r *claimRule) holds(claims []v1alpha1.Claim) bool {
	return slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool { return c.Name == r.Name && r.enough(c.Assurance) && r.accepts(c.Value) })
}

// why describes the actual claims, with assurance and issuer.
func (r *claimRule) why(claims []v1alpha1.Claim) string {
	var has []string
	for i := range claims {
		if claim := &claims[i]; claim.Name == r.Name {
			has = append(has, fmt.Sprintf("%s (%s, by %s)", claim.Value, claim.Assurance, claim.Issuer))
		}
	}
	if len(has) == 0 {
		return fmt.Sprintf("needs %s, has no such claim", r)
	}
	return fmt.Sprintf("needs %s, has %s", r, strings.Join(has, ", "))
}

// String describes the rule.
func (r *claimRule) String() string {
	s := r.Name
	switch {
	case r.AtLeast != "" && r.AtMost != "":
		s += " of " + r.AtLeast + " to " + r.AtMost
	case r.AtLeast != "":
		s += " of at least " + r.AtLeast
	case r.AtMost != "":
		s += " of at most " + r.AtMost
	case len(r.Values) > 0:
		s += " in " + strings.Join(r.Values, ", ")
	}
	switch r.Assurance {
	case "", v1alpha1.AssuranceSelf:
		return s
	case v1alpha1.AssuranceMeasured, v1alpha1.AssuranceCertified:
		return s + ", " + string(r.Assurance)
	}
	return s + ", " + string(r.Assurance) + " or better"
}
