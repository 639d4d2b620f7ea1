package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// newUpstreamWorld returns a world that sells an upstream plan with the candidates a, b and c, of which a is the
// cheapest. failed lists the orders that count against a broker.
func newUpstreamWorld(t *testing.T) (w *world, failed *[]string) {
	t.Helper()
	w, failed = newWorld(t), &[]string{}
	plan := v1alpha1.Plan{
		ID: "plan-upstream", Name: "small", Description: "A database.", Kind: v1alpha1.PlanKindUpstream, MaximumPollingDurationSeconds: 600,
		Upstream: &v1alpha1.UpstreamPlan{MemberChoice: v1alpha1.MemberChoice{Score: v1alpha1.ScoreWeights{Price: 1}}},
	}
	for i, broker := range []string{"a", "b", "c"} {
		price := placementtest.Quantities(fmt.Sprintf("euro=%d", i+1))["euro"]
		plan.Upstream.Candidates = append(plan.Upstream.Candidates, v1alpha1.UpstreamCandidate{
			Broker: broker, Service: "mysql", Plan: "small", Price: &v1alpha1.Price{Currency: "EUR", PerHour: &price},
		})
	}
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-compute", Name: "mysql", Description: "Databases.", Plans: []v1alpha1.Plan{plan}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	w.must(err)
	w.broker(v1alpha1.ConditionReachable, "a", "b", "c")
	w.restarted = func(r *instanceReconciler) {
		r.plan = snapshot.Plan
		r.drivers = map[string]delivery.Driver{v1alpha1.DriverOSB: w.driver}
		r.failed = func(broker string, _ v1alpha1.OrderFailure) { *failed = append(*failed, broker) }
	}
	w.restarted(w.reconciler)
	return w, failed
}

// broker puts brokers that offer mysql/small into the inventory; without the condition they do not answer.
func (w *world) broker(reachable string, names ...string) {
	for _, name := range names {
		row := placementtest.Cluster{Name: name, Driver: v1alpha1.DriverOSB, Has: placementtest.Quantities("sluice.dev/instances=9")}
		if reachable == "" {
			row.Unreachable = "connection refused"
		}
		mc := row.MemberCluster()
		mc.Status.Broker = &v1alpha1.UpstreamBrokerStatus{Plans: []v1alpha1.OfferedPlan{{Service: "mysql", Plan: "small", ServiceID: "s", PlanID: "p"}}}
		w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	}
}

func refusedWith(broker, why string) error {
	return &delivery.RefusedError{Reason: "broker " + broker + ": " + why, Consumer: "the provider refuses it: " + why}
}

