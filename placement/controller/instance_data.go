package controller

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

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

// dataPatience is how long a move with data waits after one that failed. Each try stops the workload.
const dataPatience = 10 * time.Minute

// keepsData returns the reason why an instance cannot leave the cluster with its data, although it should;
// "" if it can.
func (r *instanceReconciler) keepsData(s *scope, due []v1alpha1.Departure) string {
	if s.Status.IsMoving() || !slices.ContainsFunc(due, func(d v1alpha1.Departure) bool { return s.Status.IsPinnedOn(d.Cluster) }) {
		return ""
	}
	if r.target == nil {
		return "its volumes cannot be backed up: `sluice serve` has no --backup-target"
	}
	if b := s.Status.Backup; b != nil && b.FailedAt != nil {
		if wait := b.FailedAt.Add(dataPatience).Sub(s.now); wait > 0 {
			s.lookAgain(wait)
			return fmt.Sprintf("its data could not be moved, which is tried again after %s: %s", b.FailedAt.Add(dataPatience).UTC().Format(time.RFC3339), b.Failure)
		}
	}
	return ""
}

// stranded records why an instance does not leave.
func (r *instanceReconciler) stranded(ctx context.Context, s *scope, due []v1alpha1.Departure, why string) (ctrl.Result, error) {
	if s.recordStranded(due, why) {
		return ctrl.Result{}, r.write(ctx, s, writeProgress)
	}
	return ctrl.Result{}, nil
}

// carries returns the move of an instance's data to the cluster of a decision; nil if there is no data, or if
// it stays. A decision that replaces another one continues the other's steps.
func (s *scope) carries(decided *v1alpha1.Decision) *v1alpha1.DataMove {
	if !s.Status.IsFinished() || len(decided.Leaving) != 1 || len(decided.Placements) != 1 || !s.Status.IsPinnedOn(decided.Leaving[0].Cluster) {
		return nil
	}
	move := &v1alpha1.DataMove{Step: v1alpha1.StepBackup, From: decided.Leaving[0].Cluster, To: decided.Placements[0].Cluster}
	if s.Status.IsMoving() {
		before := s.Status.Decision.Data
		switch {
		case before != nil:
			move.Step, move.Backup = before.Step, before.Backup
		case decided.Uses(s.Status.Decision.Placements[0].Cluster):
			return nil // it is restored there already
		default:
			move.Step, move.Backup = v1alpha1.StepRestore, s.Status.Backup.ID
		}
		return move
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails, by its documentation
	move.Backup = "b" + hex.EncodeToString(id)
	return move
}

// carry does the steps that remain of a move with data. A zero result means that the data is where the
// decision places it.
func (r *instanceReconciler) carry(ctx context.Context, s *scope) (ctrl.Result, error) {
	for s.Status.Decision.Data != nil {
		if r.target == nil {
			return r.retry(ctx, s, &delivery.PendingError{Step: "move the data", Detail: "`sluice serve` has no --backup-target"})
		}
		move := s.Status.Decision.Data
		of := &s.Status.Delivered.Decision
		if move.Step == v1alpha1.StepRestore {
			of = s.Status.Decision
		}
		runs, err := r.workload(s, of, s.wanted())
		if err == nil {
			err = r.each(ctx, s, of.Placements, runs, func(driver delivery.Driver, ctx context.Context, d delivery.Delivery) error {
				d.Data = &workload.Data{Step: move.Step, Backup: move.Backup, Target: r.target.Current()}
				return driver.Deliver(ctx, d)
			})
		}
		if is[*delivery.RefusedError](err) {
			return r.giveUp(ctx, s, err)
		}
		if err != nil {
			return r.retry(ctx, s, err)
		}
		s.recordCarried()
		if err := r.write(ctx, s, writeProgress); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// staysWithData reports whether an operation ends a move with data: the instance is updated where its data
// is, and moves again afterwards.
func (s *scope) staysWithData() bool { return !s.Status.IsFinished() && s.Status.IsPinned() }
