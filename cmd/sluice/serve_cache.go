package main

import (
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var stripManagedFields = cache.TransformStripManagedFields()

// slim makes an object smaller before the cache keeps it. It drops the managed fields, which nothing reads and which
// are half of an object's size. A delivered instance has its state and its decision twice; the cache keeps one of
// each. Readers get copies that share nothing.
func slim(object any) (any, error) {
	if i, is := object.(*v1alpha1.ServiceInstance); is {
		shareDelivered(i)
	}
	return stripManagedFields(object)
}

// shareDelivered makes what an instance delivered share its memory with what it has to deliver, where both are the
// same. An object that already shares is not written: others may be reading it.
func shareDelivered(i *v1alpha1.ServiceInstance) {
	delivered, decision := i.Status.Delivered, i.Status.Decision
	if delivered == nil || decision == nil || len(decision.Placements) == 0 || len(delivered.Decision.Placements) == 0 ||
		&delivered.Decision.Placements[0] == &decision.Placements[0] {
		return
	}
	if reflect.DeepEqual(&delivered.Decision, decision) {
		delivered.Decision = *decision
	}
	if reflect.DeepEqual(delivered.State, i.Spec.Desired) {
		delivered.State = i.Spec.Desired
	}
}
