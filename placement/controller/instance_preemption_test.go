package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// contested is a world with one full cluster of three bronze instances with two cores each, and
// a gold instance that wants eight and is reconciled first.
func contested(t *testing.T, preempts v1alpha1.Preempts) *world {
	w := newWorld(t)
	w.must(w.hub.Create(w.Context(), placementtest.PriorityClasses(w.namespace, preempts)))
	w.cluster("eu", 8)
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.provision(name, "plan-2", "")
		w.passes(name)
	}
	w.provision("si-gold", "plan-8", "")
	return w
}

func (w *world) victims(instance *v1alpha1.ServiceInstance) (names []string) {
	w.Helper()
	if instance.Status.Preemption == nil {
		return nil
	}
	for _, v := range instance.Status.Preemption.Victims {
		names = append(names, v.Instance)
	}
	return names
}

func TestRoomIsMadeByMovingVictimsElsewhere(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.cluster("us", 7)
	w.woken = nil
	gold := w.passes("si-gold")
	if got := w.victims(gold); !slices.Equal(got, []string{"si-a", "si-b", "si-c"}) {
		t.Fatalf("victims are %v", got)
	}
	w.wantOperation(gold, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "instances of lower priority are leaving eu to make room (3)")
	if !slices.Equal(w.woken, []string{"si-a", "si-b", "si-c"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	for _, name := range []string{"si-a", "si-b"} {
		victim := w.settle(name)
		w.wantOn(victim, "us")
		if moved := victim.Status.Moved; !strings.HasPrefix(moved.Reason, "si-gold of priority class gold (1000) needs 8 cpu, 2 free of 8") {
			t.Fatalf("moved: %+v", moved)
		}
		w.passes("si-gold")
		w.wantCarried("eu", "si-gold", 0)
	}
	w.woken = nil
	w.wantOn(w.settle("si-c"), "us")
	if !slices.Contains(w.woken, "si-gold") {
		t.Fatal("nobody tells si-gold that there is room")
	}
	gold = w.passes("si-gold")
	w.wantOn(gold, "eu")
	if p := gold.Status.Decision.Preemption; gold.Status.Preemption != nil || p == nil || len(p.Victims) != 3 {
		t.Errorf("the status says of the room %+v and of who left it %+v", gold.Status.Preemption, p)
	}
	w.wantReserved("eu", 8)
	w.wantReserved("us", 6)
}

func TestAVictimThatFitsNowhereElseWaitsAndComesBack(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.passes("si-gold")
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		victim := w.settle(name)
		w.wantOn(victim)
		w.wantCarried("eu", name, 0)
		w.wantOperation(victim, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
		if meta.IsStatusConditionTrue(victim.Status.Conditions, v1alpha1.ConditionReady) || len(victim.Status.Decision.Displaced) != 1 {
			t.Fatalf("%s: conditions %+v, decision %+v", name, victim.Status.Conditions, victim.Status.Decision)
		}
	}
	w.wantOn(w.passes("si-gold"), "eu")
	writes := w.writes
	w.passes("si-a")
	w.start() // and is killed
	w.settle("si-a")
	w.settle("si-gold")
	if w.writes > writes+2 {
		t.Errorf("an instance that waits was written %d times", w.writes-writes)
	}
	w.wantReserved("eu", 8)

	w.settle("si-b")
	w.woken = nil
	w.deprovision("si-gold")
	_, err := w.pass("si-gold")
	w.must(err)
	if !slices.Contains(w.woken, "si-a") || !slices.Contains(w.woken, "si-b") {
		t.Fatalf("woken are %v", w.woken)
	}
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		victim := w.settle(name)
		w.wantOn(victim, "eu")
		w.wantCarried("eu", name, 2)
		if !meta.IsStatusConditionTrue(victim.Status.Conditions, v1alpha1.ConditionReady) || !meta.IsStatusConditionTrue(victim.Status.Conditions, v1alpha1.ConditionPlaced) {
			t.Errorf("%s is back: %+v", name, victim.Status.Conditions)
		}
	}
}

func TestWhoGoesAwayNeedsNoRoom(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.passes("si-gold")
	w.wantOn(w.settle("si-a"))
	w.deprovision("si-gold")
	_, err := w.pass("si-gold")
	w.must(err)
	w.wantOn(w.settle("si-b"), "eu")
	w.wantOn(w.settle("si-a"), "eu")
}

func TestNobodyElseTakesTheRoomThatIsMade(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.passes("si-gold")
	w.settle("si-a")
	w.provision("si-late", "plan-2", "")
	late := w.passes("si-late")
	w.wantOperation(late, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "SpokenFor on 1 (eu: room is being made there for si-gold of priority class gold)")
	w.start() // what is written holds after a kill
	late = w.passes("si-late")
	w.wantOperation(late, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "SpokenFor on 1")
	w.settle("si-b")
	w.settle("si-c")
	w.wantOn(w.passes("si-gold"), "eu")
}

func TestNobodyIsDisplacedWhereNoClassIsDeclaredForIt(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsNever)
	gold := w.passes("si-gold")
	if got := w.victims(gold); got != nil {
		t.Fatalf("victims are %v", got)
	}
	w.wantOn(w.settle("si-a"), "eu")
}

