package bindings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/requeue"
	"github.com/sluice-dev/sluice/internal/seal"
)

const (
	// concurrency is the number of bindings that are processed at the same time on one member cluster. The limit over all
	// clusters is four times that, so that hanging clusters do not block others. It suits a controller that mostly waits for
	// API servers.
	concurrency = 16
	// defaultPatience is how long a bind is tried before it fails.
	defaultPatience = 10 * time.Minute
	// slowestRetry limits the back-off, so that the return of a cluster is noticed.
	slowestRetry = 30 * time.Second
	// goneCheck is the interval of checks on a blocked deletion.
	goneCheck = time.Second
	// turnPatience is how long a binding waits for a free place on a cluster before it is tried
	// again anyway.
	turnPatience = time.Minute
)

// Controller carries out ServiceBindings. Its optional fields have useful zero values.
type Controller struct {
	// Client of the hub; its reads may come from a cache.
	Client client.Client
	// Live reads the hub without a cache, before a final decision.
	Live client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Brokers behind this one; nil if there are none.
	Brokers *osbclient.Brokers
	// Keys seal the credentials.
	Keys *seal.Keyset
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Recorder of the events of bindings; may be nil.
	Recorder *journal.Recorder
	// Clock; nil means the real one.
	Clock clock.PassiveClock
	// Patience is how long a bind is tried before it fails; zero means ten minutes. A binding at another broker is tried
	// for as long as the broker's plan allows to poll, if that is longer.
	Patience time.Duration
	// Refresh is the interval at which the endpoints of a binding with peering are checked. Other
	// bindings are checked ten times less often. Zero means half a minute.
	Refresh time.Duration

	// hooksEnded are the bindings, by UID, whose bind hooks this process has deleted since they last ran.
	hooksEnded sync.Map
	// hooksStarting are the namespaces in which a hook is being started.
	hooksStarting sync.Map
	// places limit the work on each member cluster; nil means no limit.
	places *member.Places
}

// SetupWithManager adds the controller to a manager; it runs on the leader only. The manager's cache needs an index of
// ServiceBindings by v1alpha1.FieldInstanceName, which placement's controllers register.
func (c *Controller) SetupWithManager(m ctrl.Manager) error {
	c.setDefaults()
	c.places = &member.Places{Most: concurrency}
	return ctrl.NewControllerManagedBy(m).
		Named("servicebinding").
		// A deletion changes the generation, and a renewal is requested by an annotation.
		For(&v1alpha1.ServiceBinding{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, issuedAnew))).
		Watches(&v1alpha1.ServiceBinding{}, handler.EnqueueRequestsFromMapFunc(orderedFor), builder.WithPredicates(takenAnew)).
		Watches(&v1alpha1.ServiceInstance{}, handler.EnqueueRequestsFromMapFunc(c.concernedBy), builder.WithPredicates(instanceTurned)).
		WatchesRawSource(source.Func(c.wakeByPlaces)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: 4 * concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, slowestRetry),
		}).
		Complete(requeue.OnConflict(c))
}

// setDefaults replaces the zero values of optional fields.
func (c *Controller) setDefaults() {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	c.Patience = cmp.Or(c.Patience, defaultPatience)
	c.Refresh = cmp.Or(c.Refresh, defaultRefresh)
}

// issuedAnew passes the status writes of this controller after which the credentials are for other clusters or nodes than
// before. The instance may have changed its clusters again before the cache had the write; by the binding as it was
// then, there was nothing to do.
var issuedAnew = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.ServiceBinding), e.ObjectNew.(*v1alpha1.ServiceBinding)
		return finished(before) && (!slices.Equal(before.Status.Issued, after.Status.Issued) || !slices.Equal(before.Status.Nodes, after.Status.Nodes))
	},
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// instanceTurned passes the changes of an instance that matter to its bindings: it becomes
// delivered, its deletion begins, its present or former clusters change, its data is
// restored, or the path by which it is reached changes.
var instanceTurned = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*v1alpha1.ServiceInstance), e.ObjectNew.(*v1alpha1.ServiceInstance)
		return !equality.Semantic.DeepEqual(waysOf(before), waysOf(after)) || !equality.Semantic.DeepEqual(before.Status.Restored, after.Status.Restored) || !slices.Equal(leftOf(before), leftOf(after)) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// concernedBy lists the bindings of an instance for which there is work to do.
