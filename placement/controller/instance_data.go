package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// An instance whose workload has volumes moves with their content, if its plan has hooks for backup and
// restore and the operator gives a target. Between the decision and the delivery there are two steps, each of
// which is written to the hub before it begins. First the workload is stopped on the old cluster, and its
// volumes are backed up. Then it is created, stopped, on the new cluster, and its volumes are restored. Until
// it is delivered there, the old cluster keeps everything: a failure is undone by starting the workload there
// again.
//
// An operator who restores a backup on another cluster (v1alpha1.AnnotationRestore) makes the instance move in
// the same way, without the first step: the old cluster may be lost. See instance_backup.go for what is done
// where the volumes are.

// dataPatience is how long a move with data waits after one that failed. Each try stops the workload.
const dataPatience = 10 * time.Minute

// keepsData returns the reason why an instance cannot leave the cluster with its data, although it should;
// "" if it can.
func (r *instanceReconciler) keepsData(s *scope, due []v1alpha1.Departure) string {
	if s.Status.IsMoving() || !slices.ContainsFunc(whole(due), func(d v1alpha1.Departure) bool { return s.Status.IsPinnedOn(d.Cluster) }) {
		return ""
	}
	if why := r.withoutTarget(s); why != "" {
		return "its volumes cannot be backed up: " + why
	}
	if s.restoreRequest() != nil {
		return ""
	}
	if b := s.Status.LastBackup(); b != nil && b.FailedAt != nil {
		if wait := b.FailedAt.Add(dataPatience).Sub(s.now); wait > 0 {
			s.lookAgain(wait)
			return fmt.Sprintf("its data could not be copied, which is tried again after %s: %s", b.FailedAt.Add(dataPatience).UTC().Format(time.RFC3339), b.Failure)
		}
	}
	return ""
}

// noTarget is the reason why nothing is backed up or restored.
const noTarget = "`sluice serve` has no --backup-target"

// withoutTarget returns the reason why no backup or restore of an instance begins; "" if they may. One that has begun ends,
// because its workload is stopped.
func (r *instanceReconciler) withoutTarget(s *scope) string {
	if r.target == nil {
		return noTarget
	}
	switch plan, err := r.plan(s.Spec.ServiceID, s.StateInForce().PlanID); {
	case err != nil:
		return "its plan is not in the catalog"
	case plan.Offering.Provider != "": // ordered before providers could sell none (decision 127)
		return "its plan is a provider's, which gets no credentials of the place for backups"
	}
	return ""
}

// stranded records why an instance does not leave.
func (r *instanceReconciler) stranded(ctx context.Context, s *scope, due []v1alpha1.Departure, why string) (ctrl.Result, error) {
	_, err := r.keep(ctx, s, s.recordStranded(due, why))
	return ctrl.Result{}, err
}

// carries returns the way of an instance's data to the cluster of a decision; nil if there is no data, or if
// it stays. A decision that replaces another one continues the other's steps.
func (s *scope) carries(decided *v1alpha1.Decision) *v1alpha1.DataCopy {
	if !s.Status.IsFinished() || len(decided.Leaving) != 1 || len(decided.Placements) != 1 || !s.Status.IsPinnedOn(decided.Leaving[0].Cluster) {
		return nil
	}
	from, to := decided.Leaving[0].Cluster, decided.Placements[0].Cluster
	if s.Status.IsMoving() {
		data := s.Status.Decision.Data.DeepCopy()
		if data != nil && data.To != to {
			data.To = to
			if data.Step == v1alpha1.StepStart {
				data.Step = v1alpha1.StepRestore
			}
		}
		return data
	}
	if asked := s.restoreRequest(); asked != nil {
		return s.restoring(asked, from, to)
	}
	return s.backingUp(from, to)
}

// backingUp returns a new way of data that begins with a backup.
func (s *scope) backingUp(from, to string) *v1alpha1.DataCopy {
	id := "b" + random()
	return &v1alpha1.DataCopy{Step: v1alpha1.StepBackup, From: from, To: to, Backup: id, Run: id, Since: metav1.NewTime(s.now)}
}

// restoring returns a new way of data that begins with the restore of a backup.
func (s *scope) restoring(asked *v1alpha1.RestoreRequest, from, to string) *v1alpha1.DataCopy {
	return &v1alpha1.DataCopy{
		Step: v1alpha1.StepRestore, From: from, To: to, Backup: asked.Backup, Run: "r" + random(),
		Request: s.RestoreAsked(), Since: metav1.NewTime(s.now),
	}
}

// random returns eight hexadecimal digits.
func random() string {
	digits := make([]byte, 4)
	_, _ = rand.Read(digits) // never fails, by its documentation
	return hex.EncodeToString(digits)
}

// step returns what a driver does for a step.
func (r *instanceReconciler) step(s *scope, of *v1alpha1.DataCopy) *workload.Data {
	return &workload.Data{Step: of.Step, Backup: of.Backup, Run: of.Run, Expired: s.expired(), Target: r.target.Current()}
}

// carry does the steps that remain of a move with data, except the start. A zero result means that the data
// is where the decision places it.
func (r *instanceReconciler) carry(ctx context.Context, s *scope) (ctrl.Result, error) {
	for s.Status.Decision.Data != nil && s.Status.Decision.Data.Step != v1alpha1.StepStart {
		if r.target == nil {
			return r.retry(ctx, s, &delivery.PendingError{Step: "move the data", Detail: noTarget})
		}
		data := s.Status.Decision.Data
		of := &s.Status.Delivered.Decision
		if data.Step == v1alpha1.StepRestore {
			of = s.Status.Decision
		}
		runs, err := r.workload(s, of, s.wanted())
		if err == nil {
			err = r.each(ctx, s, of.Placements, s.wanted(), runs, func(driver delivery.Driver, ctx context.Context, d delivery.Delivery) error {
				d.Data = r.step(s, data)
				return driver.Deliver(ctx, d)
			})
		}
		// What a lost cluster has cannot be backed up any more, if an operator restores something older.
		if is[*delivery.RefusedError](err) || data.Step == v1alpha1.StepBackup && allUnreachable(err) && s.restoreRequest() != nil {
			return r.giveUp(ctx, s, err)
		}
		if err != nil {
			return r.retry(ctx, s, err)
		}
		s.recordCarried(r.target.Current().URL)
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// staysWithData reports whether an operation ends a move with data: the instance is updated where its data
// is, and moves again afterwards.
func (s *scope) staysWithData() bool { return !s.Status.IsFinished() && s.Status.IsPinned() }
