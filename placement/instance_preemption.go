package placement

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The instance for which room is made writes that to its own status (Preemption) and
// then waits like any other that fits nowhere; if it goes, or finds another place, so
// does what it wrote. Its victims move as from a cluster that is drained. One that fits
// nowhere else leaves all the same: it is delivered to the clusters that remain to it,
// or to none (Decision.Displaced), and is placed again as soon as there is room.

// preempt works out what room is to be made for an instance that cannot be placed, and
// reports whether that is news. What has been begun goes on while it still helps.
func (r *instanceReconciler) preempt(s *scope, request Request) (news bool) {
	snapshot, before := r.inventory.Snapshot(), s.Status.Preemption
	if before != nil && snapshot.stands(request, before) {
		return false
	}
	s.Status.Preemption = Preempt(request, snapshot)
	return !equality.Semantic.DeepEqual(s.Status.Preemption, before)
}

// withRoom adds to why an instance waits what is done about it.
func withRoom(why string, p *v1alpha1.Preemption) string {
	if p == nil {
		return why
	}
	return fmt.Sprintf("%s; room is being made on %s, which %d of lower priority leave", why, p.Cluster, len(p.Victims))
}

// yields says for whom the instance has to leave a cluster; empty means for nobody.
func (s *scope) yields(snapshot *Snapshot, cluster string) (reason string) {
	by, p := snapshot.preempting(s.Name, cluster)
	if p == nil {
		return ""
	}
	return fmt.Sprintf("%s of priority class %s (%d) %s", by, p.PriorityClass, p.Priority, p.Message)
}

// mustYield tells whether the instance has to leave one of these clusters for another
// instance.
func (r *instanceReconciler) mustYield(s *scope, due []v1alpha1.Departure) bool {
	snapshot := r.inventory.Snapshot()
	return slices.ContainsFunc(due, func(d v1alpha1.Departure) bool { return s.yields(snapshot, d.Cluster) != "" })
}

// displace has the instance leave the clusters that are due, although there is nowhere
// to go.
func (r *instanceReconciler) displace(ctx context.Context, s *scope, due []v1alpha1.Departure) (ctrl.Result, error) {
	decided := s.deliveredDecision().DeepCopy()
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

// displaced tells whether the instance, as it is delivered, has left clusters without
// getting others.
func (s *scope) displaced() bool {
	d := s.deliveredDecision()
	return d != nil && len(d.Displaced) > 0
}
