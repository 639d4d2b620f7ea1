package v1alpha1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DriverName returns the name of the driver that delivers to the cluster.
func (c *MemberCluster) DriverName() string { return cmp.Or(c.Spec.Driver, DriverKube) }

// Holds reports whether a condition is true, and otherwise its message.
func (c *MemberCluster) Holds(condition string) (ok bool, otherwise string) {
	found := meta.FindStatusCondition(c.Status.Conditions, condition)
	switch {
	case found == nil:
		return false, "not probed yet"
	case found.Status == metav1.ConditionTrue:
		return true, ""
	default:
		return false, found.Message
	}
}
