package controller

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/placement"
)

// An instance of a plan with one cluster in each group (Spread.Each) follows the groups. It
// comes to a new group. It leaves a cluster that is no longer in any group, or in the same
// group as another of its clusters. Both are moves: the new cluster is delivered first.

// inEachGroup is the reason of a move to groups that are new.
const inEachGroup = "its plan has one cluster in each group"

// coverage returns the coverage of an instance. Nothing is lacking or surplus if its plan does
// not follow groups, or if an operation is in progress, which places the instance anyway.
func (r *instanceReconciler) coverage(s *scope) (c placement.Coverage) {
	if !s.Status.IsFinished() || s.Status.Delivered == nil {
		return c
	}
	plan, err := r.plan(s.Spec.ServiceID, s.wanted().PlanID)
	if err != nil {
		return c
	}
	if plan.Resources == nil || plan.Resources.Spread == nil || !plan.Resources.Spread.Each {
		return c
	}
	request, err := r.request(s, plan, nil)
	if err != nil {
		return c
	}
	return r.inventory.Snapshot().Covers(request, s.Status.DeliveredDecision().Clusters())
}

// stayUncovered keeps an instance where it is, because some group has no room for it.
func (r *instanceReconciler) stayUncovered(ctx context.Context, s *scope, why error) (ctrl.Result, error) {
	_, err := r.keep(ctx, s, s.recordUncovered(why.Error()))
	return ctrl.Result{}, err
}
