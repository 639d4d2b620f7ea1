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
	ConditionRulesEnforced  = "RulesEnforced"  // rules of policies for pods are enforced there, by admission policies
	ConditionAccessVerified = "AccessVerified" // Sluice has the permissions there that its driver needs
	ConditionCapacityKnown  = "CapacityKnown"  // its capacity has been read, and what was read still holds
	ConditionAdmitted       = "Admitted"       // its provider has proven what spec.trust asks for
	ConditionProven         = "Proven"         // a consumer has proven who it is
	ConditionCordoned       = "Cordoned"       // it takes no new placements; absent until it was cordoned for the first time
	ConditionAcyclic        = "Acyclic"        // of a broker that is a Sluice: no plan there leads orders back here, or through too many Sluices
	ConditionMeasured       = "Measured"       // its probe is connected to the broker; only while it has one
	ConditionDrained        = "Drained"        // no instance is left on it; only while it is to be drained

	// ServiceInstance.
	ConditionPlaced    = "Placed"    // a decision is written and its capacity is reserved
	ConditionDelivered = "Delivered" // every chosen cluster holds what the decision says

	// PlacementPolicy.
	ConditionForecast = "Forecast" // what has come of the orders that are expected; only of policies that look ahead

	// Peering.
	ConditionNetworked     = "Networked"     // the gateways of the two clusters are connected
	ConditionAuthenticated = "Authenticated" // the consumer has an identity at the provider
)

// Condition reasons that other packages compare with.
const (
	ReasonReady       = "Ready"
	ReasonInProgress  = "InProgress"
	ReasonFailed      = "Failed"  // terminal: waits for the consumer or the operator
	ReasonRefused     = "Refused" // of a peering: a retry cannot help
	ReasonUnplaceable = "Unplaceable"
	ReasonDeleting    = "Deleting"
	ReasonUnreachable = "Unreachable" // of a member cluster: it does not answer
	ReasonNoNodes     = "NoNodes"     // of a member cluster: its capacity is known, and none of its nodes takes pods
	ReasonExpiring    = "Expiring"    // of a binding: its credentials end
	ReasonExpired     = "Expired"     // of a binding: its credentials have ended
)

// LongestText is the length of the longest description of an operation, and of the longest message of a condition, in characters.
// The API takes longer messages, but not several of them in one status.
const LongestText = 10000

// SetCondition sets one condition, with a message that is cut to LongestText. It reports whether anything except
// observedGeneration changed, so that callers can skip status writes without news.
func SetCondition(conditions *[]metav1.Condition, generation int64, kind string, status metav1.ConditionStatus, reason, message string) bool {
	return meta.SetStatusCondition(conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: Cut(message, LongestText), ObservedGeneration: generation,
	})
}

// Cut shortens a text to a number of characters; the API counts characters, not bytes.
func Cut(text string, longest int) string {
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return text
}
