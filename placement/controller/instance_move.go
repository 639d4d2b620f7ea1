package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
)

// An instance moves when it has to leave a cluster: because the cluster is lost, is being
// drained or has another NoExecute taint that its plan does not tolerate any longer, or because
// the operator requests it (v1alpha1.AnnotationLeave).
//
// A move is a decision like any other, and is delivered like any other. The new place is
// reserved and written first, while the old one stays reserved. Then the new place is
// delivered. Only then does the instance leave the old one (status.left), which is removed as
// soon as its cluster answers. Bindings follow in between.

// departures returns which of the clusters that the instance is on, or is being delivered to,
// it has to leave now. It triggers another pass when the next one becomes due. surplus are
// clusters that the instance's plan does not need, with the reason (see coverage). known is false
// while the plan is unknown, and with it what the instance tolerates: the catalog may not be loaded yet.
func (r *instanceReconciler) departures(s *scope, surplus map[string]string) (due []v1alpha1.Departure, known bool) {
	if s.Status.IsFixed() {
		return s.refused(), true
	}
	snapshot := r.inventory.Snapshot()
	tolerations, known := r.tolerations(s)
	if !known {
		s.lookAgain(catalogPatience)
		return nil, false
	}
	asked := strings.Split(s.Annotations[v1alpha1.AnnotationLeave], ",")
	for _, name := range lists.Union(s.Status.Decision.Clusters(), s.Status.DeliveredDecision().Clusters()) {
		c := snapshot.Cluster(name)
		pinned, restored := s.Status.IsPinnedOn(name), s.restoredElsewhere(name)
		stay, leave := s.Status.Apart(name)
		apart := pinned && s.Status.IsFinished() && leave && c != nil && !c.Ready
		if pinned && restored == "" && !apart && (!s.Status.IsFinished() || !s.Status.CanCarry(name) || c == nil || !c.Ready) {
			continue
		}
		reason := restored
		if c != nil && reason == "" {
			if e, evicted := placement.Evict(c, tolerations); evicted {
				switch {
				case e.At.After(s.now):
					s.lookAgain(e.At.Sub(s.now))
				case e.Unreachable && snapshot.Outage():
					// A leader that reaches less than half of its clusters is probably cut off
					// itself. The inventory wakes the instance when that is over.
				default:
					reason = e.Reason
				}
			}
		}
		if reason == "" && !pinned {
			reason = s.yields(snapshot, name)
		}
		if reason == "" && slices.Contains(asked, name) {
			reason = byOperator
		}
		if reason == "" && !pinned {
			reason = surplus[name]
		}
		if reason != "" {
			d := v1alpha1.Departure{Cluster: name, Reason: reason, At: metav1.NewTime(s.now)}
			if apart {
				d.Stay = stay
			}
			due = append(due, d)
		}
	}
	return due, true
}

// byOperator is the reason of a departure requested by AnnotationLeave.
const byOperator = "its operator wants it elsewhere"

// isAsked reports whether an operator has requested a move, and nothing else drives the instance away.
func (s *scope) isAsked(due []v1alpha1.Departure) bool {
	_, asked := s.Annotations[v1alpha1.AnnotationLeave]
	return asked && !slices.ContainsFunc(due, func(d v1alpha1.Departure) bool { return d.Reason != byOperator })
}

// movesTo returns the only clusters that the instance may come to by the move that is due; none means any.
func (s *scope) movesTo(snapshot *placement.Snapshot, due []v1alpha1.Departure) []string {
	if asked := s.Annotations[v1alpha1.AnnotationMoveTo]; asked != "" && len(due) > 0 && s.isAsked(due) {
		return strings.Split(asked, ",")
	}
	_, to := s.makesWay(snapshot, due)
	return to
}

// afterRefusal is the delay after a refused move before it is tried again.
const afterRefusal = 15 * time.Second

// rests reports whether a move was refused so recently that no other one begins, unless an operator restores a backup elsewhere.
func (r *instanceReconciler) rests(s *scope) bool {
	refused, ok := r.gaveUp.Load(s.Name)
	if !ok || !s.Status.IsFinished() || s.Status.IsMoving() || s.restoreRequest() != nil {
		return false
	}
	wait := refused.(time.Time).Add(afterRefusal).Sub(s.now)
	if wait > 0 {
		s.lookAgain(wait)
	}
	return wait > 0
}

