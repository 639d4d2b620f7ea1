package v1alpha1

import (
	"strings"
	"testing"
)

// TestUnknownPlans: whoever writes a policy learns which plans it does not concern, and of plans that it sees only.
func TestUnknownPlans(t *testing.T) {
	offering := func(name, provider string, platforms ...string) ServiceOffering {
		return ServiceOffering{Spec: ServiceOfferingSpec{Name: name, Provider: provider, Platforms: platforms, Plans: []Plan{{ID: name + "-1", Name: "small"}}}}
	}
	offerings := []ServiceOffering{offering("db", ""), offering("queue", "acme", "cf")}
	offerings[0].Status.Accepted = &ServiceOfferingSpec{Name: "db", Plans: []Plan{{ID: "db-0", Name: "old"}, {ID: "db-1", Name: "small"}}}
	for name, row := range map[string]struct {
		spec PlacementPolicySpec
		want string
	}{
		"all plans":            {PlacementPolicySpec{}, ""},
		"ids":                  {PlacementPolicySpec{Match: PolicyMatch{Plans: []string{"db-0", "db-1", "queue-1"}}}, ""},
		"a name":               {PlacementPolicySpec{Match: PolicyMatch{Plans: []string{"db-1", "small"}}}, `match.plans: no plan has the id "small", the plan small of db has the id db-1, the plan small of queue has the id queue-1`},
		"no plan":              {PlacementPolicySpec{Match: PolicyMatch{Plans: []string{"x", "y"}}}, `match.plans: no plan has the id "x"; no plan has the id "y"`},
		"many":                 {PlacementPolicySpec{Match: PolicyMatch{Plans: make([]string, 10)}}, "match.plans: " + strings.Repeat(`no plan has the id ""; `, 8) + "and 2 more"},
		"a provider's own":     {PlacementPolicySpec{Provider: "acme", Match: PolicyMatch{Plans: []string{"queue-1"}}}, ""},
		"another provider":     {PlacementPolicySpec{Provider: "dear", Match: PolicyMatch{Plans: []string{"queue-1"}}}, `match.plans: no plan has the id "queue-1"`},
		"a platform's":         {PlacementPolicySpec{Platform: "cf", Match: PolicyMatch{Plans: []string{"queue-1"}}}, ""},
		"unseen by a platform": {PlacementPolicySpec{Platform: "k8s", Match: PolicyMatch{Plans: []string{"small"}}}, `match.plans: no plan has the id "small", the plan small of db has the id db-1`},
	} {
		if got := row.spec.UnknownPlans(offerings); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
