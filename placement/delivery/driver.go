package delivery

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Driver delivers an instance to one kind of member cluster. Every method is idempotent and
// resumable: Sluice may be killed at any instant, and the same call made again continues from
// there. Errors name the cluster.
type Driver interface {
	// Deliver makes the cluster match the delivery. It returns nil when that is done,
	// *PendingError when something must be waited for and *RefusedError when a retry cannot
	// help. Any other error is transient.
	Deliver(ctx context.Context, d Delivery) error
	// Observe returns nil while the cluster matches the delivery, and otherwise an error with
	// the difference. It writes nothing.
	Observe(ctx context.Context, d Delivery) error
	// Remove deletes what was delivered. It returns nil only when all of it is gone, and
	// *PendingError while something blocks the deletion.
	Remove(ctx context.Context, d Delivery) error
}

// Leaver is a driver whose deliveries may be member clusters themselves.
type Leaver interface {
	// Leave takes the member cluster that was made for an instance out of the inventory, and does not need the cluster
	// that made it. It is idempotent and resumable. It returns *PendingError until there is none.
	Leave(ctx context.Context, instance *v1alpha1.ServiceInstance) error
}

// Delivery is one instance on one of the clusters chosen for it.
type Delivery struct {
	Instance  *v1alpha1.ServiceInstance
	Placement v1alpha1.Placement
	// State of the instance that is delivered; nil for Remove.
	State *v1alpha1.InstanceState
	// Workload that runs there; nil if the plan sells none, and for Remove.
	Workload *workload.Order
	// Former is the workload of the state in force there, which is Workload itself unless an update is being delivered;
	// nil if there is none. A volume that has grown beyond Workload stays as it is, unless Workload orders less than Former.
	Former *workload.Order
	// KeepsVolumes keeps the volumes that Workload no longer has, because what is delivered is not committed: Former may be
	// delivered again.
	KeepsVolumes bool
	// Data is a step with the content of the workload's volumes: the workload is delivered stopped,
	// and the hooks of the step run. Nil means that it is delivered to run.
	Data *workload.Data
	// Replacing keeps objects of the workload that are on the cluster but no longer in the order.
	Replacing bool
	// Preparing applies what the pods of the workload need, and neither the pods nor names that lead to other
	// clusters, and deletes nothing.
	Preparing bool
	// Applied is the PendingError.Applied of the call before, unless something that was delivered has
	// changed since.
	Applied string
	// Said takes what the cluster says of the instance beside success; nil if the caller does not need that.
	Said *Said
}

// Said has the facts that a cluster gives of an instance whose delivery has succeeded or is pending.
type Said struct {
	// Dashboard of the instance; nil if the cluster says nothing new of it.
	Dashboard *v1alpha1.UpstreamDashboard
	// MaintenanceVersion of the instance's plan at a broker, if it is another one than that of the placement; nil otherwise.
	MaintenanceVersion *string
	// Kept means that there are volumes which only Delivery.KeepsVolumes has kept.
	Kept bool
	// Grown is the storage, by class, that volumes have beyond what the delivery orders; see Delivery.Former. It is known
	// if the delivery, or the observation, has succeeded.
	Grown corev1.ResourceList
	// NotUndone means that a broker did not carry out the update that undoes one that has failed: the instance is as that
	// one has left it.
	NotUndone bool
}

// PendingError means that a delivery or removal waits for something on the member cluster; call
// the driver again.
type PendingError struct {
	// Step that waits, for instance "delete namespace sluice-1f…".
	Step string
	// Detail is the cluster's message about it, for operators.
	Detail string
	// Consumer is the message for the consumer instead, if the consumer can do something. It
	// contains no address and nothing of other consumers.
	Consumer string
	// Every is the longest time between two checks while an operation waits for it, and NotBefore the
	// shortest; zero leaves that to the controller.
	Every, NotBefore time.Duration
	// Applied means that everything is applied, so that only what the cluster makes of it is waited
	// for; see Delivery.Applied. It is empty if there is more to do.
	Applied string
}

func (e *PendingError) Error() string {
	if e.Detail == "" {
		return "waiting: " + e.Step
	}
	return fmt.Sprintf("waiting: %s: %s", e.Step, e.Detail)
}

// RefusedError means that a cluster does not take a delivery, and never will in its present
// form.
type RefusedError struct {
	// Reason with the numbers or names, for operators.
	Reason string
	// Remedy is an instruction for the consumer or the operator.
	Remedy string
	// Consumer is the message for the consumer instead, if the consumer can do something.
	Consumer string
	// Repeatable means that the same update may succeed after that.
	Repeatable bool
	// Unusable means that the instance does not work any more.
	Unusable bool
	// OfParameters means that the consumer's parameters may be the cause, not the cluster.
	OfParameters bool
}

func (e *RefusedError) Error() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Remedy
}
