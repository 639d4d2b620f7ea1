package elastic

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// clusterCatalog sells clusters of two workers with 4 cores each.
func clusterCatalog(t *testing.T) *catalog.Snapshot {
	t.Helper()
	return growingCatalog(t, 0)
}

// growingCatalog sells clusters that may grow to the given number of workers.
func growingCatalog(t *testing.T, max int32) *catalog.Snapshot {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-clusters", Name: "clusters", Description: "Clusters.", Bindable: true, PlanUpdateable: true}
	spec.Plans = []v1alpha1.Plan{{
		ID: "plan-cluster", Name: "small", Description: "Two workers.", Kind: v1alpha1.PlanKindCluster,
		Cluster: &v1alpha1.ClusterPlan{
			Class: "class", Versions: []string{"v1.34.4"}, Roles: []string{"cluster-admin"},
			Workers: []v1alpha1.WorkerPool{{Name: "pool", Class: "worker", Machines: v1alpha1.Machines{Replicas: 2, Max: max, Machine: placementtest.Quantities("cpu=4")}}},
		},
	}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func elasticPolicy(change func(*v1alpha1.Elastic)) *placement.Policy {
	e := &v1alpha1.Elastic{ServiceID: "service-clusters", PlanID: "plan-cluster", AtMost: 3, IdleSeconds: 60, Member: v1alpha1.MemberTemplate{Region: "eu"}}
	if change != nil {
		change(e)
	}
	return &placement.Policy{Name: "grow", Elastic: e}
}

// Waiting requests determine how many clusters are made: as few as can take all that fail only
// for lack of capacity.
func TestDemand(t *testing.T) {
	cores := func(n int64) placement.Resources { return placement.Resources{"cpu": n * 1000} }
	in := func(region string, r placement.Request) placement.Request {
		r.Selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: region})
		return r
	}
	for name, row := range map[string]struct {
		waiting []placement.Request
		coming  int
		room    int
		more    int
		waits   map[string]string
	}{
		"nothing waits": {room: 3},
		"three that fit on one share it": {
			waiting: []placement.Request{{ID: "a", Resources: cores(2)}, {ID: "b", Resources: cores(2)}, {ID: "c", Resources: cores(4)}},
			room:    3, more: 1, waits: map[string]string{"a": "new", "b": "new", "c": "new"},
		},
		"what does not fit together gets one each": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			room:    3, more: 2, waits: map[string]string{"a": "new", "b": "new"},
		},
		"one that is being made is enough": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}},
			coming:  1, room: 2, waits: map[string]string{"a": "coming"},
		},
		"and what is beyond it needs another": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			coming:  1, room: 2, more: 1, waits: map[string]string{"a": "coming", "b": "new"},
		},
		"no more than there may be": {
			waiting: []placement.Request{{ID: "a", Resources: cores(5)}, {ID: "b", Resources: cores(5)}},
			room:    1, more: 1, waits: map[string]string{"a": "new"},
		},
		"nothing for what would not fit on it either": {
			waiting: []placement.Request{{ID: "a", Resources: cores(9)}}, room: 3,
		},
		"nothing for what wants another region": {
			waiting: []placement.Request{in("us", placement.Request{ID: "a", Resources: cores(1)})}, room: 3,
		},
		"one for what wants its region": {
			waiting: []placement.Request{in("eu", placement.Request{ID: "a", Resources: cores(1)})}, room: 3, more: 1, waits: map[string]string{"a": "new"},
		},
		"two for one that wants two clusters": {
			waiting: []placement.Request{{ID: "a", Resources: cores(1), Clusters: 2}}, room: 3, more: 2, waits: map[string]string{"a": "new"},
		},
		"none for one that wants two where there may be one": {
			waiting: []placement.Request{{ID: "a", Resources: cores(1), Clusters: 2}}, room: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := placement.NewInventory()
			for _, r := range row.waiting {
				if _, err := inventory.Place(r); err == nil {
					t.Fatalf("%s is placed", r.ID)
				}
			}
			tmpl, err := newTemplate(elasticPolicy(nil), clusterCatalog(t))
			if err != nil {
				t.Fatal(err)
			}
			tried := &trial{template: tmpl, has: tmpl.has, room: row.room}
			if row.coming > 0 {
				tried.coming = []string{"coming"}
			}
			got := tried.demand(inventory)
			waits := map[string]string{}
			for id, on := range got.waits {
				if strings.HasPrefix(on, placement.SupposedName) {
					on = "new"
				}
				waits[id] = on
			}
			if got.more != row.more || !maps.Equal(waits, row.waits) {
				t.Errorf("%d more, waits %v; want %d, %v", got.more, waits, row.more, row.waits)
			}
			if left := len(inventory.Parked()); left != len(row.waiting) {
				t.Errorf("trying has changed what waits: %d, want %d", left, len(row.waiting))
			}
		})
	}
}

