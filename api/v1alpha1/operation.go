package v1alpha1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer keeps a resource until its controller has removed everything that the resource
// owns.
const Finalizer = "sluice.dev/finalizer"

// OperationType is the type of an OSB operation.
// +kubebuilder:validation:Enum=provision;update;deprovision;bind;unbind
type OperationType string

// Operation types.
const (
	OperationProvision   OperationType = "provision"
	OperationUpdate      OperationType = "update"
	OperationDeprovision OperationType = "deprovision"
	OperationBind        OperationType = "bind"
	OperationUnbind      OperationType = "unbind"
)

// OperationState is the state of an operation, with the values of OSB 2.17, "Polling Last
// Operation".
// +kubebuilder:validation:Enum="in progress";succeeded;failed
type OperationState string

// Operation states.
const (
	StateInProgress OperationState = "in progress"
	StateSucceeded  OperationState = "succeeded"
	StateFailed     OperationState = "failed"
)

// Operation is the progress of the controller with one generation of a resource.
type Operation struct {
	// Type of the operation.
	Type OperationType `json:"type"`
	// Generation of the resource that the operation carries out.
	Generation int64 `json:"generation"`
	// State of the operation.
	State OperationState `json:"state"`
	// Description for operators: the current step, or the cause of the failure and a remedy. End
	// users read it too, for bindings.
	// +kubebuilder:validation:MaxLength=10000
	Description string `json:"description,omitempty"`
	// Summary of an instance's operation for end users: what they can act on, without clusters,
	// figures or addresses.
	// +kubebuilder:validation:MaxLength=10000
	Summary string `json:"summary,omitempty"`
	// Failing is the reason for which the operation will fail, once its effects are undone.
	Failing *OperationFailure `json:"failing,omitempty"`
	// Refusals lists the brokers that did not carry out a provision of an upstream plan, the latest last. It
	// goes on with other candidates of the plan. While an instance has to move, these are the clusters that did not take it.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=cluster
	Refusals []Refusal `json:"refusals,omitempty"`
	// StartedAt is when the controller first saw this generation.
	StartedAt metav1.Time `json:"startedAt"`
	// FinishedAt is the time at which State left "in progress".
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// InstanceUsable reports, after a failed update or deprovision, whether the instance still
	// works.
	InstanceUsable *bool `json:"instanceUsable,omitempty"`
	// UpdateRepeatable reports, after a failed update, whether the same update may be tried again.
	UpdateRepeatable *bool `json:"updateRepeatable,omitempty"`
}

// OperationFailure is the reason for which an operation fails.
type OperationFailure struct {
	// Description and Summary become those of the operation.
	// +kubebuilder:validation:MaxLength=10000
	Description string `json:"description"`
	// +kubebuilder:validation:MaxLength=10000
	Summary string `json:"summary,omitempty"`
	// Repeatable reports whether the same request may succeed later.
	Repeatable bool `json:"repeatable,omitempty"`
	// Unusable reports whether the instance does not work any more.
	Unusable bool `json:"unusable,omitempty"`
}

// OperationToken is the opaque OSB `operation` string. It names the operation by type and
// generation, so that a platform that polls with it gets the state of that operation and of
// no other.
type OperationToken struct {
	Type       OperationType
	Generation int64
}

// String returns the token, for instance "provision-1".
func (t OperationToken) String() string { return fmt.Sprintf("%s-%d", t.Type, t.Generation) }

// ParseOperationToken parses a token made by String. It returns false for any other string,
// which platforms do send.
func ParseOperationToken(s string) (OperationToken, bool) {
	kind, number, found := strings.Cut(s, "-")
	generation, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || generation < 1 {
		return OperationToken{}, false
	}
	switch t := OperationType(kind); t {
	case OperationProvision, OperationUpdate, OperationDeprovision, OperationBind, OperationUnbind:
		return OperationToken{Type: t, Generation: generation}, true
	default:
		return OperationToken{}, false
	}
}

// Refusal is a broker that did not carry an operation out, or a cluster that did not take a move.
type Refusal struct {
	// Cluster is the name of the member cluster; of a broker it is the one with the driver osb.
	Cluster string `json:"cluster"`
	// OperationFailure is its reason.
	OperationFailure `json:",inline"`
	// At is when the operation, or the move, was taken from it.
	At metav1.Time `json:"at"`
}

// Began returns when the operation began: StartedAt, of which the hub keeps whole seconds only, or the instant of its first
// event if that tells the rest.
func (o *Operation) Began(events []Event) time.Time {
	for _, e := range slices.Backward(events) {
		if e.Type == EventOrdered && e.At.Sub(o.StartedAt.Time).Abs() < time.Second {
			return e.At.Time
		}
	}
	return o.StartedAt.Time
}

// TriedSince returns when what is tried now began: with the operation or, after refusals, with the last of
// them.
func (o *Operation) TriedSince() time.Time {
	if n := len(o.Refusals); n > 0 {
		return o.Refusals[n-1].At.Time
	}
	return o.StartedAt.Time
}
