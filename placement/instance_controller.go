package placement

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/member"
)

// instanceReconciler carries out what the platforms asked of their instances. One
// replica runs it, the leader; several of its workers may run at once, on
// different instances.
//
// instance_phases.go and instance_removal.go hold the phases, instance_failure.go what
// happens when one fails for good, instance_status.go every word of status, leadership.go
// what a decision of another leader is worth.
type instanceReconciler struct {
	hub        client.Client // reads from the cache, writes to the hub
	live       client.Reader
	plan       func(serviceID, planID string) (*catalog.Plan, error)
	inventory  *Inventory
	recovery   *recovery
	leadership Leadership
	drivers    map[string]Driver
	clock      clock.PassiveClock
	metrics    *metrics
	moves      *moves
	// places on the member clusters; nil means that there is always one.
	places *member.Places
	scorer *ExternalScorer
	// elastic makes clusters for what fits nowhere; nil makes none.
	elastic *elastic
	// observeEvery is the time between two looks at a delivered instance.
	observeEvery time.Duration

	// after has an instance looked at after some time at the latest, once the controller runs.
	after atomic.Pointer[func(instance string, wait time.Duration)]

	// written is the resource version of the last status written, by instance name: a
	// cached read that is older is not acted upon.
	written sync.Map
	// unsettled instances had a status write of which it is not known whether it took
	// effect; a live read settles it before anything else is done.
	unsettled sync.Map
	// observations say when an instance is looked at next.
	observations sync.Map
}

// scope is one instance in one pass of the reconciler.
type scope struct {
	*v1alpha1.ServiceInstance
	// now is when the pass began.
	now time.Time
	// polling is how long the platform polls an operation of the instance's plan.
	polling time.Duration
	// fresh: the hub does not know of the operation in hand yet.
	fresh bool
	// failing is why the operation in hand is about to fail, while it is being undone.
	failing string
	// cause of that.
	cause error
	// due is the look that is made in this pass, if any.
	due observation
	// queued: it waits for its turn to move.
	queued bool
	// again is when the instance is to be looked at whatever else happens; zero means never.
	again time.Duration
}

// lookAgain has the instance looked at after some time at the latest.
func (s *scope) lookAgain(after time.Duration) {
	if s.again == 0 || after < s.again {
		s.again = max(after, time.Millisecond)
	}
}

// phase does one thing, or finds it done. A zero result lets the next phase go on.
type phase func(context.Context, *scope) (ctrl.Result, error)

