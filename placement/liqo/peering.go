package liqo

import (
	"context"
	"errors"
	"fmt"
	"time"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/placement/delivery"
)

const (
	// often is how often an object is checked that Liqo is creating or removing.
	often = 250 * time.Millisecond
	// driftEvery is how often a ready peering is checked.
	driftEvery = 20 * time.Second
	// slowestRetry is the longest delay after errors.
	slowestRetry = 10 * time.Second
)

// Peerings reconciles the hub's Peerings on their clusters.
type Peerings struct {
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Live reads the hub without a cache.
	Live client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Recorder of the events of peerings; may be nil.
	Recorder *journal.Recorder
	// Hold returns an error while the hub, restored from a backup, may lack instances that clusters carry; nil means that
	// it lacks none. Meanwhile no peering ends by itself: one of them may need it.
	Hold func(context.Context) error
	// Clock; nil means the real one.
	Clock clock.PassiveClock
}

// SetupWithManager adds the controller to a manager; it runs on the leader only.
func (r *Peerings) SetupWithManager(mgr ctrl.Manager) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("peering").
		For(&v1alpha1.Peering{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		// For an invited cluster that joins, and for changes of a gateway's settings.
		Watches(&v1alpha1.MemberCluster{}, handler.EnqueueRequestsFromMapFunc(r.concernedBy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 8,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](often, slowestRetry),
		}).
		Complete(requeue.OnConflict(r))
}

