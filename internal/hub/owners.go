package hub

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
)

// ownersOnceApplied has the API server record who wrote which field of a resource
// (metadata.managedFields) only once somebody has applied it: server-side apply needs that, and
// nothing else reads it. An object without a record gets none by a later write, as in
// structured-merge-diff before the first apply, and its first apply treats all fields as owned by
// "before-first-apply". Without this, the record is half of what is stored of an instance, and
// keeping it takes longer than the write itself.
type ownersOnceApplied struct{}

var _ admission.MutationInterface = ownersOnceApplied{}

// Handles reports whether operation writes an object.
func (ownersOnceApplied) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit drops the record of an object that nobody has applied. Idempotent.
func (ownersOnceApplied) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	object, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil // what has no metadata has no record of it
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			return nil
		}
	}
	object.SetManagedFields(nil)
	return nil
}
