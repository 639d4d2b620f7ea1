package controller

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// The instance for which room is made writes that to its own status (Preemption) and then waits
// like any other that fits nowhere. If it goes, or finds another place, the entry goes with it.
// Its victims move as from a drained cluster. A victim that fits nowhere else leaves all the
// same: it is delivered to its remaining clusters, or to none (Decision.Displaced), and is
// placed again as soon as there is room.

// preempt computes what room has to be made for an instance that cannot be placed, and reports
// whether that is new. A preemption that has begun continues while it still helps.
func (r *instanceReconciler) preempt(s *scope, request placement.Request) (news bool) {
	snapshot, before := r.inventory.Snapshot(), s.Status.Preemption
	if before != nil && snapshot.Stands(request, before) {
		return false
	}
	return s.recordPreemption(placement.Preempt(request, snapshot))
}

// withRoom adds the preemption to the reason why an instance waits.
func withRoom(why string, p *v1alpha1.Preemption) string {
	if p == nil {
		return why
	}
	return fmt.Sprintf("%s; instances of lower priority are leaving %s to make room (%d)", why, p.Cluster, len(p.Victims))
}

// mustYield reports whether the instance has to leave one of these clusters for another
// instance.
func (r *instanceReconciler) mustYield(s *scope, due []v1alpha1.Departure) bool {
	snapshot := r.inventory.Snapshot()
	return slices.ContainsFunc(due, func(d v1alpha1.Departure) bool { return s.yields(snapshot, d.Cluster) != "" })
}

// displace makes the instance leave the clusters that are due, although no other cluster has
// room for it.
func (r *instanceReconciler) displace(ctx context.Context, s *scope, due []v1alpha1.Departure) (ctrl.Result, error) {
	decided := s.Status.DeliveredDecision().DeepCopy()
	decided.Preemption = nil
	for _, p := range decided.Placements {
		if i := slices.Index(named(due), p.Cluster); i >= 0 {
			decided.Displaced = append(decided.Displaced, due[i])
		}
	}
	decided.Placements = slices.DeleteFunc(decided.Placements, func(p v1alpha1.Placement) bool {
		return slices.Contains(named(due), p.Cluster)
	})
	return r.adopt(ctx, s, decided, due)
}
