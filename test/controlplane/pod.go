package controlplane

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// started is the status a pod has once everything in it runs, or has run to its end if it belongs to a Job, whose exit code
// is given.
func started(pod *corev1.Pod, hostIP, podIP string, exitCode int32) corev1.PodStatus {
	now := metav1.Now()
	phase, conditions := corev1.PodRunning, serving(corev1.ConditionTrue, "")
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	if isOfJob(pod) {
		phase, conditions = corev1.PodSucceeded, serving(corev1.ConditionFalse, "PodCompleted")
		end := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}
		if exitCode != 0 {
			phase, end.Reason, end.ExitCode = corev1.PodFailed, "Error", exitCode
		}
		state = corev1.ContainerState{Terminated: end}
	}
	status := corev1.PodStatus{
		Phase:     phase,
		HostIP:    hostIP,
		HostIPs:   []corev1.HostIP{{IP: hostIP}},
		PodIP:     podIP,
		PodIPs:    []corev1.PodIP{{IP: podIP}},
		StartTime: &now,
		Conditions: append(conditions, corev1.PodCondition{
			Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now,
		}),
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

func isOfJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job"
}

// serving are the conditions that tell whether a pod takes requests.
func serving(status corev1.ConditionStatus, reason string) []corev1.PodCondition {
	now := metav1.Now()
	return []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: status, Reason: reason, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: status, Reason: reason, LastTransitionTime: now},
	}
}

// givenUp reports whether the node lifecycle controller has marked a running pod as not ready because its node was lost.
// It gives no reason; a test that does gets to keep its pod unready.
func givenUp(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionFalse && condition.Reason == ""
		}
	}
	return false
}
