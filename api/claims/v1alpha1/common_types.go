package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer of claims: the broker may have something that they asked for.
const Finalizer = "claims.sluice.dev/ordered"

// AnnotationBinding on a Secret names the binding at the broker whose credentials it has.
const AnnotationBinding = "claims.sluice.dev/binding"

// ConditionReady is the condition of both kinds.
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	ReasonReady             = "Ready"
	ReasonInProgress        = "InProgress"        // the broker carries it out
	ReasonNotOffered        = "NotOffered"        // the broker has no such service or plan
	ReasonInvalidParameters = "InvalidParameters" // they do not match the plan's schema, or cannot be read
	ReasonRefused           = "Refused"           // the broker's answer is final for this spec
	ReasonFailed            = "Failed"            // it is tried again
	ReasonBrokerUnavailable = "BrokerUnavailable" // the broker does not answer, or not now
	ReasonUnauthorized      = "Unauthorized"      // the broker does not accept the controller's credentials
	ReasonLost              = "Lost"              // the broker does not know the instance any more
	ReasonDeleting          = "Deleting"
	ReasonServiceNotReady   = "ServiceNotReady" // of a binding claim: there is nothing to bind yet
	ReasonSecretConflict    = "SecretConflict"  // of a binding claim: the Secret belongs to somebody else
	ReasonRenewalFailed     = "RenewalFailed"   // of a binding claim: what is in the Secret still works
	ReasonExpired           = "Expired"         // of a binding claim: what is in the Secret works no more
)

// DefaultBroker is the name of the broker of claims that name none.
const DefaultBroker = "default"

// ParametersSource is a source of parameters.
type ParametersSource struct {
	// SecretKeyRef selects a key of a Secret in the claim's namespace. Its value is an object, as JSON or YAML, whose
	// members are parameters.
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// SecretKeyReference selects a key of a Secret.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in its data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// Failure is a request that the broker did not carry out.
type Failure struct {
	// Digest of the order that failed. Another order is tried at once.
	Digest string `json:"digest"`
	// Reason and Message of the condition.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Attempts that have failed in a row.
	Attempts int32 `json:"attempts"`
	// RetryAt is the time of the next attempt; absent if the same order is not tried again.
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
}
