package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// scaledOwner is the field owner of the numbers of pods that Sluice has left to others.
const scaledOwner = "sluice-scaled"

// handOver makes another field owner keep the number of pods of an object if Sluice owns it and the order leaves it to others,
// for instance to an autoscaler that an update adds. Server-side apply would drop it, and the default is one pod
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#transferring-ownership). A workload that was stopped
// starts with the default.
func (t *target) handOver(ctx context.Context, o *unstructured.Unstructured) error {
	kind := groupKind(o.GroupVersionKind())
	if t.isNew || kind != "Deployment.apps" && kind != kindSets || statesPods(o) {
		return nil
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	if err := t.Connection.Client.Get(ctx, client.ObjectKeyFromObject(o), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	pods := numberIn(live, "spec", "replicas")
	if pods == 0 || !slices.ContainsFunc(live.GetManagedFields(), ownsReplicas) {
		return nil
	}
	scaled := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": pods}}}
	scaled.SetGroupVersionKind(o.GroupVersionKind())
	scaled.SetNamespace(o.GetNamespace())
	scaled.SetName(o.GetName())
	if err := t.Connection.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(scaled), client.FieldOwner(scaledOwner)); err != nil {
		return fmt.Errorf("hand over the number of pods: %w", err)
	}
	return nil
}

// ownsReplicas reports whether Sluice applies fields, and the number of pods among them.
func ownsReplicas(f metav1.ManagedFieldsEntry) bool {
	fields := struct {
		Spec struct {
			Replicas *struct{} `json:"f:replicas"`
		} `json:"f:spec"`
	}{}
	return f.Manager == v1alpha1.FieldManager && f.Operation == metav1.ManagedFieldsOperationApply && f.FieldsV1 != nil &&
		json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) == nil && fields.Spec.Replicas != nil
}
