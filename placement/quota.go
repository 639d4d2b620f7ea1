package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Quota limits what a consumer's platform, organization or space holds on all clusters
// together.
type Quota struct {
	// By is the source of the quota, for instance "policy small-spaces".
	By     string
	Per    v1alpha1.Scope
	Limits Resources
}

// exceeded returns the first quota that the request would exceed, with the numbers; the
// request's own reservations count as free. Empty means none.
func (r Request) exceeded(s *Snapshot) string {
	if len(r.Quotas) == 0 {
		return ""
	}
	own := Resources{}
	for _, held := range rows[Reservation](s.store, tableReservation, indexOf, r.ID, "") {
		own.Add(held.Resources, 1)
	}
	asked := r.total(r.width(s))
	for _, quota := range r.Quotas {
		holder := r.Consumer.holder(quota.Per)
		if holder == "" {
			continue // the consumer has no name in that scope
		}
		held := Resources{}
		if h := row[holding](s.store, tableHolding, holder); h != nil && !r.atBest {
			held = h.Resources
		}
		for _, name := range quota.Limits.names() {
			if others := max(held[name]-own[name], 0); asked[name] > 0 && others+asked[name] > quota.Limits[name] {
				return fmt.Sprintf("%s allows each %s %s %s: %s are held, %s asked for",
					quota.By, quota.Per, show(name, quota.Limits[name]), name, show(name, others), show(name, asked[name]))
			}
		}
	}
	return ""
}

// scopes are the scopes of quotas.
type scopes []v1alpha1.Scope

// bind reports whether a quota may apply to a holder.
func (s scopes) bind(holder string) bool {
	kind, _, _ := strings.Cut(holder, " ")
	return slices.Contains(s, v1alpha1.Scope(kind))
}

// scopes returns those of the quotas of all policies.
func (ps Policies) scopes() (all scopes) {
	for _, p := range ps {
		if p.Quota != nil && !slices.Contains(all, p.Quota.Per) {
			all = append(all, p.Quota.Per)
		}
	}
	slices.Sort(all)
	return all
}

// countHoldings recomputes the reservations of each holder that a quota may apply to.
func (inv *Inventory) countHoldings() {
	txn := inv.store.Txn(true)
	_, err := txn.DeleteAll(tableHolding, indexID)
	check(err)
	sums := map[string]Resources{}
	for _, r := range rows[Reservation](txn, tableReservation, indexID) {
		for _, holder := range r.Holders {
			if !inv.quotas.bind(holder) {
				continue
			}
			if sums[holder] == nil {
				sums[holder] = Resources{}
			}
			sums[holder].Add(r.Resources, 1)
		}
	}
	for holder, sum := range sums {
		check(txn.Insert(tableHolding, &holding{Holder: holder, Resources: sum}))
	}
	txn.Commit()
	if inv.snapshot != nil {
		changed := *inv.snapshot
		changed.store = inv.store.Txn(false)
		inv.snapshot = &changed
	}
}

// holding is a holder's reservations on all clusters together, for holders with a quota.
type holding struct {
	Holder    string
	Resources Resources
}
