package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Finalizer keeps a resource until its controller has removed what it stands for.
const Finalizer = "sluice.dev/finalizer"

// OperationType is what an OSB operation does.
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

// OperationState is the state of an operation, in the words of OSB 2.17,
// "Polling Last Operation".
// +kubebuilder:validation:Enum="in progress";succeeded;failed
type OperationState string

// Operation states.
const (
	StateInProgress OperationState = "in progress"
	StateSucceeded  OperationState = "succeeded"
	StateFailed     OperationState = "failed"
)

// Operation reports how far the controller has come with one generation of a resource.
type Operation struct {
	// Type of the operation.
	Type OperationType `json:"type"`
	// Generation of the resource that this operation carries out.
	Generation int64 `json:"generation"`
	// State of the operation.
	State OperationState `json:"state"`
	// Description for operators: the step in hand, or why it failed and what would help. Of
	// bindings, end users read it as well.
	// +kubebuilder:validation:MaxLength=10000
	Description string `json:"description,omitempty"`
	// Summary is what end users read of an instance's operation: what they can act on, without
	// clusters, figures and addresses.
	// +kubebuilder:validation:MaxLength=10000
	Summary string `json:"summary,omitempty"`
	// StartedAt is when the controller first saw this generation.
	StartedAt metav1.Time `json:"startedAt"`
	// FinishedAt is when State left "in progress".
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// InstanceUsable says, after a failed update or deprovision, whether the instance still works.
	InstanceUsable *bool `json:"instanceUsable,omitempty"`
	// UpdateRepeatable says, after a failed update, whether the same update may be tried again.
	UpdateRepeatable *bool `json:"updateRepeatable,omitempty"`
}

// OperationToken is the opaque OSB `operation` string: it names the operation by
// type and generation, so that a platform polling for it is answered about that
// one and no other.
type OperationToken struct {
	Type       OperationType
	Generation int64
}

// String renders the token, for instance "provision-1".
func (t OperationToken) String() string { return fmt.Sprintf("%s-%d", t.Type, t.Generation) }

// ParseOperationToken reads a token made by String. It returns false for tokens
// of foreign origin, which platforms do send.
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
