package controller

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// This file writes the parts of the status about backups, restores, refusals and contracts, see instance_status.go.

// recordCarried records that a step of a move with data is done, and the next one. Target is the URL of the
// place for backups.
func (s *scope) recordCarried(target string) {
	data := s.Status.Decision.Data
	data.Since = metav1.NewTime(s.now)
	if data.Step == v1alpha1.StepRestore {
		data.Step = v1alpha1.StepStart
		return
	}
	s.recordBackup(v1alpha1.Backup{ID: data.Backup, Cluster: data.From, Target: target, At: ptr.To(metav1.NewTime(s.now))})
	data.Step = v1alpha1.StepRestore
}

// recordDataFailed records why a move with data failed; nil is one without. The workload runs again where it was.
func (s *scope) recordDataFailed(data *v1alpha1.DataCopy, why string) {
	if data == nil {
		return
	}
	failed := v1alpha1.Backup{ID: data.Backup, Cluster: data.From}
	if b := s.Status.LastBackup(); b != nil && b.ID == data.Backup {
		failed = *b
	}
	failed.FailedAt, failed.Failure = ptr.To(metav1.NewTime(s.now)), v1alpha1.Cut(why, v1alpha1.LongestText)
	s.recordBackup(failed)
	s.recordUsable()
}

// recordNotRestored records why a restore on another cluster failed. The instance stays, and the cluster that it
// is on may be lost.
func (s *scope) recordNotRestored(data *v1alpha1.DataCopy, why string) {
	s.recordRestored(data, why)
	message := fmt.Sprintf("backup %s could not be restored on %s: %s", data.Backup, data.To, why)
	s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, reasonPlaced, "on "+where(s.Status.DeliveredDecision()))
	s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonRestoring, message)
	s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonRestoring, message)
}

// recordBackup records a backup as the last one, and forgets those that are no longer kept.
func (s *scope) recordBackup(last v1alpha1.Backup) {
	var kept []v1alpha1.Backup
	for _, b := range s.Status.CompleteBackups() {
		if b.ID != last.ID {
			kept = append(kept, b)
		}
	}
	most := s.Status.DeliveredDecision().Workload.KeptBackups()
	if last.IsComplete() {
		most--
	}
	s.Status.Backups = append(kept[max(0, len(kept)-most):], last)
}

// recordRestored records the end of a restore that an operator asked for; why is empty if it succeeded.
func (s *scope) recordRestored(data *v1alpha1.DataCopy, why string) {
	s.Status.Restored = &v1alpha1.Restored{Request: data.Request, Backup: data.Backup, Cluster: data.To}
	if why == "" {
		s.Status.Restored.At = ptr.To(metav1.NewTime(s.now))
		return
	}
	s.Status.Restored.FailedAt, s.Status.Restored.Failure = ptr.To(metav1.NewTime(s.now)), v1alpha1.Cut(why, v1alpha1.LongestText)
}

// recordRestoreRefused records why nothing is done of what an operator asks for.
func (s *scope) recordRestoreRefused(why string) {
	s.Status.Restored = &v1alpha1.Restored{Request: s.RestoreAsked(), FailedAt: ptr.To(metav1.NewTime(s.now)), Failure: v1alpha1.Cut(why, v1alpha1.LongestText)}
}

// recordCopying records what begins with the volumes where they are.
func (s *scope) recordCopying(c *v1alpha1.DataCopy) {
	s.Status.Copying = c
	s.recordStopped(s.sayCopying())
}

// recordStopped records why the workload is stopped, and reports whether that is new.
func (s *scope) recordStopped(why string) (news bool) {
	reason := reasonRestoring
	if s.Status.Copying.Request == "" {
		reason = reasonBackingUp
	}
	return s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, why)
}

// recordStarting records that the workload is started again, whatever became of its data.
func (s *scope) recordStarting() {
	s.Status.Copying.Step, s.Status.Copying.Since = v1alpha1.StepStart, metav1.NewTime(s.now)
}

