package elastic

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// podOf returns a request for one pod of that many cores.
func podOf(id string, cores int64) placement.Request { return podOfMilli(id, cores*1000) }

func podOfMilli(id string, milli int64) placement.Request {
	pod := placement.Resources{"cpu": milli}
	return placement.Request{ID: id, Resources: pod, LargestPods: []placement.Resources{pod}}
}

func free(count int32, cpu string) v1alpha1.NodesFree {
	return v1alpha1.NodesFree{Count: count, Free: placementtest.Quantities("cpu=" + cpu)}
}

// Machines leave less for pods than the plan says, which is known of the first cluster. No others are made then for a pod
// that is too large for each of them, except for one that is not.
func TestElasticKnowsItsMachines(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	r := podOf("a", 4)
	w.parkIt(r)
	w.look()
	w.wantOrders("for a pod that fits by the plan", 1, 0)
	order := w.orders()[0]
	w.deliver(&order)
	w.readyAs(placementtest.Cluster{Name: v1alpha1.InstanceClusterName(order.Name), Has: placementtest.Quantities("cpu=7800m"), Nodes: []v1alpha1.NodesFree{free(2, "3900m")}})
	w.parkIt(r)
	w.look()
	w.wantOrders("when its machines turn out to be smaller", 1, 0)
	w.inventory.Release("a")
	for _, id := range []string{"b", "c"} {
		if _, err := w.inventory.Place(podOfMilli(id, 3900)); err != nil {
			t.Fatal(err)
		}
	}
	w.parkIt(podOfMilli("d", 3900))
	w.look()
	w.wantOrders("for a pod that fits on a machine", 2, 0)
}

// A cluster grows for a pod for which none of its nodes has room.
func TestElasticGrowsForAPod(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.elastic.Catalog.Replace(growingCatalog(t, 4))
	a, b := podOf("a", 3), podOf("b", 3)
	w.parkIt(a)
	w.parkIt(b)
	w.look()
	order := w.orders()[0]
	w.deliver(&order)
	name := v1alpha1.InstanceClusterName(order.Name)
	w.readyAs(placementtest.Cluster{Name: name, Has: placementtest.Quantities("cpu=8"), Nodes: []v1alpha1.NodesFree{free(2, "4")}})
	for _, r := range []placement.Request{a, b} {
		if _, err := w.inventory.Place(r); err != nil {
			t.Fatal(err)
		}
	}
	w.readyAs(placementtest.Cluster{Name: name, Has: placementtest.Quantities("cpu=8"), Nodes: []v1alpha1.NodesFree{free(2, "1")}})
	w.parkIt(podOf("c", 3))
	for _, told := range []string{"workers added: 1", "it grows"} {
		w.look()
		w.wantOrders("for one pod more", 1, 0)
		if raw := w.orders()[0].Spec.Desired.Raw(); string(raw) != `{"workers":{"pool":3}}` {
			t.Errorf("its parameters are %s, want one worker more", raw)
		}
		if got := w.elastic.Promise("c"); !strings.Contains(got, told) {
			t.Errorf("c is told %q, want %q", got, told)
		}
	}
}

// A new cluster enforces rules for pods, and has the storage classes of the one that there is. Of the first one they are not
// known.
func TestElasticForRulesAndStorage(t *testing.T) {
	rules, err := placement.CompilePolicy(&v1alpha1.PlacementPolicy{Spec: v1alpha1.PlacementPolicySpec{Workloads: &v1alpha1.WorkloadRules{Digests: true}}})
	if err != nil {
		t.Fatal(err)
	}
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.inventory.SetPolicies(append(w.inventory.Snapshot().Policies(), rules))
	stored := func(id string) placement.Request {
		return placement.Request{ID: id, Resources: placement.Resources{"cpu": 6000, v1alpha1.StorageResource("fast"): 1}}
	}
	w.parkIt(stored("stored"))
	w.look()
	w.wantOrders("for storage that no cluster of the policy is known to have", 0, 0)

	ruled := w.inventory.Snapshot().Govern(placement.Request{ID: "ruled", Resources: placement.Resources{"cpu": 6000}}, placement.Consumer{Platform: "cf"})
	w.parkIt(ruled)
	w.look()
	w.wantOrders("for pods with rules", 1, 0)

	order := w.orders()[0]
	w.deliver(&order)
	w.readyAs(placementtest.Cluster{Name: v1alpha1.InstanceClusterName(order.Name), Has: placementtest.Quantities("cpu=8"), Classes: []string{"fast"}})
	if _, err := w.inventory.Place(ruled); err != nil {
		t.Fatal(err)
	}
	w.look()
	w.wantOrders("for storage that it has", 2, 0)
}

// While the only cluster grows, a new one has its storage classes, too.
func TestElasticForStorageWhileItGrows(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.elastic.Catalog.Replace(growingCatalog(t, 4))
	a := w.park("a", 6)
	w.look()
	order := w.orders()[0]
	w.deliver(&order)
	w.readyAs(placementtest.Cluster{Name: v1alpha1.InstanceClusterName(order.Name), Has: placementtest.Quantities("cpu=8"), Classes: []string{"fast"}})
	if _, err := w.inventory.Place(a); err != nil {
		t.Fatal(err)
	}
	w.park("b", 5)
	w.look()
	order = w.orders()[0]
	order.Status.Operation.State = v1alpha1.StateInProgress
	w.must(w.hub.Status().Update(t.Context(), &order))
	w.parkIt(placement.Request{ID: "stored", Resources: placement.Resources{"cpu": 7000, v1alpha1.StorageResource("fast"): 1}})
	w.look()
	w.wantOrders("for storage that the growing one has", 2, 0)
}

// No cluster is made for an instance for which others leave.
func TestElasticForWhomRoomIsMade(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.park("a", 6)
	w.inventory.Preempt("a", &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "eu"}})
	w.look()
	w.wantOrders("while room is made for it", 0, 0)
	w.inventory.Preempt("a", nil)
	w.look()
	w.wantOrders("when none is", 1, 0)
}
