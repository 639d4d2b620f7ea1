package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/crashpoint"
)

// Reasons of the conditions, beside those of the API package.
const (
	reasonPlaced    = "Placed"
	reasonDelivered = "Delivered"
	reasonDrifted   = "Drifted"
	reasonMoving    = "Moving"
)

// begin opens the operation for the instance's generation, unless it is open already. It writes
// nothing: most operations are first written together with their decision.
func (r *instanceReconciler) begin(s *scope) {
	if op := s.Status.Operation; op != nil && op.Generation == s.Generation {
		return
	}
	s.fresh = true
	s.Status.ObservedGeneration = s.Generation
	s.Status.Operation = &v1alpha1.Operation{
		Type: v1alpha1.OperationProvision, Generation: s.Generation,
		State: v1alpha1.StateInProgress, StartedAt: metav1.NewTime(s.now),
	}
	switch {
	case !s.DeletionTimestamp.IsZero():
		s.Status.Operation.Type = v1alpha1.OperationDeprovision
		s.Status.Operation.StartedAt = *s.DeletionTimestamp
	case s.Status.Delivered != nil:
		s.Status.Operation.Type = v1alpha1.OperationUpdate
	}
}

// decided reports whether the decision is for the instance's current generation.
func (s *scope) decided() bool {
	return s.Status.Decision != nil && s.Status.Decision.Generation == s.Generation
}

// placed records a decision.
func (s *scope) placed(d *v1alpha1.Decision) {
	if p := s.Status.Preemption; p != nil && slices.Contains(d.Clusters(), p.Cluster) {
		d.Preemption = p
	}
	s.Status.Decision, s.Status.Preemption = d, nil
	chosen := where(d)
	if len(d.Displaced) > 0 {
		s.stranded(d.Displaced, "nothing else fits")
	} else {
		s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, "on "+chosen)
	}
	if s.Status.IsFinished() {
		s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonMoving, s.moveMessage(""))
		return
	}
	s.Status.Operation.Description, s.Status.Operation.Summary = "delivering to "+chosen, "being delivered"
	s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonInProgress, s.Status.Operation.Description)
	if s.Status.Delivered == nil {
		s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, s.Status.Operation.Description)
	}
}

// moveMessage describes how far a move is, and what it waits for.
func (s *scope) moveMessage(blocker string) string {
	d := s.Status.Decision
	message := fmt.Sprintf("coming to %s (%s)", where(d), inEachGroup)
	if len(d.Leaving) > 0 {
		message = fmt.Sprintf("moving from %s (%s) to %s", strings.Join(named(d.Leaving), ", "), d.Leaving[0].Reason, where(d))
	}
	if blocker != "" {
		message += ": " + blocker
	}
	return message
}

// where returns a decision's clusters for messages.
func where(d *v1alpha1.Decision) string {
	return cmp.Or(strings.Join(d.Clusters(), ", "), "nowhere")
}

// unplaceable records why the instance waits, and reports whether that is new.
func (s *scope) unplaceable(why string, cause error) (news bool) {
	news = s.summarise(cause)
	news = s.describe(why) || news
	news = s.set(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, why) || news
	return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, why) || news
}

// patience is how long an operation waits for something before its status shows it: a shorter
// wait is not worth a write.
const patience = 2 * time.Second

// blocked records what the operation waits for, and reports whether that is new. A late
// deprovision becomes failed, and is still carried out.
func (s *scope) blocked(blocker error) (news bool) {
	deleting := !s.DeletionTimestamp.IsZero()
	waited := s.now.Sub(s.since())
	if s.Status.IsFinished() && s.Status.IsMoving() && !deleting {
		if allPending(blocker) && waited < patience {
			return false
		}
		return s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonMoving, s.moveMessage(describe(blocker)))
	}
	if s.Status.IsFinished() && !deleting {
		return false
	}
	if allPending(blocker) && waited < patience && (deleting || !s.fresh) {
		return false
	}
	why := describe(blocker)
	if s.failing == "" {
		news = s.summarise(blocker)
	} else {
		why = fmt.Sprintf("%s; cleaning up: %s", s.failing, why)
	}
	news = s.describe(why) || news
	if deleting {
		news = s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, why) || news
		if s.late() && !s.Status.IsFinished() {
			s.finish(v1alpha1.StateFailed)
			s.Status.Operation.InstanceUsable = ptr.To(false)
			news = true
		}
	}
	return news
}

