package controller

import (
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Drivers get what is in force with each delivery: the former workload with an update, and the same workload when that
// is undone, observed or repaired.
func TestADeliveryHasTheFormerWorkload(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	var got []string
	w.driver.onDeliver = func(d delivery.Delivery) {
		was := "nothing"
		if d.Former != nil {
			was = d.Former.Plan.Components[0].Container.Image
		}
		got = append(got, d.Workload.Plan.Components[0].Container.Image+" after "+was)
		if d.Workload.Plan.Components[0].Container.Image == "web:1" && d.Former != nil && d.Former != d.Workload {
			t.Error("what is in force has another workload before it")
		}
	}
	want := func(all ...string) {
		t.Helper()
		if !slices.Equal(slices.Compact(got), all) {
			t.Errorf("delivered %v, want %v", got, all)
		}
		got = nil
	}
	w.provision("si-a", "plan-web", "")
	w.passes("si-a")
	want("web:1 after nothing")

	w.sellWorkloads("2")
	w.driver.failOn = func(d delivery.Delivery) error {
		if d.Workload.Plan.Components[0].Container.Image == "web:2" {
			return &delivery.RefusedError{Reason: "web: 0 of 1 pods ready on eu", Consumer: "web: 0 of 1 pods ready", Repeatable: true}
		}
		return nil
	}
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.MaintenanceVersion = "2.0.0" })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "")
	want("web:2 after web:1", "web:1 after web:1")

	w.driver.fail("observe eu", &delivery.PendingError{Step: "look"})
	w.settle("si-a")
	w.after(2 * w.reconciler.observeEvery)
	w.passes("si-a")
	want("web:1 after web:1")
}

// What an update drops of volumes is dropped when it works on all of its clusters: what one refuses is rolled back on all.
// Where nothing is dropped, nothing is delivered twice.
func TestVolumesStayUntilAnUpdateWorksEverywhere(t *testing.T) {
	for name, row := range map[string]struct {
		drops, fails bool
		second       []string // clusters to which it is delivered without keeping volumes
	}{
		"it works":                    {drops: true, second: []string{"eu", "us"}},
		"it is refused on one":        {drops: true, fails: true},
		"it works, and keeps volumes": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkloadWorld(t)
			w.cluster("eu", 8)
			w.cluster("us", 8)
			w.provision("si-a", "plan-shares", "")
			w.wantOnAll(w.settle("si-a"), "eu", "us")
			var second []string
			w.driver.onDeliver = func(d delivery.Delivery) {
				switch {
				case d.Workload == d.Former: // it is undone
				case d.KeepsVolumes:
					d.Said.Kept = row.drops
				default:
					second = append(second, d.Placement.Cluster)
				}
			}
			w.driver.failOn = func(d delivery.Delivery) error {
				if row.fails && d.Placement.Cluster == "us" && d.Workload != d.Former {
					return &delivery.RefusedError{Reason: "no", Consumer: "no"}
				}
				return nil
			}
			w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 6}`) })
			state := map[bool]v1alpha1.OperationState{false: v1alpha1.StateSucceeded, true: v1alpha1.StateFailed}[row.fails]
			w.wantOperation(w.settle("si-a"), v1alpha1.OperationUpdate, state, "")
			if slices.Sort(second); !slices.Equal(second, row.second) {
				t.Errorf("volumes were dropped on %v, want %v", second, row.second)
			}
		})
	}
}
