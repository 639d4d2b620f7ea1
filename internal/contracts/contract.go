package contracts

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Next returns the contracts of an instance after a change of what is delivered, nil for nothing, at a time. It ends the
// one in force if the terms are others, and begins the next. A change without a decision, of the context for instance,
// changes nothing. The arguments are not changed.
//
// Times are whole seconds. A clock that goes back does not make contracts overlap.
func Next(of *v1alpha1.ServiceInstance, kept []v1alpha1.Contract, before, after *v1alpha1.DeliveredState, at time.Time) []v1alpha1.Contract {
	last := v1alpha1.LastContract(kept)
	isInForce := last != nil && last.IsInForce()
	if isInForce && after != nil && isSame(before, after) || !isInForce && after == nil {
		return kept
	}
	now := metav1.NewTime(at.Truncate(time.Second))
	if last != nil && now.Before(&last.From) {
		now = last.From
	}
	kept = append([]v1alpha1.Contract(nil), kept...)
	next := v1alpha1.Contract{Number: 1, From: now}
	if last != nil {
		if isInForce {
			kept[len(kept)-1] = complete(*last, before)
			kept[len(kept)-1].To = &now
		}
		ended := kept[len(kept)-1]
		if now.Before(ended.To) {
			next.From = *ended.To
		}
		next.Number, next.Former = ended.Number+1, Digest(Of(of, ended))
	}
	if after != nil {
		kept = append(kept, next)
	}
	return kept
}

// Held returns the contracts in the status of an instance with all of their fields. None is in force of an instance that
// is being deleted.
func Held(i *v1alpha1.ServiceInstance) []v1alpha1.Contract {
	kept := i.Status.Contracts
	if !i.DeletionTimestamp.IsZero() {
		return Next(i, kept, i.Status.Delivered, nil, i.DeletionTimestamp.Time)
	}
	if last := v1alpha1.LastContract(kept); last != nil && last.IsInForce() {
		kept = append([]v1alpha1.Contract(nil), kept...)
		kept[len(kept)-1] = complete(*last, i.Status.Delivered)
	}
	return kept
}

// IsKept reports whether a contract is in force if something is delivered. Instances that an earlier version of Sluice
// delivered have none at first.
func IsKept(s *v1alpha1.ServiceInstanceStatus) bool {
	last := v1alpha1.LastContract(s.Contracts)
	return s.Delivered == nil || last != nil && last.IsInForce()
}

// complete adds to a contract in force what a delivered state has.
func complete(c v1alpha1.Contract, of *v1alpha1.DeliveredState) v1alpha1.Contract {
	if of == nil {
		return c
	}
	c.PlanID, c.MaintenanceVersion, c.Terms = of.State.PlanID, of.State.MaintenanceVersion, of.Decision.Terms
	c.Placements = nil
	for i := range of.Decision.Placements {
		p := &of.Decision.Placements[i]
		c.Placements = append(c.Placements, v1alpha1.ContractPlacement{
			Cluster: p.Cluster, Replicas: p.Replicas, Components: p.Components, Reserved: p.Reserved, PricePerHour: p.PricePerHour, Currency: p.Currency,
		})
	}
	return c
}

// isSame reports whether two delivered states have the same terms, of the same decision.
func isSame(before, after *v1alpha1.DeliveredState) bool {
	return before != nil && equality.Semantic.DeepEqual(complete(v1alpha1.Contract{}, before), complete(v1alpha1.Contract{}, after))
}
