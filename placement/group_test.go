package placement

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// mostInGroups returns the greatest worth of n clusters of groups, whose scores are in order: the sum of scores, each so
// many times, and an amount for each ordered pair of clusters that are in different groups; at most so many in each.
func mostInGroups(scores map[string][]int64, n int, times, apart int64, each int) (most int64, found bool) {
	best := map[int]int64{0: 0}
	for _, group := range scores {
		for taken := n; taken > 0; taken-- {
			sum := int64(0)
			for k := 1; k <= min(taken, len(group), each); k++ {
				sum += group[k-1]
				before, ok := best[taken-k]
				worth := before + times*sum + apart*int64(k*(n-k))
				if known, has := best[taken]; ok && (!has || worth > known) {
					best[taken] = worth
				}
			}
		}
	}
	most, found = best[n]
	return most, found
}

// Of many groups with many clusters each, the best are chosen: those with the best clusters if each cluster is in
// another group, and as it is worth most if that is only preferred.
func TestASpreadOverManyGroupsIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fleet []*Cluster
		regions := rapid.IntRange(1, 16).Draw(t, "regions")
		for i := range rapid.IntRange(1, 50).Draw(t, "clusters") {
			c := inRegion(fmt.Sprintf("c%02d", i), fmt.Sprint("r", rapid.IntRange(1, regions).Draw(t, "region")), rapid.Int64Range(0, 40).Draw(t, "cpu"))
			if rapid.IntRange(0, 9).Draw(t, "has a region") == 0 {
				delete(c.Labels, v1alpha1.LabelRegion)
			}
			fleet = append(fleet, c)
		}
		r := Request{
			ID: "si-new", Resources: Resources{corev1.ResourceCPU: 1}, Clusters: rapid.IntRange(1, 5).Draw(t, "asked"), Weights: v1alpha1.ScoreWeights{Balance: 4},
			Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Weight: rapid.Int32Range(0, 4).Draw(t, "weight")},
		}
		if rapid.Bool().Draw(t, "settled") { // and free to go
			r.Current, r.Free = []string{fleet[rapid.IntRange(0, len(fleet)-1).Draw(t, "home")].Name}, true
		}
		s := stock(fleet).Snapshot()
		scores, groups := map[string][]int64{}, map[string]string{}
		for _, v := range Explain(r, s) {
			c := s.Cluster(v.Cluster)
			group, has := c.Labels[v1alpha1.LabelRegion]
			if c.Allocatable[corev1.ResourceCPU] > 0 && (has || r.Spread.Weight > 0) {
				scores[group], groups[c.Name] = append(scores[group], int64(v.Score)), group
			}
		}
		for _, group := range scores {
			slices.SortFunc(group, func(a, b int64) int { return cmp.Compare(b, a) })
		}
		times, each := int64(1), 1
		if r.Spread.Weight > 0 {
			times, each = 4*int64(max(r.Clusters-1, 1)), r.Clusters
		}
		apart := 100 * int64(r.Spread.Weight)
		most, found := mostInGroups(scores, r.Clusters, times, apart, each)
		d, err := Place(r, s)
		if (err == nil) != found {
			t.Fatalf("possible is %t, and Place says %v", found, err)
		}
		if err != nil {
			return
		}
		worth := int64(0)
		for i, p := range d.Placements {
			worth += times * int64(p.Score)
			for k, other := range d.Placements {
				if i != k && groups[p.Cluster] != groups[other.Cluster] {
					worth += apart
				}
			}
		}
		if worth != most {
			t.Fatalf("%+v are worth %d, the best %d", d.Placements, worth, most)
		}
	})
}

// Of many groups whose best clusters score the same, the one with the cheapest is chosen.
func TestOfManyEqualGroupsTheCheapestIsChosen(t *testing.T) {
	var fleet []*Cluster
	for i := range 9 {
		c := inRegion(fmt.Sprint("c", i), fmt.Sprint("r", i), 8)
		c.Currency, c.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(9-i) * 1e9}
		fleet = append(fleet, c)
	}
	r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Clusters: 2, Weights: v1alpha1.ScoreWeights{Balance: 1}, Spread: &Spread{By: []string{v1alpha1.LabelRegion}}}
	if d, err := Place(r, stock(fleet).Snapshot()); err != nil || !d.Uses("c7") || !d.Uses("c8") {
		t.Errorf("they are on %+v: %v", d.Placements, err)
	}
}

// One group of many that has enough clusters is found, though all others have better ones.
func TestTheOnlyGroupWithEnoughClustersIsFound(t *testing.T) {
	var fleet []*Cluster
	for i := range 9 {
		fleet = append(fleet, inRegion(fmt.Sprint("good-", i), fmt.Sprint("r", i), 90))
	}
	for i := range 3 {
		fleet = append(fleet, inRegion(fmt.Sprint("large-", i), "large", 2))
	}
	for asked, spread := range map[int]Spread{3: {Groups: 1}, 2: {MinGroups: 1, MinPerGroup: 2}} {
		spread.By = []string{v1alpha1.LabelRegion}
		r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Clusters: asked, Spread: &spread, Weights: v1alpha1.ScoreWeights{Balance: 1}}
		d, err := Place(r, stock(fleet).Snapshot())
		if err != nil || len(d.Placements) != asked || slices.ContainsFunc(d.Placements, func(p Placement) bool { return p.Cluster < "large" }) {
			t.Errorf("%d are on %+v: %v", asked, d.Placements, err)
		}
	}
}
