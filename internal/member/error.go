package member

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/internal/answers"
)

// Step is the step at which a connection failed.
type Step string

// Steps, in their order.
const (
	StepFind       Step = "find the cluster"
	StepUnseal     Step = "unseal its kubeconfig"
	StepReadSecret Step = "read its kubeconfig's Secret"
	StepKubeconfig Step = "use its kubeconfig"
	StepConnect    Step = "connect"
	StepRecognise  Step = "recognise it"
)

// Error names the member cluster that cannot be used, the failed step and the remedy. It never
// holds a part of the kubeconfig.
type Error struct {
	Cluster string
	Step    Step
	// Remedy is an instruction for the operator.
	Remedy string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("member cluster %s: %s: %v (%s)", e.Cluster, e.Step, e.Err, e.Remedy)
}

func (e *Error) Unwrap() error { return e.Err }

// IsUnknown reports whether err means that the inventory has no such cluster (any more), as
// opposed to a cluster that cannot be used right now.
func IsUnknown(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Step == StepFind && apierrors.IsNotFound(e.Err)
}

// errStranger means that another cluster answers than the registered one.
type errStranger struct{ was, is string }

func (e *errStranger) Error() string { return answers.Stranger(e.was, e.is) }

// Stranger returns the error that another cluster answers at a member cluster's address than
// before, with both UIDs.
func Stranger(cluster, was, is string) *Error {
	return &Error{
		Cluster: cluster, Step: StepRecognise, Err: &errStranger{was, is},
		Remedy: "make its address and kubeconfig lead to the original cluster; if that no longer exists, " +
			"remove it with `sluice cluster remove` and add the other one under another name",
	}
}

// IsStranger reports whether err is or wraps the error of Stranger.
func IsStranger(err error) bool {
	var e *errStranger
	return errors.As(err, &e)
}
