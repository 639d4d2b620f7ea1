package placement

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A class belongs to the policy that declares it first, by name.
func TestDeclaredBefore(t *testing.T) {
	policy := func(name string, classes ...string) v1alpha1.PlacementPolicy {
		p := v1alpha1.PlacementPolicy{}
		p.Name = name
		for _, class := range classes {
			p.Spec.PriorityClasses = append(p.Spec.PriorityClasses, v1alpha1.PriorityClass{Name: class})
		}
		return p
	}
	all := []v1alpha1.PlacementPolicy{policy("c", "iron", "gold"), policy("a", "gold", "silver"), policy("b", "tin", "silver")}
	policies := CompilePolicies(all)
	for i, want := range [][2]string{{"gold", "a"}, {"", ""}, {"silver", "a"}} {
		if class, first := policies.DeclaredBefore(&all[i]); class != want[0] || first != want[1] {
			t.Errorf("policy %s: class %q is declared by policy %q, want %q", all[i].Name, class, first, want)
		}
	}
}

// A policy whose amounts are none refuses what it concerns, as one whose rules do not compile.
func TestAmountsOfPolicies(t *testing.T) {
	below := resource.MustParse("-1")
	for says, spec := range map[string]v1alpha1.PlacementPolicySpec{
		`quota.limits: "mem" is no resource`:         {Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: corev1.ResourceList{"mem": resource.MustParse("1Mi")}}},
		"quota.budget.perMonth: -1: want":            {Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Budget: &v1alpha1.Price{Currency: "EUR", PerMonth: &below}}},
		"elastic.budget.perHour: -1: want":           {Elastic: &v1alpha1.Elastic{Budget: &v1alpha1.Price{Currency: "EUR", PerHour: &below}}},
		`elastic.member.prices.perHour: "CPU" is no`: {Elastic: &v1alpha1.Elastic{Member: v1alpha1.MemberTemplate{Prices: &v1alpha1.PriceList{PerHour: corev1.ResourceList{"CPU": below}}}}},
	} {
		policy, err := CompilePolicy(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if len(policy.Rules) != 1 || !strings.Contains(policy.Rules[0].broken, says) || !policy.Rules[0].entry {
			t.Errorf("%s: the rules are %+v", says, policy.Rules)
		}
	}
}

// Policies add to a request, and to no other one that was made of the same.
func TestGovernChangesNoOtherRequest(t *testing.T) {
	named := func(name string) Policies {
		return Policies{{Name: name, Rules: []Rule{{Name: name}}, Preferences: []Preference{{Rule: Rule{Name: name}, Weight: 1}}, Quota: &v1alpha1.Quota{Per: v1alpha1.ScopePlatform}}}
	}
	r := Request{Rules: make([]Rule, 1, 8), Preferences: make([]Preference, 1, 8), Quotas: make([]Quota, 1, 8), Policies: make([]v1alpha1.PolicyInForce, 1, 8)}
	one := named("one").Govern(r, Consumer{Platform: "cf"})
	named("other").Govern(r, Consumer{Platform: "cf"})
	if one.Rules[1].Name != "one" || one.Preferences[1].Name != "one" || one.Quotas[1].By != "policy one" {
		t.Errorf("the rules of one are %+v, its preferences %+v, its quotas %+v", one.Rules, one.Preferences, one.Quotas)
	}
}

// Probes come to clusters that do not meet rules about what is measured, or not yet.
func TestProbesAreThereBeforeTheyMeasure(t *testing.T) {
	policy, err := CompilePolicy(&v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PlacementPolicySpec{Require: []v1alpha1.PolicyRule{
		{Name: "reached", Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDataPlaneUptime, AtLeast: "0.999"}},
		{Name: "measured", Claim: &v1alpha1.ClaimRule{Name: "x", Assurance: v1alpha1.AssuranceMeasured}},
		{Name: "country", Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry}},
		{Name: "region", Expression: `cluster.region == "eu"`},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	probe := Request{Workload: &v1alpha1.WorkloadPlan{}}
	for name, row := range map[string]struct {
		request  Request
		platform string
		want     []string
	}{
		"a probe":                    {probe, v1alpha1.PlatformSelf, []string{"country", "region"}},
		"the workload of a consumer": {probe, "cf", []string{"reached", "measured", "country", "region"}},
		"a cluster for a policy":     {Request{Shape: &v1alpha1.ClusterShape{}}, v1alpha1.PlatformSelf, []string{"reached", "measured", "country", "region"}},
	} {
		var got []string
		for _, rule := range (Policies{policy}).Govern(row.request, Consumer{Platform: row.platform}).Rules {
			got = append(got, rule.Name)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: rules %v, want %v", name, got, row.want)
		}
	}
	if len(policy.Rules) != 4 {
		t.Errorf("the policy has %d rules after that", len(policy.Rules))
	}
}