// Reconcile takes one instance as far as it comes.
func (r *instanceReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.recovery.ensure(ctx); err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.read(ctx, request)
	if apierrors.IsNotFound(err) {
		r.forget(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		return ctrl.Result{RequeueAfter: staleAfter}, nil
	}
	r.begin(s)
	defer r.yieldTurn(s)
	phases := []phase{r.place, r.deliver, r.clean, r.observe}
	switch {
	case !s.DeletionTimestamp.IsZero():
		phases = []phase{r.remove}
	case s.abandoned():
		phases = []phase{r.abandon}
	}
	for _, next := range phases {
		result, err := next(ctx, s)
		if err != nil {
			// A result beside an error counts for nothing, so the queue is told itself.
			if s.again > 0 {
				r.lookAfter(s.Name, s.again)
			}
			return ctrl.Result{}, err
		}
		if !result.IsZero() {
			return s.sooner(result), nil
		}
	}
	return s.sooner(ctrl.Result{}), nil
}

// lookAfter has an instance looked at after some time at the latest.
func (r *instanceReconciler) lookAfter(instance string, wait time.Duration) {
	if after := r.after.Load(); after != nil {
		(*after)(instance, wait)
	}
}

// yieldTurn gives the instance's place among those that move, or its turn, to the next
// unless it moves, or waits for its turn.
func (r *instanceReconciler) yieldTurn(s *scope) {
	if !s.queued && (!s.moving() || !s.DeletionTimestamp.IsZero()) {
		r.moves.end(s.Name)
	}
}

// sooner is a result that does not keep the instance waiting for longer than it can.
func (s *scope) sooner(result ctrl.Result) ctrl.Result {
	if s.again > 0 && (result.RequeueAfter == 0 || s.again < result.RequeueAfter) {
		result.RequeueAfter = s.again
	}
	return result
}

// staleAfter is how long the cache is given to catch up with our own last write.
const staleAfter = 20 * time.Millisecond

// read returns the instance, or nil while the cache shows it as it was before our
// own last write. After a write with an unknown outcome it reads live and sets the
// ledger by that.
func (r *instanceReconciler) read(ctx context.Context, request ctrl.Request) (*scope, error) {
	instance := &v1alpha1.ServiceInstance{}
	if _, unsettled := r.unsettled.Load(request.Name); unsettled {
		if err := r.settle(ctx, request.NamespacedName, instance); err != nil {
			return nil, err
		}
	} else {
		if err := r.hub.Get(ctx, request.NamespacedName, instance); err != nil {
			return nil, err
		}
		if r.stale(instance) {
			return nil, nil
		}
	}
	s := &scope{ServiceInstance: instance, now: r.clock.Now(), polling: defaultPolling}
	if plan, err := r.plan(s.Spec.ServiceID, s.Spec.Desired.PlanID); err == nil && plan.MaximumPollingDurationSeconds > 0 {
		s.polling = time.Duration(plan.MaximumPollingDurationSeconds) * time.Second
	}
	return s, nil
}

// stale tells whether a read is older than our own last write of the instance.
func (r *instanceReconciler) stale(instance *v1alpha1.ServiceInstance) bool {
	written, ok := r.written.Load(instance.Name)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(instance.ResourceVersion, written.(string))
	return err == nil && order < 0
}

// settle reads the instance live and makes the ledger say what its status says. As
// long as the instance is as it was when the unsettled write was made, that write
// may still arrive, and what it reserved is kept; the next write, which is bound to
// the same version, ends that.
func (r *instanceReconciler) settle(ctx context.Context, key client.ObjectKey, instance *v1alpha1.ServiceInstance) error {
	err := r.live.Get(ctx, key, instance)
	if apierrors.IsNotFound(err) {
		r.forget(key.Name)
	}
	if err != nil {
		return err
	}
	if base, _ := r.unsettled.Load(key.Name); base != instance.ResourceVersion {
		r.inventory.Reserve(HoldingOf(instance))
	}
	r.unsettled.Delete(key.Name)
	return nil
}

func keyOf(s *scope) client.ObjectKey { return client.ObjectKeyFromObject(s.ServiceInstance) }

// forget drops all memory of an instance that is gone, and its reservations.
func (r *instanceReconciler) forget(name string) {
	r.inventory.Release(name)
	r.inventory.Follow(name, nil)
	r.moves.end(name)
	r.written.Delete(name)
	r.unsettled.Delete(name)
	r.observations.Delete(name)
}

// defaultPolling is how long platforms are taken to poll when the plan does not say
// or is unknown; OSB 2.17 ("Service Plan Object", maximum_polling_duration) leaves
// it to the platform.
const defaultPolling = time.Hour

// deadline is when an operation must have failed at the latest, so that the
// platform learns of it: a tenth of its polling time before the end, at most half a
// minute.
func (s *scope) deadline(from time.Time) time.Time {
	return from.Add(s.polling - min(s.polling/10, 30*time.Second))
}

// since is when the decision or operation in hand began.
func (s *scope) since() time.Time {
	if s.finished() && s.moving() {
		return s.Status.Decision.MovesSince().Time
	}
	return s.Status.Operation.StartedAt.Time
}

// late tells whether the operation in hand is past its deadline.
func (s *scope) late() bool {
	return !s.now.Before(s.deadline(s.Status.Operation.StartedAt.Time))
}

// soon is when to ask again what something on a member cluster is waiting for: at
// once at first, then ever more rarely, a quarter of the time it has taken so far.
func (s *scope) soon(since time.Time) ctrl.Result {
	const shortest, longest = 20 * time.Millisecond, 5 * time.Second
	return ctrl.Result{RequeueAfter: min(max(s.now.Sub(since)/4, shortest), longest)}
}
