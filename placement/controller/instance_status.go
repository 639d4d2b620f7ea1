package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Reasons of the conditions, beside those of the API package.
const (
	reasonPlaced    = "Placed"
	reasonDelivered = "Delivered"
	reasonDrifted   = "Drifted"
	reasonMoving    = "Moving"
	reasonBackingUp = "BackingUp"
	reasonRestoring = "Restoring"
)

// begin opens the operation for the instance's generation, unless it is open already. It writes
// nothing: most operations are first written together with their decision.
func (r *instanceReconciler) begin(s *scope) {
	if op := s.Status.Operation; op != nil && op.Generation == s.Generation {
		return
	}
	if s.isSealedOnly() {
		s.recordResealed()
		return
	}
	s.fresh, s.open = true, true
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
	s.recordOrdered()
}

// recordResealed makes the generations in the status follow that of the spec, of which parameters were sealed.
func (s *scope) recordResealed() {
	s.resealed = true
	s.Status.ObservedGeneration = s.Generation
	s.Status.Operation.Generation++
	for _, d := range s.Status.Decisions() {
		d.Generation++
	}
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].ObservedGeneration++
	}
}

// recordDecision records a decision.
func (s *scope) recordDecision(d *v1alpha1.Decision) {
	s.keepReplaced(d)
	if p := s.Status.Preemption; p != nil && slices.ContainsFunc(d.Clusters(), func(cluster string) bool { return p.On(cluster) != nil }) {
		d.Preemption = p
	}
	s.Status.Decision, s.Status.Preemption = d, nil
	chosen := where(d)
	if len(d.Displaced) > 0 {
		s.recordStranded(d.Displaced, "nothing else fits")
	} else {
		s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, "on "+chosen)
	}
	if s.Status.IsFinished() {
		s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonMoving, s.moveMessage(""))
		switch data := d.Data; {
		case data == nil:
		case data.Request != "":
			s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonRestoring, "stopped while backup "+data.Backup+" is restored on "+data.To)
		default:
			s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonMoving, "stopped while its data moves from "+data.From+" to "+data.To)
		}
		return
	}
	s.Status.Operation.Description, s.Status.Operation.Summary = "delivering to "+chosen, "being delivered"
	if why, told := s.refusedBy(); why != "" {
		s.Status.Operation.Description += ": " + why
		s.Status.Operation.Summary = "being delivered by another provider: " + told
	}
	s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonInProgress, s.Status.Operation.Description)
	if s.Status.Delivered == nil {
		s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, s.Status.Operation.Description)
	}
}

// recordUnplaceable records why the instance waits, and reports whether that is new. One that waits for an update is
// placed and ready as before.
func (s *scope) recordUnplaceable(why string, cause error) (news bool) {
	news = s.summarise(cause)
	news = s.describe(why) || news
	if s.Status.Delivered != nil {
		return news
	}
	news = s.set(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonUnplaceable, why) || news
	return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, why) || news
}

// patience is how long an operation waits for something before its status shows it: a shorter
// wait is not worth a write.
const patience = 2 * time.Second

