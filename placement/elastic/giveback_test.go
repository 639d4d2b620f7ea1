package elastic

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// After a start, the inventory has neither reservations nor policies until it is filled. Until then no cluster is given
// back and none is made.
func TestElasticWaitsForTheInventory(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.park("a", 6)
	w.look()
	policies := w.inventory.Snapshot().Policies()
	w.inventory.SetPolicies(nil)
	w.restart()
	filled := make(chan struct{})
	w.elastic.Filled = filled
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.elastic.Start(ctx) }()
	for range 20 {
		w.clock.Step(every)
		time.Sleep(10 * time.Millisecond)
	}
	if n := w.deleted(); n != 0 {
		t.Errorf("%d clusters are given back before the inventory is filled", n)
	}
	w.inventory.SetPolicies(policies)
	close(filled)
	for deadline := time.Now().Add(10 * time.Second); w.elastic.Promise("a") == ""; {
		if time.Now().After(deadline) {
			t.Fatal("there is no pass after the inventory is filled")
		}
		w.clock.Step(every)
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(w.orders()); n != 1 || w.deleted() != 0 {
		t.Errorf("%d orders, %d of them deleted, want the one that there was", n, w.deleted())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	w.elastic.Filled = make(chan struct{})
	if err := w.elastic.Start(ctx); err != nil {
		t.Errorf("it ends before the inventory is filled: %v", err)
	}
}

// joined returns a world with one cluster, on which the request a is placed.
func joined(t *testing.T, change func(*v1alpha1.Elastic)) (w *elasticWorld, order v1alpha1.ServiceInstance, cluster string) {
	t.Helper()
	w = newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", change)
	r := w.park("a", 6)
	w.look()
	order = w.orders()[0]
	cluster = v1alpha1.InstanceClusterName(order.Name)
	w.deliver(&order)
	w.ready(cluster, "cpu=8")
	if _, err := w.inventory.Place(r); err != nil {
		t.Fatal(err)
	}
	w.look()
	return w, order, cluster
}

// silence makes a cluster stop answering.
func (w *elasticWorld) silence(cluster string) {
	c := *w.inventory.Snapshot().Cluster(cluster)
	c.Ready, c.Unready = false, "it does not answer"
	w.inventory.UpsertCluster(&c)
}

// wantOrders checks how many clusters there are, and how many of them are being given back.
func (w *elasticWorld) wantOrders(when string, orders, deleted int) {
	w.Helper()
	if n, d := len(w.orders()), w.deleted(); n != orders || d != deleted {
		w.Errorf("%s: %d orders, %d of them deleted, want %d and %d", when, n, d, orders, deleted)
	}
}

// A cluster that stops answering is waited for. After a while it counts no more: it is replaced, and given back when it
// is idle.
func TestElasticReplacesWhatIsLost(t *testing.T) {
	w, order, cluster := joined(t, nil)
	w.silence(cluster)
	w.look()
	w.clock.Step(time.Hour) // it may answer again, and what is on it stays until it is evicted
	w.look()
	w.wantOrders("while an instance is on it", 1, 0)
	w.restart() // the silence starts anew
	w.inventory.Release("a")
	w.park("a", 6)
	w.look()
	w.clock.Step(patience - time.Second)
	w.look()
	w.wantOrders("while it is waited for", 1, 0)
	if got := w.elastic.Promise("a"); !strings.Contains(got, cluster+" for it: it is made, and is not ready at the moment") {
		t.Errorf("a is told %q", got)
	}
	w.clock.Step(time.Second)
	w.look()
	w.wantOrders("when it counts no more", 2, 0)
	if got := w.elastic.Promise("a"); !strings.Contains(got, "creates a cluster for it") {
		t.Errorf("a is told %q", got)
	}
	w.clock.Step(time.Minute)
	w.look()
	w.wantOrders("when it is idle", 2, 1)
	for _, o := range w.orders() {
		if gone := !o.DeletionTimestamp.IsZero(); gone != (o.Name == order.Name) {
			t.Errorf("%s is given back: %t", o.Name, gone)
		}
	}
}

// A cluster that answers again in time counts as before. It is idle only from then on, because what waits for it is placed
// on it next.
func TestElasticShortSilence(t *testing.T) {
	w, _, cluster := joined(t, nil)
	w.inventory.Release("a")
	w.look()
	w.silence(cluster)
	r := w.park("a", 6)
	for range 2 {
		w.look()
		w.clock.Step(patience - time.Second)
		w.look()
		w.ready(cluster, "cpu=8")
		w.look()
		w.wantOrders("when it answers again", 1, 0)
		w.silence(cluster)
	}
	w.ready(cluster, "cpu=8")
	if _, err := w.inventory.Place(r); err != nil {
		t.Error(err)
	}
}

// A new cluster of the same name is waited for anew.
func TestElasticForgetsSilence(t *testing.T) {
	w, order, cluster := joined(t, nil)
	w.silence(cluster)
	w.look()
	w.clock.Step(time.Hour)
	w.look()
	w.must(w.hub.Delete(t.Context(), &order))
	w.look()
	w.must(client.IgnoreNotFound(w.hub.Delete(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: cluster}})))
	for _, o := range w.orders() {
		o.Finalizers = nil
		w.must(w.hub.Update(t.Context(), &o))
	}
	w.inventory.DeleteCluster(cluster)
	w.inventory.Release("a")
	w.park("a", 6)
	w.look()
	orders := w.orders()
	if len(orders) != 1 || orders[0].Name != order.Name {
		t.Fatalf("orders %v, want a new one of the same name", orders)
	}
	w.deliver(&orders[0])
	w.look()
	w.wantOrders("when the new one joins", 1, 0)
}

