package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// mostEventCPU of an event of one cluster, and mostJoinCPU of one that comes or goes, with 10,000 clusters.
const (
	mostEventCPU = 200 * time.Microsecond
	mostJoinCPU  = 500 * time.Microsecond
)

// event is a change of the inventory, made the i-th time; it is undone the next time.
type event struct {
	name string
	most time.Duration // zero means no bar
	make func(inventory *placement.Inventory, i int)
}

// changes of a cluster, by field of placement.Cluster; a test finds a field without one.
var changes = map[string]func(c *placement.Cluster, other bool){
	"Driver":   func(c *placement.Cluster, other bool) { c.Driver = either(other, v1alpha1.DriverCAPI, c.Driver) },
	"Provider": func(c *placement.Cluster, other bool) { c.Provider = either(other, "other", c.Provider) },
	"Region":   func(c *placement.Cluster, other bool) { c.Region = either(other, "other", c.Region) },
	"Labels":   func(c *placement.Cluster, other bool) { c.Labels["stage"] = either(other, "other", "prod") },
	"Taints": func(c *placement.Cluster, other bool) {
		c.Taints = either(other, []corev1.Taint{{Key: "k", Effect: "NoSchedule"}}, nil)
	},
	"Ready":           func(c *placement.Cluster, other bool) { c.Ready = !other },
	"Unready":         func(c *placement.Cluster, other bool) { c.Unready = either(other, "why", "") },
	"AccessVerified":  func(c *placement.Cluster, other bool) { c.AccessVerified = !other },
	"Unverified":      func(c *placement.Cluster, other bool) { c.Unverified = either(other, "why", "") },
	"CapacityUnknown": func(c *placement.Cluster, other bool) { c.CapacityUnknown = either(other, "why", "") },
	"Unproven":        func(c *placement.Cluster, other bool) { c.Unproven = either(other, "a fact", "") },
	"Unguarded":       func(c *placement.Cluster, other bool) { c.Unguarded = either(other, "why", "") },
	"Claims":          func(c *placement.Cluster, other bool) { c.Claims = either(other, c.Claims[:1], c.Claims) },
	"Cordoned":        func(c *placement.Cluster, other bool) { c.Cordoned = other },
	"Allocatable": func(c *placement.Cluster, other bool) {
		c.Allocatable[corev1.ResourceCPU] = either[int64](other, 65000, 64000)
	},
	"Holes": func(c *placement.Cluster, other bool) {
		c.Holes = either(other, placement.HolesOf([]placement.Resources{{corev1.ResourceCPU: 4000}}), nil)
	},
	"Sold": func(c *placement.Cluster, other bool) {
		c.Sold = either(other, placement.Resources{corev1.ResourceCPU: 128000}, nil)
	},
	"Sell":       func(c *placement.Cluster, other bool) { c.Sell = either(other, &v1alpha1.Sale{Share: 50}, nil) },
	"ForeignUse": func(c *placement.Cluster, other bool) { c.ForeignUse[corev1.ResourceCPU] = either[int64](other, 1, 0) },
	"StorageClasses": func(c *placement.Cluster, other bool) {
		c.StorageClasses = either(other, []string{"other"}, c.StorageClasses)
	},
	"Currency":    func(c *placement.Cluster, other bool) { c.Currency = either(other, "USD", "EUR") },
	"Prices":      func(c *placement.Cluster, other bool) { c.Prices[corev1.ResourceCPU] = either[int64](other, 1, 2) },
	"Latency":     func(c *placement.Cluster, other bool) { c.Latency = either(other, time.Millisecond, c.Latency) },
	"Latencies":   func(c *placement.Cluster, other bool) { c.Latencies = either(other, nil, c.Latencies) },
	"Location":    func(c *placement.Cluster, other bool) { c.Location = either(other, nil, c.Location) },
	"ClaimsUntil": func(c *placement.Cluster, other bool) { c.ClaimsUntil = either(other, decidedAt, c.ClaimsUntil) },
	"Consumers": func(c *placement.Cluster, other bool) {
		c.Consumers = either(other, []v1alpha1.ConsumerReference{{Platform: "cf"}}, nil)
	},
	"Pool": func(c *placement.Cluster, other bool) {
		c.Pool = either(other, &placement.Pool{Front: "another", Members: labels.Everything()}, nil)
	},
	"Liqo": func(c *placement.Cluster, other bool) { c.Liqo = either(other, &v1alpha1.LiqoCluster{Hub: true}, nil) },
	"Offers": func(c *placement.Cluster, other bool) {
		c.Offers = either(other, map[string]v1alpha1.OfferedPlan{"db/small": {Service: "db", Plan: "small"}}, nil)
	},
	"Failures": func(c *placement.Cluster, other bool) {
		c.Failures = either(other, map[string]placement.Failures{"db/small": {Orders: 1, Weight: 100, Last: "no room"}}, nil)
	},
	"Withheld": func(c *placement.Cluster, other bool) {
		c.Withheld = either(other, map[string]string{"db/small": "a loop"}, nil)
	},
	"Markets": func(c *placement.Cluster, other bool) {
		c.Markets = either(other, map[string]placement.Market{"db/small": {Known: true, Orders: 1}}, nil)
	},
	"Exposure": func(c *placement.Cluster, other bool) {
		c.Exposure = either(other, &v1alpha1.ClusterExposure{Domain: "example.org"}, nil)
	},
	"Removed": func(c *placement.Cluster, other bool) { c.Removed = other },
}