// recordBlocked records what the operation waits for, and reports whether that is new. A late
// deprovision becomes failed, and is still carried out.
func (s *scope) recordBlocked(blocker error) (news bool) {
	deleting := !s.DeletionTimestamp.IsZero()
	waited := s.now.Sub(s.since())
	if s.Status.IsFinished() && s.Status.IsMoving() && !deleting {
		if allPending(blocker) && waited < patience {
			return false
		}
		return s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonMoving, s.moveMessage(describe(blocker)))
	}
	if s.Status.IsFinished() && !deleting {
		if s.Status.Copying == nil || allPending(blocker) && waited < patience {
			return false
		}
		return s.recordStopped(s.sayCopying() + ": " + describe(blocker))
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

// recordReplaced records that a step of the replacement is done. Replicas have no names of their own to switch.
func (s *scope) recordReplaced() {
	d := s.Status.Decision
	switch {
	case d.Replacement == v1alpha1.ReplacementStart && len(d.Placements[0].Components) > 0:
		d.Replacement = v1alpha1.ReplacementSwitch
	case d.Replacement == v1alpha1.ReplacementSwitch:
		d.Replacement = v1alpha1.ReplacementRemove
	default:
		d.Replacement = ""
	}
}

// recordDelivered records that every chosen cluster matches the decision, and what of the one delivered before is to be
// removed now.
func (s *scope) recordDelivered() {
	s.recordLeft(s.Status.DeliveredDecision(), s.Status.Decision)
	s.recordKept()
	s.recordMove()
	if data := s.Status.Decision.Data; data != nil && data.Request != "" {
		s.recordRestored(data, "")
	}
	if c := s.Status.Copying; c != nil && !s.Status.Decision.Uses(c.To) {
		s.Status.Copying = nil // what was done there does not matter any more
	} else if c != nil && c.Step == v1alpha1.StepStart {
		s.recordCopied("")
	}
	s.recordMoveOver()
	s.Status.Decision.EndMove()
	s.Status.Delivered = &v1alpha1.DeliveredState{State: *s.wanted().DeepCopy(), Decision: *s.Status.Decision.DeepCopy()}
	if !s.Status.IsFinished() {
		s.succeed()
	}
	s.recordUsable()
}

// succeed ends the operation with success.
func (s *scope) succeed() {
	s.describe("")
	s.Status.Operation.Summary = ""
	s.finish(v1alpha1.StateSucceeded)
}

// recordFailing records why the operation is about to fail, and reports whether that is new.
func (s *scope) recordFailing() (news bool) {
	if s.Status.Operation.Failing != nil {
		return false
	}
	s.Status.Operation.Failing = &v1alpha1.OperationFailure{
		Description: v1alpha1.Cut(s.failing, v1alpha1.LongestText), Summary: v1alpha1.Cut(forConsumer(s.cause), v1alpha1.LongestText),
		Repeatable: repeatable(s.cause), Unusable: unusable(s.cause),
	}
	return true
}

// recordSecrets records the sealed secrets of the instance's workload.
func (s *scope) recordSecrets(sealed []byte) { s.Status.SealedSecrets = sealed }

// recordAsBefore records that a failed update is undone, if it is: then the instance works, even if a broker said that the
// update had broken it (OSB 2.17, instance_usable: it can still be used).
func (s *scope) recordAsBefore() {
	if s.undone {
		s.Status.Operation.InstanceUsable = ptr.To(true)
	}
}

// recordFailure ends the operation with a failure. After an update the instance is as before, unless a broker says that it
// does not work any more and does not undo the update; and the update may be repeated if that can help.
func (s *scope) recordFailure(why string) {
	s.Status.Preemption = nil
	s.describe(why)
	s.summarise(s.cause)
	s.finish(v1alpha1.StateFailed)
	if s.Status.Delivered != nil {
		s.Status.Operation.InstanceUsable, s.Status.Operation.UpdateRepeatable = ptr.To(!unusable(s.cause)), ptr.To(repeatable(s.cause))
		s.recordAsBefore()
		s.recordUsable()
		return
	}
	s.set(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
	s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
	s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFailed, why)
}

// recordObservation records the result of a check of the delivered instance, and reports whether that is
// new.
func (s *scope) recordObservation(wrong error) (news bool) {
	if wrong == nil {
		return s.recordUsable()
	}
	why := describe(wrong)
	if s.Status.IsPinned() && allUnreachable(wrong) {
		why = "waiting for the cluster that has its volumes: " + why + s.remedy()
	}
	news = s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonDrifted, why)
	return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonDrifted, why) || news
}

// recordUsable records that the delivered decision is in force.
func (s *scope) recordUsable() (news bool) {
	if s.Status.Copying != nil {
		return s.recordStopped(cmp.Or(s.restoreFailure(), s.sayCopying()))
	}
	d := s.Status.DeliveredDecision()
	where := "on " + where(d)
	if s.Status.IsDisplaced() {
		if !s.Status.IsStranded() {
			news = s.recordStranded(d.Displaced, "nothing else fits")
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
	s.Status.Operation.Failing = nil
	s.Status.Operation.State = state
	s.Status.Operation.FinishedAt = ptr.To(metav1.NewTime(s.now))
}

// describe sets the operation's description, cut to the API's limit, and reports whether it
// changed.
func (s *scope) describe(text string) (news bool) {
	text = v1alpha1.Cut(text, v1alpha1.LongestText)
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
	text = v1alpha1.Cut(text, v1alpha1.LongestText)
	news = s.Status.Operation.Summary != text
	s.Status.Operation.Summary = text
	return news
}

func (s *scope) set(condition string, status metav1.ConditionStatus, reason, message string) (news bool) {
	return v1alpha1.SetCondition(&s.Status.Conditions, s.Generation, condition, status, reason, message)
}

func (s *scope) setCopies(copies []v1alpha1.Copy) { s.Status.Copies = copies }

func (s *scope) setUsage(periods []v1alpha1.UsagePeriod) { s.Status.Usage = periods }

// recordPreemption records the room that is made for the instance, nil for none, and reports
// whether that is new.
func (s *scope) recordPreemption(p *v1alpha1.Preemption) (news bool) {
	news = !equality.Semantic.DeepEqual(s.Status.Preemption, p)
	s.Status.Preemption = p
	return news
}

// recordContext ends the operation with success, because the requested state differs from the delivered one in its
// context only.
func (s *scope) recordContext() {
	s.Status.Delivered.State = *s.Spec.Desired.DeepCopy()
	s.succeed()
}

// recordAbandoned ends the operation with a failure, although its effects are not undone yet.
func (s *scope) recordAbandoned(why string) {
	s.Status.Decision.EndMove() // it is not a move any more, but has to be undone
	s.recordFailure(why)
}
