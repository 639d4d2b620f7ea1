package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// delivered is a world with an instance of four cores on a cluster of twelve.
func delivered(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.cluster("home", 12)
	w.provision("si-a", "plan-4", "")
	w.passes("si-a")
	w.driver.called()
	w.writes = 0
	return w
}

func plan(id string) func(*v1alpha1.InstanceState) {
	return func(s *v1alpha1.InstanceState) { s.PlanID = id }
}

func TestAnUpdateGrowsTheInstanceWhereItIs(t *testing.T) {
	w := delivered(t)
	w.cluster("roomier", 64)
	w.update("si-a", plan("plan-8"))
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantCarried("home", "si-a", 8)
	w.wantReserved("home", 8)
	w.wantReserved("roomier", 0)
	if instance.Status.Delivered.State.PlanID != "plan-8" {
		t.Error("the delivered state is the old one")
	}
}

func TestAnUpdateFreesWhatItShrinksOnlyOnceThatIsDelivered(t *testing.T) {
	w := delivered(t)
	w.update("si-a", plan("plan-2"))
	w.driver.fail("deliver home", &delivery.PendingError{Step: "shrink"})
	w.passes("si-a")
	w.wantReserved("home", 4)
	w.driver.fail("deliver home", nil)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantReserved("home", 2)
}

func TestAnUpdateThatDoesNotFitFailsAtOnceAndChangesNothing(t *testing.T) {
	w := delivered(t)
	w.provision("si-b", "plan-8", "")
	w.passes("si-b")
	w.driver.called()
	w.update("si-a", plan("plan-8"))
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "home cannot take the change: InsufficientCPU (needs 8 cpu, 4 free of 12 after 8 reserved")
	wantAsBefore(w, instance)
	if calls := w.driver.called(); len(calls) > 0 {
		t.Errorf("the driver was called: %v", calls)
	}
}

func TestARefusedUpdateIsUndoneOnEveryCluster(t *testing.T) {
	w := newWorld(t)
	w.cluster("ap", 12)
	w.provision("si-a", "plan-4", "")
	w.passes("si-a")
	w.cluster("eu", 12)
	w.driver.called()
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.PlanID, s.Parameters = "plan-8", raw(`{"clusters":2}`) })
	w.driver.fail("deliver eu", &delivery.RefusedError{Reason: "the quota is below what is used", Remedy: "delete workloads first", Repeatable: true})
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "delete workloads first")
	w.wantCarried("ap", "si-a", 4)
	w.wantCarried("eu", "si-a", 0)
	w.wantReserved("ap", 4)
	w.wantReserved("eu", 0)
	if want := []string{"deliver ap", "deliver ap", "deliver eu", "remove eu"}; !slices.Equal(w.driver.called(), want) {
		t.Error("the update was not undone")
	}
	if !isTrue(instance.Status.Operation.InstanceUsable) || !isTrue(instance.Status.Operation.UpdateRepeatable) {
		t.Error("the instance is usable and the update repeatable, and the operation does not say so")
	}
}

func TestAnUpdateThatCannotBeUndoneInTimeFailsAndIsUndoneLater(t *testing.T) {
	w := delivered(t)
	w.update("si-a", plan("plan-8"))
	w.driver.fail("deliver home", errors.New("home: connection refused"))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error")
	}
	w.clock.SetTime(w.clock.Now().Add(polling))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error, so that it is tried again")
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "connection refused")
	w.wantReserved("home", 8)
	w.driver.fail("deliver home", nil)
	undone := w.passes("si-a")
	wantAsBefore(w, undone)
	failed := slices.DeleteFunc(slices.Clone(undone.Status.Events), func(e v1alpha1.Event) bool { return e.Type != v1alpha1.EventFailed })
	if len(failed) != 1 {
		t.Errorf("%d events say that it failed, want one: %+v", len(failed), failed)
	}
}

