package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// Options of placement's controllers. Namespace, HubID, Catalog, Connections and Drivers are
// required; the zero value of everything else works.
type Options struct {
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// HubID labels the objects of this hub on member clusters.
	HubID string
	// Catalog that knows the instances' plans.
	Catalog *catalog.Catalog
	// Connections to the member clusters.
	Connections *member.Connections
	// Brokers behind this one; nil if there are none.
	Brokers *osbclient.Brokers
	// Drivers by their name in MemberCluster.spec.driver.
	Drivers map[string]delivery.Driver
	// Rules returns the rights that Sluice needs on a member cluster before anything is placed there;
	// nil means that nothing is checked.
	Rules func(*v1alpha1.MemberCluster) []rbacv1.PolicyRule
	// Unguarded reads from a member cluster that runs pods why rules for these would not be
	// enforced there; empty if they are. A cluster that does not answer causes an error. Nil means that they are
	// enforced everywhere.
	Unguarded func(context.Context, *v1alpha1.MemberCluster, *member.Connection) (string, error)
	// Leadership of this replica among several. Nil means that no other replica ever writes to
	// the hub, so that the cache is complete when it has started.
	Leadership Leadership
	// Inventory to fill; nil means a new one.
	Inventory *placement.Inventory
	// Filled is called when the inventory is filled, on the replica that leads; may be nil.
	Filled func()
	// ProbeEvery is the time between two probes of a member cluster; zero means 10 s.
	ProbeEvery time.Duration
	// Probed is called with the result of each probe; may be nil. It must not block.
	Probed func(cluster string, at time.Time, latency time.Duration, err error)
	// Connection returns whether the probe on a cluster is connected, and why not. It is empty if the cluster has none, and
	// unknown where it is not known yet; may be nil.
	Connection func(cluster string) (state metav1.ConditionStatus, why string)
	// ProbeTimeout bounds one probe; zero means 5 s.
	ProbeTimeout time.Duration
	// MovesAtOnce is the number of instances that move to other clusters at the same time;
	// zero means 10.
	MovesAtOnce int
	// Scorer outside Sluice; nil if there is none.
	Scorer Scorer
	// Keys seal the secrets of workloads; nil if no plan sells any.
	Keys *seal.Keyset
	// Target for backups, with which instances move with their data; nil if there is none.
	Target Target
	// Hold returns an error while the hub, restored from a backup, may lack instances that clusters carry; nil means that
	// it lacks none. See held.
	Hold func(context.Context) error
	// Promises of clusters for instances that fit nowhere; nil if none are made.
	Promises Promises
	// Recorder of the events of instances and member clusters; may be nil.
	Recorder *journal.Recorder
	// Clock; nil means the real one.
	Clock clock.PassiveClock
}

// held returns the error of Hold. While there is one, nothing new is placed on a cluster before its nodes have been
// read, nor on one whose capacity is known from elsewhere: neither shows what the hub does not know.
func (o *Options) held(ctx context.Context) error {
	if o.Hold == nil {
		return nil
	}
	return o.Hold(ctx)
}

// Scorer scores the clusters that fit a request. An error means that its scores count for
// nothing this time.
type Scorer interface {
	Score(ctx context.Context, r placement.Request, s *placement.Snapshot) (map[string]int32, error)
}

// Target is the place for backups, which may change.
type Target interface {
	Current() *workload.Target
}

// Promises describes the cluster that is being created for an instance that fits nowhere; "" if there
// is none.
type Promises interface {
	Promise(instance string) string
}

// DefaultProbeEvery is the time between two probes of a member cluster.
const DefaultProbeEvery = 10 * time.Second

const (
	// workers is the number of instances processed at once on one member cluster. There are four times as many in total, so
	// that hanging clusters do not block the others.
	workers = 32
	// observeEvery is the time between two checks of a delivered instance.
	observeEvery = 5 * time.Minute
)

