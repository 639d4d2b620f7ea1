package console

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/market"
)

// policyRow is a policy as a list shows it.
type policyRow struct {
	*v1alpha1.PlacementPolicy
	State state
	// Concerns are the requests that it matches.
	Concerns []string
	Rules    []ruleRow
	// Acts describe its effects beyond rules, one sentence each.
	Acts []string
	// Own means that the provider or platform that it is about has written it.
	Own bool
}

// ruleRow is a rule, or a preference with its weight.
type ruleRow struct {
	Name, Text string
	Weight     int32
}

func (s *server) policiesPage(c *call) (*page, error) {
	var all v1alpha1.PlacementPolicyList
	if err := s.list(c.Context(), &all); err != nil {
		return nil, err
	}
	var rows []policyRow
	for i := range all.Items {
		if market.IsAbout(c.caller, &all.Items[i]) {
			rows = append(rows, policyRowOf(&all.Items[i]))
		}
	}
	slices.SortFunc(rows, func(a, b policyRow) int { return strings.Compare(a.Name, b.Name) })
	shown, pages := paged(c, rows)
	return &page{Title: "Policies", template: "policies", Data: struct {
		Policies []policyRow
		Pages    pager
		// Words for callers that write policies here; nil for others.
		Words *policyWords
	}{shown, pages, wordsOfPolicies[c.caller.Role]}}, nil
}

func policyRowOf(p *v1alpha1.PlacementPolicy) policyRow {
	row := policyRow{PlacementPolicy: p, State: stateOf(p.Status.Conditions, v1alpha1.CreatedOf(p)), Own: market.IsOwn(p)}
	if ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); ready != nil && row.State.Kind == "good" {
		row.State.Word = "In force"
	}
	for _, of := range []struct {
		noun   string
		values []string
	}{{"platform", p.Spec.Concerned().Platforms}, {"organization", p.Spec.Match.Organizations}, {"space", p.Spec.Match.Spaces}, {"plan", p.Spec.Match.Plans}} {
		if len(of.values) > 0 {
			row.Concerns = append(row.Concerns, of.noun+" "+strings.Join(of.values, " or "))
		}
	}
	for _, r := range p.Spec.Require {
		row.Rules = append(row.Rules, ruleRow{Name: r.Name, Text: ruleText(&r)})
	}
	for _, r := range p.Spec.Prefer {
		row.Rules = append(row.Rules, ruleRow{Name: r.Name, Text: ruleText(&r.PolicyRule), Weight: r.Weight})
	}
	row.Acts = policyActs(&p.Spec)
	return row
}

// policyActs describes what a policy does beyond its rules.
func policyActs(p *v1alpha1.PlacementPolicySpec) (acts []string) {
	if q := p.Quota; q != nil {
		bounds := amounts(q.Limits)
		if b := q.Budget; b != nil && b.PerHour != nil {
			bounds = append(bounds, "reservations for "+perHour(b.PerHour, b.Currency))
		} else if b != nil && b.PerMonth != nil {
			bounds = append(bounds, "reservations for "+money(*b.PerMonth, b.Currency)+" a month")
		}
		if q.Instances != nil {
			bounds = append(bounds, counted(int(*q.Instances), "instance"))
		}
		if q.Bindings != nil {
			bounds = append(bounds, counted(int(*q.Bindings), "binding"))
		}
		acts = append(acts, fmt.Sprintf("Each %s holds at most %s.", q.Per, strings.Join(bounds, ", ")))
	}
	if w := p.Workloads; w != nil {
		acts = append(acts, podsText(w))
	}
	if r := p.Rebalance; r != nil {
		acts = append(acts, fmt.Sprintf("Moves up to %s in windows that begin at %q (UTC), for a gain of %d points or more.", counted(int(r.AtMost), "instance"), r.Schedule, r.LeastGain))
	}
	if m := p.MakeRoom; m != nil {
		acts = append(acts, fmt.Sprintf("Up to %s may move together to make room for an order.", counted(int(m.AtMost), "instance")))
	}
	if e := p.Elastic; e != nil {
		text := fmt.Sprintf("Creates up to %s for what fits nowhere", counted(int(e.AtMost), "cluster"))
		if e.Budget != nil {
			text += ", within a budget"
		}
		acts = append(acts, text+".")
	}
	if p.Measure != nil {
		acts = append(acts, "Runs a probe on each cluster that it selects, by which the broker measures it.")
	}
	for _, c := range p.PriorityClasses {
		acts = append(acts, fmt.Sprintf("Declares the priority class %s (%d).", c.Name, c.Value))
	}
	return acts
}

// podsText writes the rules for pods as sentences.
func podsText(w *v1alpha1.WorkloadRules) string {
	var all []string
	if len(w.Registries) > 0 {
		all = append(all, "images come from "+strings.Join(w.Registries, ", "))
	}
	if w.Digests {
		all = append(all, "images are named by their digest")
	}
	if len(w.RuntimeClasses) > 0 {
		all = append(all, fmt.Sprintf("runtime classes are among %q", w.RuntimeClasses))
	}
	if len(w.Capabilities) > 0 {
		all = append(all, "capabilities that are added are among "+strings.Join(w.Capabilities, ", "))
	}
	return "Pods: " + strings.Join(all, "; ") + "."
}

// ruleText writes a rule as a sentence, or as the expression that it is.
func ruleText(r *v1alpha1.PolicyRule) string {
	c := r.Claim
	if c == nil {
		return r.Expression
	}
	text := "claim " + c.Name
	switch {
	case len(c.Values) > 0:
		text += " is " + strings.Join(c.Values, " or ")
	case c.AtLeast != "" && c.AtMost != "":
		text += " is from " + c.AtLeast + " to " + c.AtMost
	case c.AtLeast != "":
		text += " is at least " + c.AtLeast
	case c.AtMost != "":
		text += " is at most " + c.AtMost
	default:
		text += " is there"
	}
	if c.Assurance != "" {
		text += ", by assurance " + string(c.Assurance)
	}
	return text
}
