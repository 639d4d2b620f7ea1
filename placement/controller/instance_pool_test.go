package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/pool"
)

const planOpaque = "plan-opaque"

// newPoolWorld returns a world that sells replicas of two cores from pools. The pool eu-pool has small-0 and small-1, with
// four cores each, behind front; members are on clusters of the driver that remembers.
func newPoolWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-compute", Name: "compute", Description: "Cores.", Plans: []v1alpha1.Plan{{
		ID: planOpaque, Name: "opaque", Description: "Some times two cores.", Kind: v1alpha1.PlanKindResources, MaximumPollingDurationSeconds: int32(polling.Seconds()),
		Resources: &v1alpha1.ResourcesPlan{
			Limits: placementtest.Quantities("cpu=2"), Clusters: 1, Replicas: &v1alpha1.Replicas{Count: 1, Max: 9},
			Peering: &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleOpaque},
		},
	}}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	w.must(err)
	written := func(really func() error) error {
		if w.onWrite != nil {
			return w.onWrite(really)
		}
		return really()
	}
	orders := interceptor.NewClient(w.hub.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return written(func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return written(func() error { return c.Update(ctx, o, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return written(func() error { return c.Delete(ctx, o, options...) })
		},
	})
	w.restarted = func(r *instanceReconciler) {
		r.plan = snapshot.Plan
		r.drivers = map[string]delivery.Driver{v1alpha1.DriverLiqo: w.driver, v1alpha1.DriverPool: &pool.Driver{Client: orders, Live: w.hub}}
	}
	w.restarted(w.reconciler)
	liqo := func(hub bool) *v1alpha1.LiqoCluster {
		return &v1alpha1.LiqoCluster{Hub: hub, Modules: v1alpha1.ModulesFor(true)}
	}
	four, labels := placementtest.Quantities("cpu=4"), map[string]string{"pool": "eu"}
	for _, row := range []placementtest.Cluster{
		{Name: "small-0", Has: four, Liqo: liqo(false), Labels: labels}, {Name: "small-1", Has: four, Liqo: liqo(false), Labels: labels},
		{Name: "front", Liqo: liqo(true)}, {Name: "own", Liqo: liqo(false), Consumers: []v1alpha1.ConsumerReference{{Platform: "platform"}}},
	} {
		w.inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), w.clock.Now()))
	}
	w.pool("eu-pool", "cpu=8")
	return w
}

// pool puts a pool of the clusters that are labelled into the inventory, which sells some resources.
func (w *world) pool(name, has string) {
	row := placementtest.Cluster{Name: name, Has: placementtest.Quantities(has), Pool: &v1alpha1.ClusterPool{
		Front: "front", Members: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "eu"}},
	}}
	w.inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), w.clock.Now()))
}

// both makes passes over the consumer's instance and the pool's until neither changes any more, and returns them; the second
// is nil if it is not there.
func (w *world) both(name, pool string) (outer, inner *v1alpha1.ServiceInstance) {
	w.Helper()
	ordered := v1alpha1.PoolInstanceName(pool, name)
	for before := ""; ; {
		w.passes(name)
		if outer = w.instance(name); !w.gone(ordered) {
			if _, err := w.pass(ordered); err != nil {
				w.Fatal(err)
			}
		}
		inner = nil
		if !w.gone(ordered) {
			inner = w.instance(ordered)
		}
		now, err := json.Marshal([]any{outer, inner})
		w.must(err)
		if string(now) == before {
			return outer, inner
		}
		before = string(now)
	}
}

// wantOpaque checks that nothing of an instance names a member of the pool, or its front.
func (w *world) wantOpaque(outer *v1alpha1.ServiceInstance) {
	w.Helper()
	outer = outer.DeepCopy()
	for _, d := range outer.Status.Decisions() {
		d.Rejections = nil // why other clusters were not chosen, for operators alone
	}
	all, err := json.Marshal(outer)
	w.must(err)
	for _, name := range []string{"small-0", "small-1", "front"} {
		if i := strings.Index(string(all), name); i >= 0 {
			w.Errorf("the consumer's instance names %s: %s", name, all[max(i-100, 0):min(i+100, len(all))])
		}
	}
}

