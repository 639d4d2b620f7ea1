package placement

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestClaimRules(t *testing.T) {
	for name, row := range map[string]struct {
		claim    v1alpha1.ClaimRule
		text     string
		measured bool
	}{
		"any value":            {v1alpha1.ClaimRule{Name: "x"}, "x", false},
		"one of values":        {v1alpha1.ClaimRule{Name: "x", Values: []string{"a", "b"}}, "x in a, b", false},
		"one value of numbers": {v1alpha1.ClaimRule{Name: "x", AtLeast: "1", AtMost: "1"}, "x of 1 to 1", false},
		"what Sluice measures": {v1alpha1.ClaimRule{Name: "x", Assurance: v1alpha1.AssuranceMeasured}, "x, measured", true},
		"an uptime":            {v1alpha1.ClaimRule{Name: v1alpha1.ClaimUptime}, v1alpha1.ClaimUptime, true},
		"a latency":            {v1alpha1.ClaimRule{Name: v1alpha1.ClaimLatency}, v1alpha1.ClaimLatency, true},
		"a throughput":         {v1alpha1.ClaimRule{Name: v1alpha1.ClaimDataPlaneThroughput}, v1alpha1.ClaimDataPlaneThroughput, true},
	} {
		rule, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "rule", Claim: &row.claim})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := rule.claim.String(); got != row.text || rule.claim.measured() != row.measured {
			t.Errorf("%s: %q, measured: %t", name, got, rule.claim.measured())
		}
	}
}

// A provider cannot say whose instances are more important than others'.
func TestClassesOfAProviderDoNotCount(t *testing.T) {
	from := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PlacementPolicySpec{
		PriorityClasses: []v1alpha1.PriorityClass{{Name: "gold", Value: 1}},
	}}
	for provider, want := range map[string]int{"": 1, "acme": 0} {
		from.Spec.Provider = provider
		if p, err := CompilePolicy(from); err != nil || len(p.Classes) != want {
			t.Errorf("of provider %q: %v, %v", provider, p.Classes, err)
		}
	}
}

// The weights of plan and policies add up, every one of them.
func TestWeightsAddUp(t *testing.T) {
	var a, b v1alpha1.ScoreWeights
	for i := range reflect.TypeFor[v1alpha1.ScoreWeights]().NumField() {
		reflect.ValueOf(&a).Elem().Field(i).SetInt(int64(i + 1))
		reflect.ValueOf(&b).Elem().Field(i).SetInt(100)
	}
	sum := reflect.ValueOf(addWeights(a, b))
	for i := range sum.NumField() {
		if got := sum.Field(i).Int(); got != int64(i+101) {
			t.Errorf("%s is %d, want %d", sum.Type().Field(i).Name, got, i+101)
		}
	}
}

// A rule about a claim that could never hold, or whose values have no order, is refused.
func TestClaimRulesThatAreNone(t *testing.T) {
	for says, rule := range map[string]v1alpha1.ClaimRule{
		"": {Name: v1alpha1.ClaimLabel, AtLeast: "SC", AtMost: "L2"}, `"high" is not an assurance`: {Name: "x", Assurance: "high"},
		"values or bounds, not both": {Name: "x", Values: []string{"1"}, AtMost: "2"}, `"much" has no order`: {Name: "x", AtLeast: "much"},
		`"L9" has no order`: {Name: v1alpha1.ClaimLabel, AtLeast: "L9"}, `"NaN" has no order`: {Name: "x", AtMost: "NaN"},
		"1 is less than atLeast, 2": {Name: "x", AtLeast: "2", AtMost: "1"}, "L1 is less than atLeast, L2": {Name: v1alpha1.ClaimLabel, AtLeast: "L2", AtMost: "L1"},
		`claim.values[1]: "Atlantis" is neither a country`: {Name: v1alpha1.ClaimProviderCountry, Values: []string{"EEA", "Atlantis"}},
	} {
		_, err := CompileRule("policy", "", v1alpha1.PolicyRule{Name: "rule", Claim: &rule})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", rule, err, says)
		}
	}
}

// An assurance is enough if it is as high as the rule asks for. What is measured is enough for a rule that asks for that,
// or for no more than the provider's own statement.
func TestEnough(t *testing.T) {
	for least, enough := range map[v1alpha1.Assurance]string{"": "self notary label certified measured", v1alpha1.AssuranceSelf: "self notary label certified measured",
		v1alpha1.AssuranceNotary: "notary label certified", v1alpha1.AssuranceLabel: "label certified", v1alpha1.AssuranceCertified: "certified", v1alpha1.AssuranceMeasured: "measured"} {
		rule, err := compileClaim(&v1alpha1.ClaimRule{Name: "x", Assurance: least})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range assurances {
			if got := rule.enough(a); got != slices.Contains(strings.Fields(enough), string(a)) {
				t.Errorf("%q is enough for %q: %t", a, least, got)
			}
		}
	}
}
