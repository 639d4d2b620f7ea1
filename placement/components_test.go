package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The chosen combination is valid, and no valid one scores more: verified by brute force.
func TestComponentsAreChosenExactly(t *testing.T) {
	few := firstFew
	t.Cleanup(func() { firstFew = few })
	firstFew = 1 // so that those that are looked at first are not all
	rapid.Check(t, func(t *rapid.T) {
		r, clusters := drawApplication(t)
		s := stock(clusters).Snapshot()
		decision, err := Place(r, s)
		best := bruteForce(r, s)
		if best < 0 {
			if err == nil {
				t.Fatalf("placed as %v, though no combination holds", decision.Placements)
			}
			return
		}
		if err != nil {
			t.Fatalf("not placed, though there is a combination: %v", err)
		}
		chosen := map[string]string{}
		for _, p := range decision.Placements {
			for _, component := range p.Components {
				chosen[component] = p.Cluster
			}
		}
		if len(chosen) != len(r.Components) {
			t.Fatalf("%d of %d components are placed", len(chosen), len(r.Components))
		}
		combination := make([]string, len(r.Components))
		for i, c := range r.Components {
			combination[i] = chosen[c.Name]
		}
		if score, ok := judge(r, s, combination); !ok || score != best {
			t.Fatalf("%v scores %d (holds: %t), the best scores %d", combination, score, ok, best)
		}
		for _, p := range decision.Placements {
			want := Resources{}
			for i, c := range r.Components {
				if combination[i] == p.Cluster {
					want.Add(c.Resources, 1)
				}
			}
			if fmt.Sprint(p.Reserved) != fmt.Sprint(want) {
				t.Fatalf("%s has %v reserved, want %v", p.Cluster, p.Reserved, want)
			}
		}
	})
}

func drawApplication(t *rapid.T) (Request, []*Cluster) {
	names := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "clusters")]
	var clusters []*Cluster
	for _, name := range names {
		c := &Cluster{
			Name: name, Ready: true, AccessVerified: true,
			Allocatable: Resources{"cpu": rapid.Int64Range(1, 8).Draw(t, "cpu of "+name) * 1000}, Latencies: map[string]Measured{},
		}
		for _, from := range names {
			if from != name && rapid.Bool().Draw(t, "measured") {
				c.Latencies[from] = Measured{Median: time.Duration(rapid.IntRange(1, 30).Draw(t, "ms")) * time.Millisecond}
			}
		}
		clusters = append(clusters, c)
	}
	r := Request{ID: "si-new"}
	for i := range rapid.IntRange(1, 4).Draw(t, "components") {
		r.Components = append(r.Components, Component{
			Name: fmt.Sprintf("part-%d", i), Resources: Resources{"cpu": rapid.Int64Range(1, 5).Draw(t, "needs") * 1000},
		})
	}
	for range rapid.IntRange(0, 3).Draw(t, "links") {
		a := rapid.IntRange(0, len(r.Components)-1).Draw(t, "from")
		b := rapid.IntRange(0, len(r.Components)-1).Draw(t, "to")
		if a != b {
			r.Links = append(r.Links, Link{Between: [2]int{a, b}, Most: time.Duration(rapid.IntRange(0, 20).Draw(t, "bound")) * time.Millisecond})
		}
	}
	return r, clusters
}

// judge returns the score of a combination, and whether it is valid. It follows the definition,
// and shares only the score of one cluster with Place.
func judge(r Request, s *Snapshot, combination []string) (score int64, holds bool) {
	need := map[string]int64{}
	for i, name := range combination {
		need[name] += r.Components[i].Resources["cpu"]
		if need[name] > s.Free(name, "cpu") {
			return 0, false
		}
		at, found := s.find(name)
		if !found {
			return 0, false
		}
		score += int64(newScorer(r.of(&r.Components[i]), s, &rowScores{}).score(at))
	}
	for _, link := range r.Links {
		a, b := combination[link.Between[0]], combination[link.Between[1]]
		if a == b {
			continue
		}
		near := false
		for _, pair := range [][2]string{{a, b}, {b, a}} {
			if measured, ok := s.Cluster(pair[0]).Latencies[pair[1]]; ok && measured.Median <= link.Most {
				near = true
			}
		}
		if !near {
			return 0, false
		}
	}
	return score, true
}