// recordCopied records that a step is done with the volumes where they are, and the next one. Target is the
// URL of the place for backups.
func (s *scope) recordCopied(target string) {
	c := s.Status.Copying
	switch c.Step {
	case v1alpha1.StepBackup:
		s.recordBackup(v1alpha1.Backup{ID: c.Backup, Cluster: c.From, Target: target, At: ptr.To(metav1.NewTime(s.now))})
	case v1alpha1.StepRestore:
	default:
		if c.Request != "" {
			s.recordRestored(c, "")
		}
		s.Status.Copying = nil
		s.recordUsable()
		return
	}
	s.recordStarting()
	s.recordStopped(s.sayCopying())
}

// recordCopyFailed records that a step has failed with the volumes where they are: what was backed up, runs again;
// what was restored, stays stopped; what does not start, is as if it had stopped by itself.
func (s *scope) recordCopyFailed(why string) {
	c := s.Status.Copying
	switch c.Step {
	case v1alpha1.StepBackup:
		s.recordBackup(v1alpha1.Backup{ID: c.Backup, Cluster: c.From, FailedAt: ptr.To(metav1.NewTime(s.now)), Failure: v1alpha1.Cut(why, v1alpha1.LongestText)})
		s.recordStarting()
	case v1alpha1.StepRestore:
		s.recordRestored(c, why)
		s.Status.Copying.Failure = v1alpha1.Cut(why, v1alpha1.LongestText)
		s.recordStopped(s.restoreFailure())
	default:
		if c.Request != "" {
			s.recordRestored(c, why)
		}
		s.Status.Copying = nil
		s.set(v1alpha1.ConditionDelivered, metav1.ConditionFalse, reasonDrifted, why)
		s.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reasonDrifted, why)
	}
}

// recordRefusal records that a broker did not carry the operation out, or that a cluster did not take a move.
func (s *scope) recordRefusal(cluster string, why error) {
	summary := "the provider does not answer"
	if is[*delivery.RefusedError](why) {
		summary = forConsumer(why)
	}
	const longest, most = 1000, 32 // of Operation.Refusals, in which a cluster is once
	before := slices.DeleteFunc(slices.Clone(s.Status.Operation.Refusals), func(r v1alpha1.Refusal) bool { return r.Cluster == cluster })
	s.Status.Operation.Refusals = append(before[max(0, len(before)+1-most):], v1alpha1.Refusal{
		Cluster: cluster, At: metav1.NewTime(s.now),
		OperationFailure: v1alpha1.OperationFailure{Description: v1alpha1.Cut(describe(why), longest), Summary: v1alpha1.Cut(summary, longest), Repeatable: repeatable(why)},
	})
}

// takeBackRefusal drops the latest of these records.
func (s *scope) takeBackRefusal() {
	s.Status.Operation.Refusals = s.Status.Operation.Refusals[:len(s.Status.Operation.Refusals)-1]
}

// recordSaid records what brokers have said of the instance in the last call. A dashboard that cannot be used
// leaves the one before.
func (s *scope) recordSaid() {
	for i := range s.Status.Decision.Placements {
		p := &s.Status.Decision.Placements[i]
		if p.Upstream == nil {
			continue
		}
		if version := s.said[p.Cluster].MaintenanceVersion; version != nil {
			p.Upstream.MaintenanceVersion, s.heard = *version, true
		}
		d := s.said[p.Cluster].Dashboard
		if d == nil {
			continue
		}
		if before := p.Upstream.Dashboard; d.Ignored != "" && before != nil {
			d.URL = before.URL
		}
		s.heard = s.heard || p.Upstream.Dashboard == nil || *p.Upstream.Dashboard != *d
		p.Upstream.Dashboard = d
	}
}

// recordGrown records what volumes have beyond what a decision reserves, as it was said in the last call of drivers, and
// reports whether that is new. Where no driver was called it is as before.
func (s *scope) recordGrown(d *v1alpha1.Decision) (news bool) {
	for i := range d.Placements {
		p := &d.Placements[i]
		grown := p.Grown
		if said, called := s.said[p.Cluster]; !called {
			grown = placementOn(s.Status.DeliveredDecision(), p.Cluster).Grown
		} else if s.failures[p.Cluster] == nil {
			grown = said.Grown
		}
		news = news || !equality.Semantic.DeepEqual(p.Grown, grown)
		p.Grown = grown
	}
	return news
}

func (s *scope) setContracts(all []v1alpha1.Contract) { s.Status.Contracts = all }
