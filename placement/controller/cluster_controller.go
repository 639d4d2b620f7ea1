package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/placement"
)

// clusterReconciler keeps the inventory and the MemberClusters' statuses up to date. It has one
// clusterWatch for each member cluster, which it probes and reads every few seconds, and sooner
// after a change there.
type clusterReconciler struct {
	Options
	hub      client.Client
	journals *journal.Journals
	recovery *recovery
	open     func(ctx context.Context, cluster *v1alpha1.MemberCluster) (clients, error)

	mu      sync.Mutex
	watches map[string]*clusterWatch
	// running is the controller's own context. wake triggers another pass over a cluster.
	running context.Context // watches outlive a pass
	wake    func(cluster string)
	// wakeNow does so without collecting further changes.
	wakeNow func(cluster string)
	// news of the instances on the clusters.
	news news
}

func newClusterReconciler(hub client.Client, live client.Reader, o Options, recovered *recovery) *clusterReconciler {
	return &clusterReconciler{
		Options: o, hub: hub, journals: &journal.Journals{Client: hub, Live: live}, recovery: recovered, open: openClients(o.Connections, o.Brokers),
		watches: map[string]*clusterWatch{}, running: context.Background(), wake: func(string) {}, wakeNow: func(string) {}, news: news{lost: func(string) {}, ended: func(string) {}, progressed: func(string) {}},
	}
}

// settleTime is how long changes on a member cluster are collected before they are read.
const settleTime = time.Second

func (r *clusterReconciler) setup(mgr ctrl.Manager) error {
	woken := source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		r.running = ctx
		r.wake = func(cluster string) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: cluster}}, settleTime)
		}
		r.wakeNow = func(cluster string) {
			queue.Add(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: cluster}})
		}
		return nil
	})
	changed := predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, proven)
	return ctrl.NewControllerManagedBy(mgr).
		Named("membercluster").
		For(&v1alpha1.MemberCluster{}, builder.WithPredicates(changed)).
		Watches(&v1alpha1.ServiceOffering{}, handler.EnqueueRequestsFromMapFunc(r.orderedFrom)).
		WatchesRawSource(woken).
		// A cluster that does not answer occupies a worker for the length of a probe.
		WithOptions(controller.Options{MaxConcurrentReconciles: 32, RateLimiter: backOff()}).
		Complete(requeue.OnConflict(r))
}

// proven passes member clusters whose proven claims changed.
var proven = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*v1alpha1.MemberCluster), e.ObjectNew.(*v1alpha1.MemberCluster)
		_, was := before.Holds(v1alpha1.ConditionAdmitted)
		_, is := now.Holds(v1alpha1.ConditionAdmitted)
		return was != is || !equality.Semantic.DeepEqual(before.Status.Claims, now.Status.Claims)
	},
}

