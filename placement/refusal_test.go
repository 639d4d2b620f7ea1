package placement_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestRefusalsAreThoseOfPlacements: a policy refuses the clusters, by the rules and with the reasons, that an explanation
// of a placement under it has, of clusters that would fit otherwise.
func TestRefusalsAreThoseOfPlacements(t *testing.T) {
	inventory := placement.NewInventory()
	has := placementtest.Quantities("cpu=8,pods=100")
	claim := []v1alpha1.Claim{{Name: "datacenter.country", Value: "FR", Assurance: v1alpha1.AssuranceSelf, Issuer: "did:web:acme.example"}}
	for _, row := range []placementtest.Cluster{
		{Name: "acme-de", Provider: "acme", Region: "eu-de", Has: has}, {Name: "acme-fr", Provider: "acme", Region: "eu-fr", Has: has, Claims: claim},
		{Name: "rival-de", Provider: "rival", Region: "eu-de", Has: has},
	} {
		inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), time.Time{}))
	}
	for name, row := range map[string]struct {
		match v1alpha1.PolicyMatch
		rules []v1alpha1.PolicyRule
		want  string
		looks []placement.Look
		hubs  string // what it refuses as hubs, if that differs
	}{
		"one cluster":           {rules: []v1alpha1.PolicyRule{{Name: "de", Expression: "cluster.region == 'eu-de'"}}, want: "acme-fr by de"},
		"the first rule":        {rules: []v1alpha1.PolicyRule{{Name: "us", Expression: "cluster.region == 'us'"}, {Name: "none", Expression: "false"}}, want: "acme-de by us, acme-fr by us"},
		"each by another":       {rules: []v1alpha1.PolicyRule{{Name: "de", Expression: "cluster.region == 'eu-de'"}, {Name: "none", Expression: "false"}}, want: "acme-de by none, acme-fr by de"},
		"a claim":               {rules: []v1alpha1.PolicyRule{{Name: "proven", Claim: &v1alpha1.ClaimRule{Name: "datacenter.country", Values: []string{"FR"}}}}, want: "acme-de by proven"},
		"what cannot be judged": {rules: []v1alpha1.PolicyRule{{Name: "odd", Expression: "request.resources.colour == 'red'"}}, want: "acme-de by odd, acme-fr by odd"},
		"the consumer": {rules: []v1alpha1.PolicyRule{{Name: "own", Expression: "consumer.space == 's' && consumer.organization != 'o'"}}, want: "acme-de by own, acme-fr by own",
			looks: []placement.Look{{Field: "organization", By: "own"}, {Field: "space", By: "own"}}},
		"the consumer as a whole": {match: v1alpha1.PolicyMatch{Spaces: []string{"s"}}, rules: []v1alpha1.PolicyRule{{Name: "any", Expression: "[consumer].exists(c, c.platform == 'p')"}},
			looks: []placement.Look{{Field: "platform", By: "any"}, {Field: "organization", By: "any"}, {Field: "space", By: "match"}, {Field: "claims", By: "any"}}},
		"another consumer": {match: v1alpha1.PolicyMatch{Platforms: []string{"q"}}, rules: []v1alpha1.PolicyRule{{Name: "none", Expression: "false"}}, looks: []placement.Look{{Field: "platform", By: "match"}}},
		"clusters":         {rules: []v1alpha1.PolicyRule{{Name: "none", Expression: "false", AppliesTo: v1alpha1.RuleClusters}, {Name: "fr", Expression: "cluster.region == 'eu-fr'"}}, want: "acme-de by none, acme-fr by none", hubs: "acme-de by fr"},
		"what it has proven": {rules: []v1alpha1.PolicyRule{{Name: "known", AppliesTo: v1alpha1.RuleConsumer, Claim: &v1alpha1.ClaimRule{Name: "consumer.country"}}}, want: "acme-de by known, acme-fr by known",
			looks: []placement.Look{{Field: "claims", By: "known"}}},
		"another plan":  {match: v1alpha1.PolicyMatch{Plans: []string{"large"}}, rules: []v1alpha1.PolicyRule{{Name: "none", Expression: "false"}}},
		"the resources": {rules: []v1alpha1.PolicyRule{{Name: "small", Expression: "request.resources['cpu'] < 1000"}}, want: "acme-de by small, acme-fr by small"},
		"hubs":          {rules: []v1alpha1.PolicyRule{{Name: "none", Expression: "false", AppliesTo: v1alpha1.RuleHubs}}, hubs: "acme-de by none, acme-fr by none"},
	} {
		t.Run(name, func(t *testing.T) {
			from := v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "acme.p"}, Spec: v1alpha1.PlacementPolicySpec{Provider: "acme", Match: row.match, Require: row.rules}}
			p, err := placement.CompilePolicy(&from)
			if err != nil {
				t.Fatal(err)
			}
			inventory.SetPolicies(placement.CompilePolicies([]v1alpha1.PlacementPolicy{from}))
			s := inventory.Snapshot()
			plain := placement.Request{ID: "i", Clusters: 1, Resources: placement.Resources{"cpu": 2000}}
			plain.Consumer = placement.Consumer{Platform: "p", Organization: "o", Space: "s", Plan: "small"}
			governed := s.Govern(plain, plain.Consumer)
			var got, explained, want, left []string
			for _, refused := range p.Refuses(plain, s) {
				got = append(got, refused.Cluster+" by "+refused.Rule)
				explained = append(explained, fmt.Sprintf("%s: policy acme.p, %s: %s", refused.Cluster, refused.Rule, refused.Message))
			}
			for _, v := range placement.Explain(governed, s) {
				if v.Reason == placement.ReasonPolicy {
					want = append(want, v.Cluster+": "+v.Message)
				} else {
					left = append(left, v.Cluster)
				}
			}
			slices.Sort(want)
			slices.Sort(left)
			if strings.Join(got, ", ") != row.want || !reflect.DeepEqual(explained, want) {
				t.Errorf("it refuses %v, want %s; an explanation has %v", explained, row.want, want)
			}
			if suited := placement.Suited(governed, s); !reflect.DeepEqual(suited, left) {
				t.Errorf("%v suit, and an explanation leaves %v", suited, left)
			}
			if looks := p.Looks(); !reflect.DeepEqual(looks, row.looks) {
				t.Errorf("it looks at %v, want %v", looks, row.looks)
			}
			var hubs []string
			for _, refused := range p.RefusesHubs(plain, s) {
				hubs = append(hubs, refused.Cluster+" by "+refused.Rule)
			}
			if got := strings.Join(hubs, ", "); got != cmp.Or(row.hubs, row.want) {
				t.Errorf("as hubs, it refuses %s", got)
			}
		})
	}
}

