package controller

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// An update of a workload with volumes fails at the deadline of its container, after the grace period of the pod before, and
// long before the deadline of its plan.
func TestAnUpdateOfVolumesHasTheDeadlineOfItsContainer(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-db", "")
	w.passes("si-a")
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "run the workload on eu", Detail: "db: 0 of 1 pods ready: CrashLoopBackOff"})
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
	w.passes("si-a")
	w.after(18 * time.Second)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateInProgress, "")
	w.after(2 * time.Second)
	w.driver.onDeliver = func(delivery.Delivery) { w.driver.failing["deliver eu"] = nil } // the first is late, what follows works
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "not delivered in time: waiting: run the workload on eu: db: 0 of 1 pods ready: CrashLoopBackOff")
}

// The deadline begins when the update is seen to wait: nothing of it is applied while its cluster, or Sluice, is away.
func TestTheDeadlineOfAnUpdateOfVolumesBeginsWithItsDelivery(t *testing.T) {
	for away, comesBack := range map[string]func(w *world){
		"the cluster": func(w *world) {
			w.lose("eu")
			w.after(20 * time.Second)
			_, _ = w.pass("si-a")
			w.after(10 * time.Second)
			w.comeBack("eu")
		},
		"Sluice": func(w *world) {
			w.after(30 * time.Second)
			keys := w.reconciler.keys
			w.start()
			w.reconciler.keys = keys
			w.sellWorkloads("1")
		},
	} {
		t.Run(away, func(t *testing.T) {
			w := newWorkloadWorld(t)
			w.cluster("eu", 8)
			w.provision("si-a", "plan-db", "")
			w.passes("si-a")
			w.driver.fail("deliver eu", &delivery.PendingError{Step: "run the workload on eu"})
			w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
			w.passes("si-a")
			comesBack(w)
			w.passes("si-a")
			w.after(19 * time.Second)
			w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateInProgress, "")
			w.after(time.Second)
			w.driver.onDeliver = func(delivery.Delivery) { w.driver.failing["deliver eu"] = nil }
			w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "not delivered in time: waiting: run the workload on eu")
		})
	}
}
