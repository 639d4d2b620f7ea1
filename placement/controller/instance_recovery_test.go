package controller

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/replay"
)

func TestARestartedSluiceSellsNothingTwice(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 6)
	w.provision("si-delivered", "plan-2", "")
	w.passes("si-delivered")
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace"})
	w.provision("si-undelivered", "plan-2", "")
	w.passes("si-undelivered")

	w.start()
	w.provision("si-large", "plan-4", "")
	w.wantOperation(w.passes("si-large"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "2 free of 6 after 4 reserved")
	w.driver.fail("deliver eu", nil)
	w.wantOperation(w.passes("si-undelivered"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantReserved("eu", 4)

	inventory := placement.NewInventory()
	err := replay.Fill(t.Context(), w.hub, w.namespace, inventory, w.clock.Now())
	snapshot := inventory.Snapshot()
	w.must(err)
	if free := snapshot.Free("eu", "cpu"); free != 2000 {
		t.Errorf("a dry run sees %d thousandths of a core free", free)
	}
}

// What is as it was before a restart is not written again, neither at once nor by the check that follows.
func TestARestartWritesNoStatusOfAnInstanceInWhichNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 2)
	w.cluster("us", 4)
	w.provision("si-wrong", "plan-4", "")
	w.passes("si-wrong")
	w.provision("si-right", "plan-2", "")
	w.wantOn(w.passes("si-right"), "eu")
	w.driver.fail("observe us", errors.New("us: connection refused"))
	w.driver.fail("deliver us", errors.New("us: connection refused"))
	w.checked("si-right", "si-wrong")
	for name, ready := range map[string]bool{"si-right": true, "si-wrong": false} {
		if meta.IsStatusConditionTrue(w.instance(name).Status.Conditions, v1alpha1.ConditionReady) != ready {
			t.Fatalf("%s ready: want %t", name, ready)
		}
	}
	versions := func() []string {
		return []string{w.instance("si-right").ResourceVersion, w.instance("si-wrong").ResourceVersion}
	}
	before := versions()
	w.start()
	w.writes = 0
	w.checked("si-right", "si-wrong")
	if now := versions(); !slices.Equal(now, before) || w.writes > 0 {
		t.Errorf("%d writes after the restart: the versions are %v, and were %v", w.writes, now, before)
	}
}

// checked makes a pass over instances, and one when their next check is due.
func (w *world) checked(names ...string) {
	for range 2 {
		for _, name := range names {
			_, _ = w.pass(name) // an error if the check finds something wrong
		}
		w.after(5 * time.Minute)
	}
}

// When many instances are found wrong, their results are written a few at a time, and no worker waits for that.
func TestResultsOfChecksAreWrittenInTurn(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.reconciler.reports = &member.Places{Most: 1, Wake: func(instance string) { w.woken = append(w.woken, instance) }}
	w.driver.fail("observe eu", errors.New("eu: connection refused"))
	w.driver.fail("deliver eu", errors.New("eu: connection refused"))
	w.checked("si-a")
	if meta.IsStatusConditionTrue(w.instance("si-a").Status.Conditions, v1alpha1.ConditionReady) {
		t.Fatal("an instance that cannot be repaired is ready")
	}
	w.driver.fail("observe eu", nil)
	leave, err := w.reconciler.reports.Enter("", "si-other")
	w.must(err)
	w.writes, w.woken = 0, nil
	if result, err := w.pass("si-a"); err != nil || result.RequeueAfter != turnPatience || w.writes > 0 {
		t.Fatalf("next look after %s, %d writes, error %v; want none before its turn", result.RequeueAfter, w.writes, err)
	}
	leave(nil)
	if !slices.Equal(w.woken, []string{"si-a"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	if !meta.IsStatusConditionTrue(w.passes("si-a").Status.Conditions, v1alpha1.ConditionReady) || w.writes != 1 {
		t.Errorf("%d writes, want one, by which it is ready", w.writes)
	}
}

func TestAConflictGivesBackWhatWasReserved(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-4", "")
	w.onWrite = func(really func() error) error {
		w.onWrite = nil
		w.update("si-a", plan("plan-2")) // the broker is quicker
		return really()
	}
	if _, err := w.pass("si-a"); !apierrors.IsConflict(err) {
		t.Fatalf("want a conflict, got %v", err)
	}
	w.wantReserved("eu", 0)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantReserved("eu", 2)
}

func TestAWriteWithAnUnknownOutcomeKeepsItsReservation(t *testing.T) {
	lost := errors.New("connection reset")
	for _, c := range []struct {
		name    string
		arrives bool
	}{
		{"when the write arrived", true},
		{"when the write did not arrive", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster("ap", 4)
			w.cluster("eu", 4)
			w.provision("si-a", "plan-4", "")
			w.onWrite = func(really func() error) error {
				w.onWrite = nil
				if c.arrives {
					w.must(really())
				}
				return lost
			}
			if _, err := w.pass("si-a"); !errors.Is(err, lost) {
				t.Fatalf("got %v", err)
			}
			held := w.inventory.ClustersHeld("si-a")
			if len(held) != 1 {
				t.Fatalf("held is %v", held)
			}
			instance := w.passes("si-a")
			w.wantOperation(instance, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
			if placed := instance.Status.Decision.Clusters(); placed[0] != held[0] {
				t.Errorf("held on %v, placed on %v", held, placed)
			}
			w.wantReserved(held[0], 4)
		})
	}
}

// TestNearQuotaIsNotLost: an order that brings its consumer near a quota says so once, also if its decision is made again
// because the first one may or may not be on the hub.
func TestNearQuotaIsNotLost(t *testing.T) {
	lost := errors.New("connection reset")
	for name, arrives := range map[string]bool{"the write arrived": true, "the write did not arrive": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster("eu", 10)
			w.policy("small", v1alpha1.PlacementPolicySpec{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopePlatform, Instances: ptr.To[int32](2), WarnAt: 50}})
			w.provision("si-a", "plan-2", "")
			w.onWrite = func(really func() error) error {
				w.onWrite = nil
				if arrives {
					w.must(really())
				}
				return lost
			}
			if _, err := w.pass("si-a"); !errors.Is(err, lost) {
				t.Fatalf("got %v", err)
			}
			w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
			w.provision("si-b", "plan-2", "") // and this one is beyond that
			count := map[string]int{}
			for _, instance := range []*v1alpha1.ServiceInstance{w.instance("si-a"), w.passes("si-b")} {
				for _, e := range instance.Status.Events {
					if e.Type == v1alpha1.EventNearQuota {
						count[instance.Name]++
					}
				}
			}
			if count["si-a"] != 1 || count["si-b"] != 0 {
				t.Errorf("they say so so many times: %v", count)
			}
		})
	}
}

