package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// drawGrouped draws a small fleet of clusters in a few regions, some in none.
func drawGrouped(t *rapid.T) []*Cluster {
	fleet := make([]*Cluster, rapid.IntRange(0, 9).Draw(t, "clusters"))
	for i := range fleet {
		fleet[i] = &Cluster{
			Name: fmt.Sprintf("cluster-%d", i), Ready: true, AccessVerified: true, Labels: labels.Set{},
			Allocatable: Resources{corev1.ResourceCPU: rapid.Int64Range(0, 9).Draw(t, "cpu")},
		}
		if region := rapid.SampledFrom([]string{"", "af", "ap", "eu", "sa", "us"}).Draw(t, "region"); region != "" {
			fleet[i].Labels[v1alpha1.LabelRegion] = region
		}
	}
	return fleet
}

// choices returns all sets of n clusters.
func choices(fleet []*Cluster, n int) (all [][]*Cluster) {
	if n == 0 {
		return [][]*Cluster{nil}
	}
	for i := range fleet {
		for _, rest := range choices(fleet[i+1:], n-1) {
			all = append(all, append([]*Cluster{fleet[i]}, rest...))
		}
	}
	return all
}

// least and most are the numbers of clusters of a choice in one region; regions is the number
// of regions.
func outline(choice []*Cluster) (groups, least, most int) {
	count := map[string]int{}
	for _, c := range choice {
		count[c.Labels[v1alpha1.LabelRegion]]++
	}
	least = len(choice)
	for _, n := range count {
		least, most = min(least, n), max(most, n)
	}
	return len(count), least, most
}

// unevenness returns the sum of the squares of the groups' numbers of clusters.
func unevenness(choice []*Cluster) (squares int) {
	count := map[string]int{}
	for _, c := range choice {
		count[c.Labels[v1alpha1.LabelRegion]]++
	}
	for _, n := range count {
		squares += n * n
	}
	return squares
}

func TestASpreadIsTheBestOfAllThatTheRulesAllow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawGrouped(t)
		s := stock(fleet).Snapshot()
		r := Request{
			ID: "si-new", Resources: Resources{corev1.ResourceCPU: 1},
			Clusters: rapid.IntRange(1, 6).Draw(t, "asked"),
			Spread:   &Spread{By: []string{v1alpha1.LabelRegion}, MaxSkew: rapid.IntRange(1, 3).Draw(t, "skew")},
		}
		r.Spread.Groups = rapid.IntRange(0, r.Clusters).Draw(t, "groups")
		groups := r.Spread.Groups
		if groups == 0 {
			groups = r.Clusters
		}
		scores := map[string]int32{}
		for _, v := range Explain(r, s) {
			scores[v.Cluster] = v.Score
		}
		// The most even shape first, then the greatest sum of scores.
		evenest, best := math.MaxInt, int32(-1)
		for _, choice := range choices(fleet, r.Clusters) {
			fits := !slices.ContainsFunc(choice, func(c *Cluster) bool {
				return c.Allocatable[corev1.ResourceCPU] < 1 || c.Labels[v1alpha1.LabelRegion] == ""
			})
			n, least, most := outline(choice)
			if !fits || n != groups || most-least > r.Spread.MaxSkew {
				continue
			}
			var sum int32
			for _, c := range choice {
				sum += scores[c.Name]
			}
			if squares := unevenness(choice); squares < evenest || squares == evenest && sum > best {
				evenest, best = squares, sum
			}
		}
		d, err := Place(r, s)
		if (err == nil) != (best >= 0) {
			t.Fatalf("the best is worth %d, and Place says %v", best, err)
		}
		if err != nil {
			return
		}
		var chosen []*Cluster
		var sum int32
		for _, p := range d.Placements {
			chosen = append(chosen, s.Cluster(p.Cluster))
			sum += p.Score
		}
		n, least, most := outline(chosen)
		if len(chosen) != r.Clusters || n != groups || most-least > r.Spread.MaxSkew {
			t.Fatalf("%d clusters in %d groups of %d to %d", len(chosen), n, least, most)
		}
		if squares := unevenness(chosen); squares != evenest || sum != best {
			t.Fatalf("the squares sum up to %d, worth %d; the best are %d and %d", squares, sum, evenest, best)
		}
	})
}

func TestReplicasAreDividedWheneverTheyFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawGrouped(t)
		inventory := stock(fleet)
		r := Request{
			ID: "si-new", Resources: Resources{corev1.ResourceCPU: rapid.Int64Range(1, 2).Draw(t, "cpu")},
			Common:   Resources{corev1.ResourceCPU: rapid.Int64Range(0, 2).Draw(t, "common")},
			Clusters: rapid.IntRange(1, 4).Draw(t, "asked"), Replicas: rapid.IntRange(1, 20).Draw(t, "replicas"),
			Division: Division{By: rapid.SampledFrom([]v1alpha1.Division{
				v1alpha1.DivideEvenly, v1alpha1.DivideByWeight, v1alpha1.DivideByCapacity, v1alpha1.DivideByPrice,
			}).Draw(t, "division")},
		}
		var rooms []int64
		for _, c := range fleet {
			if room := (c.Allocatable[corev1.ResourceCPU] - r.Common[corev1.ResourceCPU]) / r.Resources[corev1.ResourceCPU]; room > 0 {
				rooms = append(rooms, room)
			}
		}
		slices.Sort(rooms)
		slices.Reverse(rooms)
		var room int64
		for _, n := range rooms[:min(len(rooms), r.ClusterCount())] {
			room += n
		}
		possible := len(rooms) >= r.ClusterCount() && room >= int64(r.Replicas)

		d, err := inventory.Place(r)
		if (err == nil) != possible {
			t.Fatalf("room for %d in %d clusters, and Place says %v", room, len(rooms), err)
		}
		if err != nil {
			return
		}
		audit(t, inventory, fleet)
		placed := func(d Decision) (sum int) {
			for _, p := range d.Placements {
				if p.Replicas < 1 || p.Reserved[corev1.ResourceCPU] != r.Common[corev1.ResourceCPU]+int64(p.Replicas)*r.Resources[corev1.ResourceCPU] {
					t.Fatalf("%d replicas reserve %v", p.Replicas, p.Reserved)
				}
				sum += int(p.Replicas)
			}
			return sum
		}
		if placed(d) != r.Replicas || len(d.Placements) != r.ClusterCount() {
			t.Fatalf("%d replicas on %d clusters", placed(d), len(d.Placements))
		}
		// One more replica moves no existing one.
		before := map[string]int32{}
		for _, p := range d.Placements {
			before[p.Cluster] = p.Replicas
			r.Current = append(r.Current, p.Cluster)
		}
		if r.Replicas <= r.Clusters {
			return // one more would be a cluster more
		}
		r.Replicas++
		grown, err := inventory.Place(r)
		if err != nil {
			return
		}
		for _, p := range grown.Placements {
			if p.Replicas < before[p.Cluster] {
				t.Fatalf("%s had %d replicas, and one more leaves %d", p.Cluster, before[p.Cluster], p.Replicas)
			}
		}
	})
}