// concernedBy lists the peerings of a member cluster.
func (r *Peerings) concernedBy(ctx context.Context, cluster client.Object) (requests []ctrl.Request) {
	var peerings v1alpha1.PeeringList
	if err := r.Client.List(ctx, &peerings, client.InNamespace(cluster.GetNamespace())); err != nil {
		return nil // the cache is stopping
	}
	for i := range peerings.Items {
		if p := &peerings.Items[i]; p.Spec.Consumer == cluster.GetName() || p.Spec.Provider == cluster.GetName() {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return requests
}

// Reconcile advances one peering as far as possible.
func (r *Peerings) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	peering := &v1alpha1.Peering{}
	if err := r.Client.Get(ctx, request.NamespacedName, peering); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !peering.DeletionTimestamp.IsZero() {
		return r.report(ctx, peering, r.end(ctx, peering))
	}
	if needed, err := r.needed(ctx, peering); err != nil {
		return ctrl.Result{}, err
	} else if !needed {
		err := r.Client.Delete(ctx, peering, client.Preconditions{UID: &peering.UID})
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if controllerutil.AddFinalizer(peering, v1alpha1.Finalizer) {
		if err := r.Client.Update(ctx, peering); err != nil {
			return ctrl.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	return r.report(ctx, peering, r.establish(ctx, peering))
}

// needed reports whether a peering stays: the operator keeps it, or an instance needs it, or may do so because removals are
// held. The Driver deletes a peering with its last instance. But if the last two instances go at the same
// time, each sees that the other one still needs it.
func (r *Peerings) needed(ctx context.Context, peering *v1alpha1.Peering) (bool, error) {
	if peering.Spec.Kept || isHeld(ctx, r.Hold) {
		return true, nil
	}
	var cached v1alpha1.ServiceInstanceList // only read, so not copied
	if err := r.Client.List(ctx, &cached, client.InNamespace(peering.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list service instances: %w", err)
	}
	for i := range cached.Items {
		if Takes(&cached.Items[i], peering.Spec.Consumer, peering.Spec.Provider) {
			return true, nil
		}
	}
	// Live, because caches may lag: an instance has its decision before it has peerings.
	err := pages.Each(ctx, r.Live, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		if Takes(o.(*v1alpha1.ServiceInstance), peering.Spec.Consumer, peering.Spec.Provider) {
			return errNeeded
		}
		return nil
	}, client.InNamespace(peering.Namespace))
	if errors.Is(err, errNeeded) {
		return true, nil
	}
	return false, err
}

// isHeld reports whether hold, which may be nil, returns an error.
func isHeld(ctx context.Context, hold func(context.Context) error) bool {
	return hold != nil && hold(ctx) != nil
}

// errNeeded ends the search for an instance that needs a peering.
var errNeeded = errors.New("an instance needs it")

// establish sets up the peering, all modules.
func (r *Peerings) establish(ctx context.Context, peering *v1alpha1.Peering) error {
	consumer, noConsumer := open(ctx, r.Connections, r.Hub, peering.Spec.Consumer)
	provider, noProvider := open(ctx, r.Connections, r.Hub, peering.Spec.Provider)
	switch {
	case noConsumer == nil && member.IsUnknown(noProvider) && peering.IsInvited(v1alpha1.SideProvider):
		return r.invite(ctx, peering, consumer)
	case noProvider == nil && member.IsUnknown(noConsumer) && peering.IsInvited(v1alpha1.SideConsumer):
		return r.invite(ctx, peering, provider)
	}
	if err := first(noConsumer, noProvider); err != nil {
		return err
	}
	if err := first(consumer.mayPeer(provider), provider.mayPeer(consumer)); err != nil {
		return err
	}
	if err := r.introduce(ctx, peering, consumer, provider); err != nil {
		return err
	}
	for _, s := range []*side{consumer, provider} {
		if s.joined() == nil {
			if err := s.ensureNamespace(ctx); err != nil {
				return err
			}
		}
	}
	// Both modules at once: neither waits for the other.
	var failures []error
	if v1alpha1.HasModule(peering.Spec.Modules, v1alpha1.ModuleAuthentication) {
		expires, err := authenticate(ctx, consumer, provider, r.Connections, r.Clock.Now())
		if err == nil {
			peering.Status.IdentityExpiresAt = expires
		}
		failures = append(failures, condition(peering, v1alpha1.ConditionAuthenticated, "Issued", "the consumer has an identity at the provider", err))
	}
	if v1alpha1.HasModule(peering.Spec.Modules, v1alpha1.ModuleNetworking) {
		server, caller, err := r.gateways(ctx, peering, consumer, provider)
		if err == nil {
			err = connect(ctx, server, caller)
		}
		if err == nil {
			r.recordLatency(ctx, consumer, provider)
			r.recordLatency(ctx, provider, consumer)
		}
		failures = append(failures, condition(peering, v1alpha1.ConditionNetworked, "Connected", "the gateways of the two clusters are connected", err))
	}
	return first(failures...)
}

// invite prepares the inviting side, for a cluster that has not answered yet.
func (r *Peerings) invite(ctx context.Context, peering *v1alpha1.Peering, host *side) error {
	if err := host.identify(ctx); err != nil {
		return err
	}
	status, invited := &peering.Status, peering.Spec.Invited
	host.remote = v1alpha1.LiqoNetwork{ClusterID: invited.ClusterID}
	status.HubID, status.Consumer, status.Provider = r.Hub, &host.own, &host.remote
	guest := peering.Spec.Provider
	if invited.Role == v1alpha1.SideConsumer {
		status.Consumer, status.Provider = &host.remote, &host.own
		guest = peering.Spec.Consumer
	}
	if err := r.writeStatus(ctx, peering); err != nil { // before any object is named after the clusters' IDs
		return err
	}
	if err := host.ensureNamespace(ctx); err != nil {
		return err
	}
	if invited.Role == v1alpha1.SideConsumer && v1alpha1.HasModule(peering.Spec.Modules, v1alpha1.ModuleAuthentication) {
		nonce, err := host.nonce(ctx)
		if err != nil {
			return err
		}
		status.Nonce = nonce
	}
	key, endpoint, err := host.serve(ctx)
	if err != nil {
		return err
	}
	status.Gateway = &v1alpha1.GatewayAddress{Addresses: endpoint.Addresses, Port: endpoint.Port, PublicKey: key}
	return &delivery.PendingError{Step: "peer with " + guest, Detail: "its owner has not answered the invitation yet"}
}

// introduce reads the identities of the two clusters and writes them to the hub, before any
// object is named after them.
func (r *Peerings) introduce(ctx context.Context, peering *v1alpha1.Peering, consumer, provider *side) error {
	known := peering.Status.DeepCopy()
	for _, one := range []struct {
		*side
		of *(*v1alpha1.LiqoNetwork)
	}{{consumer, &peering.Status.Consumer}, {provider, &peering.Status.Provider}} {
		if err := one.identify(ctx); err != nil {
			return err
		}
		if before := *one.of; before != nil && before.ClusterID != one.own.ClusterID {
			return &delivery.RefusedError{
				Reason: fmt.Sprintf("%s was cluster %s to Liqo and is %s now", one.cluster.Name, before.ClusterID, one.own.ClusterID),
				Remedy: "end the peering with `sluice peering remove`, and what needs it makes another one; withdraw an invitation instead, and make another one",
			}
		}
		*one.of = &one.own
	}
	consumer.remote, provider.remote = provider.own, consumer.own
	if consumer.own.ClusterID == provider.own.ClusterID {
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("%s and %s are both cluster %s to Liqo", consumer.cluster.Name, provider.cluster.Name, consumer.own.ClusterID),
			Remedy: "give one of them another clusterID when Liqo is installed",
		}
	}
	if equality.Semantic.DeepEqual(known.Consumer, peering.Status.Consumer) && equality.Semantic.DeepEqual(known.Provider, peering.Status.Provider) {
		return nil
	}
	return r.writeStatus(ctx, peering)
}

// gateways returns which side's gateway is the server and which is the client. The server is the
// provider, unless the two are also peered in the other direction and that peering came first. A
// cluster that has joined by invitation is the client, because it may be behind a firewall.
func (r *Peerings) gateways(ctx context.Context, peering *v1alpha1.Peering, consumer, provider *side) (server, caller *side, err error) {
	if provider.joined() != nil {
		return consumer, provider, nil
	}
	if consumer.joined() != nil {
		return provider, consumer, nil
	}
	reverse, err := r.reverse(ctx, peering)
	if err != nil {
		return nil, nil, err
	}
	// The first peering may have ended since: an existing server keeps its role.
	switch err := consumer.get(ctx, consumer.remote.ClusterID, &networkingv1beta1.GatewayServer{}); {
	case err == nil:
		return consumer, provider, nil
	case !apierrors.IsNotFound(err):
		return nil, nil, err
	case reverse != nil && before(reverse, peering):
		return consumer, provider, nil
	}
	return provider, consumer, nil
}

// before reports which of two peerings came first; if both have the same creation time, by
// name.
func before(a, b *v1alpha1.Peering) bool {
	since, other := v1alpha1.CreatedOf(a), v1alpha1.CreatedOf(b)
	if since.Equal(&other) {
		return a.Name < b.Name
	}
	return since.Before(&other)
}

// reverse returns the peering of the same two clusters in the other direction, which shares
// their network; nil if there is none, or if it is being deleted.
func (r *Peerings) reverse(ctx context.Context, peering *v1alpha1.Peering) (*v1alpha1.Peering, error) {
	reverse := &v1alpha1.Peering{}
	key := client.ObjectKey{Namespace: peering.Namespace, Name: v1alpha1.PeeringName(peering.Spec.Provider, peering.Spec.Consumer)}
	err := r.Client.Get(ctx, key, reverse)
	if apierrors.IsNotFound(err) || err == nil && !reverse.DeletionTimestamp.IsZero() {
		return nil, nil // there is none
	}
	return reverse, err
}

// condition records the result of one module, and returns the error.
func condition(peering *v1alpha1.Peering, kind, reason, message string, err error) error {
	status := metav1.ConditionTrue
	if err != nil {
		status, reason, message = metav1.ConditionFalse, reasonOf(err), err.Error()
	}
	v1alpha1.SetCondition(&peering.Status.Conditions, peering.Generation, kind, status, reason, message)
	return err
}

// IsRefused reports whether the present state of a peering is that a retry cannot help.
func IsRefused(peering *v1alpha1.Peering) bool {
	ready := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.ObservedGeneration == peering.Generation && ready.Reason == v1alpha1.ReasonRefused
}

func reasonOf(err error) string {
	if refused := (*delivery.RefusedError)(nil); errors.As(err, &refused) {
		return v1alpha1.ReasonRefused
	}
	if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) {
		return v1alpha1.ReasonInProgress
	}
	return v1alpha1.ReasonFailed
}

// report writes the result of a pass, and returns when to check again.
func (r *Peerings) report(ctx context.Context, peering *v1alpha1.Peering, err error) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(peering, v1alpha1.Finalizer) {
		return ctrl.Result{}, err // the Peering is gone
	}
	message := "peered"
	if !peering.DeletionTimestamp.IsZero() {
		message = "ending"
	}
	_ = condition(peering, v1alpha1.ConditionReady, v1alpha1.ReasonReady, message, err)
	peering.Status.ObservedGeneration = peering.Generation
	if written := r.writeStatus(ctx, peering); written != nil {
		return ctrl.Result{}, errors.Join(err, written)
	}
	switch pending := (*delivery.PendingError)(nil); {
	case err == nil:
		return ctrl.Result{RequeueAfter: driftEvery}, nil
	case errors.As(err, &pending):
		return ctrl.Result{RequeueAfter: r.patience(peering)}, nil
	default:
		return ctrl.Result{}, err
	}
}

// patience returns often at first, and later a tenth of the time waited so far.
func (r *Peerings) patience(peering *v1alpha1.Peering) time.Duration {
	ready := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
	return min(max(r.Clock.Since(ready.LastTransitionTime.Time)/10, often), slowestRetry)
}

// writeStatus writes the status if it has changed.
func (r *Peerings) writeStatus(ctx context.Context, peering *v1alpha1.Peering) error {
	now := &v1alpha1.Peering{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(peering), now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if equality.Semantic.DeepEqual(now.Status, peering.Status) {
		return nil
	}
	if peering.DeletionTimestamp.IsZero() { // afterwards only its end is an event
		err := r.journals().Transitions(ctx, peering, now.Status.Conditions, peering.Status.Conditions, r.Clock.Now(), peering.Spec.Consumer, peering.Spec.Provider)
		if err != nil {
			return err
		}
	}
	if err := r.Client.Status().Update(ctx, peering); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the peering's status: %w", err))
	}
	r.Recorder.Wrote(ctx, peering, v1alpha1.LastSequence(now.Status.Events))
	return nil
}

func (r *Peerings) journals() *journal.Journals {
	return &journal.Journals{Client: r.Client, Live: r.Live}
}
