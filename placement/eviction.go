package placement

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// taintsOf returns the taints of a member cluster, and the one that Sluice adds to a cluster
// that does not answer.
func taintsOf(mc *v1alpha1.MemberCluster) []corev1.Taint {
	reachable := meta.FindStatusCondition(mc.Status.Conditions, v1alpha1.ConditionReachable)
	if reachable == nil || reachable.Status != metav1.ConditionFalse {
		return mc.Spec.Taints
	}
	since := reachable.LastTransitionTime
	return append(slices.Clip(mc.Spec.Taints), corev1.Taint{
		Key: v1alpha1.TaintUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &since,
	})
}

// Eviction is when an instance has to leave a cluster, and why.
type Eviction struct {
	At     time.Time
	Reason string
	// Unreachable is true if the reason is that the cluster does not answer.
	Unreachable bool
}

// Evict returns when the first of a cluster's NoExecute taints evicts an instance with these
// tolerations, by the rules of Kubernetes ("Taints and Tolerations", tolerationSeconds); false
// means never. A taint without a time counts as always present.
func Evict(c *Cluster, tolerations []corev1.Toleration) (first Eviction, ok bool) {
	for i := range c.Taints {
		taint := &c.Taints[i]
		if taint.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		stays, forever := tolerance(tolerations, taint)
		if forever {
			continue
		}
		var since time.Time
		if taint.TimeAdded != nil {
			since = taint.TimeAdded.Time
		}
		if at := since.Add(stays); !ok || at.Before(first.At) {
			first, ok = Eviction{at, c.driven(taint, since), taint.Key == v1alpha1.TaintUnreachable}, true
		}
	}
	return first, ok
}

// tolerance returns how long a taint is tolerated: the shortest time of the tolerations that
// match.
func tolerance(tolerations []corev1.Toleration, taint *corev1.Taint) (stays time.Duration, forever bool) {
	matched := false
	for i := range tolerations {
		if !tolerated(tolerations[i:i+1], taint) {
			continue
		}
		seconds := tolerations[i].TolerationSeconds
		if seconds == nil {
			matched, forever = true, !matched || forever
			continue
		}
		if limit := time.Duration(max(*seconds, 0)) * time.Second; !matched || forever || limit < stays {
			stays = limit
		}
		matched, forever = true, false
	}
	if !matched && taint.Key == v1alpha1.TaintUnreachable {
		return v1alpha1.UnreachableSeconds * time.Second, false
	}
	return stays, forever
}

// driven describes what a taint means for the instances on the cluster.
func (c *Cluster) driven(taint *corev1.Taint, since time.Time) string {
	switch taint.Key {
	case v1alpha1.TaintUnreachable:
		return fmt.Sprintf("%s has not answered since %s", c.Name, since.UTC().Format(time.RFC3339))
	case v1alpha1.TaintDrain:
		return c.Name + " is being drained"
	default:
		return fmt.Sprintf("%s has taint %s", c.Name, taint.ToString())
	}
}
