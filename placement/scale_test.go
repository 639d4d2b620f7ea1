package placement

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fillInventory reserves for the given number of instances, as recovery does.
func fillInventory(inventory *Inventory, clusters, instances int) {
	var page []Holding
	for i := range instances {
		status := &v1alpha1.ServiceInstanceStatus{}
		status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{{
			Cluster: fmt.Sprintf("cluster-%05d", i%clusters), Reserved: Resources{corev1.ResourceCPU: 100, corev1.ResourceMemory: 64 << 20}.List(),
		}}}
		consumer := Consumer{Platform: "cf", Organization: fmt.Sprintf("org-%d", i/1000), Space: fmt.Sprintf("space-%d", i/100)}
		page = append(page, Holding{Instance: fmt.Sprintf("si-%07d", i), Consumer: consumer, Held: Ledger(status)})
		if len(page) == 500 {
			inventory.ReserveAll(page)
			page = nil
		}
	}
	inventory.ReserveAll(page)
	inventory.Snapshot()
}

// BenchmarkFill measures recovery without reading the hub, and the memory of the inventory
// afterwards.
func BenchmarkFill(b *testing.B) {
	for _, size := range []struct{ clusters, instances int }{{100, 1000}, {1000, 10000}, {10000, 100000}} {
		b.Run(fmt.Sprintf("%d_clusters_%d_instances", size.clusters, size.instances), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var inventory *Inventory
			for b.Loop() {
				inventory = syntheticFleet(size.clusters)
				fillInventory(inventory, size.clusters, size.instances)
			}
			b.StopTimer()
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-kept")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size.instances), "ns/instance")
			runtime.KeepAlive(inventory)
		})
	}
}

// BenchmarkSustained decides and reserves one request after the other, as one writer does,
// among clusters that fill up. It also reports the slowest decisions.
func BenchmarkSustained(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			inventory := syntheticFleet(n)
			inventory.Snapshot()
			r := benchmarkRequests()["one_in_half"]
			var times []time.Duration
			for i := 0; b.Loop(); i++ {
				r.ID = fmt.Sprintf("si-%d", i)
				start := time.Now()
				if _, err := inventory.Place(r); err != nil {
					b.StopTimer()
					inventory = syntheticFleet(n) // it is full
					inventory.Snapshot()
					b.StartTimer()
					continue
				}
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs-p99")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