// bruteForce returns the best score of all valid combinations, −1 if there is none.
func bruteForce(r Request, s *Snapshot) int64 {
	best := int64(-1)
	var names []string
	for _, c := range s.Clusters() {
		names = append(names, c.Name)
	}
	combination := make([]string, len(r.Components))
	var try func(int)
	try = func(i int) {
		if i == len(combination) {
			if score, ok := judge(r, s, combination); ok {
				best = max(best, score)
			}
			return
		}
		for _, name := range names {
			combination[i] = name
			try(i + 1)
		}
	}
	try(0)
	return best
}

// Components stay where they are when the plan grows. Only the components on a cluster that has
// to be left move.
func TestComponentsStay(t *testing.T) {
	clusters := []*Cluster{
		{Name: "a", Labels: labels.Set{v1alpha1.LabelCluster: "a"}, Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 8000}},
		{Name: "b", Labels: labels.Set{v1alpha1.LabelCluster: "b"}, Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 16000}},
		{Name: "c", Labels: labels.Set{v1alpha1.LabelCluster: "c"}, Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 64000}},
	}
	r := Request{ID: "si-old", Components: []Component{{Name: "db", Resources: Resources{"cpu": 2000}}, {Name: "web", Resources: Resources{"cpu": 1000}}}}
	on := func(r Request) map[string]string {
		t.Helper()
		decision, err := Place(r, stock(clusters).Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		clusters := map[string]string{}
		for _, p := range decision.Placements {
			for _, component := range p.Components {
				clusters[component] = p.Cluster
			}
		}
		return clusters
	}
	r.ComponentClusters = map[string]string{"db": "a", "web": "b"}
	if got := on(r); got["db"] != "a" || got["web"] != "b" {
		t.Errorf("they are on %v, want them to stay", got)
	}
	r.ComponentClusters, r.Leaving = map[string]string{"web": "b"}, []string{"a"}
	if got := on(r); got["db"] == "a" || got["web"] != "b" {
		t.Errorf("they are on %v, want web on b and db elsewhere", got)
	}
	r.ComponentClusters, r.Leaving = map[string]string{"db": "a", "web": "b"}, nil
	r.Components[0].Resources = Resources{"cpu": 9000}
	if _, err := Place(r, stock(clusters).Snapshot()); err == nil {
		t.Error("db is placed where it has no room")
	}
}

// With a hundred links and clusters the search ends in time, whatever the result.
func TestComponentsOfManyClusters(t *testing.T) {
	var clusters []*Cluster
	for i := range 200 {
		clusters = append(clusters, &Cluster{
			Name: fmt.Sprintf("cluster-%03d", i), Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 64000},
			Latencies: map[string]Measured{fmt.Sprintf("cluster-%03d", (i+1)%200): {Median: 5 * time.Millisecond}},
		})
	}
	r := Request{ID: "si-new"}
	for i := range 16 {
		r.Components = append(r.Components, Component{Name: fmt.Sprintf("part-%02d", i), Resources: Resources{"cpu": 40000}})
		if i > 0 {
			r.Links = append(r.Links, Link{Between: [2]int{i - 1, i}, Most: 5 * time.Millisecond})
		}
	}
	decision, err := Place(r, stock(clusters).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(decision.Placements) != 16 || slices.ContainsFunc(decision.Placements, func(p Placement) bool { return len(p.Components) != 1 }) {
		t.Errorf("a chain of 16 is on %v", decision.Placements)
	}
}

// What an instance costs on a cluster is the sum of its components there.
func TestComponentsOnOneClusterCostTheirSum(t *testing.T) {
	c := &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8), Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1000}}
	r := Request{ID: "si", Components: []Component{{Name: "web", Resources: cores(1)}, {Name: "db", Resources: cores(2)}}}
	d, err := Place(r, stock([]*Cluster{c}).Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Placements[0].Price; len(d.Placements) != 1 || p == nil || p.NanoPerHour != 3000 {
		t.Errorf("%+v costs %+v, want 3000", d.Placements, p)
	}
	for most, fits := range map[int64]bool{3000: true, 2999: false} {
		r.MaxPrice = &Price{"EUR", most}
		if _, err := Place(r, stock([]*Cluster{c}).Snapshot()); (err == nil) != fits {
			t.Errorf("at most %d: %v", most, err)
		}
	}
	c.Prices[corev1.ResourceCPU] = math.MaxInt64 / 2 // what both cost together is no number
	r.MaxPrice.NanoPerHour = math.MaxInt64 - 1
	if d, err := Place(r, stock([]*Cluster{c}).Snapshot()); err == nil {
		t.Errorf("they cost more than can be counted, and are on %+v", d.Placements)
	}
}

