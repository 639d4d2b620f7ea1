package controlplane

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// started is the status a pod has once everything in it runs, or has run to its end if it belongs to a Job.
func started(pod *corev1.Pod, hostIP, podIP string) corev1.PodStatus {
	now := metav1.Now()
	phase, serving, reason := corev1.PodRunning, corev1.ConditionTrue, ""
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		phase, serving, reason = corev1.PodSucceeded, corev1.ConditionFalse, "PodCompleted"
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}}
	}
	status := corev1.PodStatus{
		Phase:     phase,
		HostIP:    hostIP,
		HostIPs:   []corev1.HostIP{{IP: hostIP}},
		PodIP:     podIP,
		PodIPs:    []corev1.PodIP{{IP: podIP}},
		StartTime: &now,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: serving, Reason: reason, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: serving, Reason: reason, LastTransitionTime: now},
		},
	}
	running := phase == corev1.PodRunning
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name:    container.Name,
			Image:   container.Image,
			ImageID: "simulated://" + container.Image,
			State:   state,
			Ready:   running,
			Started: &running,
		})
	}
	return status
}
