package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// What volumes contain cannot be applied again. So claims that the order no longer has are deleted last, when the
// workload works and the hub has that (delivery.Delivery.KeepsVolumes): until then the former order can be delivered
// again, with its data. A StatefulSet that makes claims of
// templates is kept, without pods, until its claims are deleted, because they are found by it. Its retention policy
// cannot replace that: it deletes claims with their pods, before the others work. See retain.

// The kinds of claims, and of what makes some.
const (
	kindClaims = "PersistentVolumeClaim"
	kindSets   = "StatefulSet.apps"
)

// stale has the claims that the order no longer has, and the StatefulSets that make claims, without those that are
// being deleted.
type stale struct {
	claims []*corev1.PersistentVolumeClaim
	sets   []*appsv1.StatefulSet
	// held are StatefulSets of the order, as it has them, which keep claims of pods that they lose; see holdClaims.
	held []*unstructured.Unstructured
}

// isEmpty reports whether nothing is left to do when the workload works.
func (s *stale) isEmpty() bool { return len(s.claims)+len(s.sets)+len(s.held) == 0 }

// kinds returns the kinds of what is stale, for the set's parent.
func (s *stale) kinds() (kinds []string) {
	if len(s.claims) > 0 {
		kinds = append(kinds, kindClaims)
	}
	if len(s.sets) > 0 {
		kinds = append(kinds, kindSets)
	}
	return kinds
}

// set returns the StatefulSet of a name if it is stale and makes claims; otherwise nil.
func (s *stale) set(name string) *appsv1.StatefulSet {
	for _, set := range s.sets {
		if set.Name == name {
			return set
		}
	}
	return nil
}

// weigh prepares objects, and the quota, for the volumes that the cluster has; see keepGrown and findStale. Known are
// the kinds of the objects that the set may have there.
func (t *target) weigh(ctx context.Context, known []string, objects []*unstructured.Unstructured) error {
	if !slices.Contains(known, kindClaims) && !slices.Contains(known, kindSets) {
		return nil
	}
	claims, err := t.liveClaims(ctx)
	if err != nil {
		return err
	}
	if err := t.keepGrown(ctx, objects, claims); err != nil || t.of.Replacing {
		return err
	}
	return t.findStale(ctx, known, objects, claims)
}

// retain makes StatefulSets keep the claims of the pods that an order takes away, also if their retention policy deletes
// them: they are deleted as stale. A set of which the order does not state the number of pods keeps its policy, as it is
// scaled by others; see holdClaims.
func retain(objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if groupKind(o.GroupVersionKind()) != kindSets || !statesPods(o) || whenScaled(o) == "" {
			continue
		}
		if err := retainIn(o); err != nil {
			return err
		}
	}
	return nil
}

// statesPods reports whether a StatefulSet has its number of pods of the order.
func statesPods(set *unstructured.Unstructured) bool {
	_, states, _ := unstructured.NestedFieldNoCopy(set.Object, "spec", "replicas")
	return states
}

// scaledPolicy is the field of a StatefulSet that decides on the claims of pods that it loses.
var scaledPolicy = []string{"spec", "persistentVolumeClaimRetentionPolicy", "whenScaled"}

// whenScaled returns that field; "" if it is not set.
func whenScaled(set *unstructured.Unstructured) string {
	policy, _, _ := unstructured.NestedString(set.Object, scaledPolicy...)
	return policy
}

func retainIn(set *unstructured.Unstructured) error {
	if err := unstructured.SetNestedField(set.Object, string(appsv1.RetainPersistentVolumeClaimRetentionPolicyType), scaledPolicy...); err != nil {
		return fmt.Errorf("keep the claims of StatefulSet %s: %w", set.GetName(), err)
	}
	return nil
}

// holdClaims makes a StatefulSet that others scale keep the claims of the pods that it loses until an update works: the
// update may let its autoscaler have fewer. The cluster has to know that before it has the autoscaler.
func (t *target) holdClaims(ctx context.Context, o *unstructured.Unstructured, live *appsv1.StatefulSet) error {
	if t.of.Former == nil || t.of.Former == t.of.Workload {
		return nil
	}
	const deletes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	if policy := live.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil && policy.WhenScaled == deletes {
		if err := t.patchSet(ctx, live, `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Retain"}}}`); err != nil {
			return fmt.Errorf("keep the claims of StatefulSet %s: %w", live.Name, err)
		}
	}
	if whenScaled(o) != string(deletes) {
		return nil
	}
	t.stale.held = append(t.stale.held, o.DeepCopy())
	return retainIn(o)
}

