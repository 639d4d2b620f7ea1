package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
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
	w.after(2 * observeEvery)
	w.passes("si-a")
	want("web:1 after web:1")
}

// What an update drops of volumes is dropped when the hub has it, and not before: what one cluster refuses is rolled back on
// all, and what works once may not work when it is delivered again. Where nothing is dropped, nothing is delivered twice.
func TestVolumesStayUntilAnUpdateIsCommitted(t *testing.T) {
	for name, row := range map[string]struct {
		drops, fails, lost bool
		second             []string // clusters to which it is delivered without keeping volumes
	}{
		"it works":                    {drops: true, second: []string{"eu", "us"}},
		"it is refused on one":        {drops: true, fails: true},
		"it works, and keeps volumes": {},
		"it works, but its write is lost, and then it is refused": {drops: true, fails: true, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkloadWorld(t)
			w.cluster("eu", 8)
			w.cluster("us", 8)
			w.provision("si-a", "plan-shares", "")
			w.wantOnAll(w.settle("si-a"), "eu", "us")
			var second []string
			isNew := func(d delivery.Delivery) bool { return strings.Contains(string(d.State.Raw()), "6") }
			works := !row.fails || row.lost
			w.driver.onDeliver = func(d delivery.Delivery) {
				switch {
				case !isNew(d): // it is undone
				case d.KeepsVolumes:
					d.Said.Kept = row.drops
				default:
					second = append(second, d.Placement.Cluster)
					if s := w.instance("si-a").Status; !strings.Contains(string(s.Delivered.State.Raw()), "6") || s.Operation.State != v1alpha1.StateSucceeded {
						t.Error("volumes are dropped before the update is committed")
					}
				}
			}
			w.driver.failOn = func(d delivery.Delivery) error {
				if !works && d.Placement.Cluster == "us" && isNew(d) {
					return &delivery.RefusedError{Reason: "no", Consumer: "no"}
				}
				return nil
			}
			w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 6}`) })
			if row.lost {
				w.driver.called()
				w.onWrite = func(really func() error) error {
					if len(w.driver.called()) == 0 {
						return really() // the decision
					}
					w.onWrite, works = nil, false
					return errors.New("fake: the connection broke before the write")
				}
				if _, err := w.pass("si-a"); err == nil {
					t.Fatal("the write is not lost")
				}
			}
			state := map[bool]v1alpha1.OperationState{false: v1alpha1.StateSucceeded, true: v1alpha1.StateFailed}[row.fails]
			instance := w.settle("si-a")
			w.wantOperation(instance, v1alpha1.OperationUpdate, state, "")
			if slices.Sort(second); !slices.Equal(second, row.second) {
				t.Errorf("volumes were dropped on %v, want %v", second, row.second)
			}
			if len(instance.Status.Left) > 0 {
				t.Errorf("left are %v", instance.Status.LeftClusters())
			}
		})
	}
}

// Volumes that an update drops stay reserved until they are deleted, also if Sluice starts anew or the next update comes first.
func TestVolumesStayReservedUntilTheyAreDropped(t *testing.T) {
	w := delivered(t)
	blocked := true
	w.driver.failOn = func(d delivery.Delivery) error {
		if d.KeepsVolumes {
			d.Said.Kept = true
			return nil
		}
		if blocked {
			return &delivery.PendingError{Step: "lower the quota"}
		}
		return nil
	}
	w.update("si-a", plan("plan-2"))
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantReserved("home", 4)
	w.start()
	w.passes("si-a")
	w.wantReserved("home", 4)

	w.driver.fail("deliver home", &delivery.PendingError{Step: "wait"})
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.PlanID, s.Parameters = "plan-2", raw(`{"clusters":1}`) })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateInProgress, "")
	w.start()
	w.passes("si-a")
	w.wantReserved("home", 4)
	w.driver.fail("deliver home", nil)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantReserved("home", 4)

	blocked = false
	if instance = w.settle("si-a"); len(instance.Status.Left) > 0 {
		t.Errorf("left are %v", instance.Status.LeftClusters())
	}
	w.wantReserved("home", 2)
}

// Volumes are dropped on one cluster by the same delivery as before, which names the components on the others.
func TestVolumesAreDroppedByTheSameWorkload(t *testing.T) {
	w := newWorkloadWorld(t)
	w.regional("a", 8)
	w.regional("b", 8)
	w.provision("si-tour", "plan-tour", "")
	w.wantOnAll(w.passes("si-tour"), "a", "b")
	last := map[string]*workload.Order{}
	dropped := 0
	w.driver.onDeliver = func(d delivery.Delivery) {
		switch {
		case d.KeepsVolumes:
			d.Said.Kept, last[d.Placement.Cluster] = d.Placement.Cluster == "b", d.Workload
		case d.Placement.Cluster != "b":
			t.Errorf("it is delivered to %s again", d.Placement.Cluster)
		default:
			dropped++
			if !equality.Semantic.DeepEqual(d.Workload.Share, last["b"].Share) {
				t.Errorf("its volumes are dropped with %+v, after %+v", d.Workload.Share, last["b"].Share)
			}
		}
	}
	w.update("si-tour", func(s *v1alpha1.InstanceState) { s.PlanID = "plan-moved" })
	if tour := w.settle("si-tour"); dropped != 1 || len(tour.Status.Left) > 0 {
		t.Errorf("volumes are dropped %d times, and left are %v", dropped, tour.Status.LeftClusters())
	}
}