// TestSuitedIsIndependentOfTheMoment: a cluster suits although it is full, cordoned or does not answer, and not if it is
// of another tier.
func TestSuitedIsIndependentOfTheMoment(t *testing.T) {
	inventory := placement.NewInventory()
	has := placementtest.Quantities("cpu=2,pods=100")
	for _, row := range []placementtest.Cluster{
		{Name: "cordoned", Has: has, Cordoned: true}, {Name: "edge", Has: has, Tier: v1alpha1.TierEdge}, {Name: "full", Has: has, Foreign: placementtest.Quantities("cpu=2")},
		{Name: "lost", Has: has, Unreachable: "no answer"}, {Name: "small", Has: placementtest.Quantities("cpu=1,pods=100")},
	} {
		inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), time.Time{}))
	}
	r := placement.Request{ID: "i", Clusters: 1, Tier: v1alpha1.TierCloud, Resources: placement.Resources{"cpu": 2000}}
	if got := placement.Suited(r, inventory.Snapshot()); !reflect.DeepEqual(got, []string{"cordoned", "full", "lost"}) {
		t.Errorf("%v suit", got)
	}
}

// TestAPlatformsPolicyConcernsItsOrders: whatever match names, and it declares no classes.
func TestAPlatformsPolicyConcernsItsOrders(t *testing.T) {
	p, err := placement.CompilePolicy(&v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{
		Platform: "p", Match: v1alpha1.PolicyMatch{Platforms: []string{"q"}, Spaces: []string{"s"}}, PriorityClasses: []v1alpha1.PriorityClass{{Name: "a"}},
		Require: []v1alpha1.PolicyRule{{Name: "de", Expression: "cluster.region == 'eu-de' || cluster.labels['a'] == '1'"}},
		Prefer:  []v1alpha1.PolicyPreference{{PolicyRule: v1alpha1.PolicyRule{Name: "edge", Expression: "cluster.tier == 'edge' && cluster.region != ''"}, Weight: 1}},
	}})
	if err != nil || len(p.Classes) > 0 {
		t.Errorf("%v, classes %v", err, p.Classes)
	}
	for consumer, want := range map[placement.Consumer]bool{{Platform: "p", Space: "s"}: true, {Platform: "p", Space: "t"}: false, {Platform: "q", Space: "s"}: false, {}: false} {
		if got := p.Concerns(consumer); got != want {
			t.Errorf("it concerns %+v: %t", consumer, got)
		}
	}
	want := []placement.Look{{Field: "labels.a", By: "de"}, {Field: "region", By: "de"}, {Field: "labels.sluice.dev/tier", By: "edge"}}
	if got := p.LooksAtClusters(); !reflect.DeepEqual(got, want) {
		t.Errorf("it looks at %v, want %v", got, want)
	}
}