// SetupWithManager registers the controllers of MemberClusters, PlacementPolicies and ServiceInstances,
// which run on the leader only, their metrics, and the cache's index of
// ServiceBindings by v1alpha1.FieldInstanceName, for all that read from the cache.
func SetupWithManager(mgr ctrl.Manager, options Options) error {
	o := options.complete()
	alone := options.Leadership == nil
	m := newMetrics()
	if err := m.register(ctrlmetrics.Registry); err != nil {
		return fmt.Errorf("register placement's metrics: %w", err)
	}
	recovered := &recovery{reader: mgr.GetAPIReader(), namespace: o.Namespace, inventory: o.Inventory, clock: o.Clock, filled: o.Filled, held: o.held}
	if alone {
		recovered.reader = wholeCache{mgr.GetCache()}
	}
	if err := indexBindings(mgr); err != nil {
		return fmt.Errorf("index bindings by instance: %w", err)
	}
	clusters := newClusterReconciler(mgr.GetClient(), mgr.GetAPIReader(), o, recovered)
	if err := clusters.setup(mgr); err != nil {
		return fmt.Errorf("set up the controller of member clusters: %w", err)
	}
	policies := &policyReconciler{hub: mgr.GetClient(), namespace: o.Namespace, inventory: o.Inventory, recovery: recovered, clock: o.Clock}
	if err := policies.setup(mgr); err != nil {
		return fmt.Errorf("set up the controller of policies: %w", err)
	}
	instances := &instanceReconciler{
		hub: mgr.GetClient(), live: mgr.GetAPIReader(),
		plan: func(serviceID, planID string) (*catalog.Plan, error) {
			return o.Catalog.Snapshot().Plan(serviceID, planID)
		},
		recorder: o.Recorder, inventory: o.Inventory, recovery: recovered, leadership: o.Leadership, drivers: o.Drivers,
		clock: o.Clock, metrics: m, moves: &moves{most: o.MovesAtOnce}, places: &member.Places{Most: workers}, reports: &member.Places{Most: reportsAtOnce}, keys: o.Keys, target: o.Target, scorer: o.Scorer, promises: o.Promises,
	}
	instances.failed = clusters.orderFailed
	clusters.news = news{lost: instances.lost, ended: instances.ended, progressed: instances.progressed}
	instances.bindings = []client.Reader{mgr.GetClient()}
	if !alone {
		instances.bindings = append(instances.bindings, mgr.GetAPIReader())
	}
	if err := instances.setup(mgr, o); err != nil {
		return fmt.Errorf("set up the controller of instances: %w", err)
	}
	return nil
}

// complete replaces zero values by their defaults.
func (o Options) complete() Options {
	if o.Inventory == nil {
		o.Inventory = placement.NewInventory()
	}
	if o.Leadership == nil {
		o.Leadership = soleWriter{}
	}
	if o.Rules == nil {
		o.Rules = func(*v1alpha1.MemberCluster) []rbacv1.PolicyRule { return nil }
	}
	if o.Unguarded == nil {
		o.Unguarded = func(context.Context, *v1alpha1.MemberCluster, *member.Connection) (string, error) { return "", nil }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Probed == nil {
		o.Probed = func(string, time.Time, time.Duration, error) {}
	}
	if o.Connection == nil {
		o.Connection = func(string) (metav1.ConditionStatus, string) { return "", "" }
	}
	o.ProbeEvery = cmp.Or(o.ProbeEvery, DefaultProbeEvery)
	o.ProbeTimeout = cmp.Or(o.ProbeTimeout, 5*time.Second)
	o.MovesAtOnce = cmp.Or(o.MovesAtOnce, 10)
	return o
}

func indexBindings(mgr ctrl.Manager) error {
	return mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.ServiceBinding{}, v1alpha1.FieldInstanceName,
		func(object client.Object) []string {
			return []string{object.(*v1alpha1.ServiceBinding).Spec.InstanceName}
		})
}

// setup registers the controller. A pass over an instance is triggered when its spec, its
// deletion or AnnotationObserve changes, when one of its bindings is gone, when the inventory
// wakes it, and when a decision of another leader arrives late: after a look at the instance that
// left it as it was. This leader's own status writes trigger nothing.
func (r *instanceReconciler) setup(mgr ctrl.Manager, o Options) error {
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectNew.(*v1alpha1.ServiceInstance).Status.IsOfOtherTerm(r.leadership.Term())
		},
	})
	unbound := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []ctrl.Request {
		binding := object.(*v1alpha1.ServiceBinding)
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: binding.Namespace, Name: binding.Spec.InstanceName}}}
	})
	woken := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		wake := func(instance string) {
			queue.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: instance}})
		}
		r.inventory.OnWake(wake)
		r.moves.setWake(wake)
		after := func(instance string, wait time.Duration) {
			queue.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: instance}}, wait)
		}
		r.places.Wake, r.reports.Wake = wake, wake
		r.after.Store(&after)
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("instance").
		For(&v1alpha1.ServiceInstance{}, builder.WithPredicates(changed)).
		Watches(&v1alpha1.ServiceBinding{}, unbound, builder.WithPredicates(gone())).
		Watches(&v1alpha1.ServiceInstance{}, carriedOut, builder.WithPredicates(progressed)).
		WatchesRawSource(woken).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4 * workers, RateLimiter: backOff()}).
		Complete(requeue.OnConflict(r))
}

// carriedOut triggers a pass over the instance that a pool carries out by another one.
var carriedOut = handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []ctrl.Request {
	order := object.(*v1alpha1.ServiceInstance).Spec.Pool
	if order == nil {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: order.Instance}}}
})

// progressed passes instances that pools have ordered, when their operation or a condition changes, and when they are gone.
var progressed = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*v1alpha1.ServiceInstance), e.ObjectNew.(*v1alpha1.ServiceInstance)
		return now.Spec.Pool != nil && (!equality.Semantic.DeepEqual(before.Status.Operation, now.Status.Operation) ||
			!equality.Semantic.DeepEqual(before.Status.Conditions, now.Status.Conditions))
	},
}

// gone passes only the events of deleted objects.
func gone() predicate.Funcs {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		UpdateFunc:  func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// backOff retries after errors at once, then with growing delays up to half a minute.
func backOff() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](20*time.Millisecond, 30*time.Second)
}
