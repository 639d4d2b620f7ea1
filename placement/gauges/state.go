package gauges

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// States of instances and bindings.
const (
	stateWaiting    = "waiting"     // of an instance: for a cluster to take it
	stateInProgress = "in progress" // an operation is under way
	stateReady      = "ready"
	stateNotReady   = "not ready" // it worked once
	stateFailed     = "failed"    // it was never delivered, or bound
	stateDeleting   = "deleting"
	stateExpiring   = "expiring" // of a binding: the platform should get other credentials
	stateExpired    = "expired"  // of a binding: its credentials have ended
)

func stateOfInstance(i *v1alpha1.ServiceInstance) string {
	placed := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionPlaced)
	switch {
	case !i.DeletionTimestamp.IsZero():
		return stateDeleting
	case i.Status.Operation != nil && !i.Status.IsFinished() && placed != nil && placed.Reason == v1alpha1.ReasonUnplaceable:
		return stateWaiting
	case !i.Status.IsFinished():
		return stateInProgress
	case i.Status.Delivered == nil:
		return stateFailed
	case meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady):
		return stateReady
	}
	return stateNotReady
}

func stateOfBinding(b *v1alpha1.ServiceBinding) string {
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case !b.DeletionTimestamp.IsZero():
		return stateDeleting
	case b.Status.Operation == nil || b.Status.Operation.State == v1alpha1.StateInProgress || ready == nil:
		return stateInProgress
	case b.Status.Operation.State == v1alpha1.StateFailed:
		return stateFailed
	case ready.Reason == v1alpha1.ReasonExpired:
		return stateExpired
	case ready.Reason == v1alpha1.ReasonExpiring:
		return stateExpiring
	case ready.Status == metav1.ConditionTrue:
		return stateReady
	}
	return stateNotReady
}
