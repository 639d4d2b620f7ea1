// Package placement decides where a service instance lives. It is a function of a request and a
// snapshot of the inventory,
//
//	Place(Request, *Snapshot) (Decision, error)
//
// which filters, scores and chooses, without context, client, clock or randomness. So a decision can
// be explained and made again. request.go, filter.go, score.go, choose.go, place.go, decision.go and
// explain.go have its steps, and a file each has a part of a request: affinity, claim, division,
// location, quota, rule, spread. Preempt (preemption.go) is its counterpart for requests that fit
// nowhere: it returns the instances that would have to leave. Propose (propose.go) looks for a better
// place for an instance.
//
// Inventory (inventory.go, ledger.go, holding.go) is the indexed picture of the member clusters and of the
// reservations on them. Inventory.Place decides by a snapshot, beside others, and reserves under a lock
// if the decision can still be made (commit.go), so that capacity is never sold twice.
//
// The packages below this one feed it and act on its decisions: controller, with the drivers kube,
// capi and liqo behind delivery; elastic, rebalance, replay and external. This package knows none of
// them, nor HTTP, nor any client of Kubernetes.
package placement
