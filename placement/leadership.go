package placement

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Leadership is what the controllers know of this replica's lead. Another replica takes
// over from a leader that was stopped for a while, and the one that was stopped does not
// know when it wakes.
type Leadership interface {
	// Term names the term of office for which this replica leads, as no other is named.
	Term() string
	// Confirm returns nil when the replica was still the leader at some time after the call.
	// What was committed to the hub before the call is then in every later leader's recovery.
	Confirm(ctx context.Context) error
}

// soleWriter leads for ever.
type soleWriter struct{}

func (soleWriter) Term() string                  { return "" }
func (soleWriter) Confirm(context.Context) error { return nil }

// unconfirmedError says that a cluster was not touched, as another replica may lead.
type unconfirmedError struct{ error }

// Capacity is not sold twice by two replicas that both take themselves for the leader,
// because a decision counts only if every later leader knows of it (decision 35 in
// docs/decisions):
//
//   - No cluster is touched before the lead is confirmed, after the decision was committed.
//     Who leads next recovers after that, and has the decision in its ledger.
//   - A decision of another term that is not delivered may have come after the recovery,
//     and nothing is held for it then. So it is made again, by this leader's ledger,
//     before it is delivered; and taken back where it cannot be made again.

// foreign tells whether the decision in hand is another leader's, and not delivered.
func (r *instanceReconciler) foreign(s *scope) bool {
	d := s.Status.Decision
	return d != nil && d.Term != r.leadership.Term() && !equality.Semantic.DeepEqual(d, s.deliveredDecision())
}

// withdraw takes back a decision of another leader: clusters are given back what they
// carried before it. The instance is then looked at again.
func (r *instanceReconciler) withdraw(ctx context.Context, s *scope) (ctrl.Result, error) {
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	s.Status.Decision = s.deliveredDecision().DeepCopy()
	if s.finished() && s.Status.Delivered != nil {
		s.usable()
	}
	if err := r.write(ctx, s, crashBeforeFailed, crashAfterFailed); err != nil {
		return ctrl.Result{}, err
	}
	r.moves.end(s.Name)
	r.inventory.Reserve(HoldingOf(s.ServiceInstance))
	s.lookAgain(1) // at once
	return ctrl.Result{RequeueAfter: 1}, nil
}