// delivered records that every chosen cluster matches the decision, and which clusters the
// instance had to leave.
func (s *scope) delivered() {
	if before := s.Status.DeliveredDecision(); before != nil {
		for _, p := range before.Placements {
			if slices.Contains(named(s.Status.Decision.Leaving), p.Cluster) {
				s.left(p)
			}
		}
	}
	s.moved()
	s.Status.Decision.Moved()
	s.Status.Delivered = &v1alpha1.DeliveredState{State: *s.wanted().DeepCopy(), Decision: *s.Status.Decision.DeepCopy()}
	if s.Status.IsFinished() {
		s.usable()
		return
	}
	s.succeeded()
}

// succeeded ends the operation with success.
func (s *scope) succeeded() {
	s.describe("")
	s.Status.Operation.Summary = ""
	s.finish(v1alpha1.StateSucceeded)
	s.usable()
}

// failed ends the operation with a failure. After an update the instance is as before, and the
// update may be repeated if that can help.
func (s *scope) failed(why string) {
	s.Status.Preemption = nil
	s.describe(why)
	s.summarise(s.cause)
	s.finish(v1alpha1.StateFailed)
	if s.Status.Delivered != nil {
		s.Status.Operation.InstanceUsable, s.Status.Operation.UpdateRepeatable = ptr.To(true), ptr.To(repeatable(s.cause))
		s.usable()
		return
	}
	s.set(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
	s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
	s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
}

// observed records the result of a check of the delivered instance, and reports whether that is
// new.
func (s *scope) observed(wrong error) (news bool) {
	if wrong == nil {
		return s.usable()
	}
	why := describe(wrong)
	news = s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonDrifted, why)
	return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonDrifted, why) || news
}

// usable records that the delivered decision is in force.
func (s *scope) usable() (news bool) {
	d := s.Status.DeliveredDecision()
	where := "on " + where(d)
	if s.Status.IsDisplaced() {
		if !s.Status.IsStranded() {
			news = s.stranded(d.Displaced, "nothing else fits")
		}
		news = s.set(v1alpha1.ConditionDelivered, metav1.ConditionTrue, reasonDelivered, where) || news
		return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStranded, d.Displaced[0].Reason) || news
	}
	for _, c := range []struct{ condition, reason string }{
		{v1alpha1.ConditionPlaced, reasonPlaced},
		{v1alpha1.ConditionDelivered, reasonDelivered},
		{v1alpha1.ConditionReady, v1alpha1.ReasonReady},
	} {
		if c.condition == v1alpha1.ConditionPlaced && s.Status.IsUncovered() {
			continue // until it is in each group, or need not be
		}
		news = s.set(c.condition, metav1.ConditionTrue, c.reason, where) || news
	}
	return news
}

func (s *scope) finish(state v1alpha1.OperationState) {
	s.Status.Operation.State = state
	s.Status.Operation.FinishedAt = ptr.To(metav1.NewTime(s.now))
}

// describe sets the operation's description, cut to the API's limit, and reports whether it
// changed.
func (s *scope) describe(text string) (news bool) {
	const longest = 10000 // v1alpha1.Operation.Description
	text = cut(text, longest)
	news = s.fresh || s.Status.Operation.Description != text
	s.Status.Operation.Description = text
	return news
}

// summarise sets the message for end users, and reports whether it changed.
func (s *scope) summarise(err error) (news bool) {
	text := ""
	if err != nil {
		text = forConsumer(err)
	}
	const longest = 10000 // v1alpha1.Operation.Summary
	text = cut(text, longest)
	news = s.Status.Operation.Summary != text
	s.Status.Operation.Summary = text
	return news
}

func (s *scope) set(condition string, status metav1.ConditionStatus, reason, message string) (news bool) {
	const longest = 32768 // metav1.Condition.Message
	return v1alpha1.SetCondition(&s.Status.Conditions, s.Generation, condition, status, reason, cut(message, longest))
}

// cut shortens a text to a number of characters; the API counts characters, not bytes.
func cut(text string, longest int) string {
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return text
}

// write writes the status with optimistic concurrency: it fails with a conflict if anybody
// changed the instance since it was read.
//
// When the write is refused, the ledger is set to the hub's state at once. While its result is
// unknown, its reservations stay until a live read shows the result.
//
// Step 5 of a provision (docs/architecture.md).
func (r *instanceReconciler) write(ctx context.Context, s *scope, before, after string) error {
	read, news := s.ResourceVersion, r.transition(s, before)
	crashpoint.Hit(before)
	err := r.hub.Status().Update(ctx, s.ServiceInstance)
	crashpoint.Hit(after)
	if err == nil {
		r.written.Store(s.Name, s.ResourceVersion)
		s.fresh = false
		news.log(ctx)
		return nil
	}
	r.unsettled.Store(s.Name, read)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Best effort: if it fails, it is repeated before the next pass.
		_ = r.settle(ctx, keyOf(s), &v1alpha1.ServiceInstance{}) //nolint:errcheck // see above
	}
	return fmt.Errorf("write the instance's status: %w", err)
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
