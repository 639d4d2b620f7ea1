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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
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
	"github.com/sluice-dev/sluice/internal/crashpoint"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/placement"
)

const (
	// often is how often something is looked at that Liqo is making or removing.
	often = 250 * time.Millisecond
	// driftEvery is how often a peering that is ready is looked at.
	driftEvery = 20 * time.Second
	// slowestRetry after errors.
	slowestRetry = 10 * time.Second
)

// Peerings makes the Peerings of the hub so on their clusters, and keeps them so.
type Peerings struct {
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Live reads the hub without a cache.
	Live client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
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
		// An invited cluster that joins, or what the operator says of a gateway.
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

// Reconcile takes one peering as far as it comes.
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
		crashpoint.Hit(crashBeforeRelease)
		err := r.Client.Delete(ctx, peering, client.Preconditions{UID: &peering.UID})
		crashpoint.Hit(crashAfterRelease)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if controllerutil.AddFinalizer(peering, v1alpha1.Finalizer) {
		if err := r.Client.Update(ctx, peering); err != nil {
			return ctrl.Result{}, fmt.Errorf("add the finalizer: %w", err)
		}
	}
	return r.report(ctx, peering, r.establish(ctx, peering))
}

// needed tells whether a peering stays: an operator keeps it, or an instance takes it. The
// Driver lets a peering go with its last instance; but of two that go at the same time, each
// sees that the other one still takes it.
func (r *Peerings) needed(ctx context.Context, peering *v1alpha1.Peering) (bool, error) {
	if peering.Spec.Kept {
		return true, nil
	}
	var cached v1alpha1.ServiceInstanceList // which are only read
	if err := r.Client.List(ctx, &cached, client.InNamespace(peering.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list service instances: %w", err)
	}
	for i := range cached.Items {
		if Takes(&cached.Items[i], peering.Spec.Consumer, peering.Spec.Provider) {
			return true, nil
		}
	}
	// Instances have their decisions before they have peerings, but caches may not say so.
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		live := &v1alpha1.ServiceInstanceList{}
		return live, r.Live.List(ctx, live, client.InNamespace(peering.Namespace), client.Limit(o.Limit), client.Continue(o.Continue))
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if Takes(o.(*v1alpha1.ServiceInstance), peering.Spec.Consumer, peering.Spec.Provider) {
			return errNeeded
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNeeded) {
		return false, fmt.Errorf("list service instances: %w", err)
	}
	return err != nil, nil
}

// errNeeded ends the search for an instance that takes a peering.
var errNeeded = errors.New("an instance takes it")

// establish makes what the peering says, one module after the other.
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
	if names.Has(peering.Spec.Modules, v1alpha1.ModuleAuthentication) {
		expires, err := authenticate(ctx, consumer, provider, r.Connections, r.Clock.Now())
		if err == nil {
			peering.Status.IdentityExpiresAt = expires
		}
		failures = append(failures, condition(peering, v1alpha1.ConditionAuthenticated, "Issued", "the consumer has an identity at the provider", err))
	}
	if names.Has(peering.Spec.Modules, v1alpha1.ModuleNetworking) {
		server, caller, err := r.gateways(ctx, peering, consumer, provider)
		if err == nil {
			err = connect(ctx, server, caller)
		}
		failures = append(failures, condition(peering, v1alpha1.ConditionNetworked, "Connected", "the gateways of the two clusters are connected", err))
	}
	return first(failures...)
}

// invite makes the side ready that invites, for a cluster that has not answered yet.
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
	if err := r.writeStatus(ctx, peering); err != nil { // before anything is named after them
		return err
	}
	if err := host.ensureNamespace(ctx); err != nil {
		return err
	}
	if invited.Role == v1alpha1.SideConsumer && names.Has(peering.Spec.Modules, v1alpha1.ModuleAuthentication) {
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
	return &placement.PendingError{Step: "peer with " + guest, Detail: "its owner has not answered the invitation yet"}
}