// A volume that has grown for an update that failed stays as large: its storage stays reserved, also after a restart and
// with later updates, until a cluster says something else.
func TestWhatVolumesKeepOfAFailedUpdateStaysReserved(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("home", 8)
	storage := v1alpha1.StorageResource("fast")
	w.provision("si-a", "plan-kept", "")
	w.passes("si-a")
	want := func(what string, bytes int64) {
		t.Helper()
		if held := w.inventory.Snapshot().Reserved("si-a", "home")[storage]; held != bytes {
			t.Errorf("%s: %d bytes are held, want %d", what, held, bytes)
		}
	}
	want("ordered", 1024)

	grown := corev1.ResourceList{storage: resource.MustParse("1Ki")}
	w.driver.onDeliver = func(d delivery.Delivery) { d.Said.Grown = grown }
	w.driver.failOn = func(d delivery.Delivery) error {
		if d.Workload != d.Former {
			return &delivery.RefusedError{Reason: "no", Consumer: "no"}
		}
		return nil
	}
	resize := func(to string) {
		w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": ` + to + `}`) })
	}
	resize("2")
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "")
	want("rolled back", 2048)
	before := w.reconciler
	w.restarted = func(r *instanceReconciler) { r.keys, r.plan = before.keys, before.plan }
	w.start()
	w.settle("si-a")
	want("restarted", 2048)

	w.driver.failOn = nil
	resize("3")
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	want("updated", 2048)
	if charged := w.instance("si-a").Status.Delivered.Decision.Placements[0].Reserved[storage]; charged.Value() != 1024 {
		t.Errorf("%s are charged for", charged.String())
	}

	grown = nil
	w.driver.fail("observe home", errors.New("it has changed"))
	w.settle("si-a")
	w.after(2 * observeEvery)
	w.passes("si-a")
	want("repaired", 1024)
}

// A broker says that an update that failed has broken the instance. That is kept while the update is undone, and holds
// unless the broker has undone it.
func TestAnInstanceThatAFailedUpdateHasBrokenIsUsableOnceThatIsUndone(t *testing.T) {
	for name, row := range map[string]struct{ late, refused, usable bool }{
		"it is undone": {usable: true},
		"it is undone after the end of operation": {late: true, usable: true},
		"the broker does not undo it":             {refused: true},
		"the broker does not undo it in the end":  {late: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := delivered(t)
			w.update("si-a", plan("plan-8"))
			w.driver.fail("deliver home", &delivery.RefusedError{Reason: "it broke", Repeatable: true, Unusable: true})
			if _, err := w.pass("si-a"); err == nil {
				t.Fatal("want an error: undoing is refused, too")
			}
			w.start()
			check := func(instance *v1alpha1.ServiceInstance, usable bool) {
				t.Helper()
				w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "it broke")
				if op := instance.Status.Operation; op.InstanceUsable == nil || *op.InstanceUsable != usable || !isTrue(op.UpdateRepeatable) {
					t.Errorf("want usable %t and the update repeatable, and the operation says %+v", usable, op)
				}
			}
			if row.late {
				w.clock.SetTime(w.clock.Now().Add(polling))
				if _, err := w.pass("si-a"); err == nil {
					t.Fatal("want an error, so that it is tried again")
				}
				check(w.instance("si-a"), false)
			}
			w.driver.fail("deliver home", nil)
			w.driver.onDeliver = func(d delivery.Delivery) { d.Said.NotUndone = row.refused }
			check(w.passes("si-a"), row.usable)
		})
	}
}

// wantAsBefore checks that the instance is delivered with four cores as at first.
func wantAsBefore(w *world, instance *v1alpha1.ServiceInstance) {
	w.Helper()
	w.wantCarried("home", "si-a", 4)
	var held int64
	for _, r := range w.inventory.Snapshot().Reservations("home") {
		if r.Instance == "si-a" {
			held = r.Resources["cpu"]
		}
	}
	if held != 4000 {
		w.Errorf("%d thousandths of a core are held", held)
	}
	if cpu := instance.Status.Decision.Placements[0].Reserved.Cpu().Value(); cpu != 4 {
		w.Errorf("the decision reserves %d cores", cpu)
	}
	if !meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionReady) {
		w.Error("the instance is not ready any more")
	}
	if op := instance.Status.Operation; !isTrue(op.InstanceUsable) || !isTrue(op.UpdateRepeatable) {
		w.Error("the instance is usable and the update repeatable, and the operation does not say so")
	}
}

