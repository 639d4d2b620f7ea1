package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Leadership reports whether this replica leads. Another replica takes over from a leader whose
// process was stopped for a while, and the old leader does not notice that when it resumes.
type Leadership interface {
	// Term returns the unique name of the term for which this replica leads.
	Term() string
	// Confirm returns nil if the replica was still the leader at some time after the call.
	// Everything committed to the hub before the call is then in every later leader's recovery.
	Confirm(ctx context.Context) error
}

// soleWriter leads for ever: there is no other replica.
type soleWriter struct{}

func (soleWriter) Term() string                  { return "" }
func (soleWriter) Confirm(context.Context) error { return nil }

// unconfirmedError means that a cluster was not touched, because another replica may lead.
type unconfirmedError struct{ error }

// Two replicas that both regard themselves as the leader do not sell capacity twice, because a
// decision counts only if every later leader knows of it (decision 35 in docs/decisions):
//
//   - No cluster is touched until the lead is confirmed after the decision was committed.
//     The next leader recovers after that, and has the decision in its ledger.
//   - A decision of another term that is not delivered may have been written after the
//     recovery, and then has no reservation. So it is made again, by this leader's ledger,
//     before it is delivered; and withdrawn if it cannot be made again.

// foreign reports whether the current decision is another leader's, and not delivered.
func (r *instanceReconciler) foreign(s *scope) bool {
	return s.Status.IsOfOtherTerm(r.leadership.Term())
}

// withdraw withdraws a decision of another leader: clusters are restored to their state before
// it. Then another pass over the instance follows.
func (r *instanceReconciler) withdraw(ctx context.Context, s *scope) (ctrl.Result, error) {
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	err := r.writeUndone(ctx, s, writeProgress, func() {
		if s.Status.IsFinished() && s.Status.Delivered != nil {
			s.recordUsable()
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	r.moves.end(s.Name)
	s.lookAgain(1) // at once
	return ctrl.Result{RequeueAfter: 1}, nil
}
