package placement

import (
	"maps"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// An instance with a cluster in each group needs one for each group that it is not in. Of two clusters in one group it
// keeps the one that can be used, and clusters that are in no group are not needed.
func TestCovers(t *testing.T) {
	silent := func(c *Cluster) *Cluster { c.Ready = false; return c }
	cordoned := func(c *Cluster) *Cluster { c.Cordoned = true; return c }
	s := stock([]*Cluster{
		silent(inRegion("a1", "a", 4)), cordoned(inRegion("a2", "a", 4)), inRegion("a3", "a", 4), inRegion("a4", "a", 4), inRegion("b1", "b", 0), inRegion("none", "", 4),
	}).Snapshot()
	const region = v1alpha1.LabelRegion
	both := func(one, other string) string {
		return one + " and " + other + " are both in a, and its plan has one cluster in each group by " + region
	}
	for name, row := range map[string]struct {
		on      []string
		lacks   bool
		surplus map[string]string
	}{
		"in both":                            {on: []string{"a3", "b1"}},
		"in one":                             {on: []string{"a3"}, lacks: true},
		"nowhere":                            {lacks: true},
		"on a cluster that has gone":         {on: []string{"a3", "gone"}, lacks: true},
		"on one that lacks the label":        {on: []string{"a3", "b1", "none"}, surplus: map[string]string{"none": "none is in no group by " + region}},
		"twice in one":                       {on: []string{"a3", "b1", "a4"}, surplus: map[string]string{"a4": both("a4", "a3")}},
		"on a cordoned one and a silent one": {on: []string{"a1", "a2", "b1"}, surplus: map[string]string{"a1": both("a1", "a2")}},
		"on a cordoned one and a good one":   {on: []string{"a2", "b1", "a3"}, surplus: map[string]string{"a2": both("a2", "a3")}},
		"on a silent one and a good one":     {on: []string{"a1", "a3", "b1"}, surplus: map[string]string{"a1": both("a1", "a3")}},
		"on a silent one alone":              {on: []string{"a1", "b1"}},
	} {
		got := s.Covers(Request{ID: "si", Resources: cores(1), Spread: &Spread{By: []string{region}, Each: true}}, row.on)
		if got.Lacks != row.lacks || !maps.Equal(got.Surplus, row.surplus) {
			t.Errorf("%s: %+v, want %+v", name, got, row)
		}
	}
}
