package placement

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A scorer is asked about the clusters that fit: those of the instance first, with what it holds there as free, and then
// the others, the best first.
func TestQuestion(t *testing.T) {
	cluster := func(name string, room, price int64, change func(*Cluster)) *Cluster {
		c := &Cluster{
			Name: name, Ready: true, AccessVerified: true, Allocatable: cores(room), Provider: "acme", Region: "eu", Labels: map[string]string{"class": name},
			Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: price},
		}
		if change != nil {
			change(c)
		}
		return c
	}
	inventory := stock([]*Cluster{
		cluster("dear", 8, 900, nil), cluster("cheap", 8, 100, nil), cluster("full", 1, 1, nil), cluster("home", 4, 500, func(c *Cluster) { c.Cordoned = true }),
		cluster("free", 8, 0, func(c *Cluster) { c.Currency = "" }),
	})
	consumer := Consumer{Platform: "cf", Space: "dev", Plan: "plan"}
	inventory.Reserve(Holding{Instance: "si", Consumer: consumer, Held: map[string]Resources{"home": cores(3)}})
	r := Request{ID: "si", Consumer: consumer, Resources: cores(2), Clusters: 2, Current: []string{"home"}, Weights: v1alpha1.ScoreWeights{Price: 1}}
	q := Question(r, inventory.Snapshot())
	asked := q.Request
	if asked.ID != "si" || asked.Plan != "plan" || asked.Platform != "cf" || asked.Space != "dev" || asked.Clusters != 2 || asked.Replicas != 0 || asked.Resources[corev1.ResourceCPU] != 2000 {
		t.Errorf("it asks for %+v", asked)
	}
	want := []ScorerCluster{
		{Name: "home", PricePerHour: 1000, Currency: "EUR", Scores: Scores{Price: 20}}, {Name: "cheap", PricePerHour: 200, Currency: "EUR", Scores: Scores{Price: 100}},
		{Name: "dear", PricePerHour: 1800, Currency: "EUR", Scores: Scores{Price: 11}}, {Name: "free"},
	}
	free := map[string]int64{"home": 4000, "cheap": 8000, "dear": 8000, "free": 8000}
	if len(q.Clusters) != len(want) {
		t.Fatalf("it asks about %+v", q.Clusters)
	}
	for i, c := range q.Clusters {
		if c.Name != want[i].Name || c.PricePerHour != want[i].PricePerHour || c.Currency != want[i].Currency || c.Scores.Price != want[i].Scores.Price {
			t.Errorf("cluster %d is %+v, want %+v", i, c, want[i])
		}
		if c.Free[corev1.ResourceCPU] != free[c.Name] || len(c.Free) != 1 || c.Provider != "acme" || c.Region != "eu" || c.Labels["class"] != c.Name {
			t.Errorf("%s is %+v", c.Name, c)
		}
	}
}

// The answers are of the request, or of each of its components.
func TestScoredRequests(t *testing.T) {
	one, other := map[string]int32{"eu": 1}, map[string]int32{"eu": 2}
	if got := (Request{}).Scored([]map[string]int32{one}); !maps.Equal(got.External, one) {
		t.Errorf("the request has %v", got.External)
	}
	asked := Request{Components: []Component{{Name: "db"}, {Name: "web"}}}
	got := asked.Scored([]map[string]int32{one, other})
	if got.External != nil || !maps.Equal(got.Components[0].External, one) || !maps.Equal(got.Components[1].External, other) {
		t.Errorf("the components have %+v, and the request %v", got.Components, got.External)
	}
	if asked.Components[0].External != nil {
		t.Error("the request that was asked about has changed")
	}
}

// What is preferred of hubs has no say about the clusters.
func TestPreferencesAboutHubsAreNotAskedOfClusters(t *testing.T) {
	fleet := []*Cluster{inRegion("a", "a", 4), inRegion("b", "b", 4)}
	for scope, counts := range map[v1alpha1.RuleScope]bool{v1alpha1.RuleHubs: false, v1alpha1.RuleClusters: true, "": true} {
		ps := CompilePolicies([]v1alpha1.PlacementPolicy{{Spec: v1alpha1.PlacementPolicySpec{Prefer: []v1alpha1.PolicyPreference{
			{PolicyRule: v1alpha1.PolicyRule{Name: "a", AppliesTo: scope, Expression: "cluster.region == 'a'"}, Weight: 100},
		}}}})
		scores := map[string]int32{}
		for _, v := range Explain(ps.Govern(Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}}, Consumer{Platform: "cf"}), stock(fleet).Snapshot()) {
			scores[v.Cluster] = v.Score
		}
		if (scores["a"] > scores["b"]) != counts {
			t.Errorf("appliesTo %q: the scores are %v", scope, scores)
		}
	}
}
