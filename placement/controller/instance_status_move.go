package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// recordMoveFailed forgets why a move failed: the last operation has not.
func (s *scope) recordMoveFailed() { s.Status.Operation.Failing = nil }

// recordMoveRefused records which of the clusters that a move leads to have refused it in the last call, or still wait after
// its deadline.
func (s *scope) recordMoveRefused(cause error) {
	late := is[*lateError](cause)
	for _, cluster := range lists.Without(s.Status.Decision.Clusters(), s.Status.DeliveredDecision().Clusters()) {
		switch why := s.failures[cluster]; {
		case why == nil:
		case late:
			s.recordRefusal(cluster, notStarted(why))
		case is[*delivery.RefusedError](why):
			s.recordRefusal(cluster, why)
		}
	}
}

// recordMoveOver forgets the clusters that have refused the instance's move, and reports whether there were some. The
// brokers that refused its order stay known.
func (s *scope) recordMoveOver() (news bool) {
	if s.Status.IsFixed() || len(s.Status.Operation.Refusals) == 0 {
		return false
	}
	s.Status.Operation.Refusals = nil
	return true
}

// recordDepartures completes a decision that was made without the clusters that are due. It lists those
// that the instance was delivered to as leaving. It adds those that it may have been delivered
// to since, and that the decision does not use, to status.left.
func (s *scope) recordDepartures(decided *v1alpha1.Decision, due []v1alpha1.Departure) {
	before := map[string]v1alpha1.Departure{}
	if s.Status.IsMoving() {
		for _, d := range s.Status.Decision.Leaving {
			before[d.Cluster] = d
		}
	}
	for _, d := range due {
		if known, ok := before[d.Cluster]; ok {
			d = known
		}
		before[d.Cluster] = d
	}
	for _, name := range lists.Without(s.Status.DeliveredDecision().Clusters(), decided.Clusters()) {
		if d, ok := before[name]; ok {
			decided.Leaving = append(decided.Leaving, d)
		}
	}
	for _, d := range before {
		if len(d.Stay) > 0 && s.Status.IsFinished() && decided.Uses(d.Cluster) {
			decided.Leaving = append(decided.Leaving, d)
		}
	}
	if s.Status.IsDisplaced() && len(decided.Displaced) == 0 {
		for _, d := range s.Status.DeliveredDecision().Displaced { // it has returned from there
			decided.Leaving = append(decided.Leaving, v1alpha1.Departure{Cluster: d.Cluster, Reason: d.Reason, At: metav1.NewTime(s.now)})
		}
	}
	if s.Status.IsFinished() && len(decided.Leaving) == 0 {
		for _, name := range lists.Without(decided.Clusters(), s.Status.DeliveredDecision().Clusters()) {
			decided.Joining = append(decided.Joining, v1alpha1.Arrival{Cluster: name, At: metav1.NewTime(s.now)})
		}
	}
	s.recordLeft(s.Status.Decision, decided, s.Status.DeliveredDecision())
}

// recordLeft records the placements of a decision on clusters that none of the next ones uses. They are removed as soon as
// their clusters allow it.
func (s *scope) recordLeft(d *v1alpha1.Decision, next ...*v1alpha1.Decision) {
	for _, name := range d.Clusters() {
		if !slices.ContainsFunc(next, func(n *v1alpha1.Decision) bool { return n.Uses(name) }) {
			s.recordRest(*d.On(name).DeepCopy())
		}
	}
}

// recordKept records where volumes are kept that the decision no longer has.
func (s *scope) recordKept() {
	for i := range s.Status.Decision.Placements {
		p := &s.Status.Decision.Placements[i]
		if !s.said[p.Cluster].Kept {
			continue
		}
		rest := p.DeepCopy()
		if former := s.Status.DeliveredDecision().On(p.Cluster); former != nil {
			rest = former.DeepCopy()
			rest.Replaced = p.Replaced
		}
		s.recordRest(*rest)
	}
}

// recordRest records what is to be removed from a cluster, with all that it may take there.
func (s *scope) recordRest(p v1alpha1.Placement) {
	p.Reserved, p.Replaced = greatest(greatest(p.Reserved, p.Replaced), s.leftOn(p.Cluster)), nil
	s.recordCleaned([]string{p.Cluster})
	s.Status.Left = append(s.Status.Left, v1alpha1.LeftPlacement{Placement: p, Since: metav1.NewTime(s.now)})
}

// leftOn returns what the rest of the instance on a cluster has reserved there; nil if nothing is left.
func (s *scope) leftOn(cluster string) corev1.ResourceList {
	for i := range s.Status.Left {
		if s.Status.Left[i].Cluster == cluster {
			return s.Status.Left[i].Reserved
		}
	}
	return nil
}

// recordMove records what the delivered decision has changed for the consumer.
func (s *scope) recordMove() {
	if !s.Status.IsMoving() {
		return
	}
	leaving := s.Status.Decision.Leaving
	var reasons []string
	for _, d := range leaving {
		reasons = append(reasons, d.Reason)
	}
	if len(s.Status.Decision.Joining) > 0 {
		reasons = append(reasons, inEachGroup)
	}
	slices.Sort(reasons)
	s.Status.Moved = &v1alpha1.Move{
		From: append([]string{}, named(leaving)...), To: lists.Without(s.Status.Decision.Clusters(), s.Status.DeliveredDecision().Clusters()),
		Reason:    strings.Join(slices.Compact(reasons), "; "),
		DecidedAt: s.Status.Decision.MovesSince(), DeliveredAt: ptr.To(metav1.NewTime(s.now)),
	}
}

// recordStranded records why an instance cannot leave, and reports whether that is new. The instance
// stays on its clusters.
func (s *scope) recordStranded(due []v1alpha1.Departure, why string) (news bool) {
	message := fmt.Sprintf("%s, and no other cluster fits: %s", due[0].Reason, why)
	return s.set(v1alpha1.ConditionPlaced, metav1.ConditionFalse, v1alpha1.ReasonStranded, message)
}

// recordUncovered records why an instance has no cluster in some group, and reports whether that is
// new. The instance stays on its clusters.
func (s *scope) recordUncovered(why string) (news bool) {
	return s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, v1alpha1.ReasonNotInEachGroup, "on "+where(s.Status.DeliveredDecision())+"; not in each group: "+why)
}

// recordStays records where an instance stays, in the condition Placed as it is otherwise, and reports whether that is
// new.
func (s *scope) recordStays() (news bool) {
	placed := metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonPlaced}
	if found := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionPlaced); found != nil {
		placed = *found
	}
	return s.set(v1alpha1.ConditionPlaced, placed.Status, placed.Reason, "stays on "+where(s.Status.DeliveredDecision()))
}

// restore makes the delivered decision the current one again, or none if nothing was delivered. What the current one has
// put elsewhere is to be removed.
func (s *scope) restore() {
	s.recordLeft(s.Status.Decision, s.Status.DeliveredDecision())
	s.Status.Decision = s.Status.DeliveredDecision().DeepCopy()
}

// recordCleaned drops clusters on which nothing of the instance is left any more.
func (s *scope) recordCleaned(clusters []string) {
	s.Status.Left = slices.DeleteFunc(s.Status.Left, func(l v1alpha1.LeftPlacement) bool { return slices.Contains(clusters, l.Cluster) })
}
