package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// blocked returns why the pods of an object, as it is on the cluster, are not ready: the reason, as Kubernetes calls it,
// and more for operators. Both are empty if nothing is wrong yet, or if the controller that makes them has not seen the
// object yet.
func (t *target) blocked(ctx context.Context, o *unstructured.Unstructured) (why, more string, err error) {
	if o.GroupVersionKind().Group == appsv1.GroupName && numberIn(o, "status", "observedGeneration") < o.GetGeneration() {
		return "", "", nil
	}
	var pods corev1.PodList
	if err := t.Connection.Client.List(ctx, &pods, client.InNamespace(t.Namespace), client.MatchingLabels{v1alpha1.LabelComponent: componentOf(o)}); err != nil {
		return "", "", fmt.Errorf("list pods: %w", err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { // the newest first
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	for i := range pods.Items {
		if why, more = blockedPod(&pods.Items[i]); why != "" {
			return why, more, nil
		}
	}
	return t.notMade(ctx, o)
}

// blockedPod returns why one pod is not ready.
func blockedPod(pod *corev1.Pod) (why, more string) {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			if last := c.LastTerminationState.Terminated; last != nil {
				return fmt.Sprintf("%s (exit code %d)", w.Reason, last.ExitCode), ": " + w.Message
			}
			return w.Reason, ": " + w.Message
		}
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			return fmt.Sprintf("%s (exit code %d)", e.Reason, e.ExitCode), ""
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason, ": " + c.Message
		}
	}
	return "", ""
}

// failedCreate is the reason of events about pods, or claims of theirs, that the cluster refuses to create, for instance
// because of the quota.
const failedCreate = "FailedCreate"

// notMade returns why pods of an object are missing, by the last event that says so. Both are empty if none is missing.
func (t *target) notMade(ctx context.Context, o *unstructured.Unstructured) (why, more string, err error) {
	want, made := numberIn(o, "spec", "replicas"), numberIn(o, "status", "replicas")
	if o.GetKind() == "Job" {
		want, made = numberIn(o, "spec", "parallelism"), numberIn(o, "status", "active")
	}
	if made >= want {
		return "", "", nil
	}
	var events corev1.EventList
	if err := t.Connection.Client.List(ctx, &events, client.InNamespace(t.Namespace), client.MatchingFields{"reason": failedCreate}); err != nil {
		return "", "", fmt.Errorf("list events: %w", err)
	}
	var last *corev1.Event
	for i := range events.Items {
		e := &events.Items[i]
		if makesPodsOf(&e.InvolvedObject, o) && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	if last == nil {
		return "", "", nil
	}
	return failedCreate, ": " + last.Message, nil
}

// numberIn returns a number of an object; zero if it has none.
func numberIn(o *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}

// makesPodsOf reports whether an event is about an object, or about a ReplicaSet of it.
func makesPodsOf(about *corev1.ObjectReference, o *unstructured.Unstructured) bool {
	name := about.Name
	if i := strings.LastIndexByte(name, '-'); i > 0 && about.Kind == "ReplicaSet" && o.GetKind() == "Deployment" {
		return name[:i] == o.GetName()
	}
	return about.Kind == o.GetKind() && name == o.GetName()
}
