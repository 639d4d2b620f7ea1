package controller

import (
	"context"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// Instances that fit nowhere, or not where they should be: they wait, stay or fail.

// keep writes what is new about an instance that stays where it is, and reports whether it wrote. It releases what the
// inventory holds beyond the status: the reservation of a decision whose write had an unknown result. That needs a write
// that changes something, because then the other one cannot arrive late; if nothing is new, it is the message of the
// condition Placed.
func (r *instanceReconciler) keep(ctx context.Context, s *scope, news bool) (written bool, err error) {
	overheld := !r.inventory.Holds(s.Name, placement.Ledger(&s.Status))
	if !news && overheld {
		news = s.recordStays()
	}
	if !news {
		return false, nil // the inventory wakes it, if it waits
	}
	if err := r.write(ctx, s, writeProgress); err != nil {
		return false, err
	}
	if overheld {
		r.reserve(s)
		s.lookAgain(1) // at once: it does not wait any more, and may fit where it was held up by itself
	}
	return true, nil
}

// unplaceable makes an instance that fits nowhere wait, stay or fail.
func (r *instanceReconciler) unplaceable(ctx context.Context, s *scope, request placement.Request, due []v1alpha1.Departure, why *placement.UnplaceableError) (ctrl.Result, error) {
	switch {
	case r.foreign(s) && (s.Status.IsFinished() || !s.late()):
		return r.withdraw(ctx, s)
	case !s.Status.IsFinished() && (s.late() || s.Status.Delivered == nil && placement.Hopeless(request, r.inventory.Snapshot())):
		return r.refuse(ctx, s, request, why)
	case !s.Status.IsFinished():
		return r.wait(ctx, s, request, why)
	case len(r.yielded(s, due)) > 0:
		return r.displace(ctx, s, due)
	}
	if by, _ := s.makesWay(r.inventory.Snapshot(), due); by != "" {
		return r.remain(s, by)
	}
	if s.isAsked(due) {
		r.reserve(s) // the instance no longer waits
		return ctrl.Result{}, r.dropLeaveRequest(ctx, s)
	}
	due = slices.Concat(due, s.Status.DeliveredDecision().Displaced)
	if len(due) == 0 {
		return r.stayUncovered(ctx, s, why)
	}
	news := r.preempt(ctx, s, request)
	news = s.recordStranded(due, withRoom(why.Error(), s.Status.Preemption)) || news
	if _, err := r.keep(ctx, s, r.unready(s, due) || news); err != nil {
		return ctrl.Result{}, err
	}
	r.inventory.Preempt(s.Name, s.Status.Preemption)
	return ctrl.Result{}, nil // the inventory wakes it
}

// stuck records why no new place can be computed for a delivered instance. The delivered
// decision stays, and the next pass comes with back-off.
func (r *instanceReconciler) stuck(ctx context.Context, s *scope, due []v1alpha1.Departure, why error) (ctrl.Result, error) {
	if due = slices.Concat(due, s.Status.DeliveredDecision().Displaced); len(due) > 0 {
		if _, err := r.keep(ctx, s, s.recordStranded(due, why.Error())); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, why
}

// refuse ends an operation that cannot be placed. An update that would not fit on an empty cluster either is not repeatable.
// The instance of an update may have to leave a cluster for another instance, which waits; it is looked at again at once.
func (r *instanceReconciler) refuse(ctx context.Context, s *scope, request placement.Request, why *placement.UnplaceableError) (ctrl.Result, error) {
	why.Hopeless = s.Status.Delivered != nil && placement.HopelessHere(request, r.inventory.Snapshot())
	result, err := r.fail(ctx, s, why.Error(), why)
	if err == nil && s.Status.Delivered != nil {
		s.lookAgain(1)
	}
	return result, err
}

// wait parks an instance that fits nowhere. The inventory wakes it when a cluster would take
// it; the next pass is at the latest when it has to fail. An update waits only while room is made for it: without
// that nobody knows when its cluster has more, and the instance serves as it is.
func (r *instanceReconciler) wait(ctx context.Context, s *scope, request placement.Request, why *placement.UnplaceableError) (ctrl.Result, error) {
	deadline := s.deadline(s.Status.Operation.StartedAt.Time)
	news := r.preempt(ctx, s, request)
	if s.Status.Delivered != nil && s.Status.Preemption == nil {
		return r.refuse(ctx, s, request, why)
	}
	if s.recordUnplaceable(withPromise(withRoom(why.Error(), s.Status.Preemption), r.promised(s)), why) || news {
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.inventory.Preempt(s.Name, s.Status.Preemption)
	return ctrl.Result{RequeueAfter: deadline.Sub(s.now)}, nil
}

// withPromise adds the promise to the reason why an instance fits nowhere.
func withPromise(why, promise string) string {
	if promise == "" {
		return why
	}
	return promise + " (" + strings.TrimSuffix(why, ".") + ")"
}

// promised returns what is being made for an instance that fits nowhere; "" if nothing is.
func (r *instanceReconciler) promised(s *scope) string {
	if r.promises == nil {
		return ""
	}
	return r.promises.Promise(s.Name)
}
