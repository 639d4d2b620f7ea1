// Package placement decides where a service instance lives and keeps it there.
//
// It has two halves. The first is a pure function,
//
//	Place(Request, *Snapshot) (Decision, error)
//
// which filters, scores and selects. It uses no context, client, clock or randomness, so that a
// decision can be explained and replayed (request.go, filter.go, score.go, place.go, choose.go,
// decision.go, explain.go, record.go; and a file each for parts of a request: affinity, claim,
// division, location, quota, rule, spread). Preempt (preemption.go) is its counterpart for
// requests that fit nowhere: it returns the instances that would have to leave. The second half
// feeds it and acts on its decisions:
//
//   - Inventory (inventory.go, ledger.go) is the indexed picture of the member
//     clusters and of the reservations on them. Inventory.Place decides and
//     reserves under one lock, so that capacity is never sold twice.
//   - clusterReconciler (cluster_*.go) watches the member clusters and feeds the
//     inventory.
//   - instanceReconciler (instance_*.go) takes each ServiceInstance through place,
//     deliver, clean, observe and remove. The decision is written to the hub before
//     any cluster is touched; the ledger is rebuilt from those writes after a restart.
//     An instance moves when it has to leave a cluster (eviction.go,
//     instance_move.go, instance_preemption.go), or when the operator wants it to
//     (rebalance.go).
//
// A Driver delivers an instance to one kind of member cluster; the drivers are in the packages
// below this one.
//
// The package must not know HTTP or the Open Service Broker API: it sees only resources of the
// hub and plans of the catalog.
package placement