// If one cluster of the policy cannot take a request, several cannot either. So the maximum
// number of clusters makes no difference to the cost of each pass.
func TestWhatFitsOnNoClusterIsNotTriedWithMany(t *testing.T) {
	tmpl, err := newTemplate(elasticPolicy(nil), clusterCatalog(t))
	if err != nil {
		t.Fatal(err)
	}
	inventory := placement.NewInventory()
	for name, r := range map[string]placement.Request{
		"too large":      {Resources: placement.Resources{"cpu": 9000}},
		"another region": {Resources: placement.Resources{"cpu": 1000}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: "us"})},
		"two parts that are nowhere near enough": {
			Components: []placement.Component{{Name: "a", Resources: placement.Resources{"cpu": 5000}}, {Name: "b", Resources: placement.Resources{"cpu": 5000}}},
			Links:      []placement.Link{{Between: [2]int{0, 1}, Most: time.Millisecond}},
		},
	} {
		r.ID = name
		if _, err := inventory.Place(r); err == nil {
			t.Fatalf("%s: it is placed", name)
		}
	}
	cost := func(room int) float64 {
		return testing.AllocsPerRun(5, func() {
			if n := (&trial{template: tmpl, has: tmpl.has, room: room}).demand(inventory); n.more != 0 {
				t.Errorf("%d clusters are wanted", n.more)
			}
		})
	}
	if few, many := cost(2), cost(64); many > 2*few {
		t.Errorf("it costs %.0f allocations where there may be 2 clusters more, %.0f where there may be 64", few, many)
	}
}

// elasticWorld is a world with a management cluster and a policy that makes clusters.
type elasticWorld struct {
	*testing.T
	hub       client.Client
	namespace string
	inventory *placement.Inventory
	elastic   *Controller
	clock     *clocktesting.FakeClock
	// joined are the clusters that Sluice was registered on.
	joined []string
}

func newElasticWorld(t *testing.T, capacity string, change func(*v1alpha1.Elastic)) *elasticWorld {
	t.Helper()
	scheme := runtime.NewScheme()
	hub, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err := errors.Join(v1alpha1.AddToScheme(scheme), err); err != nil {
		t.Fatal(err)
	}
	w := &elasticWorld{T: t, hub: hub, namespace: hubtest.Namespace(t), inventory: placement.NewInventory(), clock: clocktesting.NewFakeClock(time.Now().Add(time.Minute))} // after what the hub creates
	w.inventory.SetPolicies(placement.Policies{elasticPolicy(change)})
	mc := placementtest.Cluster{Name: "makers", Has: placementtest.Quantities(capacity), Prices: placementtest.Quantities("cpu=0.1"), Currency: "EUR"}.MemberCluster()
	mc.Spec.Driver = v1alpha1.DriverCAPI
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	w.restart()
	return w
}

