package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// The volumes of an instance are backed up by the schedule of its plan, and a backup is restored where they
// are if an operator asks for that (v1alpha1.AnnotationRestore). Both stop the workload, run the hooks, and
// start it again. Each step is in the status before it begins (status.copying). Nothing else is done with the
// instance meanwhile; only an update ends a backup, and is made where the data is.
//
// A backup that fails changes nothing. A restore that fails leaves incomplete volumes, so that the workload
// stays stopped until another one succeeds.

// afterUpdate is the delay of the pass that starts a workload, in case that the update did not.
const afterUpdate = time.Second

// copyInPlace does what is due with the volumes where they are. A zero result means that nothing is, or that
// the cluster does not answer.
func (r *instanceReconciler) copyInPlace(ctx context.Context, s *scope) (ctrl.Result, error) {
	for {
		if err := r.beginCopy(ctx, s); err != nil || s.Status.Copying == nil {
			return ctrl.Result{}, err
		}
		result, yields, err := r.copyStep(ctx, s)
		if err != nil || yields || !result.IsZero() {
			return result, err
		}
	}
}

// beginCopy records the next backup or restore of the volumes where they are, if one is due and it is the
// instance's turn, and refuses a restore that cannot be done.
func (r *instanceReconciler) beginCopy(ctx context.Context, s *scope) error {
	if why := r.refusesRestore(s); why != "" {
		s.recordRestoreRefused(why)
		if err := r.write(ctx, s, writeProgress); err != nil {
			return err
		}
	}
	next := r.nextCopy(s)
	if next == nil {
		return nil
	}
	if !r.moves.begin(s.Name) {
		s.queued = true
		s.lookAgain(turnPatience)
		return nil
	}
	s.recordCopying(next)
	return r.write(ctx, s, writeProgress)
}

// nextCopy returns what is to be done with the volumes where they are, and not begun; nil if nothing is.
func (r *instanceReconciler) nextCopy(s *scope) *v1alpha1.DataCopy {
	if !s.Status.IsFinished() || s.Status.IsUndelivered() || r.withoutTarget(s) != "" {
		return nil
	}
	cluster := s.Status.CarriesFrom()
	if cluster == "" {
		return nil
	}
	if known := r.inventory.Snapshot().Cluster(cluster); known == nil || !known.Ready {
		return nil
	}
	asked, copying := s.restoreRequest(), s.Status.Copying
	switch {
	case asked != nil && asked.Cluster == cluster && (copying == nil || copying.Failure != ""): // never two hooks at once
		return s.restoring(asked, cluster, cluster)
	case asked == nil && copying == nil && s.backupDue():
		return s.backingUp(cluster, cluster)
	}
	return nil
}

// copyStep does one step. It yields if something else is to be done first.
func (r *instanceReconciler) copyStep(ctx context.Context, s *scope) (result ctrl.Result, yields bool, err error) {
	copying := s.Status.Copying
	if !s.Status.IsFinished() && copying.Step != v1alpha1.StepRestore {
		s.recordStarting()
		s.lookAgain(afterUpdate)
		return ctrl.Result{}, true, nil
	}
	if why := s.restoreFailure(); why != "" {
		switch {
		case s.restoreRequest() != nil: // it is restored elsewhere
			return ctrl.Result{}, true, nil
		case !s.Status.IsFinished():
			result, err = r.fail(ctx, s, why, &delivery.RefusedError{Reason: why, Consumer: "its data is being restored"})
			return result, true, err
		}
		return s.sooner(ctrl.Result{RequeueAfter: observeEvery}), false, nil
	}
	r.moves.begin(s.Name) // takes its place again after a restart
	if err := r.leadership.Confirm(ctx); err != nil {
		return ctrl.Result{}, false, err
	}
	delivered := s.Status.Delivered
	runs, err := r.workload(s, &delivered.Decision, &delivered.State)
	if err == nil {
		err = r.each(ctx, s, delivered.Decision.Placements, &delivered.State, runs, delivery.Driver.Deliver)
	}
	switch {
	case is[*delivery.RefusedError](err):
		s.recordCopyFailed(describe(err))
	case s.Status.IsFinished() && copying.Step == v1alpha1.StepStart && s.isLateStart(delivered.Decision.Workload, copying.Since.Time, err):
		s.recordCopyFailed(describe(notStarted(err)))
	case err != nil && !s.Status.IsFinished() && s.late():
		result, err = r.fail(ctx, s, "not delivered in time: "+describe(err), &lateError{err})
		return result, true, err
	case allUnreachable(err) && s.Status.IsFinished():
		return ctrl.Result{}, true, nil
	case err != nil:
		result, err = r.retry(ctx, s, err)
		return result, false, err
	default:
		s.recordCopied(r.targetURL())
	}
	return ctrl.Result{}, false, r.write(ctx, s, writeProgress)
}