// One in every group means one, whatever else is requested. Each group has a cluster and, if
// replicas are divided, at least one replica. All of them together are the requested number,
// and the number that a quota counts. An update follows the same rules.
func TestOneInEveryGroupIsWhatIsAskedForAndWhatAQuotaCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawGrouped(t)
		inventory := stock(fleet)
		limit := rapid.Int64Range(1, 20).Draw(t, "quota")
		inventory.SetPolicies(Policies{{Name: "small", Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: Resources{corev1.ResourceCPU: limit}.List()}}})
		r := Request{
			ID: "si-new", Resources: Resources{corev1.ResourceCPU: rapid.Int64Range(1, 3).Draw(t, "cpu")},
			Clusters: rapid.IntRange(1, 5).Draw(t, "clusters, which count for nothing"),
			Spread:   &Spread{By: []string{v1alpha1.LabelRegion}, Each: true},
			Replicas: rapid.IntRange(0, 9).Draw(t, "replicas"),
			Division: Division{By: rapid.SampledFrom([]v1alpha1.Division{v1alpha1.DivideEvenly, v1alpha1.DivideByCapacity, v1alpha1.DivideByPrice}).Draw(t, "division")},
		}
		r = inventory.Snapshot().Govern(r, Consumer{Platform: "cf", Space: "s1"})

		most := map[string]int64{} // replicas that the roomiest cluster of a region takes
		for _, c := range fleet {
			if region := c.Labels[v1alpha1.LabelRegion]; region != "" {
				most[region] = max(most[region], c.Allocatable[corev1.ResourceCPU]/r.Resources[corev1.ResourceCPU])
			}
		}
		possible := func(replicas int) bool {
			var room, asked int64 = 0, int64(len(most))
			for _, n := range most {
				if n == 0 {
					return false
				}
				room += n
			}
			if replicas > 0 {
				asked = int64(replicas)
			}
			return len(most) > 0 && asked >= int64(len(most)) && (replicas == 0 || room >= asked) && asked*r.Resources[corev1.ResourceCPU] <= limit
		}
		place := func() (Decision, bool) {
			d, err := inventory.Place(r)
			if (err == nil) != possible(r.Replicas) {
				t.Fatalf("possible is %t, and Place says %v", possible(r.Replicas), err)
			}
			if err != nil {
				return d, false
			}
			regions, replicas := map[string]bool{}, 0
			for _, p := range d.Placements {
				regions[inventory.Snapshot().Cluster(p.Cluster).Labels[v1alpha1.LabelRegion]] = true
				replicas += int(p.Replicas)
				if n := max(int64(p.Replicas), 1); p.Reserved[corev1.ResourceCPU] != n*r.Resources[corev1.ResourceCPU] || r.Replicas > 0 && p.Replicas < 1 {
					t.Fatalf("%d replicas on %s reserve %v", p.Replicas, p.Cluster, p.Reserved)
				}
			}
			if len(regions) != len(most) || len(d.Placements) != len(most) || replicas != r.Replicas {
				t.Fatalf("%d clusters in %d of %d regions have %d of %d replicas", len(d.Placements), len(regions), len(most), replicas, r.Replicas)
			}
			return d, true
		}
		d, placed := place()
		if !placed || r.Replicas == 0 {
			return
		}
		audit(t, inventory, fleet)
		for _, p := range d.Placements {
			r.Current = append(r.Current, p.Cluster)
		}
		if r.Replicas = rapid.IntRange(1, r.Replicas).Draw(t, "scaled to"); !possible(r.Replicas) {
			if _, err := inventory.Place(r); err == nil {
				t.Fatalf("%d replicas are placed in %d regions", r.Replicas, len(most))
			}
			return
		}
		place()
	})
}

// The reason why groups do not suffice lists the first of them, and how many more there are.
func TestTheGroupsThatFitAreListed(t *testing.T) {
	inventory := NewInventory()
	for i := range 10 {
		inventory.UpsertCluster(inRegion(fmt.Sprint("c", i), fmt.Sprint("r", i), 4))
	}
	_, err := Place(Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Clusters: 11, Spread: &Spread{By: []string{v1alpha1.LabelRegion}}}, inventory.Snapshot())
	const want = "there fit r0 1, r1 1, r2 1, r3 1, r4 1, r5 1, r6 1, r7 1, and 2 more"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("it says %v, want %s", err, want)
	}
	_, err = Place(Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 9}, Clusters: 2, Spread: &Spread{By: []string{v1alpha1.LabelRegion}}}, inventory.Snapshot())
	if err == nil || !strings.Contains(err.Error(), "differing by at most 1: none fits") {
		t.Errorf("it says %v, want that none fits", err)
	}
}

// A group that was not chosen has too few clusters that fit, or else others were better.
func TestAGroupThatWasNotChosen(t *testing.T) {
	for fitting, why := range map[int]string{
		1: "scores 50; 1 fits in b, and a group takes at least 2", 2: "scores 50, and b is not one of the groups chosen", 3: "scores 50, and b is not one of the groups chosen",
	} {
		fleet := []*Cluster{inRegion("a1", "a", 8), inRegion("a2", "a", 8)}
		for i := range fitting {
			fleet = append(fleet, inRegion(fmt.Sprint("b", i), "b", 4))
		}
		r := Request{
			ID: "si", Resources: Resources{corev1.ResourceCPU: 2}, Clusters: 2, Weights: v1alpha1.ScoreWeights{Balance: 1},
			Spread: &Spread{By: []string{v1alpha1.LabelRegion}, MinGroups: 1, MinPerGroup: 2},
		}
		for _, v := range Explain(r, stock(fleet).Snapshot()) {
			if v.Cluster == "b0" && v.Message != why {
				t.Errorf("%d fit in b: %q, want %q", fitting, v.Message, why)
			}
		}
	}
}

