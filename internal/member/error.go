package member

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Step is what was being done when a connection could not be had.
type Step string

// Steps, in their order.
const (
	StepFind       Step = "find the cluster"
	StepUnseal     Step = "unseal its kubeconfig"
	StepReadSecret Step = "read its kubeconfig's Secret"
	StepKubeconfig Step = "use its kubeconfig"
	StepConnect    Step = "connect"
)

// Error says which member cluster cannot be used, at which step, and what helps.
// It never holds a part of the kubeconfig.
type Error struct {
	Cluster string
	Step    Step
	// Remedy is what the operator can do about it.
	Remedy string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("member cluster %s: %s: %v (%s)", e.Cluster, e.Step, e.Err, e.Remedy)
}

func (e *Error) Unwrap() error { return e.Err }

// IsUnknown reports whether err says that the inventory has no such cluster (any
// more), as opposed to one that cannot be used right now.
func IsUnknown(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Step == StepFind && apierrors.IsNotFound(e.Err)
}