// liveClaims reads all claims of the namespace.
func (t *target) liveClaims(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := t.listInside(ctx, &list); err != nil {
		return nil, fmt.Errorf("list PersistentVolumeClaims: %w", err)
	}
	return list.Items, nil
}

// listInside lists objects of the namespace.
func (t *target) listInside(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		return t.Connection.Client.List(ctx, list, append(options, client.InNamespace(t.Namespace))...)
	})
}

// asLive makes the claims among objects as large as those of the cluster, see keepGrown.
func (t *target) asLive(ctx context.Context, objects []*unstructured.Unstructured) error {
	if !slices.Contains(kindsOf(objects), kindClaims) {
		return nil
	}
	claims, err := t.liveClaims(ctx)
	if err != nil {
		return err
	}
	return t.keepGrown(ctx, objects, claims)
}

// sayGrown says what volumes have beyond the order.
func (t *target) sayGrown() {
	if t.of.Said != nil {
		t.of.Said.Grown = t.grown
	}
}

// keepGrown raises what objects order of storage to what their claims have already, and the quota with it: a claim
// cannot shrink, and may have grown for an update that was rolled back. An order of less than what is in force stays as
// it is, for the cluster to refuse.
func (t *target) keepGrown(ctx context.Context, objects []*unstructured.Unstructured, claims []corev1.PersistentVolumeClaim) error {
	ordered, err := workload.ClaimSpecs(objects)
	if err != nil || t.of.Former == nil {
		return err
	}
	var former map[string]*corev1.PersistentVolumeClaimSpec
	if t.of.Former == t.of.Workload {
		former = ordered
	}
	for i := range claims {
		spec, has := ordered[claims[i].Name], claims[i].Spec.Resources.Requests[corev1.ResourceStorage]
		if spec == nil {
			continue
		}
		more, size := has.DeepCopy(), spec.Resources.Requests[corev1.ResourceStorage]
		if more.Sub(size); more.Sign() <= 0 {
			continue
		}
		if former == nil {
			if former, err = t.formerSpecs(ctx); err != nil {
				return err
			}
		}
		if before := former[claims[i].Name]; before != nil && size.Cmp(before.Resources.Requests[corev1.ResourceStorage]) < 0 {
			continue
		}
		o := objectOf(objects, kindClaims, claims[i].Name)
		if err := unstructured.SetNestedField(o.Object, has.String(), "spec", "resources", "requests", "storage"); err != nil {
			return fmt.Errorf("keep the size of PersistentVolumeClaim %s: %w", o.GetName(), err)
		}
		class := ptr.Deref(spec.StorageClassName, "")
		t.hard = withRoom(t.hard, room(class, more, 0))
		t.grown = plus(t.grown, corev1.ResourceList{v1alpha1.StorageResource(class): more})
	}
	return nil
}

// formerSpecs returns the claims of the workload in force.
func (t *target) formerSpecs(ctx context.Context) (map[string]*corev1.PersistentVolumeClaimSpec, error) {
	objects, err := t.renderFormer(ctx)
	if err != nil {
		return nil, err
	}
	return workload.ClaimSpecs(objects)
}

// findStale finds the claims that are deleted when the workload works, and what makes them. It lets stopped
// StatefulSets start again if the order has them.
func (t *target) findStale(ctx context.Context, known []string, objects []*unstructured.Unstructured, claims []corev1.PersistentVolumeClaim) error {
	ordered, err := workload.ClaimSpecs(objects)
	if err != nil {
		return err
	}
	current, err := workload.AllSetClaims(objects)
	if err != nil {
		return err
	}
	all := current
	if slices.Contains(known, kindSets) {
		var sets appsv1.StatefulSetList
		if err := t.listInside(ctx, &sets, client.MatchingLabels{labelPartOf: t.setID()}); err != nil {
			return fmt.Errorf("list StatefulSets: %w", err)
		}
		for i := range sets.Items {
			set := &sets.Items[i]
			made := workload.ClaimsOf(set, 0)
			if made == nil || !set.DeletionTimestamp.IsZero() {
				continue
			}
			if o := objectOf(objects, kindSets, set.Name); o != nil {
				if statesPods(o) {
					continue
				}
				// The order's autoscaler, or somebody else, decides on the number of its pods.
				isScaled := slices.ContainsFunc(current, func(c *workload.SetClaims) bool { return c.Set == set.Name && c.Scaled })
				if !isScaled {
					current = append(slices.Clip(current), made.AsRunning(set))
				}
				if err := t.holdClaims(ctx, o, set); err != nil {
					return err
				}
				if err := startAgain(o, set); err != nil {
					return err
				}
				continue
			}
			t.stale.sets = append(t.stale.sets, set)
			all = append(slices.Clip(all), made)
		}
	}
	for i := range claims {
		claim := &claims[i]
		if ordered[claim.Name] != nil || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		made := func(c *workload.SetClaims) bool { made, _ := c.Made(claim); return made }
		used := func(c *workload.SetClaims) bool { _, used := c.Made(claim); return used }
		if slices.ContainsFunc(current, used) || claim.Labels[labelPartOf] != t.setID() && !slices.ContainsFunc(all, made) {
			continue
		}
		t.stale.claims = append(t.stale.claims, claim)
		t.room = plus(t.room, room(ptr.Deref(claim.Spec.StorageClassName, ""), claim.Spec.Resources.Requests[corev1.ResourceStorage], 1))
	}
	return nil
}