// restart drops all state that is not on the hub.
func (w *elasticWorld) restart() {
	plans := &catalog.Catalog{}
	plans.Replace(clusterCatalog(w.T))
	w.elastic = &Controller{
		Client: w.hub, of: labelled, Namespace: w.namespace, Inventory: w.inventory, Clock: w.clock, Catalog: plans, idle: map[string]time.Time{},
		Join: func(_ context.Context, _, _ string, member *v1alpha1.MemberCluster) (v1alpha1.ClusterAccess, error) {
			w.joined = append(w.joined, member.Name)
			return v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, nil
		},
	}
}

// labelled selects by label, without the cache's index.
func labelled(policy string) client.ListOption {
	if policy == "" {
		return client.HasLabels{v1alpha1.LabelElastic}
	}
	return client.MatchingLabels{v1alpha1.LabelElastic: policy}
}

func (w *elasticWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *elasticWorld) look() {
	w.Helper()
	if err := w.elastic.look(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// park makes an instance wait for the given number of cores.
func (w *elasticWorld) park(id string, cores int64) placement.Request {
	r := placement.Request{ID: id, Resources: placement.Resources{"cpu": cores * 1000}}
	if _, err := w.inventory.Place(r); err == nil {
		w.Fatalf("%s is placed", id)
	}
	return r
}

func (w *elasticWorld) orders() []v1alpha1.ServiceInstance {
	w.Helper()
	var list v1alpha1.ServiceInstanceList
	w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelElastic}))
	return list.Items
}

// deliver does the instance controller's part, as far as the hub shows it.
func (w *elasticWorld) deliver(order *v1alpha1.ServiceInstance) {
	w.Helper()
	order.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateSucceeded, StartedAt: metav1.Now()}
	order.Status.Delivered = &v1alpha1.DeliveredState{State: order.Spec.Desired, Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{
		{Cluster: "makers", Reserved: placementtest.Quantities("cpu=8"), Shape: &v1alpha1.ClusterShape{}},
	}}}
	order.Status.Decision = order.Status.Delivered.Decision.DeepCopy()
	order.Status.ObservedGeneration = order.Generation
	w.must(w.hub.Status().Update(w.Context(), order))
}

// ready does the cluster controller's part for a member cluster.
func (w *elasticWorld) ready(name string, has string) {
	w.Helper()
	mc := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, mc))
	row := placementtest.Cluster{Name: name, Has: placementtest.Quantities(has)}.MemberCluster()
	mc.Status = row.Status
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
}

func (w *elasticWorld) members() (names []string) {
	w.Helper()
	var list v1alpha1.MemberClusterList
	w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelElastic}))
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	return names
}

// The life of a cluster that is made because a request fits nowhere, with a restart after every
// step: it is ordered, joins, takes the waiting request, and is given back when it is idle.
func TestElasticLife(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.look()
	if n := len(w.orders()); n != 0 {
		t.Fatalf("%d orders without a need", n)
	}
	for _, id := range []string{"a", "b", "c"} {
		w.park(id, 2)
	}
	for range 3 {
		w.look()
		w.restart()
	}
	orders := w.orders()
	if len(orders) != 1 {
		t.Fatalf("%d orders for three that fit on one cluster, want 1", len(orders))
	}
	w.look()
	name := v1alpha1.InstanceClusterName(orders[0].Name)
	if got := w.elastic.Promise("b"); !strings.Contains(got, "policy grow creates cluster "+name+" for it") {
		t.Errorf("b is told %q", got)
	}
	w.deliver(&orders[0])
	for range 3 {
		w.look()
		w.restart()
	}
	if got := w.members(); !slices.Equal(got, []string{name}) {
		t.Fatalf("member clusters %v, want %s", got, name)
	}
	if n := len(w.orders()); n != 1 {
		t.Fatalf("%d orders while one joins", n)
	}
	w.ready(name, "cpu=8")
	for _, id := range []string{"a", "b", "c"} {
		if _, err := w.inventory.Place(placement.Request{ID: id, Resources: placement.Resources{"cpu": 2000}}); err != nil {
			t.Fatal(err)
		}
	}
	w.look()
	w.clock.Step(time.Hour)
	w.look()
	if got := w.members(); len(got) != 1 {
		t.Fatal("it is given back while it is in use")
	}
	for _, id := range []string{"a", "b", "c"} {
		w.inventory.Release(id)
	}
	w.look()
	w.clock.Step(59 * time.Second)
	w.look()
	if len(w.members()) != 1 {
		t.Fatal("it is given back too early")
	}
	w.clock.Step(2 * time.Second)
	w.look() // retires it
	w.restart()
	w.look() // takes it out of the inventory
	if got := w.members(); len(got) != 0 {
		t.Fatalf("member clusters %v are left", got)
	}
	w.restart()
	w.look() // has it deleted
	if o := w.orders(); len(o) != 1 || o[0].DeletionTimestamp.IsZero() {
		t.Fatalf("orders %v, want one that is being deleted", o)
	}
	if len(w.joined) == 0 {
		t.Error("Sluice was never registered on it")
	}
}