// Reconcile probes one member cluster and updates the inventory and the status.
func (r *clusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.recovery.ensure(ctx); err != nil {
		return ctrl.Result{}, err
	}
	cluster := &v1alpha1.MemberCluster{}
	err := r.hub.Get(ctx, request.NamespacedName, cluster)
	if apierrors.IsNotFound(err) {
		r.drop(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return r.remove(ctx, cluster)
	}
	if controllerutil.AddFinalizer(cluster, v1alpha1.Finalizer) {
		if err := r.hub.Update(ctx, cluster); err != nil {
			return ctrl.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	return r.look(ctx, cluster, nil)
}

// look reads the member cluster, writes exactly the result to the inventory, and writes the
// status if it has changed. leaving are the instances that block the removal of the cluster.
func (r *clusterReconciler) look(ctx context.Context, cluster *v1alpha1.MemberCluster, leaving []string) (ctrl.Result, error) {
	w := r.watchOf(cluster.Name)
	before := cluster.Status.DeepCopy()
	now := r.Clock.Now()
	if cluster.DriverName() == v1alpha1.DriverOSB {
		if err := w.readOrdered(ctx, r.hub, cluster); err != nil {
			return ctrl.Result{}, err
		}
	}
	w.refresh(ctx, r, cluster, now)
	w.report(ctx, cluster, leaving, r.held(ctx))
	r.reportFailures(w, cluster.Status.Broker, now)
	r.reportConnection(cluster)
	reportCordon(cluster, len(r.Inventory.Snapshot().Reservations(cluster.Name)))
	r.Inventory.UpsertCluster(placement.ClusterOf(cluster, now))

	if w.worthWriting(before, &cluster.Status, now) {
		if err := r.journals.Transitions(ctx, cluster, before.Conditions, cluster.Status.Conditions, now, cluster.Name); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.hub.Status().Update(ctx, cluster); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(fmt.Errorf("write the cluster's status: %w", err))
		}
		r.Recorder.Wrote(ctx, cluster, v1alpha1.LastSequence(before.Events))
		w.wrote = now
	}
	return ctrl.Result{RequeueAfter: max(w.nextProbe.Sub(r.Clock.Now()), time.Millisecond)}, nil
}

// remove removes the finalizer of a member cluster once no instance is placed there. Until then
// the cluster is in the inventory as cordoned, and still probed.
func (r *clusterReconciler) remove(ctx context.Context, cluster *v1alpha1.MemberCluster) (ctrl.Result, error) {
	// Cordon first. If this replica still leads, everything placed there before is in the
	// ledger now. A later leader finds the cluster cordoned.
	r.Inventory.UpsertCluster(placement.ClusterOf(cluster, r.Clock.Now()))
	if err := r.Leadership.Confirm(ctx); err != nil {
		return ctrl.Result{}, err
	}
	var leaving []string
	for _, held := range r.Inventory.Snapshot().Reservations(cluster.Name) {
		leaving = append(leaving, held.Instance)
	}
	peered, err := r.peeredWith(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	leaving = append(leaving, peered...)
	if len(leaving) > 0 {
		result, err := r.look(ctx, cluster, leaving)
		result.RequeueAfter = min(result.RequeueAfter, 2*time.Second)
		return result, err
	}
	if controllerutil.ContainsFinalizer(cluster, v1alpha1.Finalizer) {
		ending, last := cluster.DeepCopy(), v1alpha1.LastSequence(cluster.Status.Events)
		if err := r.journals.Ended(ctx, ending, r.Clock.Now(), cluster.Name); err != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(cluster, v1alpha1.Finalizer)
		if err := r.hub.Update(ctx, cluster); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("remove the finalizer: %w", err)
		}
		r.Recorder.Wrote(ctx, ending, last)
	}
	r.drop(cluster.Name)
	return ctrl.Result{}, nil
}

// peeredWith returns the peerings that have objects on a cluster that answers. Sluice needs its
// access to the cluster until they have ended. A cluster that does not answer blocks nothing.
func (r *clusterReconciler) peeredWith(ctx context.Context, cluster *v1alpha1.MemberCluster) (named []string, err error) {
	if cluster.DriverName() != v1alpha1.DriverLiqo || !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
		return nil, nil
	}
	var peerings v1alpha1.PeeringList
	if err := r.hub.List(ctx, &peerings, client.InNamespace(r.Namespace)); err != nil {
		return nil, fmt.Errorf("list peerings: %w", err)
	}
	for i := range peerings.Items {
		if p := &peerings.Items[i].Spec; p.Consumer == cluster.Name || p.Provider == cluster.Name {
			named = append(named, "the peering of "+p.Consumer+" and "+p.Provider)
		}
	}
	return named, nil
}

// watchOf returns the watch of a cluster, and creates it on first use.
func (r *clusterReconciler) watchOf(cluster string) *clusterWatch {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.watches[cluster]
	if !ok {
		w = &clusterWatch{cluster: cluster, hub: r.HubID}
		r.watches[cluster] = w
	}
	return w
}

// drop removes a cluster's watch.
func (r *clusterReconciler) drop(cluster string) {
	r.Inventory.DeleteCluster(cluster)
	if r.Connections != nil {
		r.Connections.Forget(cluster)
	}
	if r.Brokers != nil {
		r.Brokers.Forget(cluster)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w, ok := r.watches[cluster]; ok {
		w.close(true)
		delete(r.watches, cluster)
	}
}