func TestAReadThatIsOlderThanOurOwnWriteIsNotActedUpon(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.driver.called()
	w.reconciler.written.Store("si-a", w.instance("si-a").ResourceVersion+"0") // a later write
	result, err := w.pass("si-a")
	w.must(err)
	if result.RequeueAfter != staleAfter || len(w.driver.called()) > 0 {
		t.Errorf("a stale read was acted upon")
	}
}

func TestRacingReconcilersDoNotOversell(t *testing.T) {
	w := newWorld(t)
	w.cluster("ap", 10)
	w.cluster("eu", 11)
	const instances = 16 // of 2 cores each; 10 fit
	for i := range instances {
		w.provision(fmt.Sprintf("si-%02d", i), "plan-2", "")
	}
	w.reconciler.hub = plainClient(w)
	var racing sync.WaitGroup
	for i := range instances {
		racing.Go(func() {
			request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: fmt.Sprintf("si-%02d", i)}}
			if _, err := w.reconciler.Reconcile(t.Context(), request); err != nil {
				t.Error(err)
			}
		})
	}
	racing.Wait()

	sold := map[string]int64{}
	succeeded := 0
	for i := range instances {
		instance := w.instance(fmt.Sprintf("si-%02d", i))
		if instance.Status.Operation.State == v1alpha1.StateSucceeded {
			succeeded++
		}
		for cluster, held := range placement.Ledger(&instance.Status) {
			sold[cluster] += held["cpu"]
		}
	}
	if succeeded != 10 || sold["ap"] > 10000 || sold["eu"] > 11000 {
		t.Errorf("%d succeeded, sold is %v", succeeded, sold)
	}
	w.wantReserved("ap", 10)
	w.wantReserved("eu", 10)
}

func TestAClusterThatDoesNotAnswerIsNotTriedTillItAnswersAgain(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace"})
	w.provision("si-a", "plan-2", "")
	w.passes("si-a")
	w.driver.called()

	row := placementtest.Cluster{Name: "eu", Has: placementtest.Quantities("cpu=4"), Unreachable: "connection refused"}
	w.inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), w.clock.Now()))
	if _, err := w.pass("si-a"); err == nil || len(w.driver.called()) > 0 {
		t.Fatalf("error %v; want one, and no call of the driver", err)
	}
	w.wantOperation(w.instance("si-a"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "eu does not answer: connection refused")

	row.Unreachable, w.woken = "", nil
	w.inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), w.clock.Now()))
	if !slices.Equal(w.woken, []string{"si-a"}) {
		t.Fatalf("woken are %v", w.woken)
	}
	w.driver.fail("deliver eu", nil)
	w.wantOperation(w.passes("si-a"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

// plainClient does not count, so it is safe for concurrent use.
func plainClient(w *world) client.Client {
	c, err := client.New(hubConfig(w), client.Options{Scheme: w.hub.Scheme()})
	w.must(err)
	return c
}