// catalogPatience is the delay before a missing plan is looked up again.
const catalogPatience = 10 * time.Second

// tolerations returns those of the instance's plan in force; false if that is not known.
func (r *instanceReconciler) tolerations(s *scope) (tolerations []corev1.Toleration, known bool) {
	plan, err := r.plan(s.Spec.ServiceID, s.StateInForce().PlanID)
	switch {
	case err != nil:
		return nil, false
	case plan.Resources == nil: // it orders from brokers, or makes clusters
		return nil, true
	}
	return plan.Resources.Tolerations, true
}

// stays reports whether other components of the instance leave a lost cluster, while those there wait for it. Nothing
// is delivered to it meanwhile; when it is back, it gets what was decided (observe).
func (s *scope) stays(cluster string) bool {
	return slices.ContainsFunc(s.Status.Decision.Leaving, func(d v1alpha1.Departure) bool { return d.Cluster == cluster && len(d.Stay) > 0 })
}

// whole returns the departures by which all of an instance leaves a cluster.
func whole(departures []v1alpha1.Departure) []v1alpha1.Departure {
	return slices.DeleteFunc(slices.Clone(departures), func(d v1alpha1.Departure) bool { return len(d.Stay) > 0 })
}

// named returns the clusters of departures.
func named(departures []v1alpha1.Departure) []string {
	var names []string
	for _, d := range departures {
		names = append(names, d.Cluster)
	}
	return names
}

// unready records that an instance does not work while one of its clusters is lost, and reports
// whether that is new.
func (r *instanceReconciler) unready(s *scope, due []v1alpha1.Departure) (news bool) {
	snapshot := r.inventory.Snapshot()
	for _, d := range due {
		if c := snapshot.Cluster(d.Cluster); c != nil && !c.Ready && s.Status.Delivered != nil {
			news = s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonMoving, d.Reason) || news
		}
	}
	return news
}

// isGone reports whether nothing of the instance can be removed any more by way of a cluster: it has left the inventory, or is
// forsaken. A placement with a peering has objects on other clusters too, that on a pool is an order of its own, and their
// drivers remove those.
func (r *instanceReconciler) isGone(s *scope, cluster string) bool {
	c := r.inventory.Snapshot().Cluster(cluster)
	return (c == nil || c.IsForsaken()) && s.driverOutside(cluster) == ""
}

// answering returns the clusters that answer.
func (r *instanceReconciler) answering() []string {
	var names []string
	for _, c := range r.inventory.Snapshot().ReadyClusters() {
		names = append(names, c.Name)
	}
	return names
}

// bindingsBehind reports whether a binding has no credentials yet for a cluster that the
// instance is delivered to, or still has some for a cluster that it is not on.
func (r *instanceReconciler) bindingsBehind(ctx context.Context, s *scope) (bool, error) {
	bindings := &v1alpha1.ServiceBindingList{}
	if err := r.hub.List(ctx, bindings, client.InNamespace(s.Namespace), client.MatchingFields{v1alpha1.FieldInstanceName: s.Name}); err != nil {
		return false, fmt.Errorf("list bindings: %w", err)
	}
	on := s.Status.DeliveredDecision().NamespaceClusters()
	return slices.ContainsFunc(bindings.Items, func(b v1alpha1.ServiceBinding) bool {
		return b.DeletionTimestamp.IsZero() && b.Status.Operation != nil && b.Status.Operation.State == v1alpha1.StateSucceeded &&
			(len(lists.Without(on, b.Status.Issued)) > 0 || len(lists.Without(b.Status.Issued, on)) > 0)
	}), nil
}