// TestTheNextCandidate: an order that a broker refuses, or fails, goes to the next candidate, after what it may
// have left is deleted. If nobody takes it, it fails with all reasons, and nothing is left.
func TestTheNextCandidate(t *testing.T) {
	w, failed := newUpstreamWorld(t)
	w.driver.fail("deliver a", refusedWith("a", "no room"))
	w.driver.fail("deliver b", refusedWith("b", "no licence"))
	w.provision("db", "plan-upstream", "")
	db := w.passes("db")
	w.wantOperation(db, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if on := db.Status.Decision.Clusters(); !slices.Equal(on, []string{"c"}) || len(db.Status.Left) > 0 || !slices.Equal(*failed, []string{"a", "b"}) {
		t.Errorf("it is on %v with %v left, and %v failed", on, db.Status.Left, *failed)
	}
	if all := w.driver.calls; !slices.Equal(all, []string{"deliver a", "remove a", "deliver b", "remove b", "deliver c"}) {
		t.Errorf("the brokers are asked %v", all)
	}
	if why := db.Status.Operation.Refusals; len(why) != 2 || why[0].Description != "broker a: no room" || why[1].Summary != "the provider refuses it: no licence" {
		t.Errorf("the refusals are %+v", why)
	}
	if r := db.Status.Decision.Rejections; len(r) == 0 || r[0].Reason != "Refused" || r[0].Count != 2 || r[0].Examples[0].Message != "broker a: no room" {
		t.Errorf("the decision is explained by %+v", r)
	}

	w.driver.fail("deliver c", refusedWith("c", "no room"))
	w.provision("more", "plan-upstream", "")
	more := w.passes("more")
	w.wantOperation(more, v1alpha1.OperationProvision, v1alpha1.StateFailed, "broker a: no room; broker b: no licence; broker c: no room")
	if says := more.Status.Operation.Summary; says != "the provider refuses it: no room; the provider refuses it: no licence" {
		t.Errorf("the consumer reads %q", says)
	}
	for _, broker := range []string{"a", "b", "c"} {
		if held := w.inventory.Snapshot().Reserved("more", broker); len(held) > 0 || w.driver.has(broker, "more") {
			t.Errorf("%s has %v reserved", broker, held)
		}
	}
}

// TestErrorsOfConsumers: a refusal that the consumer's parameters may have caused sends the order on, and does not
// count against the broker, whether another takes it or none.
func TestErrorsOfConsumers(t *testing.T) {
	w, failed := newUpstreamWorld(t)
	of := func(broker string) error {
		return &delivery.RefusedError{Reason: "broker " + broker + ": 400: size", Consumer: "the provider refuses it: size", OfParameters: true}
	}
	w.driver.fail("deliver a", of("a"))
	w.driver.fail("deliver b", refusedWith("b", "no disk"))
	w.provision("db", "plan-upstream", "")
	if db := w.passes("db"); !db.Status.IsOn("c") || !slices.Equal(*failed, []string{"b"}) {
		t.Errorf("it is on %v, and %v failed", db.Status.Decision.Clusters(), *failed)
	}
	w.driver.fail("deliver b", of("b"))
	w.driver.fail("deliver c", of("c"))
	w.provision("more", "plan-upstream", "")
	w.wantOperation(w.passes("more"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "broker a: 400: size; broker b: 400: size; broker c: 400: size")
	if !slices.Equal(*failed, []string{"b"}) {
		t.Errorf("%v failed", *failed)
	}
}

// TestAnotherVersionOfThePlan: the version that a broker's plan has got since its catalog was read is written before the
// order is sent again, and counts against nobody.
func TestAnotherVersionOfThePlan(t *testing.T) {
	w, failed := newUpstreamWorld(t)
	now := "2.0.0"
	w.driver.failOn = func(d delivery.Delivery) error {
		if d.Placement.Upstream.MaintenanceVersion == now {
			return nil
		}
		d.Said.MaintenanceVersion = &now
		return &delivery.PendingError{Step: "order version 2.0.0"}
	}
	w.provision("db", "plan-upstream", "")
	if db := w.passes("db"); db.Status.IsFinished() || db.Status.Decision.Placements[0].Upstream.MaintenanceVersion != now {
		t.Fatalf("after the first order it is %+v", db.Status)
	}
	db := w.passes("db")
	w.wantOperation(db, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if !db.Status.IsOn("a") || db.Status.Delivered.Decision.Placements[0].Upstream.MaintenanceVersion != now || len(*failed) > 0 {
		t.Errorf("it is %+v, and %v failed", db.Status, *failed)
	}
}

// TestABrokerThatDoesNotTakeAnOrder: an order waits half a minute for a broker that gives no answer, and goes
// on. What may have been ordered is deleted when the broker answers again.
func TestABrokerThatDoesNotTakeAnOrder(t *testing.T) {
	w, _ := newUpstreamWorld(t)
	w.driver.fail("deliver a", errors.New("no answer"))
	w.driver.fail("remove a", errors.New("no answer"))
	w.provision("db", "plan-upstream", "")
	if _, err := w.pass("db"); err == nil {
		t.Fatal("a transient error is no error")
	}
	w.clock.SetTime(w.clock.Now().Add(orderPatience))
	if _, err := w.pass("db"); err == nil {
		t.Error("nothing is left at the broker that does not answer")
	}
	db := w.instance("db")
	w.wantOperation(db, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if !db.Status.IsOn("b") || !slices.Equal(db.Status.LeftClusters(), []string{"a"}) || db.Status.Operation.Refusals[0].Summary != "the provider does not answer" {
		t.Errorf("it is %+v", db.Status)
	}
	w.driver.fail("remove a", nil)
	if db := w.passes("db"); len(db.Status.Left) > 0 || !slices.Contains(w.driver.called(), "remove a") {
		t.Errorf("left are %v", db.Status.Left)
	}

	// What takes long and is carried out stays.
	w.driver.fail("deliver a", &delivery.PendingError{Step: "wait for broker a"})
	w.provision("slow", "plan-upstream", "")
	w.passes("slow")
	w.clock.SetTime(w.clock.Now().Add(2 * orderPatience))
	w.passes("slow")
	w.driver.fail("deliver a", nil)
	if slow := w.passes("slow"); !slow.Status.IsOn("a") || len(slow.Status.Operation.Refusals) > 0 || !slow.Status.IsFinished() {
		t.Errorf("it is %+v", slow.Status)
	}

	// Of a broker that is known not to answer nothing is expected; if there is no other, the order waits for it.
	w.driver.fail("deliver a", &delivery.PendingError{Step: "wait for broker a"})
	w.provision("more", "plan-upstream", "")
	w.passes("more")
	w.broker("", "b", "c")
	w.broker("", "a")
	if _, err := w.pass("more"); err == nil || w.instance("more").Status.Decision.Clusters()[0] != "a" {
		t.Errorf("it does not wait for its broker: %v", err)
	}
	w.broker(v1alpha1.ConditionReachable, "c")
	_, _ = w.pass("more") // it cannot delete anything at a
	if more := w.instance("more"); !more.Status.IsOn("c") || !slices.Equal(more.Status.LeftClusters(), []string{"a"}) {
		t.Errorf("it is %+v", more.Status)
	}
}

// TestKilledOnItsWay: a process that is killed at any write of an order that goes elsewhere, and that remembers
// nothing afterwards, ends with one instance.
func TestKilledOnItsWay(t *testing.T) {
	for at, killed := 0, true; killed; at++ {
		for _, written := range []bool{false, true} {
			w, _ := newUpstreamWorld(t)
			w.driver.fail("deliver a", refusedWith("a", "no room"))
			writes := 0
			killed = false
			w.onWrite = func(really func() error) error {
				if writes++; writes != at+1 {
					return really()
				}
				if killed = true; written {
					w.must(really())
				}
				return errors.New("killed")
			}
			w.provision("db", "plan-upstream", "")
			_, _ = w.pass("db")
			w.start()
			w.broker(v1alpha1.ConditionReachable, "a", "b", "c")
			db := w.passes("db")
			w.wantOperation(db, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
			if !slices.Equal(db.Status.Decision.Clusters(), []string{"b"}) || len(db.Status.Left) > 0 || w.driver.has("a", "db") || !w.driver.has("b", "db") {
				t.Errorf("write %d, written %t: it is %+v", at, written, db.Status)
			}
			w.must(client.IgnoreNotFound(w.hub.Delete(t.Context(), db)))
			for !w.gone("db") {
				_, _ = w.pass("db")
			}
			if w.driver.has("b", "db") {
				t.Error("it is not deleted")
			}
		}
	}
}

// TestWhatFailedLatelyCounts: orders that failed are in the status of the broker, once for each organization, and
// in the inventory, as long as they count.
func TestWhatFailedLatelyCounts(t *testing.T) {
	now := time.Now()
	status := &v1alpha1.UpstreamBrokerStatus{}
	w := &clusterWatch{cluster: "a"}
	woken := 0
	r := &clusterReconciler{watches: map[string]*clusterWatch{"a": w}, wake: func(string) { woken++ }}
	for i, organization := range []string{"one", "two", "one"} {
		r.orderFailed("a", v1alpha1.OrderFailure{Plan: "mysql/small", OrganizationGUID: organization, Reason: fmt.Sprint("reason ", i), At: metav1.NewTime(now.Add(time.Duration(i-3) * time.Minute))})
	}
	r.reportFailures(w, status, now)
	r.reportFailures(w, &v1alpha1.UpstreamBrokerStatus{}, now) // the first was not written
	var reasons []string
	for _, f := range status.Failures {
		reasons = append(reasons, f.Reason)
	}
	if strings.Join(reasons, ", ") != "reason 1, reason 2" || woken != 3 {
		t.Errorf("the status has %v, after %d passes", reasons, woken)
	}
	r.reportFailures(w, status, now.Add(v1alpha1.RememberFailures))
	if len(status.Failures) > 0 {
		t.Errorf("after an hour it has %v", status.Failures)
	}
}
