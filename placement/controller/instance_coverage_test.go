package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// inEachRegion is a world with plans of one cluster in each region, and an instance of two
// cores on the given clusters. A cluster's name begins with its region: "eu-1" is in "eu".
func inEachRegion(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.inEachRegion()
	for _, name := range names {
		w.regional(name, 8)
	}
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.woken = nil
	return w
}

// inEachRegion gives all plans one cluster in each region.
func (w *world) inEachRegion() {
	w.reconciler.plan = testCatalog(w.T, func(plan *v1alpha1.ResourcesPlan) {
		plan.Clusters, plan.MaxClusters, plan.Components = 1, 1, nil
		plan.Spread = &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, Each: true}
	}).Plan
}

// regional adds a cluster in the region at the beginning of its name.
func (w *world) regional(name string, cores int) {
	w.Helper()
	w.cluster(name, cores)
	region, _, _ := strings.Cut(name, "-")
	w.regroup(name, region)
}

// regroup puts a cluster into another region, or with "" into none.
func (w *world) regroup(name, region string) {
	w.Helper()
	var mc v1alpha1.MemberCluster
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &mc))
	mc.Spec.Region, mc.Spec.Unschedulable = region, w.inventory.Snapshot().Cluster(name).Cordoned
	w.must(w.hub.Update(w.Context(), &mc))
	w.inventory.UpsertCluster(placement.ClusterOf(&mc, w.clock.Now()))
}

// wantOnAll is wantOn in any order.
func (w *world) wantOnAll(instance *v1alpha1.ServiceInstance, names ...string) {
	w.Helper()
	if got := slices.Sorted(slices.Values(instance.Status.Delivered.Decision.Clusters())); !slices.Equal(got, names) {
		w.Fatalf("the instance is on %v, want %v; conditions %+v", got, names, instance.Status.Conditions)
	}
}

func (w *world) wantWoken(names ...string) {
	w.Helper()
	if !slices.Equal(slices.Compact(slices.Sorted(slices.Values(w.woken))), names) {
		w.Fatalf("woken are %v, want %v", w.woken, names)
	}
	w.woken = nil
}

func TestANewGroupGetsItsCopy(t *testing.T) {
	w := inEachRegion(t, "eu-1", "us-1")
	w.wantOnAll(w.instance("si-a"), "eu-1", "us-1")
	w.regional("ap-1", 8)
	w.wantWoken("si-a")
	instance := w.settle("si-a")
	w.wantOnAll(instance, "ap-1", "eu-1", "us-1")
	for _, name := range []string{"ap-1", "eu-1", "us-1"} {
		w.wantCarried(name, "si-a", 2)
		w.wantReserved(name, 2)
	}
	if moved := instance.Status.Moved; moved == nil || len(moved.From) > 0 || !slices.Equal(moved.To, []string{"ap-1"}) || moved.Reason != inEachGroup {
		t.Errorf("moved: %+v", moved)
	}
	w.regional("ap-2", 8) // of a group that has its copy
	w.wantOnAll(w.settle("si-a"), "ap-1", "eu-1", "us-1")
}

func TestAClusterThatIsInNoGroupAnyMoreIsCleaned(t *testing.T) {
	w := inEachRegion(t, "eu-1", "us-1")
	w.regroup("us-1", "")
	w.wantWoken("si-a")
	instance := w.settle("si-a")
	w.wantOn(instance, "eu-1")
	w.wantCarried("us-1", "si-a", 0)
	w.wantReserved("us-1", 0)
	if moved := instance.Status.Moved; moved == nil || !slices.Equal(moved.From, []string{"us-1"}) || moved.Reason != "us-1 is in no group by topology.kubernetes.io/region" {
		t.Errorf("moved: %+v", moved)
	}
}

