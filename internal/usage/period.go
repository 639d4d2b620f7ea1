package usage

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Next returns the periods of an instance after a change of what is delivered, nil for nothing, at a time. It ends
// those of reservations that are no longer there, or not as they were, and begins those of others; provider returns
// the provider of a cluster. The arguments are not changed.
//
// Times are whole seconds. A clock that goes back does not make periods overlap: nothing happens before what has
// happened already. Nothing is kept of a period of no length.
func Next(periods []v1alpha1.UsagePeriod, before, after *v1alpha1.DeliveredState, at time.Time, provider func(cluster string) string) []v1alpha1.UsagePeriod {
	now := metav1.NewTime(at.Truncate(time.Second))
	if last := v1alpha1.LastUsageChange(periods); now.Before(&last) {
		now = last
	}
	var ended, open []v1alpha1.UsagePeriod
	metered := map[string]bool{}
	for _, p := range periods {
		switch {
		case !p.IsOpen():
			ended = append(ended, p)
		case goesOn(before, after, p.Cluster):
			open, metered[p.Cluster] = append(open, p), true
		case p.From.Before(&now):
			ended = append(ended, end(complete(p, before), now))
		}
	}
	for i := range placements(after) {
		if cluster := after.Decision.Placements[i].Cluster; !metered[cluster] {
			open = append(open, v1alpha1.UsagePeriod{Cluster: cluster, Provider: provider(cluster), From: now})
		}
	}
	return append(ended, open...)
}

// Of returns the periods in the status of an instance with all of their fields. Those of an instance that is being
// deleted have ended.
func Of(i *v1alpha1.ServiceInstance) []v1alpha1.UsagePeriod {
	periods := i.Status.Usage
	if !i.DeletionTimestamp.IsZero() {
		return Next(periods, i.Status.Delivered, nil, i.DeletionTimestamp.Time, nil)
	}
	periods = slices.Clone(periods)
	for n := range periods {
		if periods[n].IsOpen() {
			periods[n] = complete(periods[n], i.Status.Delivered)
		}
	}
	return periods
}

// IsMetered reports whether each cluster to which an instance is delivered has a period that goes on. Instances that
// an earlier version of Sluice delivered have none at first.
func IsMetered(s *v1alpha1.ServiceInstanceStatus) bool {
	for i := range placements(s.Delivered) {
		cluster := s.Delivered.Decision.Placements[i].Cluster
		if !slices.ContainsFunc(s.Usage, func(p v1alpha1.UsagePeriod) bool { return p.IsOpen() && p.Cluster == cluster }) {
			return false
		}
	}
	return true
}

// complete adds to a period that goes on what its cluster has of a delivered state.
func complete(p v1alpha1.UsagePeriod, of *v1alpha1.DeliveredState) v1alpha1.UsagePeriod {
	if on := placementOn(of, p.Cluster); on != nil {
		p.PlanID, p.Reserved, p.PricePerHour, p.Currency = of.State.PlanID, on.Reserved, on.PricePerHour, on.Currency
	}
	return p
}

func end(p v1alpha1.UsagePeriod, at metav1.Time) v1alpha1.UsagePeriod {
	p.To = &at
	return p
}

// goesOn reports whether a cluster has the same of an instance, at the same price, in two states.
func goesOn(before, after *v1alpha1.DeliveredState, cluster string) bool {
	a, b := placementOn(before, cluster), placementOn(after, cluster)
	return a != nil && b != nil && before.State.PlanID == after.State.PlanID && a.Currency == b.Currency &&
		equality.Semantic.DeepEqual(a.PricePerHour, b.PricePerHour) && equality.Semantic.DeepEqual(a.Reserved, b.Reserved)
}

func placements(of *v1alpha1.DeliveredState) []v1alpha1.Placement {
	if of == nil {
		return nil
	}
	return of.Decision.Placements
}

func placementOn(of *v1alpha1.DeliveredState, cluster string) *v1alpha1.Placement {
	if of == nil {
		return nil
	}
	return of.Decision.On(cluster)
}
