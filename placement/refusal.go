package placement

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Refusal is a cluster that a rule of a policy refuses to a request.
type Refusal struct {
	Cluster string
	// Rule is the name of the rule, and Message the reason, as explanations of placements have it.
	Rule, Message string
}

// Refuses returns the clusters of a snapshot that the policy's rules refuse to a request, by name, each with the first
// rule that does. Only these rules count, so a cluster that is full or does not answer is refused like others. A request
// with components is refused where one of them is. It is none if the policy does not concern the request's consumer.
func (p *Policy) Refuses(r Request, s *Snapshot) []Refusal {
	r.Rules = rulesOfClusters(p.Rules)
	return p.refuses(r.Parts(), s)
}

// RefusesHubs is Refuses for clusters as the hubs through which a request is reached.
func (p *Policy) RefusesHubs(r Request, s *Snapshot) []Refusal {
	r.Rules = p.Rules
	return p.refuses([]Request{r.ofHub()}, s)
}

func (p *Policy) refuses(parts []Request, s *Snapshot) (all []Refusal) {
	refused := make([]set, len(s.pages))
	for _, part := range parts {
		if !p.Concerns(part.Consumer) {
			continue
		}
		facts := part.facts()
		for i := range part.Rules {
			rule := ruled(&part.Rules[i], facts)
			for k, page := range s.pages {
				further := rule.rejects(page, page.all.without(refused[k]))
				refused[k] = refused[k].or(further)
				for row := range further.rows() {
					all = append(all, Refusal{page.clusters[row].Name, part.Rules[i].Name, part.Rules[i].why(page.clusters[row], facts)})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Refusal) int { return strings.Compare(a.Cluster, b.Cluster) })
	return all
}

// rulesOfClusters returns those of the rules that apply to chosen clusters.
func rulesOfClusters(rules []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.appliesTo == v1alpha1.RuleHubs })
}

// Suited returns the clusters of a snapshot, by name, on which a request, or one of its components, could be placed if
// they answered, took new placements and had nothing on them. The request's rules count.
func Suited(r Request, s *Snapshot) (names []string) {
	var filters [][]filter // of each part
	for _, part := range r.Parts() {
		part.atBest, part.Current, part.Leaving, part.Rules = true, nil, nil, rulesOfClusters(part.Rules)
		filters = append(filters, append(part.filters(s, nil), part.rulings()...)) // rules are not among those that refuse for good
	}
	for _, page := range s.pages {
		var suited set
		for _, some := range filters {
			suited = suited.or(page.passing(some))
		}
		for row := range suited.rows() {
			names = append(names, page.clusters[row].Name)
		}
	}
	return names
}

// Look is a fact that a policy looks at.
type Look struct {
	// Field of the consumer (platform, organization, space or claims), or of a cluster.
	Field string
	// By is the part of the policy: "match", or the name of a rule.
	By string
}

// Looks returns the facts about the consumer that the policy looks at, each once. A rule that reads the consumer as a
// whole looks at all of them.
func (p *Policy) Looks() (all []Look) {
	for _, of := range []struct {
		field   string
		matched []string
	}{{"platform", p.Match.Platforms}, {"organization", p.Match.Organizations}, {"space", p.Match.Spaces}, {"claims", nil}} {
		by := ""
		if len(of.matched) > 0 {
			by = "match"
		}
		for i := range p.Rules {
			if by == "" && of.field == "claims" && p.Rules[i].appliesTo == v1alpha1.RuleConsumer {
				by = p.Rules[i].Name
			}
			if e := p.Rules[i].expression; by == "" && e != nil && (slices.Contains(e.asked, "consumer") || slices.Contains(e.asked, "consumer."+of.field)) {
				by = p.Rules[i].Name
			}
		}
		if by != "" {
			all = append(all, Look{of.field, by})
		}
	}
	return all
}

// LooksAtClusters returns the facts about clusters at which the policy's expressions look, each once: "name", "provider",
// "region" or "labels.KEY"; "labels" are all labels, and the tier is the label sluice.dev/tier.
func (p *Policy) LooksAtClusters() (all []Look) {
	rules := slices.Clone(p.Rules)
	for i := range p.Preferences {
		rules = append(rules, p.Preferences[i].Rule)
	}
	for i := range rules {
		if e := rules[i].expression; e != nil {
			for _, field := range e.cluster {
				if !slices.ContainsFunc(all, func(l Look) bool { return l.Field == field }) {
					all = append(all, Look{field, rules[i].Name})
				}
			}
		}
	}
	return all
}