func (c *Controller) concernedBy(ctx context.Context, object client.Object) []reconcile.Request {
	instance := object.(*v1alpha1.ServiceInstance)
	var list v1alpha1.ServiceBindingList
	err := c.Client.List(ctx, &list, client.InNamespace(instance.GetNamespace()), client.MatchingFields{v1alpha1.FieldInstanceName: instance.GetName()})
	if err != nil {
		return nil // the cache is stopping
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; !finished(b) || !b.DeletionTimestamp.IsZero() || behind(b, instance) || isPeered(instance) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return requests
}

func (c *Controller) journals() *journal.Journals {
	return &journal.Journals{Client: c.Client, Live: c.Live}
}

// Reconcile processes one binding.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var binding v1alpha1.ServiceBinding
	if err := c.Client.Get(ctx, request.NamespacedName, &binding); err != nil {
		if apierrors.IsNotFound(err) {
			c.Recorder.Gone(ctx, v1alpha1.KindServiceBinding, request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	c.Recorder.Read(ctx, &binding)
	defer c.Recorder.Done(&binding)
	orphaned, err := c.isOrphaned(ctx, &binding)
	if err != nil {
		return reconcile.Result{}, err
	}
	carryOut := c.bind
	switch {
	case !binding.DeletionTimestamp.IsZero():
		carryOut = c.unbind
	case orphaned:
		return reconcile.Result{}, c.delete(ctx, &binding)
	case finished(&binding):
		carryOut = c.follow
	}
	result, err := carryOut(ctx, &binding)
	if busy := (*member.BusyError)(nil); errors.As(err, &busy) {
		return reconcile.Result{RequeueAfter: turnPatience}, nil // a free place triggers it earlier
	}
	if err != nil {
		return reconcile.Result{}, err // controller-runtime ignores a result beside an error
	}
	return result, nil
}

// wakeByPlaces enqueues a binding when a place for it becomes free on a cluster.
func (c *Controller) wakeByPlaces(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.places.Wake = func(key string) {
		namespace, name, _ := strings.Cut(key, "/")
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
	}
	return nil
}

// on calls do for a binding on a cluster if a place is free; otherwise it returns
// *member.BusyError.
func (c *Controller) on(cluster string, b *v1alpha1.ServiceBinding, do func() error) error {
	leave, err := c.places.Enter(cluster, client.ObjectKeyFromObject(b).String())
	if err != nil {
		return err
	}
	err = do()
	leave(err)
	return err
}

// finished reports whether the binding's bind has succeeded or permanently failed.
func finished(b *v1alpha1.ServiceBinding) bool {
	operation := b.Status.Operation
	return operation != nil && operation.Type == v1alpha1.OperationBind &&
		operation.Generation == b.Generation && operation.State != v1alpha1.StateInProgress
}

// begin puts the operation into status. It reports whether the operation was not there yet.
func (c *Controller) begin(b *v1alpha1.ServiceBinding, kind v1alpha1.OperationType) bool {
	operation := b.Status.Operation
	if operation != nil && operation.Type == kind && operation.Generation == b.Generation {
		return false
	}
	b.Status.ObservedGeneration = b.Generation
	b.Status.Operation = &v1alpha1.Operation{
		Type: kind, Generation: b.Generation, State: v1alpha1.StateInProgress, StartedAt: metav1.NewTime(c.Clock.Now()),
	}
	ordered := v1alpha1.Event{Type: v1alpha1.EventOrdered}
	if kind == v1alpha1.OperationBind {
		ordered.By = b.Spec.OriginatingIdentity // that of an unbind is not known
	} else {
		b.Status.Operation.StartedAt = *b.DeletionTimestamp
	}
	c.happened(b, ordered)
	if near := b.Annotations[v1alpha1.AnnotationNearQuota]; near != "" && kind == v1alpha1.OperationBind {
		c.happened(b, v1alpha1.Event{Type: v1alpha1.EventNearQuota, Message: near})
	}
	return true
}

// happened adds an event of the operation, which the next write of the status writes.
func (c *Controller) happened(b *v1alpha1.ServiceBinding, e v1alpha1.Event) {
	e.At, e.PlanID = metav1.NewMicroTime(c.Clock.Now()), b.Spec.PlanID
	if b.Status.Operation != nil && b.Status.Operation.State == v1alpha1.StateInProgress {
		e.Operation = b.Status.Operation.Type
	}
	v1alpha1.AddEvent(&b.Status.Events, e)
}

// since returns the time since the binding's operation began.
func (c *Controller) since(b *v1alpha1.ServiceBinding) *metav1.Duration {
	return &metav1.Duration{Duration: c.Clock.Since(b.Status.Operation.Began(b.Status.Events)).Round(time.Millisecond)}
}

// wait records what the operation waits for; it writes only changes.
func (c *Controller) wait(ctx context.Context, b *v1alpha1.ServiceBinding, kind v1alpha1.OperationType, description string) error {
	if !c.recordWaiting(b, kind, description) {
		return nil
	}
	return c.writeStatus(ctx, b)
}

// recordWaiting puts into status what the operation waits for, and reports whether that is new.
func (c *Controller) recordWaiting(b *v1alpha1.ServiceBinding, kind v1alpha1.OperationType, description string) (changed bool) {
	changed, description = c.begin(b, kind), v1alpha1.Cut(description, v1alpha1.LongestText)
	if b.Status.Operation.Description != description {
		b.Status.Operation.Description, changed = description, true
	}
	reason := v1alpha1.ReasonInProgress
	if kind == v1alpha1.OperationUnbind {
		reason = v1alpha1.ReasonDeleting
	}
	return v1alpha1.SetCondition(&b.Status.Conditions, b.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, description) || changed
}

// fail ends the bind permanently.
func (c *Controller) fail(ctx context.Context, b *v1alpha1.ServiceBinding, description string) error {
	c.begin(b, v1alpha1.OperationBind)
	c.happened(b, v1alpha1.Event{Type: v1alpha1.EventFailed, Message: description, After: c.since(b)})
	c.finish(b, v1alpha1.StateFailed, description)
	v1alpha1.SetCondition(&b.Status.Conditions, b.Generation, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFailed, description)
	return c.writeStatus(ctx, b)
}

func (c *Controller) finish(b *v1alpha1.ServiceBinding, state v1alpha1.OperationState, description string) {
	now := metav1.NewTime(c.Clock.Now())
	b.Status.ObservedGeneration = b.Generation
	b.Status.Operation.State = state
	b.Status.Operation.Description = v1alpha1.Cut(description, v1alpha1.LongestText)
	b.Status.Operation.FinishedAt = &now
}

// writeStatus fails with a conflict if the binding has changed since it was read.
func (c *Controller) writeStatus(ctx context.Context, b *v1alpha1.ServiceBinding) error {
	if err := c.journals().Trim(ctx, b); err != nil {
		return err
	}
	err := c.Client.Status().Update(ctx, b)
	c.Recorder.Written(ctx, b, err)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
