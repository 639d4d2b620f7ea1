// Command sluice measures Sluice's own engine, explanations included, on the fleet of
// the peers.
package main

import (
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/test/bench/peers/fleet"
)

var half = placement.Resources{corev1.ResourceCPU: 500, corev1.ResourceMemory: 1 << 30}

func main() {
	flag.Parse()
	fleet.Run("Sluice", func(q fleet.Question, clusters []fleet.Cluster) (func() error, string) {
		snapshot := inventory(clusters).Snapshot()
		r := placement.Request{ID: "si-bench", Resources: half, Clusters: q.Clusters}
		if q.Prod {
			r.Selector = labels.SelectorFromSet(labels.Set{fleet.StageLabel: "prod"})
		}
		if q.Groups > 0 {
			r.Spread = &placement.Spread{By: []string{fleet.RegionLabel}, Groups: q.Groups}
		}
		return func() error {
			_, err := placement.Place(r, snapshot)
			return err
		}, ""
	})
	burst()
}

func inventory(clusters []fleet.Cluster) *placement.Inventory {
	inv := placement.NewInventory()
	for _, c := range clusters {
		one := &placement.Cluster{
			Name: c.Name, Region: c.Region, Ready: true, AccessVerified: true,
			Labels:      labels.Set{fleet.RegionLabel: c.Region, fleet.StageLabel: c.Stage()},
			Allocatable: placement.Resources{corev1.ResourceCPU: fleet.Cores * 1000, corev1.ResourceMemory: fleet.MemoryGiB << 30},
			ForeignUse: placement.Resources{
				corev1.ResourceCPU:    int64(fleet.Cores * 10 * c.UsedPercent),
				corev1.ResourceMemory: int64(fleet.MemoryGiB<<30/100) * int64(c.UsedPercent),
			},
		}
		if c.Tainted {
			one.Taints = []corev1.Taint{{Key: fleet.TaintKey, Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
		}
		inv.UpsertCluster(one)
	}
	return inv
}

// burst asks for more than there is, back to back.
func burst() {
	inv := placement.NewInventory()
	for i := range 2 {
		inv.UpsertCluster(&placement.Cluster{
			Name: fmt.Sprintf("cluster-%d", i), Ready: true, AccessVerified: true,
			Allocatable: placement.Resources{corev1.ResourceCPU: 500 * fleet.BurstRoom / 2, corev1.ResourceMemory: 1 << 40},
		})
	}
	accepted := 0
	for i := range fleet.BurstAsked {
		if _, err := inv.Place(placement.Request{ID: fmt.Sprintf("si-%d", i), Resources: half}); err == nil {
			accepted++
		}
	}
	fleet.Emit(fleet.Figure{Placer: "Sluice", Question: fleet.BurstQuestion, Clusters: 2, Note: fleet.BurstNote(accepted)})
}
