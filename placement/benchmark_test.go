package placement

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// syntheticFleet has 20 regions, half of it tier prod, a tenth tainted, 0 to 94 % used, like
// the fleet that other placers were measured on.
func syntheticFleet(n int) *Inventory {
	inventory := NewInventory()
	var nodes [5]Resources
	for i := range n {
		c := &Cluster{
			Name: fmt.Sprintf("cluster-%05d", i), Region: fmt.Sprintf("region-%02d", i%20), Ready: true, AccessVerified: true,
			Allocatable: Resources{corev1.ResourceCPU: 64000, corev1.ResourceMemory: 256 << 30, corev1.ResourcePods: 1100},
			Currency:    "EUR",
			Prices:      map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(30e6 + i%997*1e4), corev1.ResourceMemory: 4e6},
		}
		for k := range 5 { // different nodes
			nodes[k] = Resources{corev1.ResourceCPU: int64(1000 * (1 + (i+3*k)%12)), corev1.ResourceMemory: int64(1+(i+5*k)%48) << 30}
		}
		c.Holes = HolesOf(nodes[:])
		used := int64(i * 7 % 95)
		c.ForeignUse = Resources{corev1.ResourceCPU: 640 * used, corev1.ResourceMemory: 256 << 30 / 100 * used}
		c.Labels = labels.Set{
			v1alpha1.LabelRegion: c.Region, v1alpha1.LabelCluster: c.Name, v1alpha1.LabelTier: "cloud",
			"stage": []string{"prod", "test"}[i/20%2], "set": fmt.Sprint(i % (n/64 + 1)),
		}
		c.Claims = []v1alpha1.Claim{{
			Name: v1alpha1.ClaimDatacenterCountry, Value: []string{"DE", "FR", "US", "JP"}[i%4], Assurance: assurances[i/4%4],
		}}
		if i%10 == 3 {
			c.Taints = []corev1.Taint{{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
		}
		inventory.UpsertCluster(c)
	}
	return inventory
}

func benchmarkRequests() map[string]Request {
	small := Resources{corev1.ResourceCPU: 500, corev1.ResourceMemory: 1 << 30}
	prod, _ := labels.Parse("stage=prod")
	everywhere, _ := labels.Parse("topology.kubernetes.io/region in (region-01,region-02,region-03),stage=prod")
	european, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "residency",
		Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}, Assurance: v1alpha1.AssuranceNotary}})
	if err != nil {
		panic(err)
	}
	german, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "residency", Expression: "claims.exists(c, c.value == 'DE')"})
	if err != nil {
		panic(err)
	}
	ofRequest, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "residency", Expression: "cluster.region != request.plan"})
	if err != nil {
		panic(err)
	}
	ofRequestAndName, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "elsewhere", Expression: "cluster.name != request.id"})
	if err != nil {
		panic(err)
	}
	var expressions []Rule
	for i := range 8 {
		one, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "elsewhere", Expression: fmt.Sprintf("cluster.region != 'region-%02d'", i)})
		if err != nil {
			panic(err)
		}
		expressions = append(expressions, one)
	}
	return map[string]Request{
		"by_claim":                {ID: "si-bench", Resources: small, Rules: []Rule{european}},
		"by_expression":           {ID: "si-bench", Resources: small, Selector: prod, Rules: []Rule{german}},
		"one_in_half":             {ID: "si-bench", Resources: small, Selector: prod},
		"twelve_in_three_regions": {ID: "si-bench", Resources: small, Selector: everywhere, Clusters: 12},
		"spread_over_three_of_20_regions": {ID: "si-bench", Resources: small, Selector: prod, Clusters: 12,
			Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Groups: 3}},
		"forty_replicas_by_capacity": {ID: "si-bench", Resources: small, Selector: prod, Clusters: 12, Replicas: 40,
			Division: Division{By: v1alpha1.DivideByCapacity}, Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Groups: 3}},
		"replicas_beyond_the_best": {ID: "si-bench", Resources: small, Clusters: 12, Replicas: 1400, Division: Division{By: v1alpha1.DivideByCapacity}},
		"spread_within_bounds": {ID: "si-bench", Resources: small, Clusters: 12,
			Spread: &Spread{By: []string{v1alpha1.LabelRegion}, MinGroups: 3, MinPerGroup: 2, MaxPerGroup: 3}},
		"spread_as_uneven_as_it_is": {ID: "si-bench", Resources: small, Clusters: mostClusters,
			Current: []string{"cluster-00000", "cluster-00157", "cluster-00314"}, // in one group, of 157 with 64 each
			Spread:  &Spread{By: []string{"set"}, MinGroups: 1, MaxSkew: mostClusters}},
		"spread_preferred":                 {ID: "si-bench", Resources: small, Clusters: 12, Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Weight: 3}},
		"spread_each_cluster_a_group":      {ID: "si-bench", Resources: small, Clusters: 5, Spread: &Spread{By: []string{v1alpha1.LabelCluster}}},
		"spread_preferred_cluster_a_group": {ID: "si-bench", Resources: small, Clusters: 12, Spread: &Spread{By: []string{v1alpha1.LabelCluster}, Weight: 3}},
		"anywhere":                         {ID: "si-bench", Resources: small},
		"anywhere_by_fit":                  {ID: "si-bench", Resources: small, Weights: v1alpha1.ScoreWeights{Fit: 1}},
		"anywhere_by_balance":              {ID: "si-bench", Resources: small, Weights: v1alpha1.ScoreWeights{Balance: 1}},
		"with_a_largest_pod":               {ID: "si-bench", Resources: small, LargestPods: []Resources{small}},
		"by_eight_expressions":             {ID: "si-bench", Resources: small, Rules: expressions},
		"by_request":                       {ID: "si-bench", Resources: small, Rules: []Rule{ofRequest}},
		"by_request_and_name":              {ID: "si-bench", Resources: small, Rules: []Rule{ofRequestAndName}},
		"preferred_by_claim":               {ID: "si-bench", Resources: small, Preferences: []Preference{{european, 1}}},
		"preferred_by_expression":          {ID: "si-bench", Resources: small, Preferences: []Preference{{german, 1}}},
		"anywhere_by_price":                {ID: "si-bench", Resources: small, Weights: v1alpha1.ScoreWeights{Price: 2, Balance: 1}},
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		s := syntheticFleet(n).Snapshot()
		for name, r := range benchmarkRequests() {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Place(r, s) // too few clusters is an answer, too
				}
			})
		}
	}
}

