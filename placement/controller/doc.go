// Package controller feeds the inventory of package placement, and carries out its decisions.
//
//   - clusterReconciler (cluster_*.go) probes and watches the member clusters and puts them into the
//     inventory.
//   - instanceReconciler (instance_*.go) takes each ServiceInstance through place, deliver, clean,
//     observe and remove. The decision is written to the hub before any cluster is touched; the
//     inventory is filled from those writes after a restart (recovery.go). An instance moves when it has
//     to leave a cluster (instance_move.go, instance_preemption.go, instance_coverage.go).
//   - policyReconciler (policy_controller.go) puts placement policies in force.
//
// Its callers give it the drivers (package delivery), an external scorer, and the clusters that are
// being created (Promises). It must not know HTTP or the Open Service Broker API.
package controller