func TestAnOrderFromAPoolIsDeliveredOnItsMembers(t *testing.T) {
	w := newPoolWorld(t)
	w.provision("si-a", planOpaque, `{"replicas": 3}`)
	outer, inner := w.both("si-a", "eu-pool")
	w.wantOperation(outer, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantOn(outer, "eu-pool")
	w.wantOpaque(outer)
	if p := outer.Status.Delivered.Decision.Placements[0]; p.Pool == nil || p.Pool.Instance != inner.Name || p.Peering != nil || p.Replicas != 3 {
		t.Errorf("the consumer's is placed as %+v", p)
	}
	w.wantReserved("eu-pool", 6)
	w.wantOn(inner, "small-0", "small-1")
	if order := inner.Spec.Pool; order.Instance != "si-a" || order.InstanceUID != outer.UID || order.Platform != "platform" || inner.Spec.Platform != v1alpha1.PlatformSelf {
		t.Errorf("the pool orders %+v", inner.Spec)
	}
	if total := w.driver.cores("small-0", inner.Name) + w.driver.cores("small-1", inner.Name); total != 6 {
		t.Errorf("its members carry %d cores", total)
	}
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 4}`) })
	outer, inner = w.both("si-a", "eu-pool")
	w.wantOperation(outer, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	w.wantReserved("eu-pool", 8)
	w.wantReserved("small-0", 4)
	w.wantReserved("small-1", 4)
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 1}`) })
	outer, _ = w.both("si-a", "eu-pool")
	w.wantOpaque(outer)
	if got := w.inventory.Snapshot().Reservations("small-0"); len(got)+len(w.inventory.Snapshot().Reservations("small-1")) != 1 {
		t.Errorf("one replica is on %d and more members", len(got))
	}
	w.deprovision("si-a")
	w.finish("si-a", "eu-pool")
	for _, on := range []string{"eu-pool", "small-0", "small-1"} {
		w.wantReserved(on, 0)
	}
	if w.driver.has("small-0", inner.Name) || w.driver.has("small-1", inner.Name) {
		t.Error("its members still carry it")
	}
}

// finish makes passes until neither the consumer's instance nor the pool's is there.
func (w *world) finish(name, pool string) {
	w.Helper()
	ordered := v1alpha1.PoolInstanceName(pool, name)
	for range 20 {
		for _, one := range []string{name, ordered} {
			if _, err := w.pass(one); err != nil {
				w.Fatal(err)
			}
		}
		if w.gone(name) && w.gone(ordered) {
			return
		}
	}
	w.Fatal("it is never gone")
}

// A member that is lost is left by the pool's order, of which the consumer reads nothing.
func TestAPoolMovesItsOrderAmongItsMembers(t *testing.T) {
	w := newPoolWorld(t)
	w.provision("si-a", planOpaque, "")
	_, inner := w.both("si-a", "eu-pool")
	from := inner.Status.Delivered.Decision.Placements[0].Cluster
	w.lose(from)
	w.after(v1alpha1.UnreachableSeconds * time.Second)
	outer, inner := w.both("si-a", "eu-pool")
	if to := inner.Status.Delivered.Decision.Placements[0].Cluster; to == from || !strings.HasPrefix(to, "small-") {
		t.Errorf("it is on %s, which is lost", to)
	}
	w.wantOn(outer, "eu-pool")
	w.wantOpaque(outer)
}

// An order that the members of one pool have no room for, although the pool sells it, goes to another pool, and fails if
// there is none. Nothing of it is left.
func TestAnOrderThatAPoolCannotPlaceGoesElsewhere(t *testing.T) {
	w := newPoolWorld(t)
	w.pool("eu-pool", "cpu=99") // it sells more than there is
	w.provision("si-a", planOpaque, `{"replicas": 9}`)
	outer, inner := w.both("si-a", "eu-pool")
	w.wantOperation(outer, v1alpha1.OperationProvision, v1alpha1.StateFailed, "pool eu-pool: nothing on offer fits at the moment: there is no room for all replicas")
	w.wantOpaque(outer)
	if w.wantReserved("eu-pool", 0); inner != nil {
		t.Errorf("the pool still orders: %+v", inner.Status.Operation)
	}
	w.cluster("far", 99)
	w.change("far", func(c *placement.Cluster) {
		c.Liqo, c.Driver = &v1alpha1.LiqoCluster{Modules: v1alpha1.ModulesFor(true)}, v1alpha1.DriverLiqo
	})
	row := placementtest.Cluster{Name: "far-pool", Has: placementtest.Quantities("cpu=50"), Pool: &v1alpha1.ClusterPool{
		Front: "front", Members: metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelCluster: "far"}},
	}}
	w.inventory.UpsertCluster(placement.ClusterOf(row.MemberCluster(), w.clock.Now()))
	w.provision("si-b", planOpaque, `{"replicas": 9}`)
	w.both("si-b", "eu-pool")
	outer, inner = w.both("si-b", "far-pool")
	w.wantOperation(outer, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantOn(outer, "far-pool")
	w.wantOn(inner, "far")
	w.both("si-b", "eu-pool")
	if w.wantReserved("eu-pool", 0); !w.gone(v1alpha1.PoolInstanceName("eu-pool", "si-b")) {
		t.Error("the first pool still orders")
	}
}

