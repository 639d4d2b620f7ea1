package broker

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// instanceOperation returns the operation that an instance's generation stands for: as its
// controller reports it, or in progress until the controller has seen that generation.
func instanceOperation(i *v1alpha1.ServiceInstance) v1alpha1.Operation {
	pending := v1alpha1.OperationProvision
	switch {
	case i.DeletionTimestamp != nil:
		pending = v1alpha1.OperationDeprovision
	case i.Status.Delivered != nil:
		pending = v1alpha1.OperationUpdate
	}
	return operationInHand(&i.ObjectMeta, i.Status.Operation, pending)
}

// bindingOperation does for a binding what instanceOperation does for an instance.
func bindingOperation(b *v1alpha1.ServiceBinding) v1alpha1.Operation {
	pending := v1alpha1.OperationBind
	if b.DeletionTimestamp != nil {
		pending = v1alpha1.OperationUnbind
	}
	return operationInHand(&b.ObjectMeta, b.Status.Operation, pending)
}

func operationInHand(meta *metav1.ObjectMeta, reported *v1alpha1.Operation, pending v1alpha1.OperationType) v1alpha1.Operation {
	if reported != nil && reported.Generation == meta.Generation {
		return *reported
	}
	start := v1alpha1.CreatedOf(meta)
	if meta.DeletionTimestamp != nil {
		start = *meta.DeletionTimestamp
	} else if reported != nil && reported.FinishedAt != nil {
		start = *reported.FinishedAt
	}
	return v1alpha1.Operation{
		Type: pending, Generation: meta.Generation, State: v1alpha1.StateInProgress, StartedAt: start,
		Description: "accepted, not begun yet", Summary: "accepted, not begun yet",
	}
}

func inProgress(o v1alpha1.Operation) bool { return o.State == v1alpha1.StateInProgress }

// hint notes that the plan_id of a request about an instance or binding is another plan than it has. OSB 2.17
// ("Deprovisioning") calls plan_id a hint: a platform that missed the end of an update sends the old plan, and the actual
// plan is used. The service offering may not have the old plan any more.
func (c *call) hint(sent, actual string) {
	if sent != "" && sent != actual {
		c.note = "plan_id was another plan than the stored one"
	}
}

// isExpired reports whether a binding's credentials have stopped working.
func isExpired(b *v1alpha1.ServiceBinding, now time.Time) bool {
	return b.Status.ExpiresAt != nil && !now.Before(b.Status.ExpiresAt.Time)
}
