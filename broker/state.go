package broker

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// instanceOperation is the operation that an instance's generation stands for: as
// its controller reports it, or in progress as long as that has not looked yet.
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

// bindingOperation is instanceOperation for a binding.
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
	start := meta.CreationTimestamp
	if meta.DeletionTimestamp != nil {
		start = *meta.DeletionTimestamp
	} else if reported != nil && reported.FinishedAt != nil {
		start = *reported.FinishedAt
	}
	return v1alpha1.Operation{
		Type: pending, Generation: meta.Generation, State: v1alpha1.StateInProgress, StartedAt: start,
		Description: "accepted, not begun yet",
	}
}

func token(o v1alpha1.Operation) string {
	return v1alpha1.OperationToken{Type: o.Type, Generation: o.Generation}.String()
}

func inProgress(o v1alpha1.Operation) bool { return o.State == v1alpha1.StateInProgress }

// inForce is the state that an instance is in, or is being provisioned to: a failed
// update, or one in progress, changes nothing of it.
func inForce(i *v1alpha1.ServiceInstance) *v1alpha1.InstanceState {
	if i.Status.Delivered != nil {
		return &i.Status.Delivered.State
	}
	return &i.Spec.Desired
}

// hasPlan reports whether a plan id names the plan of an instance: the one in force
// or, as platforms forget which of their updates failed, the one last asked for.
func hasPlan(i *v1alpha1.ServiceInstance, planID string) bool {
	return planID == inForce(i).PlanID || planID == i.Spec.Desired.PlanID
}

// isExpired reports whether a binding's credentials have stopped working.
func isExpired(b *v1alpha1.ServiceBinding, now time.Time) bool {
	return b.Status.ExpiresAt != nil && !now.Before(b.Status.ExpiresAt.Time)
}
