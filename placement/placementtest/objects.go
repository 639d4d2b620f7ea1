package placementtest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node returns a ready node of 4 cores and 16 GiB, of which 3.5 and 15 are allocatable, with a change.
func Node(name string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Capacity: Quantities("cpu=4,memory=16Gi,pods=110"), Allocatable: Quantities("cpu=3500m,memory=15Gi,pods=110"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if change != nil {
		change(n)
	}
	return n
}

// Container returns a container that requests resources.
func Container(requests string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: Quantities(requests)}}
}

// Pod returns a running pod of half a core and 1 GiB, with a change.
func Pod(namespace, onNode string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"},
		Spec:       corev1.PodSpec{NodeName: onNode, Containers: []corev1.Container{Container("cpu=500m,memory=1Gi")}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}
