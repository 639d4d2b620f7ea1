package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types. Ready summarises the others on every kind.
const (
	ConditionReady = "Ready"

	// MemberCluster.
	ConditionReachable      = "Reachable"      // its API server answers
	ConditionAccessVerified = "AccessVerified" // Sluice holds the verbs that its driver needs there
	ConditionAdmitted       = "Admitted"       // its provider has proven what spec.trust asks for

	// ServiceInstance.
	ConditionPlaced    = "Placed"    // a decision is written and its capacity reserved
	ConditionDelivered = "Delivered" // every chosen cluster holds what the decision says

	// Peering.
	ConditionNetworked     = "Networked"     // the gateways of the two clusters are connected
	ConditionAuthenticated = "Authenticated" // the consumer has an identity at the provider
)

// Condition reasons that other packages match on.
const (
	ReasonReady       = "Ready"
	ReasonInProgress  = "InProgress"
	ReasonFailed      = "Failed" // terminal: waits for the consumer or the operator
	ReasonUnplaceable = "Unplaceable"
	ReasonDeleting    = "Deleting"
)

// SetCondition sets one condition and reports whether anything but its
// observedGeneration changed, so that callers write status only when it says
// something new.
func SetCondition(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}
