package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
)

// sign notes what is delivered of an instance, if that is not what was seen last.
func (h *history) sign(i *v1alpha1.ServiceInstance) {
	if i.Status.Delivered == nil || !i.DeletionTimestamp.IsZero() {
		return
	}
	var has []string
	for _, p := range i.Status.Delivered.Decision.Placements {
		has = append(has, p.Cluster+"="+p.Reserved.Cpu().String())
	}
	slices.Sort(has)
	seen := i.Status.Delivered.State.PlanID + " " + strings.Join(has, " ")
	if all := h.signed[i.Name]; len(all) == 0 || all[len(all)-1] != seen {
		h.signed[i.Name] = append(all, seen)
	}
}

// auditContracts checks that each instance, also of those that are gone, has a contract for all that was seen delivered, in
// that order, that they name one another, and that one is in force if something is delivered.
func (h *history) auditContracts() {
	for n := range h.made {
		name := fmt.Sprintf("si-%d", n+1)
		all, err := contracts.Read(context.Background(), h.hub, historyNamespace, name)
		h.must(err)
		delivered := slices.ContainsFunc(h.instances(), func(i v1alpha1.ServiceInstance) bool {
			return i.Name == name && i.Status.Delivered != nil && i.DeletionTimestamp.IsZero()
		})
		if isInForce := len(all) > 0 && all[len(all)-1].EndedAt == nil; isInForce != delivered {
			h.Fatalf("%s is delivered: %t, and its contracts are %+v", name, delivered, all)
		}
		former := ""
		for k, a := range all {
			c := a.Contract
			switch {
			case c.Number != int64(k+1) || c.Former != former:
				h.Fatalf("contract %d of %s has the number %d and names %q, not %q", k+1, name, c.Number, c.Former, former)
			case k > 0 && (all[k-1].EndedAt == nil || c.From.Before(*all[k-1].EndedAt)):
				h.Fatalf("contract %d of %s begins at %s, before the former ends: %+v", k+1, name, c.From, all[k-1])
			case c.DecidedAt == nil:
				h.Fatalf("contract %d of %s has no terms: %+v", k+1, name, c)
			}
			former = a.Digest
		}
		wanted := h.signed[name]
		for _, a := range all {
			var has []string
			for _, on := range a.Contract.Clusters {
				has = append(has, on.Cluster+"="+on.Reserved["cpu"])
			}
			slices.Sort(has)
			if len(wanted) > 0 && wanted[0] == a.Contract.Plan.ID+" "+strings.Join(has, " ") {
				wanted = wanted[1:]
			}
		}
		if len(wanted) > 0 {
			h.Fatalf("%s had %q, and there is no contract of it, or not after the others: %+v", name, wanted[0], all)
		}
	}
}
