package kube

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// The objects of a workload are an ApplySet (KEP-3659): each carries the set's ID, and a ConfigMap, the
// set's parent, lists the kinds. So objects of a former version of the workload are found and deleted,
// even if another replica applied them or Sluice was killed.
const (
	setName        = "sluice-workload"
	labelPartOf    = "applyset.kubernetes.io/part-of"
	labelSet       = "applyset.kubernetes.io/id"
	annotationTool = "applyset.kubernetes.io/tooling"
	annotationHas  = "applyset.kubernetes.io/contains-group-kinds"
)

// setID returns the ID of the instance's set, by the KEP's formula.
func (t *target) setID() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{setName, t.Namespace, "ConfigMap", ""}, ".")))
	return "applyset-" + base64.RawURLEncoding.EncodeToString(sum[:]) + "-v1"
}

// parent returns the set's parent with the given kinds.
func (t *target) parent(kinds []string) tenant.Object {
	labels := t.Labels()
	labels[labelSet] = t.setID()
	return corev1ac.ConfigMap(setName, t.Namespace).WithLabels(labels).WithAnnotations(map[string]string{
		annotationTool: v1alpha1.FieldManager + "/v1", annotationHas: strings.Join(kinds, ","),
	})
}

// announce lists the kinds of the objects in the parent before they are applied, in addition to those
// that are known to be there.
func (t *target) announce(ctx context.Context, known []string, objects []*unstructured.Unstructured) error {
	if len(known)+len(objects) == 0 {
		return nil
	}
	return t.ApplyInside(ctx, t.parent(union(known, kindsOf(objects))))
}

// knownKinds returns the kinds that the parent lists; none if there is no parent.
func (t *target) knownKinds(ctx context.Context) ([]string, error) {
	var parent corev1.ConfigMap
	err := tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		return t.Connection.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: setName}, &parent)
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s: %w", setName, err)
	case parent.Annotations[annotationHas] == "":
		return nil, nil
	}
	return strings.Split(parent.Annotations[annotationHas], ","), nil
}

// prune deletes the set's objects that are not among those that were applied, and then shortens the
// parent's list. They are of the kinds that the parent listed before. Volumes, and StatefulSets that make some, stay for
// dropStale; these sets are stopped.
func (t *target) prune(ctx context.Context, before []string, applied []*unstructured.Unstructured) error {
	if len(before) == 0 {
		return nil
	}
	keep := map[string]bool{}
	for _, o := range applied {
		keep[groupKind(o.GroupVersionKind())+"/"+o.GetName()] = true
	}
	for _, kind := range workload.Kinds() {
		if !slices.Contains(before, groupKind(kind)) || groupKind(kind) == kindClaims {
			continue
		}
		kind = t.served(kind)
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		err := tenant.OnceAllowed(ctx, func(ctx context.Context) error {
			return t.Connection.Client.List(ctx, list, client.InNamespace(t.Namespace), client.MatchingLabels{labelPartOf: t.setID()})
		})
		if apierrors.IsForbidden(err) {
			return &delivery.RefusedError{
				Reason: fmt.Sprintf("Sluice may not list %s on %s, which was registered before workloads ran there", kind.Kind, t.Connection.Cluster),
				Remedy: "its operator has to run `sluice cluster renew " + t.Connection.Cluster + "`",
			}
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			// Objects that a controller creates, as EndpointSlices for a Service, have the owner's labels.
			if keep[groupKind(kind)+"/"+o.Name] || !o.DeletionTimestamp.IsZero() || metav1.GetControllerOf(o) != nil {
				continue
			}
			o.SetGroupVersionKind(kind)
			if set := t.stale.set(o.Name); set != nil && groupKind(kind) == kindSets {
				if err := t.stop(ctx, set); err != nil {
					return fmt.Errorf("stop StatefulSet %s: %w", o.Name, err)
				}
				continue
			}
			if err := t.deleteAsSeen(ctx, o); err != nil {
				return fmt.Errorf("delete %s %s: %w", kind.Kind, o.Name, err)
			}
		}
	}
	if now := union(kindsOf(applied), t.stale.kinds()); !slices.Equal(now, union(before, now)) {
		return t.ApplyInside(ctx, t.parent(now))
	}
	return nil
}

// deleteAsSeen deletes an object and, in the background, what it owns.
func (t *target) deleteAsSeen(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	return client.IgnoreNotFound(t.Connection.Client.Delete(ctx, o,
		client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// groupKind writes a kind as the parent lists it, for instance "Deployment.apps".
func groupKind(kind schema.GroupVersionKind) string {
	return strings.TrimSuffix(kind.Kind+"."+kind.Group, ".")
}

func kindsOf(objects []*unstructured.Unstructured) []string {
	kinds := map[string]bool{}
	for _, o := range objects {
		kinds[groupKind(o.GroupVersionKind())] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