// A cluster that changes its group counts for the new one. The old group's new copy is
// delivered before anything is removed.
func TestAClusterThatChangesGroupsLeavesNoGap(t *testing.T) {
	w := inEachRegion(t, "eu-1", "us-1")
	w.regional("us-2", 8)
	w.settle("si-a")
	w.driver.fail("deliver us-2", &delivery.PendingError{Step: "slow"})
	w.change("us-1", func(c *placement.Cluster) { c.Cordoned = true }) // so that it is the one to be left
	w.regroup("us-1", "eu")
	w.passes("si-a")
	w.wantCarried("us-1", "si-a", 2)
	w.driver.fail("deliver us-2", nil)
	instance := w.settle("si-a")
	w.wantOnAll(instance, "eu-1", "us-2")
	w.wantCarried("us-2", "si-a", 2)
	w.wantCarried("us-1", "si-a", 0)
	w.wantReserved("us-1", 0)
}

// A cluster has room for one copy. The reservation of a decision whose write was lost does not keep the instance itself
// away from it.
func TestAMoveWhoseDecisionWasNotWrittenIsDecidedAgain(t *testing.T) {
	w := inEachRegion(t, "eu-1", "us-1")
	w.regional("us-2", 3)
	w.change("us-1", func(c *placement.Cluster) { c.Cordoned = true }) // so that it is the one to be left
	w.regroup("us-1", "eu")
	lost := errors.New("connection reset")
	w.onWrite = func(func() error) error {
		w.onWrite = nil
		return lost
	}
	if _, err := w.pass("si-a"); !errors.Is(err, lost) {
		t.Fatalf("got %v", err)
	}
	w.wantReserved("us-2", 2)
	w.wantOnAll(w.settle("si-a"), "eu-1", "us-2")
	w.wantReserved("us-2", 2)
	w.wantReserved("us-1", 0)
}

func TestAGroupWithoutRoomIsSaidAndFilledWhenThereIsSome(t *testing.T) {
	w := inEachRegion(t, "eu-1")
	w.regional("ap-1", 1)
	w.wantWoken("si-a")
	instance := w.settle("si-a")
	w.wantOn(instance, "eu-1")
	placed := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionPlaced)
	if placed.Reason != v1alpha1.ReasonNotInEachGroup || !strings.Contains(placed.Message, "no cluster of topology.kubernetes.io/region fits in ap") ||
		!meta.IsStatusConditionTrue(instance.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("conditions: %+v", instance.Status.Conditions)
	}
	before := instance.ResourceVersion
	if again := w.settle("si-a"); again.ResourceVersion != before {
		t.Error("another look wrote what is no news")
	}
	w.woken = nil
	w.regional("ap-2", 8)
	w.wantWoken("si-a")
	instance = w.settle("si-a")
	w.wantOnAll(instance, "ap-2", "eu-1")
	if placed := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionPlaced); placed.Reason != reasonPlaced {
		t.Errorf("placed: %+v", placed)
	}
}

// A new leader continues the last one's decision, and a cluster that refuses is not retried
// without pause.
func TestAMoveToANewGroupSurvives(t *testing.T) {
	w := inEachRegion(t, "eu-1")
	w.regional("ap-1", 8)
	w.driver.fail("deliver ap-1", &delivery.RefusedError{Reason: "fake: no"})
	instance := w.settle("si-a")
	w.wantOn(instance, "eu-1")
	w.wantReserved("ap-1", 0)
	if instance.Status.Decision.Moves() || !instance.Status.Delivered.Decision.Placements[0].Reserved.Cpu().Equal(*instance.Status.Decision.Placements[0].Reserved.Cpu()) {
		t.Errorf("decision: %+v", instance.Status.Decision)
	}
	w.driver.fail("deliver ap-1", &delivery.PendingError{Step: "slow"})
	w.after(dataPatience) // no other cluster fits
	if instance := w.passes("si-a"); len(instance.Status.Decision.Joining) != 1 {
		t.Fatalf("decision: %+v", instance.Status.Decision)
	}
	w.start()
	w.inEachRegion()
	w.driver.fail("deliver ap-1", nil)
	w.wantOnAll(w.settle("si-a"), "ap-1", "eu-1")
}
