package v1alpha1

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// AnnotationRestore on a ServiceInstance asks to restore a backup of its volumes; `sluice instance restore`
// writes it. Its value is a RestoreRequest. A request that has ended is in status.restored.
const AnnotationRestore = "sluice.dev/restore"

// ElsewhereCluster as RestoreRequest.Cluster is any cluster except the one that the instance is on.
const ElsewhereCluster = "*"

// RestoreRequest asks to restore a backup of an instance's volumes.
//
// +kubebuilder:object:generate=false
type RestoreRequest struct {
	// Backup is the ID of a complete backup.
	Backup string
	// Cluster that gets the content: the name of a MemberCluster, which may be the one that the instance is
	// on, or ElsewhereCluster.
	Cluster string
	// At is when it was asked for. It distinguishes requests that are otherwise the same.
	At time.Time
}

// String returns the value of AnnotationRestore.
func (r *RestoreRequest) String() string {
	return strings.Join([]string{r.Backup, r.Cluster, r.At.UTC().Format(time.RFC3339Nano)}, " ")
}

// ParseRestoreRequest parses a value of AnnotationRestore.
func ParseRestoreRequest(value string) (*RestoreRequest, error) {
	parts := strings.Fields(value)
	if len(parts) != 3 {
		return nil, fmt.Errorf("want BACKUP CLUSTER TIME, not %.100q", value)
	}
	at, err := time.Parse(time.RFC3339Nano, parts[2])
	if err != nil {
		return nil, fmt.Errorf("the time: %w", err)
	}
	return &RestoreRequest{Backup: parts[0], Cluster: parts[1], At: at}, nil
}

// RestoreAsked returns the value of AnnotationRestore if that request has not ended; otherwise "".
func (i *ServiceInstance) RestoreAsked() string {
	asked := i.Annotations[AnnotationRestore]
	if done := i.Status.Restored; done != nil && done.Request == asked {
		return ""
	}
	return asked
}

// IsComplete reports whether the backup can be restored.
func (b *Backup) IsComplete() bool { return b.At != nil }

// TriedAt is when the backup ended, complete or not.
func (b *Backup) TriedAt() time.Time {
	switch {
	case b.At == nil && b.FailedAt == nil:
		return time.Time{}
	case b.At == nil || b.FailedAt != nil && b.FailedAt.After(b.At.Time):
		return b.FailedAt.Time
	default:
		return b.At.Time
	}
}

// LastBackup returns the backup that was made or tried last; nil if none was.
func (s *ServiceInstanceStatus) LastBackup() *Backup {
	if len(s.Backups) == 0 {
		return nil
	}
	return &s.Backups[len(s.Backups)-1]
}

// CarriesFrom returns the cluster with the volumes of the instance, if these can be backed up and restored;
// otherwise "".
func (s *ServiceInstanceStatus) CarriesFrom() string {
	for _, cluster := range s.DeliveredDecision().Clusters() {
		if s.IsPinnedOn(cluster) && s.CanCarry(cluster) {
			return cluster
		}
	}
	return ""
}

// PinnedOn returns the names of the instances that a drain of a cluster would not leave alive: they have volumes there,
// and no backup carries them.
func PinnedOn(instances []ServiceInstance, cluster string) (names []string) {
	for i := range instances {
		if status := &instances[i].Status; status.IsPinnedOn(cluster) && !status.CanCarry(cluster) {
			names = append(names, instances[i].Name)
		}
	}
	return names
}

// CanRestore reports whether there is a complete backup with an ID.
func (s *ServiceInstanceStatus) CanRestore(id string) bool {
	return slices.ContainsFunc(s.Backups, func(b Backup) bool { return b.ID == id && b.IsComplete() })
}

// CompleteBackups returns the backups that can be restored, the oldest first.
func (s *ServiceInstanceStatus) CompleteBackups() []Backup {
	return slices.DeleteFunc(slices.Clone(s.Backups), func(b Backup) bool { return !b.IsComplete() })
}