func either[T any](other bool, is, else_ T) T {
	if other {
		return is
	}
	return else_
}

// events are all changes of a cluster, and what else happens to an inventory.
func events() []event {
	all := []event{
		{"a cluster joins or leaves", mostJoinCPU, func(inventory *placement.Inventory, i int) {
			c := member(77)
			c.Name += "-new"
			if i%2 == 0 {
				inventory.UpsertCluster(c)
			} else {
				inventory.DeleteCluster(c.Name)
			}
		}},
		{"an instance reserves or releases", mostEventCPU, func(inventory *placement.Inventory, i int) {
			held := map[string]placement.Resources{}
			if i%2 == 0 {
				held[nameOf(77)] = placement.Resources{corev1.ResourceCPU: 100}
			}
			inventory.Reserve(placement.Holding{Instance: "si-event", Consumer: placement.Consumer{Platform: "cf", Space: "elsewhere"}, Held: held})
		}},
		{"a cluster has 1,000 more resources, or not", 0, func(inventory *placement.Inventory, i int) {
			c := member(77)
			for k := range 1000 * ((i + 1) % 2) {
				c.Allocatable[corev1.ResourceName(fmt.Sprintf("example.com/device-%d", k))] = 1
			}
			inventory.UpsertCluster(c)
		}},
		{"a cluster has 64 more taints, or not", mostJoinCPU, func(inventory *placement.Inventory, i int) {
			c := member(77)
			for k := range 64 * ((i + 1) % 2) {
				c.Taints = append(c.Taints, corev1.Taint{Key: fmt.Sprintf("taint-%d", k), Effect: corev1.TaintEffectNoSchedule})
			}
			inventory.UpsertCluster(c)
		}},
		{"a cluster has 256 more claims, or not", mostJoinCPU, func(inventory *placement.Inventory, i int) {
			c := member(77)
			for k := range 256 * ((i + 1) % 2) {
				c.Claims = append(c.Claims, v1alpha1.Claim{Name: claimOfNumbers, Value: fmt.Sprint("more ", k), Assurance: v1alpha1.AssuranceSelf})
			}
			inventory.UpsertCluster(c)
		}},
	}
	for _, field := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, event{"a cluster's " + field, mostEventCPU, func(inventory *placement.Inventory, i int) {
			c := member(77)
			changes[field](c, i%2 == 0)
			inventory.UpsertCluster(c)
		}})
	}
	return all
}

// measureEvents makes each event, and takes the next snapshot, while many requests wait.
func measureEvents(_ context.Context, b *bench) (table, error) {
	waiting := pick(b, 10_000, 100)
	sizes := pick(b, []int{1000, 10_000, 100_000}, []int{100})
	t := table{
		question: "How much CPU does an event take while requests wait?",
		note: fmt.Sprintf("%d requests wait: half of them ask for more than any cluster has, each for another amount, and half for another label; a quarter are for replicas. "+
			"Measured is the thread's own CPU time until the next snapshot is there, median and 99th percentile. Each field of a cluster is an event; a test fails for a field that has none. The bars are p99 with 10,000 clusters.", waiting),
		header: []string{"event"},
	}
	all := slices.DeleteFunc(events(), func(e event) bool { return !b.measures(e.name) })
	bars := make([]string, len(all))
	for _, e := range all {
		t.add(e.name)
	}
	for _, n := range sizes {
		b.say("events: %d clusters", n)
		t.header = append(t.header, fmt.Sprintf("%d clusters, p50", n), "p99")
		inventory := fleet(n)
		if err := park(inventory, waiting); err != nil {
			return t, err
		}
		for i, e := range all {
			spent := happen(inventory, e, pick(b, 200, 4))
			t.rows[i] = append(t.rows[i], precisely(spent.median()), precisely(spent.quantile(0.99)))
			if n == 10_000 && e.most > 0 {
				bars[i] = precisely(e.most) + ": " + verdict(spent.quantile(0.99) <= e.most)
			}
		}
	}
	t.column("bar", bars)
	return t, nil
}

// park makes requests wait.
func park(inventory *placement.Inventory, waiting int) error {
	for i := range waiting {
		r := placement.Request{ID: fmt.Sprintf("si-waits-%d", i), Consumer: placement.Consumer{Platform: "cf", Space: spaceOf(i)}}
		r.Resources = placement.Resources{corev1.ResourceCPU: int64(500 + i%8*500)}
		if i%2 == 0 {
			r.Resources[corev1.ResourceCPU] = int64(1_000_000 + i)
		} else {
			r.Selector = labels.SelectorFromSet(labels.Set{"stage": "nowhere"})
		}
		if i%4 == 1 {
			r.Replicas, r.Clusters = 4, 2
		}
		if _, err := inventory.Place(r); err == nil {
			return fmt.Errorf("%s fits, and does not wait", r.ID)
		}
	}
	return nil
}

// happen returns what each of so many events took.
func happen(inventory *placement.Inventory, e event, times int) (spent latencies) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range times {
		began := threadTime()
		e.make(inventory, i)
		inventory.Snapshot()
		spent = append(spent, threadTime()-began)
	}
	return spent
}
