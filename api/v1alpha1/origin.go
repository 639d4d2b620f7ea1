package v1alpha1

import (
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations of a resource whose hub has moved to another API server, which gives UIDs, times and generations itself.
// They hold those of the first one. `sluice hub move` writes them.
const (
	// AnnotationUID holds the UID; on the definition that identifies the hub, the hub's ID.
	AnnotationUID = "sluice.dev/uid"
	// AnnotationCreated holds the time when the resource was created, in RFC 3339.
	AnnotationCreated = "sluice.dev/created"
	// AnnotationGenerations holds how many generations the resource has had that its present generation does not count, less
	// those that came of sealing parameters.
	AnnotationGenerations = "sluice.dev/generations"
)

// UIDOf returns the UID by which a resource is known: in what is sealed for it, in its journal, and to member clusters.
// It stays when the hub moves. Preconditions of a request need the present one, which is in the metadata.
func UIDOf(o metav1.Object) types.UID {
	if first := o.GetAnnotations()[AnnotationUID]; first != "" {
		return types.UID(first)
	}
	return o.GetUID()
}

// CreatedOf returns when a resource was created, in whichever home of the hub.
func CreatedOf(o metav1.Object) metav1.Time {
	if first, err := time.Parse(time.RFC3339, o.GetAnnotations()[AnnotationCreated]); err == nil {
		return metav1.NewTime(first)
	}
	return o.GetCreationTimestamp()
}

// GenerationsBefore returns what is to be added to generations of a resource for those who know it from a former home of
// the hub, or from before its parameters were sealed; it may be negative.
func GenerationsBefore(o metav1.Object) int64 {
	n, _ := strconv.ParseInt(o.GetAnnotations()[AnnotationGenerations], 10, 64) // zero if there is none
	return n
}