// A cluster that an operator keeps peered could not leave the inventory, and stays although it is idle and its policy is
// deleted.
func TestElasticKeepsWhatIsKeptPeered(t *testing.T) {
	for name, row := range map[string]struct {
		kept, consumes bool
		deleted        int
	}{
		"kept, as consumer": {true, true, 0}, "kept, as provider": {true, false, 0}, "for an instance that is gone": {false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, cluster := joined(t, nil)
			w.inventory.Release("a")
			spec := v1alpha1.PeeringSpec{Consumer: "other", Provider: cluster, Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleNetworking}, Kept: row.kept}
			if row.consumes {
				spec.Consumer, spec.Provider = cluster, "other"
			}
			w.must(w.hub.Create(t.Context(), &v1alpha1.Peering{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.PeeringName(spec.Consumer, spec.Provider)}, Spec: spec,
			}))
			w.look()
			w.clock.Step(2 * time.Minute)
			w.look()
			w.wantOrders("when it is idle", 1, row.deleted)
			w.inventory.SetPolicies(nil)
			w.look()
			w.wantOrders("without a policy", 1, row.deleted)
		})
	}
}

// A policy whose plan is not sold any more makes no clusters. Those that it has are given back all the same, if they are
// idle or could not be made.
func TestElasticGivesBackWithoutAPlan(t *testing.T) {
	w, _, _ := joined(t, nil)
	w.park("b", 6)
	w.look()
	for _, order := range w.orders() {
		if order.Status.Delivered == nil {
			order.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateFailed, Description: "out of machines", StartedAt: metav1.Now()}
			w.must(w.hub.Status().Update(t.Context(), &order))
		}
	}
	w.inventory.Release("a")
	w.inventory.Release("b")
	w.inventory.SetPolicies(placement.Policies{elasticPolicy(func(e *v1alpha1.Elastic) { e.PlanID = "plan-gone" })})
	for deleted := 1; deleted <= 2; deleted++ {
		if err := w.elastic.look(t.Context()); err == nil || !strings.Contains(err.Error(), "plan-gone") || w.deleted() != deleted {
			t.Fatalf("%d of its clusters are given back, want %d: %v", w.deleted(), deleted, err)
		}
		w.clock.Step(61 * time.Second)
	}
}

// A restored hub may not know the instances on its clusters: none is given back before the operator releases it.
func TestElasticGivesNothingBackWhileHeld(t *testing.T) {
	w, _, _ := joined(t, nil)
	hold := errors.New("the hub was restored")
	w.elastic.Hold = func(context.Context) error { return hold }
	w.inventory.Release("a")
	w.look()
	w.clock.Step(2 * time.Minute)
	held := func(when string) {
		t.Helper()
		if err := w.elastic.look(t.Context()); !errors.Is(err, hold) {
			t.Errorf("%s: %v, want it to say why it is kept", when, err)
		}
		w.wantOrders(when, 1, 0)
	}
	held("when it is idle")
	policies := w.inventory.Snapshot().Policies()
	w.inventory.SetPolicies(nil)
	held("without a policy")
	w.inventory.SetPolicies(policies)
	hold = nil
	w.look()
	w.wantOrders("when the hub is released", 1, 1)
}