func TestAContextOnlyUpdateIsRecordedInOneWrite(t *testing.T) {
	w := delivered(t)
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Context = raw(`{"instance_name":"renamed"}`) })
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	if calls := w.driver.called(); len(calls) > 0 || w.writes != 1 {
		t.Errorf("driver calls %v, %d writes", calls, w.writes)
	}
	if string(instance.Status.Delivered.State.Context.Raw) != `{"instance_name":"renamed"}` {
		t.Error("the context is not recorded")
	}
}

// A context is recorded at once also if the instance has to move, and fits nowhere else or has to wait for its turn. It
// moves afterwards.
func TestAContextIsRecordedBeforeTheInstanceMoves(t *testing.T) {
	for name, busy := range map[string]bool{"nothing else fits": false, "others move first": true} {
		t.Run(name, func(t *testing.T) {
			w := delivered(t)
			if busy {
				w.cluster("other", 12)
				w.reconciler.moves.begin("si-b")
				w.reconciler.moves.begin("si-c")
			}
			w.drain("home")
			w.passes("si-a")
			w.update("si-a", func(s *v1alpha1.InstanceState) { s.Context = raw(`{"instance_name":"renamed"}`) })
			result, err := w.pass("si-a")
			w.must(err)
			instance := w.instance("si-a")
			w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
			if string(instance.Status.Delivered.State.Context.Raw) != `{"instance_name":"renamed"}` {
				t.Error("the context is not recorded")
			}
			if result.RequeueAfter != time.Millisecond || instance.Status.IsStranded() == busy {
				t.Errorf("it is looked at again in %v, with the conditions %+v", result.RequeueAfter, instance.Status.Conditions)
			}
			if busy {
				w.reconciler.moves.end("si-b")
			} else {
				w.cluster("other", 12)
			}
			w.wantOn(w.settle("si-a"), "other")
		})
	}
}

func TestClustersAreAddedAndTakenAway(t *testing.T) {
	w := delivered(t)
	w.cluster("second", 12)
	w.cluster("third", 12)
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters":3}`) })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	for _, cluster := range []string{"home", "second", "third"} {
		w.wantCarried(cluster, "si-a", 4)
		w.wantReserved(cluster, 4)
	}
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = nil })
	instance := w.passes("si-a")
	w.wantOperation(instance, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	kept := instance.Status.Decision.Clusters()
	if len(kept) != 1 {
		t.Fatalf("placed on %v", kept)
	}
	for _, cluster := range []string{"home", "second", "third"} {
		if cluster != kept[0] {
			w.wantCarried(cluster, "si-a", 0)
			w.wantReserved(cluster, 0)
		}
	}
}

func TestAnUpdateIsCheckedByItsSchema(t *testing.T) {
	w := delivered(t)
	w.cluster("second", 12)
	sold, err := w.reconciler.plan("service-compute", "plan-4")
	w.must(err)
	spec := sold.Offering.ServiceOfferingSpec.DeepCopy()
	for i := range spec.Plans {
		spec.Plans[i].Schemas = &v1alpha1.PlanSchemas{InstanceCreate: raw(`{"required": ["selector"]}`), InstanceUpdate: raw(`{"properties": {"clusters": {"maximum": 2}}}`)}
	}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}}, nil, nil, nil)
	w.must(err)
	w.reconciler.plan = snapshot.Plan
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters": 2}`) })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"clusters": 3}`) })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "maximum: got 3, want 2")
}

func TestAnUpdateBackToWhatIsDeliveredSucceedsAfterAFailedOne(t *testing.T) {
	w := delivered(t)
	w.driver.fail("deliver home", &delivery.RefusedError{Reason: "no"})
	w.update("si-a", plan("plan-2"))
	if _, err := w.pass("si-a"); err == nil {
		t.Fatal("want an error: undoing is refused, too")
	}
	w.driver.fail("deliver home", nil)
	w.update("si-a", plan("plan-4"))
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantCarried("home", "si-a", 4)
	w.wantReserved("home", 4)
}
