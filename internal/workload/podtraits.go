package workload

import (
	"cmp"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Pod is a pod of a workload, as far as rules of policies read it.
type Pod struct {
	// Component that it belongs to; hooks belong to the first one.
	Component string
	// Images of its containers, in their order.
	Images []string
	// RuntimeClass that it names; empty if it names none.
	RuntimeClass string
	// Capabilities that its containers add.
	Capabilities []string
}

// Template returns a pod template with these values. Rules read the security contexts of a pod and of its containers
// alike, so the capabilities are in one of them.
func (p *Pod) Template() map[string]any {
	var containers []any
	for _, image := range p.Images {
		containers = append(containers, map[string]any{"image": image})
	}
	var add []any
	for _, capability := range p.Capabilities {
		add = append(add, capability)
	}
	spec := map[string]any{
		"containers":      containers,
		"securityContext": map[string]any{"capabilities": map[string]any{"add": add}},
	}
	if p.RuntimeClass != "" {
		spec["runtimeClassName"] = p.RuntimeClass
	}
	return map[string]any{"spec": spec}
}

// podsOf returns the pods of objects, each once. Those of no component belong to the first one.
func podsOf(objects []*unstructured.Unstructured, first string) (pods []Pod) {
	for _, o := range objects {
		template, _ := podTemplateOf(o)
		if template == nil {
			continue
		}
		pod := Pod{Component: cmp.Or(componentOf(o), first)}
		pod.RuntimeClass, _, _ = unstructured.NestedString(template, "spec", "runtimeClassName")
		for _, list := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedSlice(template, "spec", list)
			for _, c := range containers {
				container, _ := c.(map[string]any)
				image, _, _ := unstructured.NestedString(container, "image")
				add, _, _ := unstructured.NestedStringSlice(container, "securityContext", "capabilities", "add")
				pod.Images, pod.Capabilities = append(pod.Images, image), append(pod.Capabilities, add...)
			}
		}
		if !slices.ContainsFunc(pods, func(p Pod) bool { return reflect.DeepEqual(p, pod) }) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// imagesOf returns the images of pods, sorted, each once.
func imagesOf(pods []Pod) (images []string) {
	for i := range pods {
		images = append(images, pods[i].Images...)
	}
	slices.Sort(images)
	return slices.Compact(images)
}