// targetURL returns the URL of the place for backups; "" if there is none.
func (r *instanceReconciler) targetURL() string {
	if r.target == nil {
		return ""
	}
	return r.target.Current().URL
}

// refusesRestore returns why what an operator asks for cannot be done; "" if it can, or if nothing new is
// asked for.
func (r *instanceReconciler) refusesRestore(s *scope) string {
	value := s.RestoreAsked()
	if value == "" || !s.Status.IsFinished() || s.Status.IsMoving() || s.Status.Copying != nil && s.Status.Copying.Request == value {
		return ""
	}
	request, err := v1alpha1.ParseRestoreRequest(value)
	if err != nil {
		return fmt.Sprintf("the annotation %s: %v", v1alpha1.AnnotationRestore, err)
	}
	on := s.Status.CarriesFrom()
	known := r.inventory.Snapshot().Cluster(on)
	switch why := r.withoutTarget(s); {
	case why != "":
		return why
	case on == "":
		return "its workload has no volumes with backups, or runs on several clusters"
	case !s.Status.CanRestore(request.Backup):
		return "there is no complete backup " + request.Backup
	case request.Cluster == v1alpha1.ElsewhereCluster && known != nil && known.Ready:
		return on + " answers again; to restore it nevertheless, name the cluster"
	}
	return ""
}

// restoreRequest returns the restore that an operator asks for and that has not ended; nil if there is none, and while
// an operation is in progress.
func (s *scope) restoreRequest() *v1alpha1.RestoreRequest {
	if !s.Status.IsFinished() {
		return nil
	}
	request, err := v1alpha1.ParseRestoreRequest(s.RestoreAsked())
	if err != nil {
		return nil
	}
	return request
}

// restoredElsewhere returns the reason for which the instance leaves a cluster because an operator restores its
// data on another one; "" if nobody does.
func (s *scope) restoredElsewhere(cluster string) string {
	asked := s.restoreRequest()
	if asked == nil || asked.Cluster == cluster || cluster == "" || cluster != s.Status.CarriesFrom() {
		return ""
	}
	return "its operator restores backup " + asked.Backup + " on another cluster"
}

// backupDue reports whether the schedule of the plan asks for a backup, and triggers another pass when it
// will.
func (s *scope) backupDue() bool {
	w := s.Status.DeliveredDecision().Workload
	if s.Status.CarriesFrom() == "" || w.Backups == nil || w.Backups.Schedule == "" {
		return false
	}
	schedule, err := cron.ParseStandard(w.Backups.Schedule)
	if err != nil {
		return false // the catalog refuses it
	}
	last := v1alpha1.CreatedOf(s).Time
	if b := s.Status.LastBackup(); b != nil {
		last = b.TriedAt()
	}
	next := schedule.Next(last.UTC())
	if next.IsZero() || next.After(s.now) {
		s.lookAgain(next.Sub(s.now))
		return false
	}
	return true
}

// expired returns the backups that are no longer kept once there is one more, the oldest first.
func (s *scope) expired() (ids []string) {
	complete := s.Status.CompleteBackups()
	for _, b := range complete[:max(0, len(complete)+1-s.Status.DeliveredDecision().Workload.KeptBackups())] {
		ids = append(ids, b.ID)
	}
	return ids
}

// restoreFailure returns why the workload is stopped with incomplete volumes; "" if it is not.
func (s *scope) restoreFailure() string {
	c := s.Status.Copying
	if c == nil || c.Failure == "" {
		return ""
	}
	return fmt.Sprintf("stopped, because backup %s could not be restored: %s; `sluice instance restore %s --from BACKUP` tries again", c.Backup, c.Failure, s.Name)
}

// stoppedOn returns the step for which the workload is stopped where its volumes are; nil if it is not stopped on
// that cluster.
func (s *scope) stoppedOn(cluster string) *v1alpha1.DataCopy {
	if c := s.Status.Copying; c != nil && c.To == cluster && c.Step != v1alpha1.StepStart {
		return c
	}
	return nil
}

// remedy returns how the operator starts the workload elsewhere while the cluster with its volumes is lost; "" if
// there is no backup.
func (s *scope) remedy() string {
	complete := s.Status.CompleteBackups()
	if len(complete) == 0 || s.Status.CarriesFrom() == "" {
		return ""
	}
	last := complete[len(complete)-1]
	return fmt.Sprintf("; `sluice instance restore %s --from %s` starts it on another cluster with its data of %s", s.Name, last.ID, last.At.UTC().Format(time.RFC3339))
}

// sayCopying describes what is done with the volumes where they are.
func (s *scope) sayCopying() string {
	switch c := s.Status.Copying; c.Step {
	case v1alpha1.StepBackup:
		return "stopped while its volumes are backed up on " + c.From
	case v1alpha1.StepRestore:
		return fmt.Sprintf("stopped while backup %s is restored on %s", c.Backup, c.To)
	default:
		return "starting again on " + c.To
	}
}
