package controller

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// recordCopies records the copies of a delivered instance whose plan spreads it over groups of clusters:
// the group that each cluster is in now, and whether the copy works. It reports whether that is new.
// Works reports whether the copy on a cluster works; was is the recorded answer.
func (r *instanceReconciler) recordCopies(s *scope, works func(cluster string, was bool) bool) bool {
	plan, err := r.plan(s.Spec.ServiceID, s.wanted().PlanID)
	if err != nil {
		return false // the catalog may not be loaded yet
	}
	var copies []v1alpha1.Copy
	if d := s.Status.DeliveredDecision(); d != nil && plan.Resources != nil && plan.Resources.Spread != nil {
		for _, name := range d.Clusters() {
			copies = append(copies, r.copyNow(s, name, plan.Resources.Spread.By, works))
		}
		slices.SortFunc(copies, func(a, b v1alpha1.Copy) int {
			return cmp.Or(cmp.Compare(a.In(), b.In()), cmp.Compare(a.Cluster, b.Cluster))
		})
	}
	if equality.Semantic.DeepEqual(copies, s.Status.Copies) {
		return false
	}
	s.setCopies(copies)
	return true
}

// copyNow returns the copy on a cluster as it is now. The group of a cluster that left the inventory stays
// as it was.
func (r *instanceReconciler) copyNow(s *scope, cluster string, by []string, works func(string, bool) bool) v1alpha1.Copy {
	before := copyOn(s.Status.Copies, cluster)
	now := v1alpha1.Copy{Cluster: cluster, Group: before.Group, Since: before.Since}
	if known := r.inventory.Snapshot().Cluster(cluster); known != nil {
		now.Group = map[string]string{}
		for _, label := range by {
			if value, ok := known.Labels[label]; ok {
				now.Group[label] = value
			}
		}
		now.Ready = known.Ready && works(cluster, before.Ready)
	}
	if before.Cluster == "" || now.Ready != before.Ready || !maps.Equal(now.Group, before.Group) {
		now.Since = metav1.NewTime(s.now)
	}
	return now
}

// copyOn returns the copy on a cluster; an empty one if there is none.
func copyOn(copies []v1alpha1.Copy, cluster string) v1alpha1.Copy {
	for _, c := range copies {
		if c.Cluster == cluster {
			return c
		}
	}
	return v1alpha1.Copy{}
}

// The answers to recordCopies: no news, after a delivery, and after calls of drivers.
func asRecorded(_ string, was bool) bool { return was }

func allWork(string, bool) bool { return true }

func (s *scope) observed(cluster string, _ bool) bool { return s.failures[cluster] == nil }
