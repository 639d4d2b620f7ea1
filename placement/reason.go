package placement

import (
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Reason of a rejection, in one CamelCase word.
type Reason string

// Reasons. There is also one for each resource, see insufficientReason.
const (
	// ReasonDriverMismatch: the request is for a cluster and this one runs workloads, or the other
	// way round.
	ReasonDriverMismatch Reason = "DriverMismatch"
	// ReasonNoCandidate: the plan does not name the broker.
	ReasonNoCandidate Reason = "NoCandidate"
	// ReasonNotOffered: the broker's catalog has no such plan.
	ReasonNotOffered Reason = "NotOffered"
	// ReasonNoRoom: the market of the broker, which is a Sluice, says that no order fits there now.
	ReasonNoRoom Reason = "NoRoom"
	// ReasonRefused: the broker has refused this order, or failed to carry it out; or the cluster has not taken this move.
	ReasonRefused Reason = "Refused"
	// ReasonConsumersOwn: the cluster belongs to a consumer; it buys and does not sell.
	ReasonConsumersOwn Reason = "ConsumersOwn"
	// ReasonNotPeerable: the cluster cannot be peered with the consumer's.
	ReasonNotPeerable Reason = "NotPeerable"
	// ReasonNoGateway: the plan has public ports, and the cluster has no Gateway for them.
	ReasonNoGateway Reason = "NoGateway"
	// ReasonNotReady: the cluster's API server does not answer.
	ReasonNotReady Reason = "NotReady"
	// ReasonAccessNotVerified: Sluice lacks verbs there that its driver needs.
	ReasonAccessNotVerified Reason = "AccessNotVerified"
	// ReasonCapacityUnknown: it is not known how much the cluster has, or what is known is too old.
	ReasonCapacityUnknown Reason = "CapacityUnknown"
	// ReasonCordoned: the operator allows no new placements on the cluster, or removes it.
	ReasonCordoned Reason = "Cordoned"
	// ReasonNotAdmitted: the provider has not proven what the operator requires.
	ReasonNotAdmitted Reason = "NotAdmitted"
	// ReasonPolicy: a rule of a policy, the plan or the consumer is not met.
	ReasonPolicy Reason = "Policy"
	// ReasonPodsRefused: a policy's rules for workloads refuse pods of the order.
	ReasonPodsRefused Reason = "PodsRefused"
	// ReasonRulesNotEnforced: a policy has rules for workloads, and the cluster would not enforce them.
	ReasonRulesNotEnforced Reason = "RulesNotEnforced"
	// ReasonLabelMismatch: the selector does not match the cluster's labels.
	ReasonLabelMismatch Reason = "LabelMismatch"
	// ReasonTierMismatch: the cluster has another tier.
	ReasonTierMismatch Reason = "TierMismatch"
	// ReasonTainted: the cluster has a taint that the request does not tolerate.
	ReasonTainted Reason = "Tainted"
	// ReasonLeft: the instance is on the cluster and has to leave it.
	ReasonLeft Reason = "Left"
	// ReasonSpokenFor: room is being made there for an instance of the same or a higher
	// priority.
	ReasonSpokenFor Reason = "SpokenFor"
	// ReasonProviderExcluded: the consumer excludes the cluster's provider.
	ReasonProviderExcluded Reason = "ProviderExcluded"
	// ReasonNoGroup: the cluster lacks a label that the request is spread by.
	ReasonNoGroup Reason = "NoGroup"
	// ReasonNotApart: another instance of the consumer is on the cluster, or near it.
	ReasonNotApart Reason = "NotApart"
	// ReasonNotTogether: the other instances of the consumer are elsewhere.
	ReasonNotTogether Reason = "NotTogether"
	// ReasonTooFar: the cluster is too far from the consumer, in kilometres.
	ReasonTooFar Reason = "TooFar"
	// ReasonTooSlow: the cluster's latency from a vantage is too high.
	ReasonTooSlow Reason = "TooSlow"
	// ReasonTooFragmented: no node there has enough free for one of the pods that the instance is meant
	// to run.
	ReasonTooFragmented Reason = "TooFragmented"
	// ReasonStorageClassMissing: the cluster has no such storage class.
	ReasonStorageClassMissing Reason = "StorageClassMissing"
	// ReasonNoPrice: the cluster has no price list in the currency of the maximum price, or one
	// in another currency than a budget.
	ReasonNoPrice Reason = "NoPrice"
	// ReasonTooExpensive: the cluster costs more than the maximum price.
	ReasonTooExpensive Reason = "TooExpensive"
	// ReasonOverBudget: the cluster costs more than a quota's budget leaves to the consumer.
	ReasonOverBudget Reason = "OverBudget"
	// ReasonGone: a current cluster of the instance is no longer in the inventory.
	ReasonGone Reason = "Gone"
	// ReasonFits: the cluster fits, but the request as a whole cannot be placed.
	ReasonFits Reason = "Fits"
	// ReasonDisplaces: the request fits if instances of lower priority leave.
	ReasonDisplaces Reason = "Displaces"
	// ReasonOutranked: the cluster fits, but others were preferred.
	ReasonOutranked Reason = "Outranked"
)

func insufficientReason(name corev1.ResourceName) Reason {
	if name == corev1.ResourceCPU {
		return "InsufficientCPU"
	}
	if class, is := v1alpha1.DeviceClassOf(name); is {
		name = corev1.ResourceName(class + "-devices")
	}
	var word strings.Builder
	word.WriteString("Insufficient")
	start := true
	for _, char := range string(name) {
		switch {
		case !unicode.IsLetter(char) && !unicode.IsDigit(char):
			start = true
		case start:
			word.WriteRune(unicode.ToUpper(char))
			start = false
		default:
			word.WriteRune(char)
		}
	}
	return Reason(word.String())
}
