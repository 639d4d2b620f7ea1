package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// An instance of a plan with one cluster in each group (Spread.Each) follows the groups. It
// comes to a new group. It leaves a cluster that is no longer in any group, or in the same
// group as another of its clusters. Both are moves: the new cluster is delivered first.

// coverage compares the clusters of a delivered instance with the groups of its plan.
type coverage struct {
	// lacks reports whether there is a group in which the instance has no cluster.
	lacks bool
	// surplus are the clusters that are not needed for any group, with the reason.
	surplus map[string]string
}

// inEachGroup is the reason of a move to groups that are new.
const inEachGroup = "its plan has one cluster in each group"

// coverage returns the coverage of an instance. Nothing is lacking or surplus if its plan does
// not follow groups, or if an operation is in progress, which places the instance anyway.
func (r *instanceReconciler) coverage(s *scope) (c coverage) {
	if !s.Status.IsFinished() || s.Status.Delivered == nil {
		return c
	}
	plan, err := r.plan(s.Spec.ServiceID, s.wanted().PlanID)
	if err != nil {
		return c
	}
	if plan.Resources == nil || plan.Resources.Spread == nil || !plan.Resources.Spread.Each {
		return c
	}
	request, err := r.request(s, plan, nil)
	if err != nil {
		return c
	}
	return r.inventory.Snapshot().covers(request, s.Status.DeliveredDecision().Clusters())
}

// covers compares the clusters that an instance is on with the groups of its request. A cluster
// that is not in the inventory counts for no group, and is not surplus.
func (s *Snapshot) covers(r Request, on []string) coverage {
	missing := everyGroup(r.Spread.By, s.pages, r.filters(s, nil))
	var known []*Cluster
	for _, name := range on {
		if c := s.Cluster(name); c != nil {
			known = append(known, c)
		}
	}
	slices.SortStableFunc(known, func(a, b *Cluster) int { // of two in a group the usable one stays
		return cmp.Compare(rankOfUse(a), rankOfUse(b))
	})
	c, held := coverage{surplus: map[string]string{}}, map[string]string{}
	for _, cluster := range known {
		group, ok := r.Spread.groupOf(cluster)
		switch other := held[group]; {
		case !ok:
			c.surplus[cluster.Name] = fmt.Sprintf("%s is in no group by %s", cluster.Name, r.Spread)
		case other != "":
			c.surplus[cluster.Name] = fmt.Sprintf("%s and %s are both in %s, and its plan has one cluster in each group by %s", cluster.Name, other, group, r.Spread)
		default:
			held[group] = cluster.Name
			delete(missing, group)
		}
	}
	c.lacks = len(missing) > 0
	return c
}

// rankOfUse orders clusters by whether an instance can stay there.
func rankOfUse(c *Cluster) int {
	switch {
	case !c.Ready:
		return 2
	case c.Cordoned:
		return 1
	default:
		return 0
	}
}

// stayUncovered keeps an instance where it is, because some group has no room for it.
func (r *instanceReconciler) stayUncovered(ctx context.Context, s *scope, why error) (ctrl.Result, error) {
	news := s.uncovered(why.Error())
	overheld, changed := r.overheld(s, v1alpha1.ReasonNotInEachGroup)
	if !news && !changed {
		return ctrl.Result{}, nil // the inventory wakes it
	}
	if err := r.write(ctx, s, crashBeforeProgress, crashAfterProgress); err != nil {
		return ctrl.Result{}, err
	}
	if overheld {
		r.inventory.Reserve(HoldingOf(s.ServiceInstance))
		s.lookAgain(1) // at once, because it no longer waits for room
	}
	return ctrl.Result{}, nil
}

// uncovered records why an instance has no cluster in some group, and reports whether that is
// new. The instance stays on its clusters.
func (s *scope) uncovered(why string) (news bool) {
	return s.set(v1alpha1.ConditionPlaced, metav1.ConditionTrue, v1alpha1.ReasonNotInEachGroup, "on "+where(s.Status.DeliveredDecision())+"; not in each group: "+why)
}
