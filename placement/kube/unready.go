package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// settle is health for what is being delivered: while that waits, it replaces pods that hold their StatefulSets up.
func (t *target) settle(ctx context.Context, objects []*unstructured.Unstructured) error {
	err := t.health(ctx, objects)
	if pending := (*delivery.PendingError)(nil); !errors.As(err, &pending) {
		return err
	}
	for _, o := range objects {
		if groupKind(o.GroupVersionKind()) != kindSets {
			continue
		}
		if wrong := t.replaceUnready(ctx, o); wrong != nil {
			return wrong
		}
	}
	return err
}

// replaceUnready deletes a pod of a StatefulSet that is not ready and not of the set's current template, so that it is
// created anew of that. A set whose pods are made in order waits for such a pod, also after the template that keeps it from
// getting ready was replaced (kubernetes/kubernetes#67250): without this, an update that fails could be neither undone nor
// mended. Only one pod at a time is deleted, and none while another one ends, or starts of the current template.
func (t *target) replaceUnready(ctx context.Context, o *unstructured.Unstructured) error {
	set := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, set); err != nil {
		return fmt.Errorf("read StatefulSet %s: %w", o.GetName(), err)
	}
	switch {
	case set.Status.ObservedGeneration < set.Generation, set.Status.UpdateRevision == "",
		set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType, set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement:
		return nil
	}
	var pods corev1.PodList
	if err := t.listInside(ctx, &pods, client.MatchingLabels{v1alpha1.LabelComponent: componentOf(o)}); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var former []*corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !metav1.IsControlledBy(pod, set) || isReady(pod) {
			continue
		}
		if !pod.DeletionTimestamp.IsZero() || pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision {
			return nil
		}
		if isUpdated(set, pod) {
			former = append(former, pod)
		}
	}
	if len(former) == 0 {
		return nil
	}
	first := slices.MinFunc(former, func(a, b *corev1.Pod) int { return ordinalOf(a) - ordinalOf(b) }) // the set waits for that
	if err := t.deleteAsSeen(ctx, first); err != nil {
		return fmt.Errorf("delete pod %s: %w", first.Name, err)
	}
	return nil
}

// isReady reports whether a pod is ready. One that ends is not.
func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isUpdated reports whether a set creates a pod of its current template, by the set's partition.
func isUpdated(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	rolling := set.Spec.UpdateStrategy.RollingUpdate
	return rolling == nil || rolling.Partition == nil || ordinalOf(pod) >= int(*rolling.Partition)
}

// ordinalOf returns the number at the end of the name of a set's pod.
func ordinalOf(pod *corev1.Pod) int {
	n, _ := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:]) // the set's controller numbers them
	return n
}
