package controlplane

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node is a simulated machine. Quantities are written as in Kubernetes; everything is allocatable.
type Node struct {
	Name             string // required, unique in its control plane
	CPU              string // "8" when empty
	Memory           string // "32Gi" when empty
	Pods             string // "110" when empty
	EphemeralStorage string // "100Gi" when empty
	Extended         map[string]string
	Labels           map[string]string // beside those every kubelet sets: host name, operating system, architecture
	Taints           []corev1.Taint
	ProviderID       string
	Version          string // what its kubelet claims to be; the API server's version when empty
}

// object is the Node that a kubelet would register.
func (n Node) object(ip, version string) (*corev1.Node, error) {
	capacity, err := n.capacity()
	if err != nil {
		return nil, err
	}
	if n.Version != "" {
		version = n.Version
	}
	labels := map[string]string{
		corev1.LabelHostname:   n.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	for key, value := range n.Labels {
		labels[key] = value
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       corev1.NodeSpec{ProviderID: n.ProviderID, Taints: n.Taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Conditions:  healthy(),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: ip},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:          version,
				OperatingSystem:         "linux",
				Architecture:            "amd64",
				OSImage:                 "simulated",
				ContainerRuntimeVersion: "simulated://0",
			},
		},
	}, nil
}

func (n Node) capacity() (corev1.ResourceList, error) {
	written := map[corev1.ResourceName]string{
		corev1.ResourceCPU:              cmp.Or(n.CPU, "8"),
		corev1.ResourceMemory:           cmp.Or(n.Memory, "32Gi"),
		corev1.ResourcePods:             cmp.Or(n.Pods, "110"),
		corev1.ResourceEphemeralStorage: cmp.Or(n.EphemeralStorage, "100Gi"),
	}
	for name, quantity := range n.Extended {
		written[corev1.ResourceName(name)] = quantity
	}
	capacity := corev1.ResourceList{}
	for name, text := range written {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("node %s: %s %q: %w", n.Name, name, text, err)
		}
		capacity[name] = quantity
	}
	return capacity, nil
}

// healthy lists every condition a kubelet reports; controllers treat a missing one as unknown.
func healthy() []corev1.NodeCondition {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "SimulatedNetwork"),
	}
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// schedulable reports whether the node is Ready and the node lifecycle controller has noticed, i.e. taken away the taint
// with which every Node is born.
func schedulable(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return ready(node)
}
