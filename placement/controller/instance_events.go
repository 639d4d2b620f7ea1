package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/usage"
)

// Each transition of an instance is an event in its status, written with the transition itself. Once it is
// written, it is counted, and a line of the log (journal.Recorder).

// writeKind is the kind of a write of an instance's status.
type writeKind int

const (
	writeProgress writeKind = iota // all that the other ones are not
	writePlaced                    // a decision
	writeDelivered
	writeFailure
	writeLate // the platform learns that a deprovision failed, which goes on
)

// happened adds an event at a time, which the pass's next write of the status writes.
func (s *scope) happened(at time.Time, e v1alpha1.Event) {
	e.At, e.PlanID = metav1.NewMicroTime(at), s.Spec.Desired.PlanID
	if s.open {
		e.Operation = s.Status.Operation.Type
	}
	v1alpha1.AddEvent(&s.Status.Events, e)
}

// recordOrdered adds the event of an operation that has just been begun. The identity of the request is known
// unless it is a deletion.
func (s *scope) recordOrdered() {
	e := v1alpha1.Event{Type: v1alpha1.EventOrdered}
	if s.DeletionTimestamp.IsZero() {
		e.By = s.Spec.OriginatingIdentity
	}
	s.happened(s.now, e)
}

// recordTransition adds the event of a write at a time, if it is of interest.
func (r *instanceReconciler) recordTransition(s *scope, what writeKind, at time.Time) {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case what == writePlaced:
		s.happened(at, v1alpha1.Event{Type: v1alpha1.EventPlaced, Clusters: s.Status.Decision.Clusters(), Message: explain(s.Status.Decision), After: r.sinceThen(s.since())})
		if len(s.warnings) > 0 {
			s.happened(at, v1alpha1.Event{Type: v1alpha1.EventNearQuota, Message: strings.Join(s.warnings, "; ")})
		}
	case what == writeDelivered && s.Status.Moved != nil && s.Status.Moved.DeliveredAt != nil && s.Status.Moved.DeliveredAt.Time.Equal(s.now):
		moved := s.Status.Moved
		message := moved.Reason
		if len(moved.From) > 0 {
			message = "from " + strings.Join(moved.From, ", ") + ": " + moved.Reason
		}
		s.happened(at, v1alpha1.Event{Type: v1alpha1.EventMoved, Clusters: s.Status.DeliveredDecision().Clusters(), Message: message, After: r.sinceThen(moved.DecidedAt.Time)})
	case what == writeDelivered:
		s.happened(at, v1alpha1.Event{Type: v1alpha1.EventDelivered, Clusters: s.Status.DeliveredDecision().Clusters(), Message: ignored(s.Status.DeliveredDecision()), After: r.sinceThen(s.since())})
	case what == writeLate || what == writeFailure:
		e := v1alpha1.Event{Type: v1alpha1.EventFailed, Clusters: s.Status.Decision.Clusters(), Message: cmp.Or(s.failing, s.Status.Operation.Description)}
		if s.open {
			e.After = r.sinceThen(s.since())
		}
		s.happened(at, e)
	case s.Status.IsFinished() && s.Status.Delivered != nil && ready != nil && s.ready != "" && ready.Status != s.ready:
		e := v1alpha1.Event{Type: v1alpha1.EventReady, Clusters: s.Status.DeliveredDecision().Clusters()}
		if ready.Status != metav1.ConditionTrue {
			e.Type, e.Message = v1alpha1.EventNotReady, ready.Message
		}
		s.happened(at, e)
	}
}

// recordUsage ends and begins periods of usage, and contracts, by what has changed of the delivered state since the hub was read or
// written, at a time, which is that of the event of the change. Nothing is used any more of an instance whose deletion was
// asked for, however long its removal takes.
func (r *instanceReconciler) recordUsage(s *scope, at time.Time) {
	delivered := s.Status.Delivered
	if !s.DeletionTimestamp.IsZero() {
		delivered, at = nil, s.DeletionTimestamp.Time
	}
	s.setUsage(usage.Next(s.used, s.delivered, delivered, at, func(cluster string) string {
		if c := r.inventory.Snapshot().Cluster(cluster); c != nil {
			return c.Provider
		}
		return ""
	}))
	s.setContracts(contracts.Next(s.ServiceInstance, s.agreed, s.delivered, delivered, at))
}

func (r *instanceReconciler) sinceThen(began time.Time) *metav1.Duration {
	return &metav1.Duration{Duration: r.clock.Since(began).Round(time.Millisecond)}
}

// explain returns what a decision rests on: the reasons to leave clusters, the scores, and how many
// clusters were rejected for which reason.
func explain(d *v1alpha1.Decision) string {
	var parts []string
	for _, leaving := range d.Leaving {
		parts = append(parts, "leaves "+leaving.Cluster+": "+leaving.Reason)
	}
	for _, p := range d.Placements {
		parts = append(parts, fmt.Sprintf("score %d on %s", p.Score, p.Cluster))
	}
	for _, rejection := range d.Rejections {
		parts = append(parts, fmt.Sprintf("rejected %d × %s", rejection.Count, rejection.Reason))
	}
	return strings.Join(parts, ", ")
}

// ignored returns what brokers have said with an order and is not used; "" if there is nothing.
func ignored(d *v1alpha1.Decision) string {
	for _, p := range d.Placements {
		if p.Upstream != nil && p.Upstream.Dashboard != nil && p.Upstream.Dashboard.Ignored != "" {
			return "broker " + p.Cluster + ": its dashboard_url is ignored: " + p.Upstream.Dashboard.Ignored
		}
	}
	return ""
}

func (r *instanceReconciler) journals() *journal.Journals {
	return &journal.Journals{Client: r.hub, Live: r.live}
}

// asRead notes what the hub has of the instance.
func (s *scope) asRead() {
	s.ready, s.delivered, s.used = "", s.Status.Delivered, s.Status.Usage
	s.agreed = s.Status.Contracts
	s.open = s.Status.Operation != nil && !s.Status.IsFinished()
	if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		s.ready = ready.Status
	}
}
