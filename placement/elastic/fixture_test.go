package elastic

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// elasticWorld is a world with a management cluster and a policy that makes clusters.
type elasticWorld struct {
	*testing.T
	hub       client.Client
	namespace string
	inventory *placement.Inventory
	elastic   *Controller
	clock     *clocktesting.FakeClock
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
		Client: w.hub, of: labelled, Namespace: w.namespace, Inventory: w.inventory, Clock: w.clock, Catalog: plans, idle: map[string]time.Time{}, silent: map[string]time.Time{},
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
	w.Helper()
	r := placement.Request{ID: id, Resources: placement.Resources{"cpu": cores * 1000}}
	w.parkIt(r)
	return r
}

// parkIt makes an instance wait.
func (w *elasticWorld) parkIt(r placement.Request) {
	w.Helper()
	if _, err := w.inventory.Place(r); err == nil {
		w.Fatalf("%s is placed", r.ID)
	}
}

func (w *elasticWorld) orders() []v1alpha1.ServiceInstance {
	w.Helper()
	var list v1alpha1.ServiceInstanceList
	w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelElastic}))
	return list.Items
}

// deleted is how many of the orders are being deleted.
func (w *elasticWorld) deleted() (n int) {
	w.Helper()
	for _, o := range w.orders() {
		if !o.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// deliver does the parts of the instance controller and its driver, as far as the hub shows them.
func (w *elasticWorld) deliver(order *v1alpha1.ServiceInstance) {
	w.Helper()
	policies := placement.Policies(w.inventory.Snapshot().Policies())
	plan, err := w.elastic.Catalog.Snapshot().Plan(order.Spec.ServiceID, order.Spec.Desired.PlanID)
	w.must(err)
	shape := &v1alpha1.ClusterShape{}
	shape.Member, err = policies.MemberOf(order, plan, order.Spec.Desired.Raw())
	w.must(err)
	member := shape.MemberCluster(w.namespace, order.Name)
	member.Spec.Access.SealedKubeconfig = []byte("sealed")
	w.must(w.hub.Create(w.Context(), member))
	order.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateSucceeded, StartedAt: metav1.Now()}
	order.Status.Delivered = &v1alpha1.DeliveredState{State: order.Spec.Desired, Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{
		{Cluster: "makers", Reserved: placementtest.Quantities("cpu=8"), Shape: shape},
	}}}
	order.Status.Decision = order.Status.Delivered.Decision.DeepCopy()
	order.Status.ObservedGeneration = order.Generation
	w.must(w.hub.Status().Update(w.Context(), order))
}

// ready does the cluster controller's part for a member cluster.
func (w *elasticWorld) ready(name string, has string) {
	w.Helper()
	w.readyAs(placementtest.Cluster{Name: name, Has: placementtest.Quantities(has)})
}

// readyAs is ready for a cluster of which more is known.
func (w *elasticWorld) readyAs(row placementtest.Cluster) {
	w.Helper()
	name := row.Name
	mc := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, mc))
	mc.Status = row.MemberCluster().Status
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

func euros(perHour string) *v1alpha1.Price {
	amount := resource.MustParse(perHour)
	return &v1alpha1.Price{Currency: "EUR", PerHour: &amount}
}
