package placement

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A proposal exchanges clusters. What would only come to more clusters, or leave some, or stay,
// is none.
func TestOnlyAnExchangeIsProposed(t *testing.T) {
	cluster := func(name string, room, price int64) *Cluster {
		return &Cluster{Name: name, Ready: true, AccessVerified: true, Allocatable: cores(room), Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: price}}
	}
	cheap := v1alpha1.ScoreWeights{Price: 100}
	for name, row := range map[string]struct {
		fleet    []*Cluster
		current  []string
		clusters int
		leaving  []string
		from, to []string
	}{
		"a cheaper one":         {fleet: []*Cluster{cluster("dear", 8, 900), cluster("cheap", 8, 100)}, current: []string{"dear"}, clusters: 1, from: []string{"dear"}, to: []string{"cheap"}},
		"the cheapest already":  {fleet: []*Cluster{cluster("dear", 8, 900), cluster("cheap", 8, 100)}, current: []string{"cheap"}, clusters: 1},
		"another one beside":    {fleet: []*Cluster{cluster("dear", 8, 900), cluster("cheap", 8, 100)}, current: []string{"dear"}, clusters: 2},
		"one of two":            {fleet: []*Cluster{cluster("dear", 8, 900), cluster("cheap", 8, 100), cluster("middle", 8, 500)}, current: []string{"cheap", "dear"}, clusters: 2, from: []string{"dear"}, to: []string{"middle"}},
		"fewer":                 {fleet: []*Cluster{cluster("dear", 8, 900), cluster("cheap", 8, 100)}, current: []string{"cheap", "dear"}, clusters: 1},
		"nowhere":               {fleet: []*Cluster{cluster("dear", 1, 900)}, current: []string{"dear"}, clusters: 1},
		"what is there is lost": {fleet: []*Cluster{cluster("dear", 8, 900)}, current: []string{"gone"}, clusters: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := Request{ID: "si", Resources: cores(2), Clusters: row.clusters, Current: row.current, Free: true, Weights: cheap}
			p, held := Propose(r, stock(row.fleet).Snapshot())
			if p == nil {
				if row.to != nil {
					t.Fatal("nothing is proposed")
				}
				return
			}
			if !slices.Equal(p.From, row.from) || !slices.Equal(p.To, row.to) {
				t.Fatalf("from %v to %v, want from %v to %v", p.From, p.To, row.from, row.to)
			}
			for _, cluster := range p.To {
				if held[cluster][corev1.ResourceCPU] != 2000 {
					t.Errorf("it would hold %v", held)
				}
			}
			if name == "a cheaper one" && (p.Gain <= 0 || p.Price == nil || p.NewPrice.NanoPerHour >= p.Price.NanoPerHour) {
				t.Errorf("%+v: gains %d, costs %v and then %v", p, p.Gain, p.Price, p.NewPrice)
			}
		})
	}
}
