package controller

import (
	"context"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// fail ends the current operation for a reason that a retry cannot change; why is the message
// for operators. The state before is delivered again first. The reason is written before that, so
// that the operation is not tried again while it is being undone.
func (r *instanceReconciler) fail(ctx context.Context, s *scope, why string, cause error) (ctrl.Result, error) {
	s.failing, s.cause = why, cause
	if s.Status.IsUndelivered() && s.recordFailing() {
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
	}
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		if !s.late() {
			return result, err
		}
		// The platform is about to stop polling. The decision stays, and stays reserved, until
		// abandon has undone it.
		s.recordAbandoned(s.Status.Operation.Description)
		if err := r.write(ctx, s, writeFailure); err != nil {
			return ctrl.Result{}, err
		}
		return result, err
	}
	return ctrl.Result{}, r.writeUndone(ctx, s, writeFailure, func() { s.recordFailure(why) })
}

// failOn continues to undo an operation, or a move, that fails.
func (r *instanceReconciler) failOn(ctx context.Context, s *scope) (ctrl.Result, error) {
	f := s.Status.Operation.Failing
	why := &delivery.RefusedError{Reason: f.Description, Consumer: f.Summary, Repeatable: f.Repeatable, Unusable: f.Unusable}
	if s.Status.IsFinished() {
		return r.giveUp(ctx, s, why)
	}
	return r.fail(ctx, s, f.Description, why)
}

// abandon continues undoing an operation that has failed.
func (r *instanceReconciler) abandon(ctx context.Context, s *scope) (ctrl.Result, error) {
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	return ctrl.Result{}, r.writeUndone(ctx, s, writeProgress, s.recordAsBefore)
}

// undo delivers the state before the current operation again, if there was one. A zero result means that it is done. What
// the operation has put elsewhere is removed once that is written (see restore and clean).
func (r *instanceReconciler) undo(ctx context.Context, s *scope) (ctrl.Result, error) {
	before := s.Status.DeliveredDecision()
	if before == nil || !s.Status.IsUndelivered() {
		return ctrl.Result{}, nil
	}
	// It does not wait for clusters that the instance has to leave because they are lost:
	// the instance moves next or, if such a cluster returns first, is checked.
	due, _ := r.departures(s, r.coverage(s).Surplus)
	leaves := lists.Union(named(due), named(s.Status.Decision.Leaving))
	lost := lists.Without(leaves, r.answering())
	keep := slices.DeleteFunc(slices.Clone(before.Placements), func(p v1alpha1.Placement) bool {
		return slices.Contains(lost, p.Cluster)
	})
	if len(keep) < len(before.Placements) {
		r.observations.Store(s.Name, observation{at: s.now})
	}
	if err := r.leadership.Confirm(ctx); err != nil {
		return ctrl.Result{}, err
	}
	runs, err := r.workload(s, before, &s.Status.Delivered.State)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.each(ctx, s, keep, &s.Status.Delivered.State, runs, delivery.Driver.Deliver); err != nil {
		return r.retry(ctx, s, err)
	}
	s.recordGrown(before)
	s.undone = !slices.ContainsFunc(keep, func(p v1alpha1.Placement) bool { return s.said[p.Cluster].NotUndone })
	return ctrl.Result{}, nil
}

// writeUndone makes the delivered decision the current one again, writes that with what record records, and releases what
// the other decision had reserved.
func (r *instanceReconciler) writeUndone(ctx context.Context, s *scope, what writeKind, record func()) error {
	s.restore()
	record()
	if err := r.write(ctx, s, what); err != nil {
		return err
	}
	r.reserve(s)
	return nil
}
