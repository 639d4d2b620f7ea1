package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cordon stops new placements on the cluster. A drain goes on.
func (s *MemberClusterSpec) Cordon() { s.Unschedulable = true }

// Drain stops new placements on the cluster, and moves its instances off it. A drain that is under way keeps its
// beginning.
func (s *MemberClusterSpec) Drain(now metav1.Time) {
	s.Cordon()
	if !slices.ContainsFunc(s.Taints, IsDrain) {
		s.Taints = append(s.Taints, corev1.Taint{Key: TaintDrain, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
	}
}

// EndDrain lets the instances that are left on the cluster stay. It takes no new ones.
func (s *MemberClusterSpec) EndDrain() { s.Taints = slices.DeleteFunc(s.Taints, IsDrain) }

// Uncordon allows new placements on the cluster again, and ends a drain.
func (s *MemberClusterSpec) Uncordon() {
	s.Unschedulable = false
	s.EndDrain()
}
