// Package liqo delivers instances to consumers' own clusters: it keeps them peered by Liqo
// (v1.2) with the clusters that were chosen, and gives them virtual nodes that stand for what
// was reserved.
//
// # How
//
//   - A Peering on the hub is the desired state of two clusters. Peerings (peering.go) makes it
//     so on both: their tenant namespaces, the network between them (network.go), and the
//     identity by which one asks the other for resources (identity.go). Every step is an apply
//     that can be repeated, and waits for what Liqo makes of it.
//   - The Driver (driver.go) makes the Peerings that a placement needs and, where it needs a
//     virtual node, a ResourceSlice of the class "sluice" (node.go). It lets a Peering go when no
//     instance needs it any more.
//   - Sluice itself is that class's controller (judge.go): on the provider's side it accepts
//     what the placement engine has reserved, and denies everything else, with the reason. An
//     admission policy (rules.go) keeps slices of other classes out.
//   - Through a hub, the hub's cluster is the consumer of the chosen one, and holds the
//     instance's namespace, extended to its node (offload.go).
//
// # What must hold
//
//   - A slice is accepted only after its reservation is on Sluice's hub.
//   - Nothing is taken over: a tenant namespace that Sluice has not made is somebody else's
//     peering, and is left alone.
//   - What is made on a cluster is labelled with the hub's ID and goes with the Peering: slices
//     before identities, identities before networks, namespaces last. A cluster that has left
//     the inventory is not waited for.
//   - Sluice never holds a consumer's private keys, and hands out no rights on a provider but
//     those of the ClusterRole sluice-liqo-peer, within one namespace, by a token that ends.
//
// The package never asks liqoctl. It knows nothing of HTTP.
package liqo
