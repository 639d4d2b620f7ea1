package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/usage"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// place ensures that the instance has a decision for its current state, without the clusters
// that it has to leave, and that the decision is on the hub before any cluster is touched.
func (r *instanceReconciler) place(ctx context.Context, s *scope) (ctrl.Result, error) {
	groups := r.coverage(s)
	due, known := r.departures(s, groups.Surplus)
	move := s.mustMove(due) || s.Status.IsFinished() && !s.Status.IsMoving() && (s.Status.IsDisplaced() || groups.Lacks)
	foreign := r.foreign(s)
	switch {
	case s.Status.IsFinished() && s.Status.Delivered == nil:
		return ctrl.Result{}, nil
	case foreign && s.Status.IsFinished() && known && len(due) == 0 && !s.Status.IsDisplaced():
		return r.withdraw(ctx, s) // by this leader's knowledge it stays where it is
	case foreign && s.Status.IsFinished():
		move = true
	}
	switch {
	case !s.Status.IsFinished() && s.sameAsDelivered():
		return r.recordContext(ctx, s, move || !known)
	case !move && !foreign && (s.Status.IsFinished() || s.decided()):
		if !known {
			return ctrl.Result{}, nil // nothing shows that it may stay
		}
		return r.settled(ctx, s, due)
	case !foreign && r.rests(s):
		return ctrl.Result{}, nil
	}
	if why := r.keepsData(s, due); why != "" {
		return r.stranded(ctx, s, due, why)
	}
	plan, err := r.plan(s.Spec.ServiceID, s.wanted().PlanID)
	if err != nil && (s.Status.IsFinished() || !s.late()) {
		return r.retry(ctx, s, fmt.Errorf("find the plan: %w", err)) // the catalog may not be loaded yet
	}
	var request placement.Request
	if err == nil {
		request, err = r.request(s, plan, due)
	}
	switch {
	case err != nil && s.Status.IsFinished():
		return r.stuck(ctx, s, due, err)
	case errors.Is(err, seal.ErrUnknownKey) && !s.late(): // another replica may have read a new keyset before this one
		return r.retry(ctx, s, fmt.Errorf("wait until the keyset is read here, too: %w", err))
	}
	if err != nil {
		return r.fail(ctx, s, err.Error(), err)
	}
	if move && s.Status.Delivered != nil && !r.moves.begin(s.Name) {
		s.queued = true
		s.lookAgain(turnPatience)
		return ctrl.Result{}, nil
	}
	recorded := placement.HoldingOf(s.ServiceInstance)
	request.Recorded = &recorded
	request.Avoid(s.Status.Operation.Refusals)
	decision, err := r.decide(ctx, request)
	if unplaceable, ok := placement.AsUnplaceable(err); ok {
		if s.triesRefusedAgain() {
			return r.place(ctx, s)
		}
		return r.unplaceable(ctx, s, request, due, unplaceable)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	decided := decision.API(s.Generation)
	decided.PriorityClass, decided.Workload, decided.Exposed = request.Class, request.Workload, request.Exposed
	decided.Hosts = slices.Sorted(maps.Keys(request.Hosts))
	decided.Terms = s.termsOf(plan, &request, &decision)
	for i := range decided.Placements {
		decided.Placements[i].Shape = request.Shape
		decided.Placements[i].Peering = request.Peering.Placed(s.Name, decided.Placements[i].Cluster)
		decided.Placements[i].Pool = request.Peering.Pooled(s.Name, decided.Placements[i].Cluster)
		if request.Upstream != nil {
			decided.Placements[i].Upstream = request.Upstream.Placed(r.inventory.Snapshot().Cluster(decided.Placements[i].Cluster))
		}
	}
	s.warnings = decision.Warnings
	return r.adopt(ctx, s, decided, due)
}

// adopt writes a decision that was made without the clusters that are due.
func (r *instanceReconciler) adopt(ctx context.Context, s *scope, decided *v1alpha1.Decision, due []v1alpha1.Departure) (ctrl.Result, error) {
	if err := r.secure(s, decided.Workload); err != nil {
		return ctrl.Result{}, err
	}
	decided.Term, decided.Replacement = r.leadership.Term(), s.replaces(decided)
	what := writePlaced
	if isRepeated(decided, s.Status.Decision) { // by a leader that follows another
		what = writeProgress
	}
	s.recordDepartures(decided, due)
	decided.Data = s.carries(decided)
	s.recordDecision(decided)
	r.unready(s, due)
	if err := r.write(ctx, s, what); err != nil {
		return ctrl.Result{}, err
	}
	r.inventory.Preempt(s.Name, s.Status.Preemption)
	return ctrl.Result{}, nil
}

// settled removes the traces of a move that is not needed any more.
func (r *instanceReconciler) settled(ctx context.Context, s *scope, due []v1alpha1.Departure) (ctrl.Result, error) {
	if _, asked := s.Annotations[v1alpha1.AnnotationLeave]; asked && len(due) == 0 && !s.Status.IsMoving() {
		if err := r.dropLeaveRequest(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}
	if s.Status.IsMoving() {
		return ctrl.Result{}, nil
	}
	if !s.Status.IsFinished() || s.Status.IsAbandoned() {
		return ctrl.Result{}, nil
	}
	news := r.recordCopies(s, asRecorded)
	news = s.recordMoveOver() || news
	news = s.Status.IsStranded() && s.recordUsable() || news
	if s.Status.IsUncovered() {
		news = s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, "on "+where(s.Status.DeliveredDecision()))
	}
	news = s.recordPreemption(nil) || news // the instance stays where it is
	if written, err := r.keep(ctx, s, news); err != nil || !written {
		return ctrl.Result{}, err
	}
	r.reserve(s) // and it no longer waits
	return ctrl.Result{}, nil
}

// decide places the request and reserves, and measures both. If the external scorer has a
// weight, it is asked first about each part; without an answer in time it counts for nothing.
func (r *instanceReconciler) decide(ctx context.Context, request placement.Request) (placement.Decision, error) {
	if r.scorer != nil && request.Weights.External > 0 {
		parts, snapshot := request.Parts(), r.inventory.Snapshot()
		scores := make([]map[string]int32, len(parts))
		var asked sync.WaitGroup
		for i := range parts {
			asked.Go(func() {
				var err error
				if scores[i], err = r.scorer.Score(ctx, parts[i], snapshot); err != nil {
					log.FromContext(ctx).Info("Placing without the external scorer", "reason", err.Error())
				}
			})
		}
		asked.Wait()
		request = request.Scored(scores)
	}
	start := r.clock.Now()
	decision, err := r.inventory.Place(request)
	r.metrics.decided(r.clock.Since(start), decision, err)
	return decision, err
}

// recordContext finishes an update that changes nothing about the placement or the delivery
// (OSB 2.17, "Updating a Service Instance": context updates). An instance that has to move does that in the next pass.
func (r *instanceReconciler) recordContext(ctx context.Context, s *scope, moves bool) (ctrl.Result, error) {
	if s.recordContext(); moves {
		s.lookAgain(1)
	} else {
		s.recordUsable()
	}
	if err := r.write(ctx, s, writeDelivered); err != nil {
		return ctrl.Result{}, err
	}
	r.hold(s)
	return ctrl.Result{}, nil
}

// deliver makes every chosen cluster match the decision, and commits that. What is no longer in the decision is deleted
// only afterwards (see clean): until the commit, the former state may have to be delivered again, with its volumes.
func (r *instanceReconciler) deliver(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.Status.IsFinished() && !s.Status.IsMoving() || r.foreign(s) {
		return ctrl.Result{}, nil
	}
	if err := r.leadership.Confirm(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if s.Status.IsMoving() {
		r.moves.begin(s.Name) // takes its place again after a restart
	}
	if result, err := r.carry(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	r.mitigate(ctx, s)
	runs, err := r.workload(s, s.Status.Decision, s.wanted())
	placements := s.Status.Decision.Placements
	if s.Status.Decision.Replacement != "" {
		placements = whileReplacing(s.Status.Decision, s.Status.DeliveredDecision(), r.answering())
	}
	placements = slices.DeleteFunc(slices.Clone(placements), func(p v1alpha1.Placement) bool { return s.stays(p.Cluster) })
	if err == nil {
		err = r.each(ctx, s, placements, s.wanted(), runs, func(driver delivery.Driver, ctx context.Context, d delivery.Delivery) error {
			d.Replacing, d.KeepsVolumes = s.Status.Decision.Replacement == v1alpha1.ReplacementStart, s.Status.Delivered != nil
			return driver.Deliver(ctx, d)
		})
		s.recordSaid()
		s.recordGrown(s.Status.Decision)
	}
	if decided, result, wrong := r.elsewhere(ctx, s, err); decided {
		if wrong != nil || !result.IsZero() {
			return result, wrong
		}
		return r.deliver(ctx, s)
	}
	if err != nil {
		return r.undelivered(ctx, s, err)
	}
	if s.Status.Decision.Replacement != "" {
		s.recordReplaced()
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
		return r.deliver(ctx, s)
	}
	s.recordDelivered()
	r.recordCopies(s, allWork)
	if err := r.write(ctx, s, writeDelivered); err != nil {
		return ctrl.Result{}, err
	}
	r.hold(s)
	return ctrl.Result{}, nil
}

// undelivered ends the operation or the move that is not delivered, or waits.
func (r *instanceReconciler) undelivered(ctx context.Context, s *scope, why error) (ctrl.Result, error) {
	refused := is[*delivery.RefusedError](why)
	switch {
	case refused && s.Status.IsFinished():
		return r.giveUp(ctx, s, why)
	case refused:
		why = s.withRefusals(why)
		return r.fail(ctx, s, describe(why), why)
	case !s.Status.IsFinished() && (s.late() || r.isLateUpdate(s, why)):
		return r.fail(ctx, s, "not delivered in time: "+describe(why), &lateError{why})
	case s.isLateMove(why):
		return r.giveUp(ctx, s, notStarted(why))
	}
	return r.retry(ctx, s, why)
}

// reserve reserves what the instance's status says. The inventory no longer wakes the instance then.
func (r *instanceReconciler) reserve(s *scope) {
	r.inventory.Reserve(placement.HoldingOf(s.ServiceInstance))
}

// hold reserves what the instance's status says. One that should be elsewhere, or in more places, is looked at again at once,
// and waits again.
func (r *instanceReconciler) hold(s *scope) {
	r.reserve(s)
	if s.Status.IsDisplaced() || s.Status.IsStranded() || s.Status.IsUncovered() {
		s.lookAgain(1)
	}
}

// observe checks a delivered instance periodically, and repairs it by delivering again. An
// instance whose last update failed is checked against its delivered decision.
func (r *instanceReconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.Status.Delivered == nil || s.Status.IsMoving() {
		return ctrl.Result{}, nil
	}
	if c := s.Status.Copying; c != nil && slices.Contains(r.answering(), c.To) {
		return ctrl.Result{}, nil // it is stopped, and meant to be
	}
	if wait := r.untilObservation(s); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	delivered := s.Status.Delivered
	runs, err := r.workload(s, &delivered.Decision, &delivered.State)
	if err != nil {
		return ctrl.Result{}, err
	}
	turned := r.volumesTurned(s)
	err = r.each(ctx, s, delivered.Decision.Placements, &delivered.State, runs, func(driver delivery.Driver, ctx context.Context, d delivery.Delivery) error {
		wrong := errMissed
		if !turned || !s.Status.IsPinnedOn(d.Placement.Cluster) {
			wrong = driver.Observe(ctx, d)
		}
		if wrong == nil {
			return nil
		}
		if err := r.leadership.Confirm(ctx); err != nil {
			return &unconfirmedError{err}
		}
		log.FromContext(ctx).Info("Repairing", "cluster", d.Placement.Cluster, "found", wrong.Error())
		d.Applied = ""
		return driver.Deliver(ctx, d)
	})
	if allBusy(err) {
		return ctrl.Result{RequeueAfter: turnPatience}, nil // it is woken when its turn comes
	}
	if unconfirmed := (*unconfirmedError)(nil); errors.As(err, &unconfirmed) {
		return ctrl.Result{}, err
	}
	news, grown := r.recordCopies(s, s.observed), false
	for _, d := range s.Status.Decisions() {
		grown = s.recordGrown(d) || grown
	}
	if s.recordObservation(err) || news || grown || !usage.IsMetered(&s.Status) || !contracts.IsKept(&s.Status) {
		if written, err := r.report(ctx, s); err != nil || !written {
			return ctrl.Result{RequeueAfter: turnPatience}, err
		}
	}
	if grown {
		r.reserve(s)
		s.lookAgain(1) // the inventory no longer wakes one that waits for another place
	}
	switch {
	case allUnreachable(err): // still due when they answer again and the inventory wakes it
		return ctrl.Result{RequeueAfter: observeEvery}, nil
	case err != nil:
		return r.retry(ctx, s, err)
	}
	return ctrl.Result{RequeueAfter: r.scheduleObservation(s)}, nil
}

// retry records what blocks the instance and triggers another pass: soon if it only waits, and
// with the work queue's back-off after an error.
func (r *instanceReconciler) retry(ctx context.Context, s *scope, blocker error) (ctrl.Result, error) {
	log.FromContext(ctx).V(1).Info("Waiting", "instance", s.Spec.InstanceID, "for", blocker.Error())
	if s.recordBlocked(blocker) || s.heard {
		what := writeProgress
		if s.open && s.Status.IsFinished() {
			what = writeLate
		}
		if err := r.write(ctx, s, what); err != nil {
			return ctrl.Result{}, err
		}
	}
	if allBusy(blocker) {
		return ctrl.Result{RequeueAfter: turnPatience}, nil // it is woken when its turn comes
	}
	if allPending(blocker) {
		soon := s.soonFor(blocker, s.since())
		repairs := s.Status.IsFinished() && !s.Status.IsMoving() && s.Status.Copying == nil // no platform waits for it, and it may take for ever
		if waits := (*delivery.PendingError)(nil); errors.As(blocker, &waits) && !repairs && waits.Every > 0 {
			soon = min(soon, waits.Every)
		}
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	return ctrl.Result{}, blocker
}
