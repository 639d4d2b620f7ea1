package placement

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// budgeted returns a fleet whose quota leaves nano per hour, in billionths of a euro, and a request for a number of clusters
// that cost 2 to 9 cents an hour.
func budgeted(clusters, n int, nano int64) (Request, *Snapshot) {
	inventory := NewInventory()
	for i := range clusters {
		inventory.UpsertCluster(&Cluster{
			Name: fmt.Sprintf("c%d", i), Driver: v1alpha1.DriverKube, Ready: true, AccessVerified: true, Region: fmt.Sprint(i % 5),
			Labels:      map[string]string{v1alpha1.LabelRegion: fmt.Sprint(i % 5)},
			Allocatable: Resources{corev1.ResourceCPU: int64(2+i%8) * 1000}, Currency: "EUR",
			Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(2+i%8) * 1e7},
		})
	}
	consumer := Consumer{Platform: "cf"}
	r := Request{ID: "si-new", Consumer: consumer, Resources: Resources{corev1.ResourceCPU: 1000}, Clusters: n, Weights: v1alpha1.ScoreWeights{Balance: 1}}
	r.Quotas = []Quota{{Per: v1alpha1.ScopePlatform, Limits: Resources{pricePrefix + "EUR": nano}, By: "policy small"}}
	return r, inventory.Snapshot()
}

// The dearest clusters are the emptiest, so that the best choice is too dear.
func TestACheaperChoiceIsExplained(t *testing.T) {
	r, s := budgeted(8, 3, 15e7) // the best choice costs 24 cents
	d, err := Place(r, s)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, p := range d.Placements {
		sum += p.Price.NanoPerHour
	}
	if sum != 15e7 {
		t.Errorf("it costs %d, want what is left: %+v", sum, d.Placements)
	}
	for _, v := range Explain(r, s) {
		if v.Cluster == "c7" && !strings.Contains(v.Message, "cheaper clusters are chosen, because the best choice costs more than the budget leaves") {
			t.Errorf("of the best cluster it says %q", v.Message)
		}
	}
	for i, p := range d.Placements {
		if i > 0 && p.Score > d.Placements[i-1].Score {
			t.Errorf("they are not in the order of their scores: %+v", d.Placements)
		}
	}
	last := d.Placements[len(d.Placements)-1].Score
	for _, v := range Explain(r, s) {
		if want := fmt.Sprintf("scores %d, the last one chosen %d", v.Score, last); !v.Chosen && v.Score < last && v.Message != want {
			t.Errorf("of %s it says %q, want %q", v.Cluster, v.Message, want)
		}
	}

	r.Current = []string{"c0"} // the cheapest, with the least score
	for free, first := range map[bool]string{false: "c0", true: d.Placements[0].Cluster} {
		r.Free = free
		if d, err := Place(r, s); err != nil || d.Placements[0].Cluster != first {
			t.Errorf("it is on c0, free to leave: %t, and %s comes first of %+v: %v", free, first, d.Placements, err)
		}
	}

	r, s = budgeted(8, 3, 8e7) // the cheapest cost 9 cents
	if _, err := Place(r, s); err == nil || !strings.Contains(err.Error(), "policy small") {
		t.Errorf("error %v, want the budget's", err)
	}
}

// Prices count no more than they have to: a choice that costs what is left is taken before one that is cheaper and
// scores less.
func TestPricesCountNoMoreThanTheyHaveTo(t *testing.T) {
	for _, row := range []struct {
		left  int64      // cents
		fleet [][2]int64 // cores, and cents for one
		on    []string
	}{
		{10, [][2]int64{{9, 3}, {3, 6}, {7, 7}, {9, 9}}, []string{"c0", "c2"}},
		{9, [][2]int64{{3, 2}, {6, 3}, {5, 4}, {7, 5}, {5, 2}, {9, 9}}, []string{"c1", "c3"}},
	} {
		inventory := NewInventory()
		for i, has := range row.fleet {
			inventory.UpsertCluster(&Cluster{
				Name: fmt.Sprint("c", i), Ready: true, AccessVerified: true, Allocatable: cores(has[0]), Currency: "EUR", Prices: map[corev1.ResourceName]int64{"cpu": has[1] * 1e7},
			})
		}
		r, _ := budgeted(0, 2, row.left*1e7)
		if d, err := Place(r, inventory.Snapshot()); err != nil || !d.Uses(row.on[0]) || !d.Uses(row.on[1]) {
			t.Errorf("with %d cents they are on %+v, want %v: %v", row.left, d.Placements, row.on, err)
		}
	}
}

// BenchmarkThrift places on eight clusters whose best choice is within the budget, or costs more than it leaves.
func BenchmarkThrift(b *testing.B) {
	for _, n := range []int{100, 1000, 10000} {
		for _, row := range []struct {
			what string
			left int64
		}{{"within", 100e7}, {"beyond", 40e7}} {
			r, s := budgeted(n, 8, row.left)
			spread := r
			spread.Spread = &Spread{By: []string{v1alpha1.LabelRegion}, MinGroups: 2}
			for name, r := range map[string]Request{"anywhere": r, "spread": spread} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, row.what, n), func(b *testing.B) {
					for b.Loop() {
						if _, err := Place(r, s); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
