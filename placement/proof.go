package placement

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Proofs are the claims that consumers have proven.
type Proofs []proof

// proof is the claims of the orders that a reference of a Consumer selects.
type proof struct {
	orders v1alpha1.ConsumerReference
	claims []v1alpha1.Claim
}

// ProofsOf returns the claims of consumers that are valid at a time.
func ProofsOf(consumers []v1alpha1.Consumer, now time.Time) Proofs {
	consumers = slices.Clone(consumers)
	slices.SortFunc(consumers, func(x, y v1alpha1.Consumer) int { return strings.Compare(x.Name, y.Name) })
	var all Proofs
	for i := range consumers {
		claims := claimsAt(consumers[i].Status.Claims, now)
		for _, orders := range consumers[i].Spec.Orders {
			all = append(all, proof{orders, claims})
		}
	}
	slices.SortStableFunc(all, func(x, y proof) int { return narrowness(y.orders) - narrowness(x.orders) })
	return all
}

// narrowness ranks references: of several that select an order, one of a space counts first, then of an organization.
func narrowness(r v1alpha1.ConsumerReference) int {
	switch {
	case r.Space != "":
		return 2
	case r.Organization != "":
		return 1
	}
	return 0
}

// Of returns what the consumer of an order has proven.
func (ps Proofs) Of(c Consumer) []v1alpha1.Claim {
	for _, p := range ps {
		if p.orders.Selects(c.Platform, c.Organization, c.Space) {
			return p.claims
		}
	}
	return nil
}
