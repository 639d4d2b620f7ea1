package placement

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// It makes no difference to how good a choice is which clusters are beside each other in the inventory: with replicas
// beyond the best clusters' room, within a budget, and in groups.
func TestChoicesAmongManyPages(t *testing.T) {
	const count = 5 * pageRows / 2
	random := rand.New(rand.NewPCG(3, 1))
	var fleet []Cluster
	for range count {
		has := 1 + random.Int64N(9)
		fleet = append(fleet, Cluster{
			Ready: true, AccessVerified: true, Allocatable: cores(has), Labels: labels.Set{v1alpha1.LabelRegion: fmt.Sprint(random.IntN(12))},
			Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1e7 * (1 + random.Int64N(9))},
		})
	}
	by := []string{v1alpha1.LabelRegion}
	budget := []Quota{{By: "policy small", Per: v1alpha1.ScopePlatform, Limits: Resources{pricePrefix + "EUR": 12e7}}}
	for name, r := range map[string]Request{
		"replicas":                 {Replicas: 40, Clusters: 6, Weights: v1alpha1.ScoreWeights{Price: 1}},
		"replicas, spread":         {Replicas: 40, Clusters: 6, Weights: v1alpha1.ScoreWeights{Price: 1}, Spread: &Spread{By: by}},
		"replicas, rather spread":  {Replicas: 40, Clusters: 6, Weights: v1alpha1.ScoreWeights{Price: 1, Balance: 1}, Spread: &Spread{By: by, Weight: 20}},
		"spread, two in a group":   {Clusters: 6, Weights: v1alpha1.ScoreWeights{Balance: 1}, Spread: &Spread{By: by, MinGroups: 3, MaxPerGroup: 2}},
		"spread, one in each":      {Weights: v1alpha1.ScoreWeights{Balance: 2, Price: 1}, Spread: &Spread{By: by, Each: true}},
		"as many as fit in a few":  {Clusters: 12, Weights: v1alpha1.ScoreWeights{Pack: 1}, Spread: &Spread{By: by, Weight: 50}},
		"within a budget":          {Clusters: 6, Weights: v1alpha1.ScoreWeights{Balance: 1}, Quotas: budget},
		"within a budget, spread":  {Clusters: 6, Weights: v1alpha1.ScoreWeights{Balance: 1}, Quotas: budget, Spread: &Spread{By: by, MinGroups: 3}},
		"replicas, by what is fit": {Replicas: 40, Clusters: 6},
	} {
		r.ID, r.Consumer, r.Resources = "si", Consumer{Platform: "cf"}, cores(1)
		totals := map[string]int{}
		for range 8 {
			inventory := NewInventory()
			for i, at := range random.Perm(count) {
				c := fleet[at]
				c.Name = fmt.Sprintf("c%04d", i)
				inventory.UpsertCluster(&c)
			}
			d, err := inventory.Place(r)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(r.Quotas) > 0 {
				continue // a heuristic chooses, and it is enough that it finds something
			}
			total, groups := int32(0), map[string]int{}
			for _, p := range d.Placements {
				at, _ := inventory.Snapshot().find(p.Cluster)
				groups[at.cluster().Labels[v1alpha1.LabelRegion]]++
				total += p.Score
			}
			numbers := slices.Sorted(maps.Values(groups))
			if r.Spread == nil {
				numbers = nil
			}
			totals[fmt.Sprint(total, numbers)]++
		}
		if len(totals) > 1 {
			t.Errorf("%s: by the order of the clusters, scores and clusters by group are %v", name, totals)
		}
	}
}
