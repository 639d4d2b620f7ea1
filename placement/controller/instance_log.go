package controller

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// transition is the meaning of a status write for operators: one line of the log.
type transition struct {
	what   string
	fields []any
}

// write is the kind of a write of an instance's status.
type write int

const (
	writeProgress write = iota // all that the other ones are not
	writePlaced                // a decision
	writeDelivered
	writeFailure
)

// transition returns the log line for a write; nil if the write is of no interest. It is computed
// before the write, which reads the status anew, and logged after it.
func (r *instanceReconciler) transition(s *scope, what write) *transition {
	switch {
	case what == writePlaced:
		return r.transitionTo(s, "Placed", s.Status.Decision, s.since())
	case what == writeDelivered && s.Status.Moved != nil && s.Status.Moved.DeliveredAt != nil && s.Status.Moved.DeliveredAt.Time.Equal(s.now):
		t := r.transitionTo(s, "Moved", s.Status.DeliveredDecision(), s.Status.Moved.DecidedAt.Time)
		t.fields = append(t.fields, "from", strings.Join(s.Status.Moved.From, ","), "why", s.Status.Moved.Reason)
		return t
	case what == writeDelivered:
		return r.transitionTo(s, "Delivered", s.Status.DeliveredDecision(), s.since())
	case what == writeFailure && s.failing != "":
		t := r.transitionTo(s, "Failed", s.Status.Decision, s.since())
		t.fields = append(t.fields, "why", s.failing)
		return t
	}
	return nil
}

// transitionTo returns a transition to a decision's clusters, with the time since it began.
func (r *instanceReconciler) transitionTo(s *scope, what string, decision *v1alpha1.Decision, began time.Time) *transition {
	plan := s.Spec.Desired.PlanID
	if known, err := r.plan(s.Spec.ServiceID, plan); err == nil {
		plan = known.Name
	}
	t := &transition{what: what, fields: []any{"instance", s.Spec.InstanceID, "platform", s.Spec.Platform, "plan", plan, "operation", s.Status.Operation.Type}}
	if decision != nil {
		t.fields = append(t.fields, "clusters", where(decision))
	}
	t.fields = append(t.fields, "after", r.clock.Since(began).Round(time.Millisecond))
	return t
}

// log writes the line.
func (t *transition) log(ctx context.Context) {
	if t != nil {
		log.FromContext(ctx).Info(t.what, t.fields...)
	}
}
