package placement

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

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
			p, holds := Propose(r, stock(row.fleet).Snapshot(), -100)
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
				if holds.Held[cluster][corev1.ResourceCPU] != 2000 {
					t.Errorf("it would hold %v", holds)
				}
			}
			if name == "a cheaper one" && (p.Gain <= 0 || p.Price == nil || p.NewPrice.NanoPerHour >= p.Price.NanoPerHour) {
				t.Errorf("%+v: gains %d, costs %v and then %v", p, p.Gain, p.Price, p.NewPrice)
			}
		})
	}
}

// Diversity without a weight is not looked at.
func TestDiversityScoresOnlyWithAWeight(t *testing.T) {
	s := stock([]*Cluster{inRegion("a1", "a", 4)}).Snapshot()
	for weight, want := range map[int32]int32{0: 0, 1: 100} {
		r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Weights: v1alpha1.ScoreWeights{Balance: 1, Diversity: weight}}
		if got := Explain(r, s)[0].Scores.Diversity; got != want {
			t.Errorf("with a weight of %d it is %d, want %d", weight, got, want)
		}
	}
}

// A sum of prices has one currency, or there is none.
func TestPricesOfSeveralClusters(t *testing.T) {
	cluster := func(name, currency string, price int64) *Cluster {
		c := &Cluster{Name: name, Ready: true, AccessVerified: true, Allocatable: cores(8), Currency: currency}
		if currency != "" {
			c.Prices = map[corev1.ResourceName]int64{corev1.ResourceCPU: price}
		}
		return c
	}
	s := stock([]*Cluster{cluster("a", "EUR", 1), cluster("b", "EUR", 2), cluster("c", "USD", 4), cluster("d", "", 0)}).Snapshot()
	for _, row := range []struct {
		on  []string
		sum *Price
	}{
		{on: []string{"a"}, sum: &Price{"EUR", 2}},
		{on: []string{"a", "b"}, sum: &Price{"EUR", 6}},
		{on: []string{"c"}, sum: &Price{"USD", 8}},
		{on: []string{"a", "c"}},
		{on: []string{"c", "a"}},
		{on: []string{"a", "d"}},
		{on: []string{"d"}},
	} {
		e := evaluate(Request{ID: "si", Resources: cores(2), Clusters: len(row.on), Current: row.on}, s)
		got := e.sum(e.current)
		if (got == nil) != (row.sum == nil) || got != nil && *got != *row.sum {
			t.Errorf("on %v: %+v, want %+v", row.on, got, row.sum)
		}
	}
}

// Clusters that are preferably apart are worth a move: what being apart adds is part of the gain.
func TestAMoveApartIsAGain(t *testing.T) {
	in := func(region, name string) *Cluster {
		return &Cluster{
			Name: name, Region: region, Ready: true, AccessVerified: true, Allocatable: cores(8), Labels: labels.Set{v1alpha1.LabelRegion: region},
		}
	}
	s := stock([]*Cluster{in("a", "a1"), in("a", "a2"), in("b", "b1")}).Snapshot()
	r := Request{ID: "si", Resources: cores(2), Clusters: 2, Current: []string{"a1", "a2"}, Free: true, Weights: v1alpha1.ScoreWeights{Balance: 3}}
	if p, _ := Propose(r, s, -100); p != nil && p.Gain > 0 {
		t.Errorf("%+v is a gain, though nothing prefers it", p)
	}
	r.Spread = &Spread{By: []string{v1alpha1.LabelRegion}, Weight: 1}
	p, _ := Propose(r, s, -100)
	if p == nil || len(p.From) != 1 || !slices.Equal(p.To, []string{"b1"}) || p.Score != 75*3/4 || p.Gain != 25 {
		t.Errorf("%+v is proposed", p) // 75 by balance; apart, it is a quarter of 100 more
	}
}