// Replicas that have to be in one group are on the best clusters of one that have the room, and better clusters of several
// groups are none of these.
func TestReplicasInOneGroup(t *testing.T) {
	var fleet []*Cluster
	for i, one := range [][2]int64{{3, 0}, {4, 1}, {5, 0}, {6, 4}} { // what they have, and what others use
		c := inRegion(fmt.Sprint("c", i), "b", one[0])
		c.ForeignUse = Resources{corev1.ResourceCPU: one[1]}
		fleet = append(fleet, c)
	}
	fleet[3].Labels[v1alpha1.LabelRegion] = "a"
	fleet = append(fleet, inRegion("c4", "a", 2))
	r := Request{
		ID: "si", Replicas: 5, Clusters: 2, Resources: Resources{corev1.ResourceCPU: 1}, Weights: v1alpha1.ScoreWeights{Pack: 1},
		Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Groups: 1},
	}
	if d, err := Place(r, stock(fleet).Snapshot()); err != nil || !d.Uses("c0") || !d.Uses("c1") {
		t.Errorf("they are on %+v: %v", d.Placements, err)
	}
}

// What replicas have in common need not be what each of them takes: a cluster without it takes none.
func TestReplicasThatShareAnotherResource(t *testing.T) {
	for memory, fits := range map[int64]bool{3: true, 2: true, 1: false} {
		c := inRegion("eu", "eu", 8)
		c.Allocatable[corev1.ResourceMemory] = memory
		r := Request{ID: "si", Replicas: 4, Resources: Resources{corev1.ResourceCPU: 2}, Common: Resources{corev1.ResourceMemory: 2}}
		d, err := Place(r, stock([]*Cluster{c}).Snapshot())
		if (err == nil) != fits || err == nil && (d.Placements[0].Replicas != 4 || d.Placements[0].Reserved[corev1.ResourceMemory] != 2) {
			t.Errorf("with %d: %+v, %v", memory, d.Placements, err)
		}
	}
}

// Why an instance does not fit in each group: there are more groups than replicas or than are followed, or one of them
// takes nothing.
func TestWhyNotInEachGroup(t *testing.T) {
	for _, row := range []struct {
		groups, full, replicas int
		want                   string
	}{
		{groups: 0, want: "there is no group by"},
		{groups: 2, full: 1, want: "fits in r0"},
		{groups: 2, full: 1, replicas: 2, want: "fits in r0"},
		{groups: 3, full: 2, replicas: 3, want: "fits in r0, r1"},
		{groups: 3, replicas: 2, want: "each of the 3 groups"},
		{groups: mostGroups, full: 1, want: "fits in r0"},
		{groups: mostGroups + 1, want: fmt.Sprintf("%d groups by %s are more than %d", mostGroups+1, v1alpha1.LabelRegion, mostGroups)},
	} {
		fleet := []*Cluster{inRegion("none", "", 4)}
		for i := range row.groups {
			c := inRegion(fmt.Sprint("c", i), fmt.Sprint("r", i), 4)
			if i < row.full {
				c.Allocatable = Resources{}
			}
			fleet = append(fleet, c)
		}
		r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Replicas: row.replicas, Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Each: true}}
		if _, err := Place(r, stock(fleet).Snapshot()); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%d groups, %d of them full, %d replicas: %v, want %q", row.groups, row.full, row.replicas, err, row.want)
		}
	}
}

// What the verdicts say that the replicas cost is what they are decided to cost: what they have in common once.
func TestTheVerdictsPriceWhatReplicasShareOnce(t *testing.T) {
	c := inRegion("eu", "eu", 16_000)
	c.Currency, c.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: 1_000_000_000}
	r := Request{ID: "si", Replicas: 4, Resources: cores(1), Common: cores(3)}
	s := stock([]*Cluster{c}).Snapshot()
	d, err := Place(r, s)
	if err != nil {
		t.Fatal(err)
	}
	if v := Explain(r, s)[0]; *v.Price != *d.Placements[0].Price || v.Price.NanoPerHour != d.Placements[0].Reserved[corev1.ResourceCPU]*1_000_000 {
		t.Errorf("a verdict says %s, and it is decided to cost %s for %v", v.Price, d.Placements[0].Price, d.Placements[0].Reserved)
	}
}
