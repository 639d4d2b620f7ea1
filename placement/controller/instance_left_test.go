package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// wantLeft checks that an instance has left only some clusters, where the given cores stay reserved.
func (w *world) wantLeft(instance *v1alpha1.ServiceInstance, cores int64, names ...string) {
	w.Helper()
	if left := instance.Status.LeftClusters(); !slices.Equal(left, names) {
		w.Fatalf("left are %v, want %v", left, names)
	}
	for _, name := range names {
		w.wantReserved(name, cores)
	}
}

// A cluster that is lost before the instance is removed from it holds nothing up, whatever was under way: an operation ends, and
// the instance is checked and moves as before. What is there stays reserved until it is removed, or the cluster is taken out
// of the inventory.
func TestALostClusterHoldsUpNoOperation(t *testing.T) {
	lose := func(w *world, name, on string) {
		w.driver.onDeliver = func(d delivery.Delivery) {
			if d.Placement.Cluster == on {
				w.driver.onDeliver = nil
				w.lose(name)
			}
		}
	}
	clusters := func(n string) func(*v1alpha1.InstanceState) {
		return func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters":` + n + `}`) }
	}
	refused := &delivery.RefusedError{Reason: "the namespace is somebody else's", Consumer: "no"}
	for name, row := range map[string]struct {
		parameters string
		begin      func(w *world) // what is under way when us is lost
		operation  v1alpha1.OperationType
		state      v1alpha1.OperationState
		on         []string
	}{
		"an update to fewer clusters": {`{"clusters":2}`, func(w *world) {
			lose(w, "us", "eu")
			w.update("si-a", clusters("1"))
		}, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, []string{"eu"}},
		"an update to more, which it refuses": {"", func(w *world) {
			lose(w, "us", "us")
			w.driver.fail("deliver us", refused)
			w.update("si-a", clusters("2"))
		}, v1alpha1.OperationUpdate, v1alpha1.StateFailed, []string{"eu"}},
		"an update to more, which another update replaces": {"", func(w *world) {
			w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
			w.update("si-a", clusters("2"))
			w.passes("si-a")
			w.lose("us")
			w.update("si-a", clusters("1"))
		}, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, []string{"eu"}},
		"an update that is too late": {"", func(w *world) {
			w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
			w.update("si-a", clusters("2"))
			w.passes("si-a")
			w.lose("us")
			w.after(polling)
		}, v1alpha1.OperationUpdate, v1alpha1.StateFailed, []string{"eu"}},
		"a move, which it refuses": {"", func(w *world) {
			lose(w, "us", "us")
			w.driver.fail("deliver us", refused)
			w.drain("eu")
		}, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, []string{"eu"}},
		"a move that is not needed any more, of another leader": {"", func(w *world) {
			w.driver.fail("deliver us", &delivery.PendingError{Step: "create namespace"})
			w.drain("eu")
			w.passes("si-a")
			w.change("eu", func(c *placement.Cluster) { c.Cordoned, c.Taints = false, nil })
			w.lose("us")
			w.reconciler.leadership = successor{}
		}, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, []string{"eu"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster("eu", 8)
			w.cluster("us", 6)
			w.provision("si-a", "plan-2", row.parameters)
			w.passes("si-a")
			w.cluster("tiny", 1) // most clusters answer
			row.begin(w)
			w.passes("si-a")
			instance := w.settle("si-a")
			w.wantOperation(instance, row.operation, row.state, "")
			w.wantOn(instance, row.on...)
			w.wantLeft(instance, 2, "us")
			if instance.Status.IsUndelivered() {
				t.Error("something is under way")
			}
			w.driver.called()
			w.reconciler.observations.Store("si-a", observation{at: w.clock.Now()})
			w.settle("si-a")
			if calls := w.driver.called(); !slices.Contains(calls, "observe eu") {
				t.Errorf("it is not checked any more, only %v", calls)
			}
			w.woken = nil
			w.change("us", func(c *placement.Cluster) { c.Removed, c.Cordoned = true, true })
			if !slices.Contains(w.woken, "si-a") {
				t.Error("nobody lets the cluster go")
			}
			w.wantLeft(w.settle("si-a"), 0)
			w.wantReserved("us", 0)
		})
	}
}

// successor leads in another term.
type successor struct{ soleWriter }

func (successor) Term() string { return "next" }

// A provision that fails waits for no cluster either; its removal afterwards waits until nothing is left.
func TestAFailedProvisionIsRemovedAfterwards(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 8)
	w.cluster("tiny", 1)
	w.driver.fail("deliver eu", &delivery.RefusedError{Reason: "the namespace is somebody else's", Consumer: "no"})
	w.driver.fail("remove eu", &delivery.PendingError{Step: "delete the namespace", NotBefore: time.Minute})
	w.provision("si-a", "plan-2", "")
	result, err := w.pass("si-a")
	w.must(err)
	instance := w.instance("si-a")
	w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateFailed, "somebody else's")
	w.wantLeft(instance, 2, "eu")
	if result.RequeueAfter != time.Minute {
		t.Errorf("the cluster asks for a minute, and is asked again after %v", result.RequeueAfter)
	}
	w.driver.fail("remove eu", nil)
	w.after(time.Minute)
	w.wantLeft(w.settle("si-a"), 0)
	w.wantReserved("eu", 0)
}

// What cannot be removed is tried again, and holds up neither checks nor what other clusters still have of the instance.
func TestARemovalThatFailsHoldsUpNothing(t *testing.T) {
	w := newWorld(t)
	w.cluster("ap", 8)
	w.cluster("eu", 8)
	w.cluster("us", 8)
	w.provision("si-a", "plan-2", `{"clusters":3}`)
	w.passes("si-a")
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = nil })
	stays := ""
	w.driver.onDeliver = func(d delivery.Delivery) { stays = d.Placement.Cluster }
	fails := ""
	for _, name := range []string{"eu", "us"} { // one of them is left
		w.driver.fail("remove "+name, errors.New("it is full"))
	}
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	instance := w.instance("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantOn(instance, stays)
	for _, name := range instance.Status.LeftClusters() {
		w.wantReserved(name, 2)
		fails = name
	}
	w.reconciler.observations.Store("si-a", observation{at: w.clock.Now()})
	w.driver.called()
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	if calls := w.driver.called(); !slices.Contains(calls, "observe "+stays) || !slices.Contains(calls, "remove "+fails) {
		t.Errorf("the calls were %v", calls)
	}
	w.driver.fail("remove eu", nil)
	w.driver.fail("remove us", nil)
	w.wantLeft(w.settle("si-a"), 0)
}
