package reader

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Reading has the resources of a member cluster, and the use of them by others. It shares no memory with the reader.
type Reading struct {
	// Source is a sentence about where it comes from.
	Source string
	// Nodes is the number of nodes that were counted; Architectures and OperatingSystems are theirs.
	Nodes                           int32
	Architectures, OperatingSystems []string
	// Idle says why none of its nodes takes workloads, with a remedy; empty if one does, or if it is not known.
	Idle string
	// Capacity, Allocatable and Foreign use, in the resources' own units.
	Capacity, Allocatable, Foreign corev1.ResourceList
	// Holes lists the free resources node by node; nil if unknown.
	Holes *v1alpha1.Holes
	// StorageClasses by name, sorted.
	StorageClasses []string
	// DeviceClasses by name, sorted.
	DeviceClasses []v1alpha1.DeviceClass
}

// Report writes the reading to the status of its cluster.
func (r *Reading) Report(status *v1alpha1.MemberClusterStatus) {
	status.Nodes, status.Architectures, status.OperatingSystems = r.Nodes, r.Architectures, r.OperatingSystems
	status.Capacity, status.Allocatable, status.ForeignUse = r.Capacity, r.Allocatable, r.Foreign
	status.Holes, status.StorageClasses, status.DeviceClasses = r.Holes, r.StorageClasses, r.DeviceClasses
}

// UnknownError is the reason why the capacity of a cluster is not known.
type UnknownError struct {
	// Reason in one CamelCase word.
	Reason  string
	Message string
}

// Reasons of an UnknownError.
const (
	ReasonSyncing = "Syncing" // nothing has been read completely yet
	ReasonStale   = "Stale"   // the last answer is too old
	ReasonInvalid = "Invalid" // the last answer cannot be true
)

func (e *UnknownError) Error() string { return e.Message }

// Declared is the reader of a capacity that the operator has declared. It is complete from the start,
// and others use nothing of it.
type Declared corev1.ResourceList

// Read returns the declared capacity.
func (d Declared) Read(context.Context) (Reading, error) {
	r := Reading{Source: "declared by the operator", Capacity: corev1.ResourceList(d), Allocatable: corev1.ResourceList(d)}
	for name := range d {
		if class, is := v1alpha1.StorageClassOf(name); is {
			r.StorageClasses = append(r.StorageClasses, class)
		}
	}
	slices.Sort(r.StorageClasses)
	return r, nil
}

// Wait returns at once.
func (Declared) Wait(context.Context) {}

// Close does nothing.
func (Declared) Close(bool) {}
