package controller

import (
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// An update of a workload with volumes fails at the deadline of its container, long before that of its plan.
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
