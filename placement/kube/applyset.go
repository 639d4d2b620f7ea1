package kube

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
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
	return t.ApplyInside(ctx, t.parent(lists.Sorted(known, kindsOf(objects))))
}

// knownKinds returns the kinds that the parent lists, and those of the workload in force, which is being replaced: consumers
// with the role edit may change the parent, or delete it.
func (t *target) knownKinds(ctx context.Context) ([]string, error) {
	kinds, err := t.listedKinds(ctx)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if t.of.Former == nil || t.of.Former == t.of.Workload {
		return kinds, nil
	}
	former, err := t.renderFormer(ctx)
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) { // the cluster is another one since
		for _, kind := range workload.Kinds() {
			if !workload.IsRenderedOnly(kind) { // prune finds those by itself
				kinds = append(kinds, groupKind(kind))
			}
		}
		return lists.Sorted(kinds), nil
	}
	if err != nil {
		return nil, err
	}
	return lists.Sorted(kinds, kindsOf(former)), nil
}

// listedKinds returns the kinds that the parent lists. The error is NotFound if there is no parent.
func (t *target) listedKinds(ctx context.Context) ([]string, error) {
	var parent corev1.ConfigMap
	err := tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		return t.Connection.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: setName}, &parent)
	})
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", setName, err)
	}
	return strings.FieldsFunc(parent.Annotations[annotationHas], func(r rune) bool { return r == ',' }), nil
}

// checkParent returns an error if the parent does not list the kinds of objects that are applied.
func (t *target) checkParent(ctx context.Context, objects []*unstructured.Unstructured) error {
	if len(objects) == 0 {
		return nil
	}
	listed, err := t.listedKinds(ctx)
	if err != nil {
		return err
	}
	if all := lists.Sorted(listed, kindsOf(objects)); len(all) > len(lists.Sorted(listed)) {
		return fmt.Errorf("ConfigMap %s was changed: it lists the kinds %s, not %s", setName, strings.Join(listed, ","), strings.Join(all, ","))
	}
	return nil
}

// prune deletes the set's objects that are not among those that were applied, and then shortens the
// parent's list. They are of the kinds that were known before, and of those that consumers cannot write, whatever the parent
// lists: with them, a host or a port would stay public after it was released. Volumes, and StatefulSets that make some, stay for
// dropStale; these sets are stopped. A link to another cluster stays until its name leads to pods here, so that callers always
// reach one of the two.
func (t *target) prune(ctx context.Context, before []string, applied []*unstructured.Unstructured) error {
	if t.isNew {
		return nil
	}
	keep := map[string]bool{}
	for _, o := range applied {
		keep[groupKind(o.GroupVersionKind())+"/"+o.GetName()] = true
	}
	kinds := slices.DeleteFunc(workload.Kinds(), func(kind schema.GroupVersionKind) bool {
		known := slices.Contains(before, groupKind(kind))
		return !known && !workload.IsRenderedOnly(kind) || groupKind(kind) == kindClaims
	})
	found := make([]metav1.PartialObjectMetadataList, len(kinds))
	group, inner := errgroup.WithContext(ctx)
	for i := range kinds {
		known := slices.Contains(before, groupKind(kinds[i]))
		kinds[i] = t.served(kinds[i])
		group.Go(func() error { return t.listSet(inner, kinds[i], known, &found[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, kind := range kinds {
		for k := range found[i].Items {
			o := &found[i].Items[k]
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
			if name := o.Labels[discoveryv1.LabelServiceName]; name != "" {
				if err := t.awaitEndpoints(ctx, name, applied); err != nil {
					return err
				}
			}
			if err := t.deleteAsSeen(ctx, o); err != nil {
				return fmt.Errorf("delete %s %s: %w", kind.Kind, o.Name, err)
			}
		}
	}
	if now := lists.Sorted(kindsOf(applied), t.stale.kinds()); !slices.Equal(now, lists.Sorted(before, now)) {
		return t.ApplyInside(ctx, t.parent(now))
	}
	return nil
}

// awaitEndpoints returns *delivery.PendingError while a Service would have no endpoint without its link to another cluster: its
// component runs here now, and the cluster has not found its pods yet.
func (t *target) awaitEndpoints(ctx context.Context, service string, applied []*unstructured.Unstructured) error {
	runs := func(o *unstructured.Unstructured) bool { return numberIn(o, "status", "readyReplicas") > 0 }
	at := slices.IndexFunc(applied, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Service" && o.GetName() == service })
	if at < 0 || !slices.ContainsFunc(applied, func(o *unstructured.Unstructured) bool { return componentOf(o) == componentOf(applied[at]) && runs(o) }) {
		return nil
	}
	var found discoveryv1.EndpointSliceList
	if err := t.listInside(ctx, &found, client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return fmt.Errorf("list the endpoints of Service %s: %w", service, err)
	}
	for i := range found.Items {
		isReady := func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }
		if metav1.GetControllerOf(&found.Items[i]) != nil && slices.ContainsFunc(found.Items[i].Endpoints, isReady) {
			return nil
		}
	}
	return &delivery.PendingError{Step: "run the workload on " + t.Connection.Cluster, Detail: "Service " + service + " has no endpoint yet"}
}

// listSet lists the set's objects of a kind. There are none if the cluster lacks the kind, or was registered before Sluice
// could write it there; the latter is an error if the kind is known to be there.
func (t *target) listSet(ctx context.Context, kind schema.GroupVersionKind, known bool, list *metav1.PartialObjectMetadataList) error {
	list.SetGroupVersionKind(kind)
	find := func(ctx context.Context) error {
		return t.Connection.Client.List(ctx, list, client.InNamespace(t.Namespace), client.MatchingLabels{labelPartOf: t.setID()})
	}
	if !known {
		if err := find(ctx); !apierrors.IsForbidden(err) {
			return unlessUnserved(kind, err)
		}
		return nil
	}
	err := tenant.OnceAllowed(ctx, find)
	if apierrors.IsForbidden(err) {
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("Sluice may not list %s on %s, which was registered before workloads ran there", kind.Kind, t.Connection.Cluster),
			Remedy: "its operator has to run `sluice cluster renew " + t.Connection.Cluster + "`",
		}
	}
	return unlessUnserved(kind, err)
}

// unlessUnserved returns the error of a list unless it means that the cluster does not serve the kind.
func unlessUnserved(kind schema.GroupVersionKind, err error) error {
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("list %s: %w", kind.Kind, err)
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
