package controller

import (
	"cmp"
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
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// instanceReconciler carries out the platforms' requests for their instances. It runs only on
// one replica, the leader. Several workers may run at once, on different instances.
//
// instance_phases.go, instance_left.go and instance_removal.go hold the usual phases; the others are in instance_hidden.go,
// instance_backup.go, instance_failure.go and instance_adopt.go. instance_scope.go holds what a pass knows of the instance,
// instance_request.go the request for placement, instance_status.go and its neighbours all writes of the status, leadership.go
// the treatment of another leader's decisions.
type instanceReconciler struct {
	hub  client.Client // reads from the cache, writes to the hub
	live client.Reader
	// bindings are read in turn, until one reader shows some of an instance, see unbind.
	bindings   []client.Reader
	plan       func(serviceID, planID string) (*catalog.Plan, error)
	recorder   *journal.Recorder
	inventory  *placement.Inventory
	recovery   *recovery
	leadership Leadership
	drivers    map[string]delivery.Driver
	clock      clock.PassiveClock
	metrics    *metrics
	moves      *moves
	// places on the member clusters; nil means that there is always one.
	places *member.Places
	// reports are the places for results of checks that are written; nil means that there is always one.
	reports  *member.Places
	keys     *seal.Keyset
	target   Target   // nil if there is none
	scorer   Scorer   // nil if there is none
	promises Promises // nil if none are made
	// failed is told of orders that a broker did not carry out; may be nil.
	failed func(broker string, order v1alpha1.OrderFailure)

	// after triggers a pass over an instance after at most the given time. Set once the
	// controller runs.
	after atomic.Pointer[func(instance string, wait time.Duration)]

	// written is the resource version of the last status written, by instance name. An older
	// read from the cache is not acted upon.
	written sync.Map
	// unsettled instances had a status write with an unknown result. A live read settles it
	// before anything else is done.
	unsettled sync.Map
	// observations hold when each instance is checked next.
	observations sync.Map
	applied      applied
	// gaveUp holds when a move of each instance was given up last.
	gaveUp sync.Map
	// pending holds since when the delivery of each instance's update only waits, see isLateUpdate.
	pending sync.Map
	// removing has the names of the instances whose removal has begun, see isRemoved.
	removing sync.Map
}

// phase does one step, or finds it done. After a zero result the next phase runs.
type phase func(context.Context, *scope) (ctrl.Result, error)

// Reconcile advances one instance as far as possible.
//
// Step 3 of a provision (docs/architecture.md).
func (r *instanceReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.recovery.ensure(ctx); err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.read(ctx, request)
	if apierrors.IsNotFound(err) {
		r.recorder.Gone(ctx, v1alpha1.KindServiceInstance, request.NamespacedName)
		r.forget(request.Name)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if s == nil {
		return ctrl.Result{RequeueAfter: staleAfter}, nil
	}
	defer r.recorder.Done(s)
	if r.begin(s); s.fresh {
		r.pending.Delete(s.Name)
		r.inventory.Begin(placement.HoldingOf(s.ServiceInstance))
	}
	defer r.yieldTurn(s)
	phases := []phase{r.endOrphan, r.hide, r.copyInPlace, r.place, r.deliver, r.clean, r.observe}
	switch {
	case !s.DeletionTimestamp.IsZero():
		phases = []phase{r.remove}
	case s.Status.IsAbandoned():
		phases = []phase{r.abandon, r.clean}
	case s.Status.Operation.Failing != nil:
		phases = []phase{r.failOn, r.clean}
	case s.isToBeAdopted():
		phases = []phase{r.takeOver, r.observe}
	}
	for _, next := range phases {
		if result, err := next(ctx, s); err != nil || !result.IsZero() {
			return r.end(s, result, err)
		}
	}
	return r.end(s, ctrl.Result{}, nil)
}

// end returns the result of a pass. controller-runtime ignores a result beside an error, so the queue is used directly.
func (r *instanceReconciler) end(s *scope, result ctrl.Result, err error) (ctrl.Result, error) {
	result = s.sooner(result)
	if err = cmp.Or(err, s.unclean); err == nil {
		return result, nil
	}
	if result.RequeueAfter > 0 {
		r.lookAfter(s.Name, result.RequeueAfter)
	}
	return ctrl.Result{}, err
}

// lookAfter triggers a pass over an instance after at most the given time.
func (r *instanceReconciler) lookAfter(instance string, wait time.Duration) {
	if after := r.after.Load(); after != nil {
		(*after)(instance, wait)
	}
}

// yieldTurn gives the instance's place among those that move, or its turn, to the next one,
// unless it moves, copies data, or waits for its turn.
func (r *instanceReconciler) yieldTurn(s *scope) {
	busy := s.Status.IsMoving() || s.Status.Copying != nil && s.restoreFailure() == ""
	if !s.queued && (!busy || !s.DeletionTimestamp.IsZero()) {
		r.moves.end(s.Name)
	}
}

// staleAfter is how long to wait for the cache to show Sluice's own last write.
const staleAfter = 20 * time.Millisecond

// read returns the instance, or nil while the cache shows it before Sluice's own last write.
// After a write with an unknown result it reads live and sets the ledger by that.
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
	r.recorder.Read(ctx, instance)
	s := &scope{ServiceInstance: instance, now: r.clock.Now(), polling: defaultPolling}
	s.asRead()
	if plan, err := r.plan(s.Spec.ServiceID, s.Spec.Desired.PlanID); err == nil && plan.MaximumPollingDurationSeconds > 0 {
		s.polling = time.Duration(plan.MaximumPollingDurationSeconds) * time.Second
	}
	return s, nil
}

// stale reports whether a read is older than Sluice's own last write of the instance.
func (r *instanceReconciler) stale(instance *v1alpha1.ServiceInstance) bool {
	written, ok := r.written.Load(instance.Name)
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(instance.ResourceVersion, written.(string))
	return err == nil && order < 0
}

// settle reads the instance live and sets the ledger to its status. While the instance is as it
// was when the unsettled write was made, that write may still arrive, so its reservation is
// kept. The next write, which is bound to the same version, ends that.
func (r *instanceReconciler) settle(ctx context.Context, key client.ObjectKey, instance *v1alpha1.ServiceInstance) error {
	err := r.live.Get(ctx, key, instance)
	if apierrors.IsNotFound(err) {
		r.forget(key.Name)
	}
	if err != nil {
		return err
	}
	if base, _ := r.unsettled.Load(key.Name); base != instance.ResourceVersion {
		r.inventory.Reserve(placement.HoldingOf(instance))
	}
	r.unsettled.Delete(key.Name)
	return nil
}

func keyOf(s *scope) client.ObjectKey { return client.ObjectKeyFromObject(s.ServiceInstance) }

// forget drops everything in memory about an instance that is gone, and its reservations.
func (r *instanceReconciler) forget(name string) {
	r.inventory.Release(name)
	r.inventory.Follow(name, nil)
	r.moves.end(name)
	r.written.Delete(name)
	r.unsettled.Delete(name)
	r.observations.Delete(name)
	r.gaveUp.Delete(name)
	r.pending.Delete(name)
	r.applied.forget(name)
	r.removing.Delete(name)
}
