package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"
)

// largestPods returns the requests of the objects' pods, by component: of each that no other pod of the
// component exceeds. These decide whether a node has room, not the limits.
func largestPods(objects []*unstructured.Unstructured) (map[string][]corev1.ResourceList, error) {
	largest := map[string][]corev1.ResourceList{}
	for _, o := range objects {
		template, path := podTemplateOf(o)
		if path == "" {
			continue
		}
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
			return nil, refused("%s: %v", describeObject(o), err)
		}
		for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range containers {
				requestLimits(&containers[i].Resources)
			}
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		largest[componentOf(o)] = withLargest(largest[componentOf(o)], requests)
	}
	return largest, nil
}

// requestLimits requests what has only a limit, as API servers do.
func requestLimits(r *corev1.ResourceRequirements) {
	requests := maps.Clone(r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}

// withLargest adds a pod, unless another one exceeds it; those that it exceeds go.
func withLargest(pods []corev1.ResourceList, pod corev1.ResourceList) []corev1.ResourceList {
	if slices.ContainsFunc(pods, func(p corev1.ResourceList) bool { return covers(p, pod) }) {
		return pods
	}
	return append(slices.DeleteFunc(pods, func(p corev1.ResourceList) bool { return covers(pod, p) }), pod)
}

// covers reports whether one pod requests at least as much of each resource as another.
func covers(pod, other corev1.ResourceList) bool {
	for name, amount := range other {
		if has := pod[name]; has.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}
