package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// What an instance does not need any more is removed after the write that says so, never before: until then the former
// state may have to be delivered again, and after it nothing waits for a cluster that is lost. So every change of the
// clusters, whether it succeeds or is undone, puts what it leaves behind into status.left, where it stays reserved. One
// phase empties that. Only a deprovision, which has nothing to go back to, removes directly.

// clean removes the instance from clusters that it has left, and volumes that it no longer has, once the clusters answer,
// the overlap of the plan is over, and the bindings have followed. A cluster that is lost and removed from the
// inventory keeps what was there. No other phase waits for it: what fails is tried again by another pass.
func (r *instanceReconciler) clean(ctx context.Context, s *scope) (ctrl.Result, error) {
	s.unclean = nil
	if len(s.Status.Left) == 0 {
		return ctrl.Result{}, nil
	}
	gone, ready, since := r.cleanable(s)
	if len(ready) > 0 {
		behind, err := r.bindingsBehind(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}
		if behind {
			s.lookAgain(time.Second)
			ready = nil
		}
	}
	var wrong error
	if len(ready) > 0 {
		if err := r.leadership.Confirm(ctx); err != nil {
			return ctrl.Result{}, err
		}
		var cleaned []string
		cleaned, wrong = r.cleanAll(ctx, s, ready)
		gone = append(gone, cleaned...)
	}
	if len(gone) > 0 {
		s.recordCleaned(gone)
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
		r.hold(s)
	}
	switch {
	case wrong == nil:
	case allBusy(wrong): // it is woken when its turn comes
		s.lookAgain(turnPatience)
	case allPending(wrong):
		s.lookAgain(s.soonFor(wrong, since))
	default:
		s.unclean = fmt.Errorf("remove what the instance has left: %w", wrong)
	}
	return ctrl.Result{}, nil
}

// cleanable returns the clusters in status.left of which nothing can be removed any more, and those that can be cleaned now,
// with the time at which the last of these was left. It triggers another pass when the next one becomes due.
func (r *instanceReconciler) cleanable(s *scope) (gone, ready []string, since time.Time) {
	snapshot := r.inventory.Snapshot()
	for i := range s.Status.Left {
		left := &s.Status.Left[i]
		c := snapshot.Cluster(left.Cluster)
		lost := c == nil || c.IsForsaken()
		switch wait := left.Since.Add(r.overlap(s, left)).Sub(s.now); {
		case r.isGone(s, left.Cluster), lost && s.Status.IsOn(left.Cluster): // in the latter case something is left on the cluster alone
			gone = append(gone, left.Cluster)
		case !lost && !c.Ready: // the inventory wakes the instance when it answers
		case wait > 0:
			s.lookAgain(wait)
		case s.Status.IsOn(left.Cluster) && (s.Status.IsUndelivered() || s.Status.Copying != nil): // something else is delivered first
		default:
			ready = append(ready, left.Cluster)
			if left.Since.After(since) {
				since = left.Since.Time
			}
		}
	}
	return gone, ready, since
}

// cleanAll removes the instance from clusters, and from those that it is on only the volumes that it no longer has. It
// returns the clusters where that is done.
func (r *instanceReconciler) cleanAll(ctx context.Context, s *scope, names []string) (cleaned []string, err error) {
	var failures []error
	collect := func(names []string, err error) {
		for _, name := range names {
			switch wrong, called := s.failures[name]; {
			case !called:
				failures = append(failures, err)
			case wrong != nil:
				failures = append(failures, wrong)
			default:
				cleaned = append(cleaned, name)
			}
		}
	}
	removed := lists.Without(names, s.Status.DeliveredDecision().Clusters())
	kept := lists.Without(names, removed)
	if len(removed) > 0 {
		collect(removed, r.each(ctx, s, on(removed), nil, nil, delivery.Driver.Remove))
	}
	if len(kept) > 0 {
		delivered := s.Status.Delivered
		runs, err := r.workload(s, &delivered.Decision, &delivered.State)
		if err != nil {
			return cleaned, errors.Join(append(failures, err)...)
		}
		// What is delivered to one cluster names the others, which are not touched.
		collect(kept, r.each(ctx, s, delivered.Decision.Placements, &delivered.State, runs, func(driver delivery.Driver, ctx context.Context, d delivery.Delivery) error {
			if !slices.Contains(kept, d.Placement.Cluster) {
				return nil
			}
			return driver.Deliver(ctx, d)
		}))
	}
	return cleaned, errors.Join(failures...)
}

// overlap returns how long the instance stays on a cluster that it has moved away from.
func (r *instanceReconciler) overlap(s *scope, left *v1alpha1.LeftPlacement) time.Duration {
	moved := s.Status.Moved
	if moved == nil || !slices.Contains(moved.From, left.Cluster) || !left.Since.Equal(moved.DeliveredAt) || s.Status.Delivered == nil {
		return 0
	}
	plan, err := r.plan(s.Spec.ServiceID, s.Status.Delivered.State.PlanID)
	if err != nil || plan.Resources == nil {
		return 0
	}
	return time.Duration(plan.Resources.OverlapSeconds) * time.Second
}