// introduce finds out who the two clusters are and writes it to the hub, before anything is
// named after it.
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
			return &placement.RefusedError{
				Reason: fmt.Sprintf("%s was cluster %s to Liqo and is %s now", one.cluster.Name, before.ClusterID, one.own.ClusterID),
				Remedy: "delete the peering; what needs it makes another one",
			}
		}
		*one.of = &one.own
	}
	consumer.remote, provider.remote = provider.own, consumer.own
	if consumer.own.ClusterID == provider.own.ClusterID {
		return &placement.RefusedError{
			Reason: fmt.Sprintf("%s and %s are both cluster %s to Liqo", consumer.cluster.Name, provider.cluster.Name, consumer.own.ClusterID),
			Remedy: "give one of them another clusterID when Liqo is installed",
		}
	}
	if equality.Semantic.DeepEqual(known.Consumer, peering.Status.Consumer) && equality.Semantic.DeepEqual(known.Provider, peering.Status.Provider) {
		return nil
	}
	return r.writeStatus(ctx, peering)
}

// gateways says whose gateway is called by the other: the provider's, unless the two are
// peered the other way round as well and that came first. Who has joined by invitation calls, as
// what is behind a firewall can.
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
	// Whichever came first may have ended since: what serves goes on to.
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

// before tells which of two peerings came first, by name where both came within a second.
func before(a, b *v1alpha1.Peering) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// reverse is the peering of the same two clusters the other way round, which shares their
// network; nil where there is none, or none that stays.
func (r *Peerings) reverse(ctx context.Context, peering *v1alpha1.Peering) (*v1alpha1.Peering, error) {
	reverse := &v1alpha1.Peering{}
	key := client.ObjectKey{Namespace: peering.Namespace, Name: v1alpha1.PeeringName(peering.Spec.Provider, peering.Spec.Consumer)}
	err := r.Client.Get(ctx, key, reverse)
	if apierrors.IsNotFound(err) || err == nil && !reverse.DeletionTimestamp.IsZero() {
		return nil, nil //nolint:nilnil // there is none
	}
	return reverse, err
}

// condition records what has become of one module, and passes the error on.
func condition(peering *v1alpha1.Peering, kind, reason, message string, err error) error {
	status := metav1.ConditionTrue
	if err != nil {
		status, reason, message = metav1.ConditionFalse, reasonOf(err), err.Error()
	}
	v1alpha1.SetCondition(&peering.Status.Conditions, peering.Generation, kind, status, reason, message)
	return err
}

// reasonRefused: trying again cannot help.
const reasonRefused = "Refused"

func reasonOf(err error) string {
	if refused := (*placement.RefusedError)(nil); errors.As(err, &refused) {
		return reasonRefused
	}
	if pending := (*placement.PendingError)(nil); errors.As(err, &pending) {
		return v1alpha1.ReasonInProgress
	}
	return v1alpha1.ReasonFailed
}

// report writes what has come of a pass, and says when to look again.
func (r *Peerings) report(ctx context.Context, peering *v1alpha1.Peering, err error) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(peering, v1alpha1.Finalizer) {
		return ctrl.Result{}, err // it is gone
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
	switch pending := (*placement.PendingError)(nil); {
	case err == nil:
		return ctrl.Result{RequeueAfter: driftEvery}, nil
	case errors.As(err, &pending):
		return ctrl.Result{RequeueAfter: r.patience(peering)}, nil
	default:
		return ctrl.Result{}, err
	}
}

// patience is often at first, and then a tenth of the time that is being waited already.
func (r *Peerings) patience(peering *v1alpha1.Peering) time.Duration {
	ready := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
	return min(max(r.Clock.Since(ready.LastTransitionTime.Time)/10, often), slowestRetry)
}

// writeStatus writes the status where that says something new.
func (r *Peerings) writeStatus(ctx context.Context, peering *v1alpha1.Peering) error {
	now := &v1alpha1.Peering{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(peering), now); err != nil {
		return client.IgnoreNotFound(err)
	}
	if equality.Semantic.DeepEqual(now.Status, peering.Status) {
		return nil
	}
	if err := r.Client.Status().Update(ctx, peering); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write the peering's status: %w", err))
	}
	return nil
}