// BenchmarkComponents places an application of three components in a chain. Each cluster
// reports its latency from a few others.
func BenchmarkComponents(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		inventory := syntheticFleet(n)
		clusters := inventory.Snapshot().Clusters()
		for i, c := range clusters {
			measured := *c
			measured.Latencies = map[string]Measured{}
			for k := 1; k <= 4; k++ {
				measured.Latencies[clusters[(i+k)%n].Name] = Measured{Median: time.Duration(k) * 5 * time.Millisecond}
			}
			inventory.UpsertCluster(&measured)
		}
		r := Request{ID: "si-app", Links: []Link{{Between: [2]int{0, 1}, Most: 10 * time.Millisecond}, {Between: [2]int{1, 2}, Most: 10 * time.Millisecond}}}
		for _, name := range []string{"front", "back", "store"} {
			r.Components = append(r.Components, Component{Name: name, Resources: Resources{corev1.ResourceCPU: 1000}})
		}
		s := inventory.Snapshot()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Place(r, s) // that nothing fits is an answer, too
			}
		})
	}
}

// BenchmarkPlaceAndReserve is the whole in-memory cost of a provision: decide,
// explain, reserve.
func BenchmarkPlaceAndReserve(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			inventory := syntheticFleet(n)
			r := benchmarkRequests()["one_in_half"]
			for i := 0; b.Loop(); i++ {
				r.ID = fmt.Sprintf("si-%d", i)
				if _, err := inventory.Place(r); err != nil {
					b.StopTimer()
					inventory = syntheticFleet(n)
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkUpsertClusterWhileOneWaits changes a full cluster with 120 instances of a lower
// class, while an instance waits that may displace them.
func BenchmarkUpsertClusterWhileOneWaits(b *testing.B) {
	const instances = 120
	inventory := NewInventory()
	inventory.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsAnyConsumer)}))
	full := Cluster{Name: "full", Ready: true, AccessVerified: true, Allocatable: Resources{}}
	for i := range int64(instances) {
		held := Resources{corev1.ResourceCPU: 997 + i*7919%613, corev1.ResourceMemory: 1009 + i*104729%709}
		full.Allocatable.Add(held, 1)
		inventory.Reserve(Holding{Instance: fmt.Sprintf("si-%03d", i), Class: []string{"bronze", "silver"}[i%2], Held: map[string]Resources{"full": held}})
	}
	inventory.UpsertCluster(&full)
	waits := Request{ID: "si-waits", Class: "gold", Resources: Resources{
		corev1.ResourceCPU: full.Allocatable[corev1.ResourceCPU] / 3, corev1.ResourceMemory: full.Allocatable[corev1.ResourceMemory] / 3,
	}}
	if _, err := inventory.Place(waits); err == nil {
		b.Fatal("there is room")
	}
	for i := 0; b.Loop(); i++ {
		changed := full
		changed.ForeignUse = Resources{corev1.ResourceCPU: int64(i % 2)}
		inventory.UpsertCluster(&changed)
	}
}