// An existing cluster grows before another one is made, as far as its plan allows and as long
// as that takes no more machines. A request that does not fit then gets another cluster.
func TestElasticGrows(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.elastic.Catalog.Replace(growingCatalog(t, 4))
	w.park("a", 6)
	w.look()
	order := w.orders()[0]
	w.deliver(&order)
	w.look()
	name := v1alpha1.InstanceClusterName(order.Name)
	w.ready(name, "cpu=8")
	if _, err := w.inventory.Place(placement.Request{ID: "a", Resources: placement.Resources{"cpu": 6000}}); err != nil {
		t.Fatal(err)
	}
	w.park("b", 5)
	w.look()
	orders := w.orders()
	if len(orders) != 1 {
		t.Fatalf("%d orders, want one that grows", len(orders))
	}
	if got := string(orders[0].Spec.Desired.Parameters.Raw); got != `{"workers":{"pool":3}}` {
		t.Errorf("its parameters are %s, want one worker more", got)
	}
	if got := w.elastic.Promise("b"); !strings.Contains(got, "has cluster "+name+" grow by 1 for it") {
		t.Errorf("b is told %q", got)
	}
	w.look()
	if got := string(w.orders()[0].Spec.Desired.Parameters.Raw); got != `{"workers":{"pool":3}}` {
		t.Errorf("it grows once more, to %s", got)
	}
	if got := w.elastic.Promise("b"); !strings.Contains(got, "it grows") {
		t.Errorf("b is told %q", got)
	}
	w.park("c", 7) // beyond the four workers that there may be
	w.look()
	if n := len(w.orders()); n != 2 {
		t.Errorf("%d orders, want another cluster beside the one that grows", n)
	}
}

// A cluster takes part in peerings if Liqo is among its add-ons, wherever the chart comes from.
func TestElasticDriver(t *testing.T) {
	for chart, driver := range map[string]string{
		"": v1alpha1.DriverKube, "cilium-1.18.2.tgz": v1alpha1.DriverKube, "liqo-dashboard-1.0.0.tgz": v1alpha1.DriverKube, "oci://registry.example/liqo/other:1.0.1": v1alpha1.DriverKube,
		"liqo": v1alpha1.DriverLiqo, "liqo.tgz": v1alpha1.DriverLiqo, "liqo-v1.0.1.tgz": v1alpha1.DriverLiqo,
		"oci://registry.example/charts/liqo:1.0.1": v1alpha1.DriverLiqo, "oci://registry.example/liqo@sha256:" + strings.Repeat("0", 64): v1alpha1.DriverLiqo,
	} {
		t.Run(chart, func(t *testing.T) {
			w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
			w.park("a", 2)
			w.look()
			order := w.orders()[0]
			w.deliver(&order)
			if chart != "" {
				order.Status.Delivered.Decision.Placements[0].Shape.AddOns = []v1alpha1.AddOn{{Name: "other", Chart: "other", Namespace: "other"}, {Name: "one", Chart: chart, Namespace: "peers"}}
				w.must(w.hub.Status().Update(w.Context(), &order))
			}
			w.look()
			var list v1alpha1.MemberClusterList
			w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelElastic}))
			if len(list.Items) != 1 {
				t.Fatalf("%d member clusters", len(list.Items))
			}
			spec := list.Items[0].Spec
			if spec.Driver != driver || (spec.Liqo != nil) != (driver == v1alpha1.DriverLiqo) || spec.Liqo != nil && (spec.Liqo.Namespace != "peers" || len(spec.Liqo.Modules) != 3) {
				t.Errorf("its driver is %s, and its section liqo %v", spec.Driver, spec.Liqo)
			}
		})
	}
}

