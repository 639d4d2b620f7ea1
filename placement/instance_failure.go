package placement

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fail ends the operation in hand for a reason that trying again does not help, which why
// tells operators.
// What it did to clusters is undone first; a kill in between repeats the failure.
func (r *instanceReconciler) fail(ctx context.Context, s *scope, why string, cause error) (ctrl.Result, error) {
	s.failing, s.cause = why, cause
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		if !s.late() {
			return result, err
		}
		// The platform is about to stop polling. The decision stays, and stays reserved,
		// until abandon has cleaned up.
		s.Status.Decision.Moved() // it is no move, but something to undo
		s.failed(s.Status.Operation.Description)
		if err := r.write(ctx, s, crashBeforeFailed, crashAfterFailed); err != nil {
			return ctrl.Result{}, err
		}
		return result, err
	}
	s.Status.Decision = s.deliveredDecision().DeepCopy()
	s.failed(why)
	return r.writeUndone(ctx, s)
}

// abandoned tells whether an operation failed before it could be undone.
func (s *scope) abandoned() bool {
	return s.finished() && !s.moving() && !equality.Semantic.DeepEqual(s.Status.Decision, s.deliveredDecision())
}

// abandon goes on undoing an operation that has failed.
func (r *instanceReconciler) abandon(ctx context.Context, s *scope) (ctrl.Result, error) {
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	s.Status.Decision = s.deliveredDecision().DeepCopy()
	return r.writeUndone(ctx, s)
}

// undo gives the clusters back what they carried before the operation in hand: the
// delivered decision, or nothing. A zero result says that they do.
func (r *instanceReconciler) undo(ctx context.Context, s *scope) (ctrl.Result, error) {
	before := s.deliveredDecision()
	if equality.Semantic.DeepEqual(s.Status.Decision, before) {
		return ctrl.Result{}, nil
	}
	if before != nil {
		// What it has to leave because it is lost is not waited for: it moves next or, if that
		// comes back first, is looked at.
		lost := without(named(r.departures(s)), r.answering())
		keep := slices.DeleteFunc(slices.Clone(before.Placements), func(p v1alpha1.Placement) bool {
			return slices.Contains(lost, p.Cluster)
		})
		if len(keep) < len(before.Placements) {
			r.observations.Store(s.Name, observation{at: s.now})
		}
		if err := r.leadership.Confirm(ctx); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.each(ctx, s, keep, Driver.Deliver); err != nil {
			return r.retry(ctx, s, err)
		}
	}
	return r.removeFrom(ctx, s, without(clusters(s.Status.Decision), clusters(before)))
}

// writeUndone writes the status of an operation that failed and gives back what it
// had reserved.
func (r *instanceReconciler) writeUndone(ctx context.Context, s *scope) (ctrl.Result, error) {
	if err := r.write(ctx, s, crashBeforeFailed, crashAfterFailed); err != nil {
		return ctrl.Result{}, err
	}
	r.inventory.Reserve(HoldingOf(s.ServiceInstance))
	return ctrl.Result{}, nil
}
