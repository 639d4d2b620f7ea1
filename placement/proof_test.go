package placement

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// buyer is a Consumer that has proven a country.
func buyer(name, country string, orders ...v1alpha1.ConsumerReference) v1alpha1.Consumer {
	return v1alpha1.Consumer{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ConsumerSpec{Orders: orders},
		Status: v1alpha1.ConsumerStatus{Claims: []v1alpha1.Claim{{
			Name: v1alpha1.ClaimConsumerCountry, Value: country, Assurance: v1alpha1.AssuranceNotary, Issuer: "did:web:notary.example",
		}}},
	}
}

// TestTheNarrowestProofCounts: of a space before one of its organization, before one of the platform; of equal ones the
// first by name.
func TestTheNarrowestProofCounts(t *testing.T) {
	all := ProofsOf([]v1alpha1.Consumer{
		buyer("platform", "US", v1alpha1.ConsumerReference{Platform: "cf"}),
		buyer("z", "SE", v1alpha1.ConsumerReference{Platform: "cf", Organization: "o"}),
		buyer("o", "FR", v1alpha1.ConsumerReference{Platform: "cf", Organization: "o"}, v1alpha1.ConsumerReference{Platform: "other"}),
		buyer("space", "DE", v1alpha1.ConsumerReference{Platform: "cf", Organization: "o", Space: "s"}),
	}, time.Time{})
	for of, want := range map[Consumer]string{
		{Platform: "cf", Organization: "o", Space: "s"}: "DE",
		{Platform: "cf", Organization: "o", Space: "t"}: "FR",
		{Platform: "cf", Organization: "p", Space: "s"}: "US",
		{Platform: "other"}:                             "FR",
		{Platform: "third"}:                             "",
	} {
		got := ""
		if claims := all.Of(of); len(claims) > 0 {
			got = claims[0].Value
		}
		if got != want {
			t.Errorf("%+v is in %q, want %q", of, got, want)
		}
	}
}

// A claim that has ended is none.
func TestAProofEnds(t *testing.T) {
	end := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	one := buyer("one", "DE", v1alpha1.ConsumerReference{Platform: "cf"})
	one.Status.Claims[0].ExpiresAt = &metav1.Time{Time: end}
	for at, want := range map[time.Time]int{end.Add(-time.Second): 1, end: 0} {
		if got := ProofsOf([]v1alpha1.Consumer{one}, at).Of(Consumer{Platform: "cf"}); len(got) != want {
			t.Errorf("at %s: %v", at, got)
		}
	}
}

// TestRulesForConsumers: by a claim or an expression, for the clusters of a provider or for all; and whoever waits for a
// proof is woken by it.
func TestRulesForConsumers(t *testing.T) {
	claim := v1alpha1.PolicyRule{Name: "union", AppliesTo: v1alpha1.RuleConsumer, Claim: &v1alpha1.ClaimRule{
		Name: v1alpha1.ClaimConsumerCountry, Values: []string{"EU"}, Assurance: v1alpha1.AssuranceNotary}}
	expression := v1alpha1.PolicyRule{Name: "union", Expression: "consumer.claims.exists(c, c.name == 'consumer.country' && c.value == 'DE' && c.assurance == 'notary')"}
	for name, row := range map[string]struct {
		rule     v1alpha1.PolicyRule
		provider string // whose policy it is
		unproven string // the cluster without a proof, or a part of the reason why there is none
		american string // likewise with one of another country
	}{
		"claim":                      {rule: claim, unproven: "of the consumer: needs consumer.country in EU, notary or better, has no such claim", american: "has US (notary, by did:web:notary.example)"},
		"expression":                 {rule: expression, unproven: "does not hold", american: "does not hold"},
		"of a provider, by a claim":  {rule: claim, provider: "acme", unproven: "rival-1", american: "rival-1"},
		"of one, by an expression":   {rule: expression, provider: "acme", unproven: "rival-1", american: "rival-1"},
		"of a provider with nothing": {rule: claim, provider: "none", unproven: "acme-1", american: "acme-1"},
	} {
		t.Run(name, func(t *testing.T) {
			acme, rival := inRegion("acme-1", "eu", 8000), inRegion("rival-1", "eu", 16000)
			for _, c := range []*Cluster{acme, rival} {
				c.Provider, _, _ = strings.Cut(c.Name, "-")
				c.Labels[v1alpha1.LabelProvider] = c.Provider
			}
			inventory, woken := watched(acme, rival)
			inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{{Spec: v1alpha1.PlacementPolicySpec{Provider: row.provider, Require: []v1alpha1.PolicyRule{row.rule}}}}))
			place := func() string {
				r := Request{ID: "a", Resources: cores(2), Weights: v1alpha1.ScoreWeights{Fit: 1}}
				d, err := Place(inventory.Snapshot().Govern(r, Consumer{Platform: "cf"}), inventory.Snapshot())
				if err != nil {
					return err.Error()
				}
				return d.Placements[0].Cluster
			}
			if got := place(); !strings.Contains(got, row.unproven) {
				t.Errorf("without a proof: %s, want %s", got, row.unproven)
			}
			prove := func(country string) {
				inventory.SetProofs(ProofsOf([]v1alpha1.Consumer{buyer("one", country, v1alpha1.ConsumerReference{Platform: "cf"})}, time.Time{}))
			}
			prove("US")
			if got := place(); !strings.Contains(got, row.american) {
				t.Errorf("from elsewhere: %s, want %s", got, row.american)
			}
			waits := inventory.Snapshot().Govern(Request{ID: "waits", Resources: cores(64)}, Consumer{Platform: "cf"})
			if _, err := inventory.Place(waits); err == nil {
				t.Fatal("64 cores fit")
			}
			woken()
			prove("DE")
			if got := place(); got != "acme-1" {
				t.Errorf("proven: %s, want acme-1", got)
			}
			if woken()["waits"] == 0 {
				t.Error("nobody who waits was woken by the proof")
			}
			prove("DE")
			if woken()["waits"] != 0 {
				t.Error("the same proof woke who waits")
			}
		})
	}
}

// TestRulesForConsumersThatSayNothing: they are refused, and refuse every cluster until then.
func TestRulesForConsumersThatSayNothing(t *testing.T) {
	for want, spec := range map[string]v1alpha1.PlacementPolicySpec{
		"an expression reads consumer.claims": {Require: []v1alpha1.PolicyRule{{Name: "r", AppliesTo: v1alpha1.RuleConsumer, Expression: "true"}}},
		"prefers no cluster to another": {Prefer: []v1alpha1.PolicyPreference{{Weight: 1, PolicyRule: v1alpha1.PolicyRule{
			Name: "r", AppliesTo: v1alpha1.RuleConsumer, Claim: &v1alpha1.ClaimRule{Name: "x"}}}}},
	} {
		if _, err := CompilePolicy(&v1alpha1.PlacementPolicy{Spec: spec}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("compiled: %v, want %q", err, want)
		}
	}
}