// A cluster that cannot be made is reported, and not tried over and over.
func TestElasticHindrances(t *testing.T) {
	budget := func(perHour string) func(*v1alpha1.Elastic) {
		return func(e *v1alpha1.Elastic) { e.Budget = euros(perHour) }
	}
	for name, row := range map[string]struct {
		capacity string
		change   func(*v1alpha1.Elastic)
		orders   int
		says     string
	}{
		"no room to make it": {"cpu=4,sluice.dev/clusters=10", nil, 0, "no management cluster accepts it"},
		"no more clusters":   {"cpu=100,sluice.dev/clusters=0", nil, 0, "InsufficientSluiceDevClusters"},
		"over the budget":    {"cpu=100,sluice.dev/clusters=10", budget("0.5"), 0, "the budget is 0.5 EUR"},
		"within the budget":  {"cpu=100,sluice.dev/clusters=10", budget("0.8"), 1, "creates a cluster for it"},
		"cooling down":       {"cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) { e.CoolDownSeconds = 600 }, 1, "creates a cluster for it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newElasticWorld(t, row.capacity, row.change)
			w.park("a", 6)
			w.look()
			if got := len(w.orders()); got != row.orders {
				t.Errorf("%d orders, want %d", got, row.orders)
			}
			if got := w.elastic.Promise("a"); !strings.Contains(got, row.says) {
				t.Errorf("it is told %q, want %q", got, row.says)
			}
		})
	}
}

// A cluster that could not be made is cleaned up after the cool-down. Until then its reason is
// reported, and no other cluster is begun.
func TestElasticFailure(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", func(e *v1alpha1.Elastic) { e.CoolDownSeconds = 600 })
	w.park("a", 6)
	w.look()
	order := w.orders()[0]
	order.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateFailed, Description: "out of machines", StartedAt: metav1.Now()}
	w.must(w.hub.Status().Update(t.Context(), &order))
	w.look()
	if got := w.elastic.Promise("a"); !strings.Contains(got, "the last one failed: out of machines") {
		t.Errorf("it is told %q", got)
	}
	if n := len(w.orders()); n != 1 {
		t.Fatalf("%d orders while it cools down", n)
	}
	w.clock.Step(11 * time.Minute)
	w.look()
	w.look()
	deleted := 0
	for _, o := range w.orders() {
		if !o.DeletionTimestamp.IsZero() {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("%d failed orders are deleted, want 1", deleted)
	}
}

// Once the policy makes no clusters any more, idle ones are given back.
func TestElasticPolicyGone(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.park("a", 6)
	w.look()
	w.inventory.SetPolicies(nil)
	w.look()
	w.look()
	if o := w.orders(); len(o) != 1 || o[0].DeletionTimestamp.IsZero() {
		t.Errorf("orders %v, want one that is being deleted", o)
	}
}

func euros(perHour string) *v1alpha1.Price {
	amount := resource.MustParse(perHour)
	return &v1alpha1.Price{Currency: "EUR", PerHour: &amount}
}
