package placement

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Prices are compared in the currency of most clusters that fit, the instance's own included; of several, in the
// alphabetically first. Clusters with prices in another one score nothing for theirs.
func TestTheCommonCurrency(t *testing.T) {
	for name, row := range map[string]struct {
		currencies string // of the clusters, in their order
		current    []string
		want       string
	}{
		"of most":                                     {currencies: "ee$", want: "EUR"},
		"of most, which are the others":               {currencies: "e$$", want: "USD"},
		"the first of two":                            {currencies: "$e", want: "EUR"},
		"the instance is on one":                      {currencies: "$e$", current: []string{"c0"}, want: "USD"},
		"the instance is on two, one of each":         {currencies: "$e", current: []string{"c0", "c1"}, want: "EUR"},
		"the instance is on the only one with a list": {currencies: "$--", current: []string{"c0"}, want: "USD"},
		"none has a list":                             {currencies: "--", current: []string{"c0"}},
	} {
		var fleet []*Cluster
		for i, sign := range row.currencies {
			c := &Cluster{Name: fmt.Sprint("c", i), Ready: true, AccessVerified: true, Allocatable: cores(8)}
			if c.Currency = map[rune]string{'e': "EUR", '$': "USD"}[sign]; c.Currency != "" {
				c.Prices = map[corev1.ResourceName]int64{corev1.ResourceCPU: 1000}
			}
			fleet = append(fleet, c)
		}
		for _, v := range Explain(Request{ID: "si", Resources: cores(1), Clusters: max(len(row.current), 1), Current: row.current}, stock(fleet).Snapshot()) {
			compared := v.Price != nil && v.Price.Currency == row.want
			if (v.Scores.Price > 0) != compared {
				t.Errorf("%s: %s at %v scores %d, want the currency %s", name, v.Cluster, v.Price, v.Scores.Price, row.want)
			}
		}
	}
}

// The same holds for what brokers take, on however many pages these are.
func TestTheCommonCurrencyOfBrokers(t *testing.T) {
	inventory, u := NewInventory(), &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{}}
	for i := range pageRows + 2 {
		name := fmt.Sprintf("broker-%03d", i)
		inventory.UpsertCluster(aBroker(name, "eu", "mysql/small"))
		if i == 0 || i >= pageRows { // one on the first page, and two on the other
			u.Candidates[name] = upstreamCandidate(name, "0.10")
		}
	}
	dollars := upstreamCandidate("broker-000", "0.01")
	dollars.Price.Currency = "USD"
	u.Candidates["broker-000"] = dollars
	d, err := Place(Request{ID: "si", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: u, Weights: v1alpha1.ScoreWeights{Price: 1}}, inventory.Snapshot())
	if err != nil || d.Placements[0].Price.Currency != "EUR" || d.Placements[0].Score != 100 {
		t.Errorf("it goes to %+v: %v", d.Placements, err)
	}
}

// A product is divided exactly, and rounded up; what is no int64 is the largest one.
func TestMulDiv(t *testing.T) {
	if got := mulDiv(1<<62, 1<<62, 1<<60); got != math.MaxInt64 {
		t.Errorf("2^62 · 2^62 / 2^60 is %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string, least int64) int64 {
			return max(rapid.Int64Range(0, math.MaxInt64).Draw(t, label)>>rapid.IntRange(0, 62).Draw(t, label+" is shorter"), least)
		}
		a, b, c := number("a", 0), number("b", 0), number("c", 1)
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Add(want, big.NewInt(c-1)).Div(want, big.NewInt(c))
		if largest := big.NewInt(math.MaxInt64); want.Cmp(largest) > 0 {
			want = largest
		}
		if got := mulDiv(a, b, c); got != want.Int64() {
			t.Fatalf("%d · %d / %d is %d, want %d", a, b, c, got, want)
		}
	})
}

// Clusters without a price count for no currency, however many they are; and what is free of charge adds nothing to what
// is not.
func TestWhatHasNoPrice(t *testing.T) {
	inventory, u := NewInventory(), &Upstream{Candidates: map[string]v1alpha1.UpstreamCandidate{}}
	for name, price := range map[string]string{"a": "", "b": "", "c": "", "d": "0.10"} {
		inventory.UpsertCluster(aBroker(name, "eu", "mysql/small"))
		u.Candidates[name] = upstreamCandidate(name, price)
	}
	d, err := Place(Request{ID: "si", Resources: Resources{v1alpha1.ResourceInstances: 1}, Upstream: u, Weights: v1alpha1.ScoreWeights{Price: 1}}, inventory.Snapshot())
	if err != nil || !d.Uses("d") || d.Placements[0].Score != 100 {
		t.Errorf("it goes to %+v: %v", d.Placements, err)
	}
	c := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 9000, "memory": 9 << 30}, Currency: "EUR", Prices: map[corev1.ResourceName]int64{"memory": 7}}
	d, err = Place(Request{ID: "si", Resources: Resources{"cpu": 1000, "memory": 2 << 30}}, stock([]*Cluster{c}).Snapshot())
	if err != nil || d.Placements[0].Price.NanoPerHour != 14 {
		t.Errorf("it costs %+v: %v", d.Placements, err)
	}
}
