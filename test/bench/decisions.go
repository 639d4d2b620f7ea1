package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// mostCPU of a decision of one kind, with 10,000 clusters.
const mostCPU = time.Millisecond

// measureDecisions decides requests of every kind, each of another instance and space.
func measureDecisions(_ context.Context, b *bench) (table, error) {
	sizes := pick(b, []int{1000, 10_000, 100_000}, []int{100})
	t := table{
		question: "How much CPU does a decision take, for each kind of rule, preference and weight?",
		note: "One request in a fleet of so many clusters with as many instances, by the plan and the policy alone; the thread's own CPU time, median and 99th percentile. Each request is another instance's, of another space. " +
			"Each kind is a field, or several, of the API's plans and policies; a test fails for a field that has none. The bar is a p99 of 1 ms with 10,000 clusters.",
		header: []string{"kind"},
	}
	measured := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return !b.measures(k.name) })
	bars := make([]string, len(measured))
	for _, k := range measured {
		t.add(k.name)
	}
	for _, n := range sizes {
		b.say("decisions: %d clusters", n)
		t.header = append(t.header, fmt.Sprintf("%d clusters, p50", n), "p99")
		inventory := fleet(n)
		for i, k := range measured {
			spent, err := decide(inventory, k, pick(b, 2_000_000/n, 3))
			if err != nil {
				return t, fmt.Errorf("%s: %w", k.name, err)
			}
			t.rows[i] = append(t.rows[i], precisely(spent.median()), precisely(spent.quantile(0.99)))
			if n == 10_000 {
				bars[i] = verdict(spent.quantile(0.99) <= mostCPU)
			}
		}
	}
	t.column("bar", bars)
	return t, nil
}

// decide returns what each of so many decisions of a kind took.
func decide(inventory *placement.Inventory, k kind, times int) (spent latencies, err error) {
	a := asked{Plan: v1alpha1.ResourcesPlan{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	k.set(&a)
	policy, err := placement.CompilePolicy(&v1alpha1.PlacementPolicy{Spec: a.Policy})
	if err != nil {
		return nil, err
	}
	inventory.SetPolicies(placement.Policies{policy})
	plan := &catalog.Plan{Plan: v1alpha1.Plan{ID: "plan", Name: "plan", Kind: v1alpha1.PlanKindResources, Resources: &a.Plan}}
	r, err := placement.NewRequest("si", plan, nil)
	if err != nil {
		return nil, err
	}
	r.At, r.External = decidedAt, map[string]int32{}
	// From the first such order on, the inventory counts the instances that the others are to be near, or apart from.
	_, _ = inventory.Place(inventory.Snapshot().Govern(r, ordering(0)))
	inventory.Release(r.ID)
	s := inventory.Snapshot()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range min(max(times, 20), 200) {
		r.ID = fmt.Sprintf("si-%d", i)
		one := s.Govern(r, ordering(i))
		began := threadTime()
		_, _ = placement.Place(one, s) // that nothing fits is an answer, too
		spent = append(spent, threadTime()-began)
	}
	return spent, nil
}

// threadTime is the CPU time that this thread has taken (clock_gettime(2)).
func threadTime() time.Duration {
	var spent unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spent); err != nil {
		panic(err) // Linux has had this clock since 2.6.12
	}
	return time.Duration(spent.Nano())
}

// precisely writes a short duration.
func precisely(d time.Duration) string { return fmt.Sprintf("%.3f ms", d.Seconds()*1000) }

var decidedAt = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

func ordering(i int) placement.Consumer {
	return placement.Consumer{Platform: "cf", Organization: "org", Space: spaceOf(i)}
}

func spaceOf(i int) string { return fmt.Sprintf("space-%d", i%100) }

// fleet has 20 regions, ten providers, half of the clusters for production, a tenth tainted, 0 to 94 % used,
// and one instance on each cluster.
func fleet(n int) *placement.Inventory {
	inventory := placement.NewInventory()
	var held []placement.Holding
	for i := range n {
		inventory.UpsertCluster(member(i))
		held = append(held, placement.Holding{
			Instance: fmt.Sprintf("si-there-%d", i), Consumer: ordering(i),
			Held: map[string]placement.Resources{nameOf(i): {corev1.ResourceCPU: 100}},
		})
	}
	inventory.ReserveAll(held)
	return inventory
}

func nameOf(i int) string { return fmt.Sprintf("cluster-%06d", i) }

func member(i int) *placement.Cluster {
	used := int64(i * 7 % 95)
	c := &placement.Cluster{
		Name: nameOf(i), Driver: v1alpha1.DriverKube, Provider: fmt.Sprintf("provider-%d", i%10), Region: fmt.Sprintf("region-%02d", i%20),
		Ready: true, AccessVerified: true, StorageClasses: []string{"standard"}, Currency: "EUR",
		Allocatable: placement.Resources{corev1.ResourceCPU: 64000, corev1.ResourceMemory: 256 << 30, corev1.ResourcePods: 1100},
		ForeignUse:  placement.Resources{corev1.ResourceCPU: 640 * used, corev1.ResourceMemory: 256 << 30 / 100 * used},
		Holes:       placement.HolesOf([]placement.Resources{{corev1.ResourceCPU: int64(i%16) * 1000}, {corev1.ResourceCPU: 700}}),
		Prices:      map[corev1.ResourceName]int64{corev1.ResourceCPU: int64(30e6 + i%997*1e4), corev1.ResourceMemory: 4e6},
		Latency:     time.Duration(5+i%90) * time.Millisecond,
		Location:    placement.LocationAt(float64(i%120-60), float64(i%360-180)),
		Latencies: map[string]placement.Measured{
			"vantage":     {Median: time.Duration(5+i%80) * time.Millisecond, At: decidedAt},
			nameOf(i + 1): {Median: 5 * time.Millisecond, At: decidedAt}, nameOf(i + 20): {Median: 8 * time.Millisecond, At: decidedAt},
		},
		ClaimsUntil: decidedAt.Add(time.Duration(1+i%90) * 24 * time.Hour),
		Claims: []v1alpha1.Claim{
			{Name: v1alpha1.ClaimDatacenterCountry, Value: []string{"DE", "FR", "US", "JP"}[i%4], Assurance: v1alpha1.AssuranceNotary},
			{Name: claimOfNumbers, Value: fmt.Sprint(i), Assurance: v1alpha1.AssuranceSelf},
		},
	}
	c.Labels = labels.Set{
		v1alpha1.LabelRegion: c.Region, v1alpha1.LabelProvider: c.Provider, v1alpha1.LabelCluster: c.Name, v1alpha1.LabelTier: string(v1alpha1.TierCloud),
		"stage": []string{"prod", "test"}[i/20%2],
	}
	if i%10 == 3 {
		c.Taints = []corev1.Taint{{Key: "dedicated", Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
	}
	return c
}