func BenchmarkUpsertCluster(b *testing.B) {
	inventory := syntheticFleet(10000)
	inventory.Snapshot()
	clusters := inventory.Snapshot().Clusters()
	for i := 0; b.Loop(); i++ {
		changed := *clusters[i%len(clusters)]
		changed.ForeignUse = Resources{corev1.ResourceCPU: int64(i % 1000)}
		inventory.UpsertCluster(&changed)
	}
}

// BenchmarkEvent changes one of many clusters while many requests wait: what it has left changes without
// helping anybody, helps one, or it becomes ready.
func BenchmarkEvent(b *testing.B) {
	for kind, request := range map[string]Request{
		"plain":    {Resources: Resources{corev1.ResourceCPU: 1 << 40}},
		"replicas": {Resources: Resources{corev1.ResourceCPU: 1 << 40}, Replicas: 3},
		"apart": {Resources: Resources{corev1.ResourceCPU: 1 << 40}, Consumer: Consumer{Platform: "cf", Space: "s"},
			Affinity: []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true}}},
	} {
		inventory := syntheticFleet(10_000)
		for i := range 10_000 {
			r := request
			r.ID = fmt.Sprintf("si-%d", i)
			r.Resources = Resources{corev1.ResourceCPU: 1<<40 + int64(i)}
			if _, err := inventory.Place(r); err == nil {
				b.Fatal("it fits")
			}
		}
		for name, change := range map[string]func(c *Cluster, i int){
			"foreign_use": func(c *Cluster, i int) { c.ForeignUse = Resources{corev1.ResourceCPU: int64(i % 2 * 100)} },
			"helps_one":   func(c *Cluster, i int) { c.Allocatable = Resources{corev1.ResourceCPU: 1<<40 + int64(i%2) - 1} },
			"ready":       func(c *Cluster, i int) { c.Ready = i%2 == 0 },
		} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				was := *inventory.Snapshot().Cluster("cluster-00077")
				for i := 0; b.Loop(); i++ {
					c := was
					change(&c, i)
					inventory.UpsertCluster(&c)
				}
			})
		}
		b.Run(kind+"/joins", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c := *inventory.Snapshot().Cluster("cluster-00078")
				c.Name = "cluster-00077x"
				inventory.UpsertCluster(&c)
				inventory.Snapshot()
				inventory.DeleteCluster(c.Name)
				inventory.Snapshot()
			}
		})
	}
}

// BenchmarkExplain explains the placement on every cluster, of which half fit.
func BenchmarkExplain(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		s := syntheticFleet(n).Snapshot()
		r := benchmarkRequests()["one_in_half"]
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				Explain(r, s)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/cluster")
		})
	}
}