// objectOf returns the object with a kind and a name; nil if there is none.
func objectOf(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return groupKind(o.GroupVersionKind()) == kind && o.GetName() == name
	})
	if i < 0 {
		return nil
	}
	return objects[i]
}

// startAgain gives a StatefulSet that was stopped, and does not state how many pods it has, one: an autoscaler leaves sets
// alone that have none.
func startAgain(o *unstructured.Unstructured, live *appsv1.StatefulSet) error {
	if ptr.Deref(live.Spec.Replicas, 1) > 0 {
		return nil
	}
	return unstructured.SetNestedField(o.Object, int64(1), "spec", "replicas")
}

// stop leaves a StatefulSet without pods, and with its claims.
func (t *target) stop(ctx context.Context, set *appsv1.StatefulSet) error {
	if ptr.Deref(set.Spec.Replicas, 1) == 0 {
		return nil
	}
	return t.patchSet(ctx, set, `{"spec":{"replicas":0,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Retain"}}}`)
}

// patchSet changes a StatefulSet that need not be there any more.
func (t *target) patchSet(ctx context.Context, set *appsv1.StatefulSet, patch string) error {
	err := t.Connection.Client.Patch(ctx, set.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(v1alpha1.FieldManager))
	return client.IgnoreNotFound(err)
}

// dropStale deletes what is stale, and then shortens the parent's list. The sets go last, because their claims are found
// by them. Sets that keep claims only until then get the policy of the order.
func (t *target) dropStale(ctx context.Context, objects []*unstructured.Unstructured) error {
	if t.stale.isEmpty() {
		return nil
	}
	for _, set := range t.stale.held {
		if err := t.applyWorkload(ctx, set.DeepCopy()); err != nil {
			return err
		}
	}
	for _, claim := range t.stale.claims {
		if err := t.deleteAsSeen(ctx, claim); err != nil {
			return fmt.Errorf("delete PersistentVolumeClaim %s: %w", claim.Name, err)
		}
	}
	for _, set := range t.stale.sets {
		if err := t.deleteAsSeen(ctx, set); err != nil {
			return fmt.Errorf("delete StatefulSet %s: %w", set.Name, err)
		}
	}
	return t.ApplyInside(ctx, t.parent(kindsOf(objects)))
}

// countOfClaims is the name by which a quota bounds the number of claims.
const countOfClaims corev1.ResourceName = "count/persistentvolumeclaims"

// room returns the amounts of a quota that claims of a class take.
func room(class string, storage resource.Quantity, claims int64) corev1.ResourceList {
	return corev1.ResourceList{
		v1alpha1.StorageResource(class): storage,
		corev1.ResourceRequestsStorage:  storage,
		countOfClaims:                   *resource.NewQuantity(claims, resource.DecimalSI),
	}
}

// plus returns the sum of two amounts of each resource.
func plus(a, b corev1.ResourceList) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, all := range []corev1.ResourceList{a, b} {
		for name, amount := range all {
			total := sum[name]
			total.Add(amount)
			sum[name] = total
		}
	}
	return sum
}

// withRoom adds amounts to those that a quota bounds.
func withRoom(hard, room corev1.ResourceList) corev1.ResourceList {
	sum := plus(hard, room)
	maps.DeleteFunc(sum, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, bounded := hard[name]
		return !bounded
	})
	return sum
}
