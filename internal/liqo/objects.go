package liqo

import (
	"github.com/liqotech/liqo/pkg/consts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels by which Liqo's nodes and pods are known.
const (
	LabelNodeType  = consts.TypeLabel
	LabelManagedBy = consts.ManagedByLabelKey
)

// IsVirtualNode reports whether a node stands for capacity of another cluster.
func IsVirtualNode(node metav1.Object) bool {
	return node.GetLabels()[LabelNodeType] == consts.TypeNode
}

// IsShadowPod reports whether a pod runs here for another cluster.
func IsShadowPod(pod metav1.Object) bool {
	return pod.GetLabels()[LabelManagedBy] == consts.ManagedByShadowPodValue
}
