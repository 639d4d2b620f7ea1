package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LeftPlacement is a placement of which something is left on its cluster that the instance does not need any more.
type LeftPlacement struct {
	Placement `json:",inline"`
	// Since is the time at which it was not needed any more.
	Since metav1.Time `json:"since"`
}

// Move is a change of an instance's clusters that its consumer did not ask for.
type Move struct {
	// From lists the clusters left, and is empty if the instance only came to more clusters. To lists
	// the clusters that are new, and is empty if there was no room.
	From []string `json:"from"`
	To   []string `json:"to,omitempty"`
	// Reason, for instance "eu-1 has not answered since 2026-01-01T00:00:00Z".
	Reason string `json:"reason"`
	// DecidedAt is when the new place was reserved; DeliveredAt is when it was ready.
	DecidedAt   metav1.Time  `json:"decidedAt"`
	DeliveredAt *metav1.Time `json:"deliveredAt,omitempty"`
}

// AnnotationLeave on a ServiceInstance lists clusters, comma-separated, that the instance
// should leave if it can; `sluice rebalance --apply` and `sluice instance move` write it. AnnotationMoveTo
// lists the only clusters that it may come to then; empty means any.
const (
	AnnotationLeave  = "sluice.dev/leave"
	AnnotationMoveTo = "sluice.dev/move-to"
)

// DataCopy is the way of the content of volumes through a backup: to another cluster, or where they are.
type DataCopy struct {
	// Step that is being done.
	Step DataStep `json:"step"`
	// From is the cluster that has the content, To the one that gets it: the same one if the instance stays.
	From string `json:"from"`
	To   string `json:"to"`
	// Backup is the ID of the backup.
	Backup string `json:"backup"`
	// Run names the hooks; another one for each try.
	Run string `json:"run"`
	// Request is the value of AnnotationRestore with which an operator asked for it; empty if nobody did.
	Request string `json:"request,omitempty"`
	// Since is when the step began.
	Since metav1.Time `json:"since"`
	// Failure of a restore in place, which is not tried again. The workload stays stopped until another one succeeds.
	Failure string `json:"failure,omitempty"`
}

// DataStep is a step of a DataCopy.
// +kubebuilder:validation:Enum=Backup;Restore;Start
type DataStep string

// Steps of a DataCopy, in their order. The workload is stopped during a backup and a restore, and then
// started.
const (
	StepBackup  DataStep = "Backup"
	StepRestore DataStep = "Restore"
	StepStart   DataStep = "Start"
)

// ReplacementStep is a step in which parts of a workload change their clusters.
// +kubebuilder:validation:Enum=Start;Switch;Remove
type ReplacementStep string

// Steps of a replacement, in their order. First the parts are started on their new clusters. When they work
// there, the names of components lead to them on all other clusters. Then the parts are removed from their former
// clusters. Last, with an empty step, the other clusters no longer let those in.
const (
	ReplacementStart  ReplacementStep = "Start"
	ReplacementSwitch ReplacementStep = "Switch"
	ReplacementRemove ReplacementStep = "Remove"
)

// Departure is a cluster that an instance leaves.
type Departure struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Reason for leaving.
	Reason string `json:"reason"`
	// At is the time of that decision.
	At metav1.Time `json:"at"`
	// Stay lists the components that do not leave a lost cluster, because their volumes are there; empty if
	// all leave.
	// +listType=set
	Stay []string `json:"stay,omitempty"`
}

// Arrival is a cluster that an instance gets in addition, because its plan has one in each group.
type Arrival struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// At is the time of that decision.
	At metav1.Time `json:"at"`
}