// The reason why components cannot be placed together names only the limits that they have.
func TestObstaclesOfComponents(t *testing.T) {
	cluster := func(name string) *Cluster {
		return &Cluster{Name: name, Ready: true, AccessVerified: true, Allocatable: cores(4)}
	}
	r := Request{
		ID: "si", Components: []Component{{Name: "web", Resources: cores(3)}, {Name: "db", Resources: cores(3)}},
		Links: []Link{{Between: [2]int{0, 1}, Most: AnyLatency, Connects: true}},
	}
	_, err := Place(r, stock([]*Cluster{cluster("a"), cluster("b")}).Snapshot())
	if err == nil || !strings.Contains(err.Error(), "web and db need one cluster, or two with the driver liqo") || strings.Contains(err.Error(), "apart") {
		t.Errorf("got %v", err)
	}
}

// A cluster accepts a request with components if it takes one of them.
func TestAcceptsOneComponent(t *testing.T) {
	s := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(4), Labels: map[string]string{v1alpha1.LabelTier: "cloud"}}}).Snapshot()
	r := Request{ID: "si", Components: []Component{{Name: "web", Tier: v1alpha1.TierEdge, Resources: cores(1)}, {Name: "db", Tier: v1alpha1.TierCloud, Resources: cores(1)}}}
	if !Accepts(r, s, "eu") {
		t.Error("it takes db, and is said to take nothing")
	}
	r.Components = r.Components[:1]
	if Accepts(r, s, "eu") {
		t.Error("it does not take web")
	}
}

// Where a latency is limited, the clusters near enough are tried best first, as all others are: the search stops
// at the first that cannot be better.
func TestNearClustersAreTriedBestFirst(t *testing.T) {
	p := &page{clusters: []*Cluster{{Name: "first"}, {Name: "second"}, {Name: "third"}}}
	var fitting []candidate
	indices := map[*Cluster]int{}
	for row, c := range p.clusters {
		fitting = append(fitting, candidate{position: position{page: p, row: row}})
		indices[c] = row
	}
	a := &assembly{
		request: Request{Links: []Link{{Between: [2]int{0, 1}, Most: time.Millisecond}}},
		order:   []int{0, 1}, fitting: [][]candidate{fitting, fitting}, chosen: []candidate{fitting[1], {}},
		paths: &paths{
			from:    map[*Cluster][]*Cluster{p.clusters[1]: {p.clusters[2], p.clusters[0], p.clusters[2]}},
			fitting: []map[*Cluster]int{indices, indices},
		},
	}
	var got []string
	for c := range a.reachable(1, 1) {
		got = append(got, c.cluster().Name)
	}
	if want := []string{"first", "second", "third"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A cluster near enough is found in either direction of the measurement, also if it is the worst by its score.
func TestTheOnlyNearClusterIsFoundHoweverItIsMeasured(t *testing.T) {
	few := firstFew
	t.Cleanup(func() { firstFew = few })
	firstFew = 1
	for _, byHome := range []bool{true, false} {
		var fleet []*Cluster
		for i := range 6 {
			name := fmt.Sprint("c", i)
			fleet = append(fleet, &Cluster{
				Name: name, Ready: true, AccessVerified: true, Labels: labels.Set{v1alpha1.LabelCluster: name}, Allocatable: cores(int64(16 - 2*i)), Latencies: map[string]Measured{},
			})
		}
		home, near := fleet[2], fleet[5]
		home.ForeignUse = cores(home.Allocatable[corev1.ResourceCPU]/1000 - 3) // web does not fit beside db
		from, to := home, near
		if !byHome {
			from, to = near, home
		}
		from.Latencies[to.Name] = Measured{Median: time.Millisecond}
		r := Request{
			ID: "si-new", Weights: v1alpha1.ScoreWeights{Balance: 1}, Links: []Link{{Between: [2]int{0, 1}, Most: time.Millisecond}},
			Components: []Component{{Name: "db", Resources: cores(3), Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelCluster: home.Name})}, {Name: "web", Resources: cores(4)}},
		}
		d, err := Place(r, stock(fleet).Snapshot())
		if err != nil || !d.Uses(home.Name) || !d.Uses(near.Name) {
			t.Errorf("measured by db's cluster is %t: they are on %+v: %v", byHome, d.Placements, err)
		}
	}
}