// dropLeaveRequest drops the request to leave clusters that the instance is not on, or cannot leave.
func (r *instanceReconciler) dropLeaveRequest(ctx context.Context, s *scope) error {
	err := r.patch(ctx, s, func(i *v1alpha1.ServiceInstance) {
		delete(i.Annotations, v1alpha1.AnnotationLeave)
		delete(i.Annotations, v1alpha1.AnnotationMoveTo)
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the annotation %s: %w", v1alpha1.AnnotationLeave, err)
	}
	return nil
}

// patch changes the instance on the hub, apart from its status. Only the version that was read may be patched, because the
// next write is bound to it.
func (r *instanceReconciler) patch(ctx context.Context, s *scope, change func(*v1alpha1.ServiceInstance)) error {
	patched := s.ServiceInstance.DeepCopy()
	change(patched)
	if err := r.hub.Patch(ctx, patched, client.MergeFromWithOptions(s.ServiceInstance, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	s.Spec, s.ObjectMeta = patched.Spec, patched.ObjectMeta
	return nil
}

// isLateStart reports whether a workload, if there is one, has not started in time on clusters that answer: by the deadlines
// of its containers (workload.StartsWithin), or within maximumPollingDurationSeconds if they do not tell.
func (s *scope) isLateStart(w *v1alpha1.WorkloadPlan, since time.Time, waitsFor error) bool {
	return w != nil && isStarting(waitsFor) && !s.now.Before(since.Add(cmp.Or(workload.StartsWithin(w), s.polling)))
}

// isStarting reports whether the clusters that a workload waits for answer, and have a place for it.
func isStarting(waitsFor error) bool { return allPending(waitsFor) && !allBusy(waitsFor) }

// isLateMove reports whether the workload of an instance that moves has not started in time where it comes to.
func (s *scope) isLateMove(waitsFor error) bool {
	if !s.Status.IsFinished() || !s.Status.IsMoving() {
		return false
	}
	d := s.Status.Decision
	since := d.MovesSince().Time
	switch {
	case d.Data != nil:
		since = d.Data.Since.Time
	case d.Terms != nil && d.Terms.At.After(since): // another target than at first
		since = d.Terms.At.Time
	}
	return s.isLateStart(d.Workload, since, waitsFor)
}

// isLateUpdate reports whether the workload of an update has not started in time. That of a Deployment is known to the
// cluster, which refuses it then; a StatefulSet has no deadline of its own. The time begins when this process first sees the
// delivery wait: nothing may have been applied while the cluster, or Sluice, was away.
func (r *instanceReconciler) isLateUpdate(s *scope, waitsFor error) bool {
	d := s.Status.Decision
	if s.Status.IsFinished() || s.Status.Delivered == nil || d.Workload == nil || workload.StartsWithin(d.Workload) == 0 {
		return false
	}
	if is[*unreachableError](waitsFor) {
		r.pending.Delete(s.Name)
	}
	hasVolumes := slices.ContainsFunc(d.Workload.Components, func(c v1alpha1.WorkloadComponent) bool { return c.HasVolumes() })
	if !hasVolumes || !isStarting(waitsFor) {
		return false
	}
	since, _ := r.pending.LoadOrStore(s.Name, s.now)
	return s.isLateStart(d.Workload, since.(time.Time), waitsFor)
}

// notStarted is the error of a workload that has not started in time.
func notStarted(waitsFor error) error {
	return &lateError{fmt.Errorf("not started in time: %w", waitsFor)}
}

// giveUp ends a move that a cluster refuses, or does not carry out in time: the instance stays where it is, and tries again
// elsewhere later. The reason, and the clusters that refuse, are written before the move is undone, as in fail.
func (r *instanceReconciler) giveUp(ctx context.Context, s *scope, why error) (ctrl.Result, error) {
	s.failing, s.cause = describe(why), why
	if s.Status.IsUndelivered() && s.recordFailing() {
		s.recordMoveRefused(why)
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
	}
	if result, err := r.undo(ctx, s); err != nil || !result.IsZero() {
		return result, err
	}
	due, data := s.Status.Decision.Leaving, s.Status.Decision.Data
	err := r.writeUndone(ctx, s, writeProgress, func() {
		s.recordMoveFailed()
		switch {
		case data != nil && data.Request != "":
			s.recordNotRestored(data, describe(why))
			r.observations.Store(s.Name, observation{at: s.now})
		case len(due) > 0:
			s.recordDataFailed(data, describe(why))
			s.recordStranded(due, describe(why))
		default:
			s.recordUncovered(describe(why))
		}
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	log.FromContext(ctx).Info("A move was refused", "reason", why.Error())
	r.gaveUp.Store(s.Name, s.now)
	if _, err := r.clean(ctx, s); err != nil { // the result ends the pass, and with it the phases after this one
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: afterRefusal}, nil
}
