package placement

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Driver delivers an instance to one kind of member cluster. Every method is
// idempotent and resumable: Sluice may be killed at any instant, and the same
// call made again carries on from there. Errors name the cluster.
type Driver interface {
	// Deliver makes the cluster carry what the delivery says. It returns nil when
	// that is carried out, *PendingError when something must be waited for and
	// *RefusedError when trying again cannot help. Any other error is transient.
	Deliver(ctx context.Context, d Delivery) error
	// Observe returns nil while the cluster carries what was delivered, otherwise
	// what is wrong. It writes nothing.
	Observe(ctx context.Context, d Delivery) error
	// Remove deletes what was delivered. It returns nil only when nothing is left,
	// and *PendingError while something blocks.
	Remove(ctx context.Context, d Delivery) error
}

// Delivery is one instance on one of the clusters chosen for it.
type Delivery struct {
	Instance  *v1alpha1.ServiceInstance
	Placement v1alpha1.Placement
}

// PendingError says that a delivery or removal waits for something on the member
// cluster; the driver is to be called again.
type PendingError struct {
	// Step that waits, for instance "delete namespace sluice-1f…".
	Step string
	// Detail is what the cluster says about it, for operators.
	Detail string
	// Consumer is what the consumer reads instead, where it can do something; it names no
	// address and nothing that is not the consumer's.
	Consumer string
	// Every is how often to look at the longest while an operation waits for it; zero leaves
	// that to the controller.
	Every time.Duration
}

func (e *PendingError) Error() string {
	if e.Detail == "" {
		return "waiting: " + e.Step
	}
	return fmt.Sprintf("waiting: %s: %s", e.Step, e.Detail)
}

// RefusedError says that a cluster does not take a delivery and never will as it
// stands.
type RefusedError struct {
	// Reason with the numbers or names, for operators.
	Reason string
	// Remedy is what the consumer or operator can do about it.
	Remedy string
	// Consumer is what the consumer reads instead, where it can do something.
	Consumer string
	// Repeatable says that the same update may succeed once the consumer has done that.
	Repeatable bool
}

func (e *RefusedError) Error() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Remedy
}
