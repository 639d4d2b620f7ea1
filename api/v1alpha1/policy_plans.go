package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
)

// PolicyInForceMessage is the message of the condition Ready of a policy in force; what else is to be said of it follows.
const PolicyInForceMessage = "in force"

// mostUnknown is how many plans UnknownPlans names.
const mostUnknown = 8

// UnknownPlans returns a warning about plans of match that are not ids of plans of the offerings, so that the policy concerns
// no order of them; empty if there are none. It names the ids of plans that have such a name. A provider's policy is judged by
// the plans for everybody and the provider's own, a platform's by those that the platform sees.
func (s *PlacementPolicySpec) UnknownPlans(offerings []ServiceOffering) string {
	var unknown []string
	for _, id := range s.Match.Plans {
		found, named := false, []string(nil)
		for i := range offerings {
			for _, of := range []*ServiceOfferingSpec{&offerings[i].Spec, offerings[i].Status.Accepted} {
				if of == nil {
					continue
				}
				for j := range of.Plans {
					plan := &of.Plans[j]
					if !s.sees(of, plan) {
						continue
					}
					found = found || plan.ID == id
					if plan.Name != id {
						continue
					}
					if hint := fmt.Sprintf("the plan %s of %s has the id %s", plan.Name, of.Name, plan.ID); !slices.Contains(named, hint) {
						named = append(named, hint)
					}
				}
			}
		}
		if !found {
			unknown = append(unknown, strings.Join(append([]string{fmt.Sprintf("no plan has the id %q", id)}, named...), ", "))
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	text := "match.plans: " + strings.Join(unknown[:min(mostUnknown, len(unknown))], "; ")
	if more := len(unknown) - mostUnknown; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// sees reports whether the provider or platform that the policy is about sees a plan; the operator sees all.
func (s *PlacementPolicySpec) sees(offering *ServiceOfferingSpec, plan *Plan) bool {
	return s.Provider == "" && s.Platform == "" || s.Provider != "" && offering.Provider == s.Provider ||
		offering.Shows(plan, s.Platform)
}

// Shows reports whether a platform sees a plan of the offering.
func (s *ServiceOfferingSpec) Shows(plan *Plan, platform string) bool {
	return within(s.Platforms, platform) && within(plan.Platforms, platform)
}