// Whatever write is the last one before a kill, the order and its end are carried out by the next Sluice.
func TestAPoolsOrderSurvivesKills(t *testing.T) {
	for kills := 1; ; kills++ {
		w := newPoolWorld(t)
		left, killed := kills, false
		w.onWrite = func(really func() error) error {
			if left--; left == 0 {
				killed = true
				w.must(really()) // the hub has it, and nobody hears of that
				return errors.New("fake: killed")
			}
			return really()
		}
		w.provision("si-a", planOpaque, `{"replicas": 3}`)
		ordered := v1alpha1.PoolInstanceName("eu-pool", "si-a")
		until := func(done func() bool) {
			for range 40 {
				for _, one := range []string{"si-a", ordered} {
					if _, err := w.pass(one); err != nil && killed {
						clusters := w.inventory.Snapshot().Clusters()
						w.start()
						for _, c := range clusters {
							w.inventory.UpsertCluster(c)
						}
						killed = false
					}
				}
				if done() {
					return
				}
			}
			t.Fatalf("killed after write %d, it is never done: %+v", kills, w.instance("si-a").Status.Operation)
		}
		done := func() bool {
			i := w.instance("si-a")
			return i.Status.IsFinished() && i.Status.Operation.Generation == i.Generation
		}
		until(done)
		w.wantReserved("eu-pool", 6)
		w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 4}`) })
		until(done)
		w.wantReserved("eu-pool", 8)
		w.deprovision("si-a")
		until(func() bool { return w.gone("si-a") && w.gone(ordered) })
		for _, on := range []string{"eu-pool", "small-0", "small-1"} {
			if w.driver.has(on, ordered) {
				t.Errorf("killed after write %d, %s still carries it", kills, on)
			}
		}
		if left > 0 {
			if kills < 12 {
				t.Errorf("there are %d writes only", kills)
			}
			return
		}
	}
}

// The pool's own order is nobody's but the pool's: it counts for no quota, and the consumer's platform cannot name it.
func TestAPoolsOrderIsNotTheConsumers(t *testing.T) {
	w := newPoolWorld(t)
	w.provision("si-a", planOpaque, "")
	_, inner := w.both("si-a", "eu-pool")
	var others v1alpha1.ServiceInstanceList
	w.must(w.hub.List(w.Context(), &others, client.InNamespace(w.namespace), client.MatchingFields{"spec.platform": "platform"}))
	if names := len(others.Items); names != 1 || slices.ContainsFunc(others.Items, func(i v1alpha1.ServiceInstance) bool { return i.Name == inner.Name }) {
		t.Errorf("the platform has %d instances", names)
	}
	if ready := meta.FindStatusCondition(inner.Status.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
		t.Errorf("the pool's is %+v", ready)
	}
}

// What a pool has ordered ends with the consumer's instance, also if somebody takes that one out by force.
func TestAPoolsOrderEndsWithTheConsumersInstance(t *testing.T) {
	w := newPoolWorld(t)
	w.provision("si-a", planOpaque, "")
	outer, inner := w.both("si-a", "eu-pool")
	outer.Finalizers = nil
	w.must(w.hub.Update(w.Context(), outer))
	w.must(w.hub.Delete(w.Context(), outer))
	w.provision("si-a", planOpaque, "") // another one of the name, of which the pool's order is not
	for range 5 {
		if _, err := w.pass(inner.Name); err != nil {
			w.Fatal(err)
		}
	}
	if !w.gone(inner.Name) || w.driver.has("small-0", inner.Name) || w.driver.has("small-1", inner.Name) {
		t.Error("the pool's order is still there")
	}
	if _, again := w.both("si-a", "eu-pool"); again == nil || again.UID == inner.UID || again.Spec.Pool.InstanceUID == outer.UID {
		t.Errorf("the pool orders %+v for the new one", again)
	}
}
