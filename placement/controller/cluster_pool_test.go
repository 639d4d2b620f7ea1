package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestAPoolFollowsItsFrontAndItsMembers: a pool has what its members have that take placements, within two seconds of a
// change, and is ready while its front answers.
func TestAPoolFollowsItsFrontAndItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inventory := placement.NewInventory()
		add := func(row placementtest.Cluster) {
			inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), time.Time{}))
		}
		member := func(name, cpu, unreachable string) {
			add(placementtest.Cluster{Name: name, Has: placementtest.Quantities("cpu=" + cpu), Labels: map[string]string{"pool": "eu"}, Liqo: &v1alpha1.LiqoCluster{}, Unreachable: unreachable})
		}
		front := func(hub bool, unreachable string) {
			add(placementtest.Cluster{Name: "front", Liqo: &v1alpha1.LiqoCluster{Hub: hub}, Latency: "3ms", Unreachable: unreachable})
		}
		pool := placementtest.Cluster{Name: "eu-pool", Pool: &v1alpha1.ClusterPool{Front: "front", Members: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "eu"}}}}.MemberCluster()
		pool.Status = v1alpha1.MemberClusterStatus{}

		r := newClusterReconciler(nil, nil, Options{Namespace: "sluice", Inventory: inventory}.complete(), nil)
		r.running = t.Context()
		woken := make(chan struct{}, 1)
		r.wakeNow = func(string) {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
		w := r.watchOf("eu-pool")
		look := func() {
			now := time.Now()
			w.refresh(t.Context(), r, pool, now)
			w.report(t.Context(), pool, nil, nil)
			inventory.UpsertCluster(placement.ClusterOf(pool, now))
		}
		// within looks whenever the watch is woken, for two seconds, and checks what the pool is then.
		within := func(what string, cores int64, ready metav1.ConditionStatus, says string) {
			t.Helper()
			end := time.After(2 * time.Second)
			for done := false; !done; {
				select {
				case <-woken:
					look()
				case <-end:
					done = true
				}
			}
			c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady)
			counted := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionCapacityKnown)
			if got := pool.Status.Allocatable.Cpu().Value(); got != cores || c.Status != ready || !strings.Contains(c.Message+"; "+counted.Message, says) {
				t.Errorf("%s: it has %d cores, is ready: %s (%s; %s); want %d, %s, %q", what, got, c.Status, c.Message, counted.Message, cores, ready, says)
			}
		}
		look()
		within("nothing else is there", 0, metav1.ConditionFalse, "find its front: front is not in the inventory")
		front(false, "")
		within("its front is no hub", 0, metav1.ConditionFalse, "front is no hub")
		front(true, "")
		within("it has no members", 0, metav1.ConditionFalse, "it has no members")
		member("small-0", "4", "")
		member("small-1", "3", "")
		within("it has two", 7, metav1.ConditionTrue, "2 of 2 take placements")
		if pool.Status.Latency == nil || pool.Status.Latency.Duration != 3*time.Millisecond {
			t.Errorf("its latency is %v", pool.Status.Latency)
		}
		member("small-1", "3", "connection refused")
		within("one is lost", 4, metav1.ConditionTrue, "1 of 2 take placements")
		front(true, "connection refused")
		within("its front is lost", 4, metav1.ConditionFalse, "front does not answer: connection refused")
		front(true, "")
		within("its front is back", 4, metav1.ConditionTrue, "")
		r.drop("eu-pool")
		time.Sleep(time.Second) // what was on its way has arrived
		select {
		case <-woken:
		default:
		}
		member("small-2", "4", "")
		time.Sleep(2 * time.Second)
		select {
		case <-woken:
			t.Error("a pool that is gone is still followed")
		default:
		}
	})
}