// An instance that needs two clusters has room made on both at once, and is placed when both have it.
func TestRoomIsMadeOnSeveralClusters(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.cluster("us", 8)
	w.provision("si-us", "plan-4", "")
	w.wantOn(w.passes("si-us"), "us")
	w.deprovision("si-gold")
	w.provision("si-both", "plan-8", `{"clusters": 2}`)
	w.woken = nil
	both := w.passes("si-both")
	w.wantOperation(both, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "instances of lower priority are leaving eu and us to make room (4)")
	if slices.Sort(w.woken); !slices.Equal(w.woken, []string{"si-a", "si-b", "si-c", "si-us"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	w.start() // what is written holds after a kill
	victim := w.settle("si-us")
	w.wantOn(victim)
	if left := victim.Status.Decision.Displaced; len(left) != 1 || !strings.HasPrefix(left[0].Reason, "si-both of priority class gold (1000) needs 8 cpu, 4 free of 8") {
		t.Errorf("displaced: %+v", left)
	}
	for _, name := range []string{"si-a", "si-b"} {
		w.wantOn(w.settle(name))
		if both = w.passes("si-both"); both.Status.Preemption == nil || both.Status.Delivered != nil {
			t.Fatalf("one cluster has room, and the order is %+v", both.Status)
		}
	}
	w.wantOn(w.settle("si-c"))
	both = w.passes("si-both")
	w.wantOn(both, "us", "eu")
	if p := both.Status.Decision.Preemption; both.Status.Preemption != nil || p == nil || !slices.Equal(p.Clusters(), []string{"eu", "us"}) {
		t.Errorf("the status says of the room %+v and of who left it %+v", both.Status.Preemption, p)
	}
	w.wantReserved("eu", 8)
	w.wantReserved("us", 8)
}

// Room for an application is made on the clusters of all its components at once, and it is placed when each has its own.
func TestRoomIsMadeForComponents(t *testing.T) {
	w := newWorld(t)
	w.must(w.hub.Create(w.Context(), placementtest.PriorityClasses(w.namespace, v1alpha1.PreemptsSameConsumer)))
	w.cluster("eu", 6)
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.provision(name, "plan-2", "")
		w.wantOn(w.passes(name), "eu")
	}
	w.cluster("us", 3)
	w.provision("si-us", "plan-2", "")
	w.wantOn(w.passes("si-us"), "us")
	w.provision("app", "plan-application", "")
	w.woken = nil
	app := w.passes("app")
	w.wantOperation(app, v1alpha1.OperationProvision, v1alpha1.StateInProgress, "instances of lower priority are leaving us and eu to make room (4)")
	if slices.Sort(w.woken); !slices.Equal(w.woken, []string{"si-a", "si-b", "si-c", "si-us"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	w.cluster("ap", 2)
	w.start() // what is written holds after a kill
	w.wantOn(w.settle("si-us"), "ap")
	w.provision("si-late", "plan-2", "")
	w.wantOperation(w.passes("si-late"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "SpokenFor on 2 (eu: room is being made there for app of priority class gold)")
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		if app = w.passes("app"); app.Status.Preemption == nil || app.Status.Delivered != nil {
			t.Fatalf("%s is still there, and the order is %+v", name, app.Status)
		}
		w.woken = nil
		victim := w.settle(name)
		w.wantOn(victim)
		if left := victim.Status.Decision.Displaced; len(left) != 1 || left[0].Reason != "app of priority class gold (1000) needs 6 cpu, 0 free of 6 after 6 reserved and 0 used by others" {
			t.Errorf("displaced: %+v", left)
		}
	}
	if !slices.Contains(w.woken, "app") {
		t.Fatal("nobody tells the application that there is room")
	}
	app = w.passes("app")
	w.wantOnAll(app, "eu", "us")
	w.wantCarried("eu", "app", 6)
	w.wantCarried("us", "app", 2)
	if p := app.Status.Decision.Preemption; app.Status.Preemption != nil || p == nil || !slices.Equal(p.Clusters(), []string{"us", "eu"}) {
		t.Errorf("the status says of the room %+v and of who left it %+v", app.Status.Preemption, p)
	}
	w.wantReserved("eu", 6)
	w.wantReserved("us", 2)
}

// A victim gives up the cluster where room is made, and keeps another one that it should leave too, and cannot.
func TestAVictimKeepsTheClusterThatNobodyNeeds(t *testing.T) {
	w := newWorld(t)
	w.must(w.hub.Create(w.Context(), placementtest.PriorityClasses(w.namespace, v1alpha1.PreemptsSameConsumer)))
	w.cluster("eu", 8)
	w.cluster("us", 2)
	w.provision("si-a", "plan-2", `{"clusters": 2}`)
	w.wantOnAll(w.settle("si-a"), "eu", "us")
	w.drain("us")
	w.wantOnAll(w.settle("si-a"), "eu", "us")
	w.provision("si-gold", "plan-8", "")
	if got := w.victims(w.passes("si-gold")); !slices.Equal(got, []string{"si-a"}) {
		t.Fatalf("victims are %v", got)
	}
	victim := w.settle("si-a")
	w.wantOn(victim, "us")
	w.wantCarried("us", "si-a", 2)
	if left := victim.Status.Decision.Displaced; len(left) != 1 || left[0].Cluster != "eu" {
		t.Errorf("displaced: %+v", left)
	}
	w.wantOn(w.passes("si-gold"), "eu")
}

// Each victim waits from its last pass on, however it came to an end: what it waits for wakes it.
func TestVictimsThatHaveLeftAreWoken(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.passes("si-gold")
	for _, name := range []string{"si-a", "si-b", "si-c"} {
		w.wantOn(w.settle(name))
	}
	if waiting := len(w.inventory.Parked()); waiting != 4 {
		t.Errorf("%d instances wait, want all four", waiting)
	}
	w.wantOn(w.passes("si-gold"), "eu")
	w.woken = nil
	w.cluster("us", 8)
	w.wantWoken("si-a", "si-b", "si-c")
}

// Who is deleted waits for nothing, even while a cluster that does not answer keeps it.
func TestWhoIsDeletedNoLongerWaits(t *testing.T) {
	w := onEU(t)
	w.lose("eu")
	for _, name := range []string{"us", "ap"} {
		w.change(name, func(c *placement.Cluster) { c.Cordoned = true })
	}
	w.after(time.Hour)
	w.settle("si-a")
	if waiting := len(w.inventory.Parked()); waiting != 1 {
		t.Fatalf("%d instances wait, want the one on the lost cluster", waiting)
	}
	w.deprovision("si-a")
	_, _ = w.pass("si-a") // the cluster does not answer
	if w.gone("si-a") || len(w.inventory.Parked()) > 0 {
		t.Errorf("it is gone is %t, and %d wait", w.gone("si-a"), len(w.inventory.Parked()))
	}
}

// An instance that is being updated is displaced by nobody. One whose update waits for room on a cluster that it has to
// leave fails the update, and leaves at once.
func TestAnUpdateAndAHigherPriority(t *testing.T) {
	waiting := func(t *testing.T) *world {
		w := newWorld(t)
		w.must(w.hub.Create(w.Context(), placementtest.PriorityClasses(w.namespace, v1alpha1.PreemptsSameConsumer)))
		w.cluster("eu", 8)
		for _, name := range []string{"si-a", "si-b", "si-c", "si-d"} {
			w.provision(name, "plan-2", "")
			w.passes(name)
		}
		return w
	}
	grow := func(w *world) {
		w.update("si-a", func(state *v1alpha1.InstanceState) { state.PlanID = "plan-4" })
	}
	t.Run("the update first", func(t *testing.T) {
		w := waiting(t)
		grow(w)
		w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateInProgress, "to make room (1)")
		w.provision("si-gold", "plan-8", "")
		if got := w.victims(w.passes("si-gold")); got != nil {
			t.Errorf("victims are %v", got)
		}
	})
	t.Run("the other one first", func(t *testing.T) {
		w := waiting(t)
		w.provision("si-gold", "plan-8", "")
		w.passes("si-gold")
		grow(w)
		victim := w.settle("si-a")
		w.wantOperation(victim, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "")
		w.wantOn(victim)
	})
}

// An update of the context alone leaves its instance as displaceable, and as awake, as before.
func TestAnUpdateOfTheContextAndAHigherPriority(t *testing.T) {
	w := contested(t, v1alpha1.PreemptsSameConsumer)
	w.update("si-a", func(state *v1alpha1.InstanceState) { state.Context = raw(`{"instance_name":"renamed"}`) })
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	if got := w.victims(w.passes("si-gold")); !slices.Equal(got, []string{"si-a", "si-b", "si-c"}) {
		t.Errorf("victims are %v", got)
	}
}
