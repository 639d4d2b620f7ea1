// Package liqo delivers instances to consumers' own clusters. It peers them by Liqo (v1.2) with
// the chosen clusters, and gives them virtual nodes that stand for the reserved capacity.
//
// # How
//
//   - A Peering on the hub is the desired state of two clusters. Peerings (peering.go)
//     reconciles it on both: their tenant namespaces, the network between them (network.go), and
//     the identity that one uses to request resources from the other (identity.go). Every step is
//     an apply that can be repeated, and waits for Liqo's reaction to it.
//   - The Driver (driver.go) creates the Peerings that a placement needs and, if it needs a
//     virtual node, a ResourceSlice of the class "sluice" (node.go). It deletes a Peering when no
//     instance needs it any more.
//   - Sluice itself is that class's controller (judge.go): on the provider's side it accepts
//     what the placement engine has reserved, and denies everything else, with the reason. An
//     admission policy (rules.go) rejects slices of other classes.
//   - Through a hub, the hub's cluster is the consumer of the chosen one, and holds the
//     instance's namespace, extended to its node (offload.go).
//
// # Invariants
//
//   - A slice is accepted only after its reservation is on Sluice's hub.
//   - Nothing is taken over: a tenant namespace that Sluice has not created belongs to somebody
//     else's peering, and is not touched.
//   - Objects on a cluster are labelled with the hub's ID and are deleted with the Peering: slices
//     before identities, identities before networks, namespaces last. The deletion does not wait
//     for a cluster that has left the inventory.
//   - Sluice stores no private key of a cluster. It does read the Secret of a gateway, which has
//     the private key beside the public one. The only rights that it grants on a provider are
//     those of the ClusterRole sluice-liqo-peer, within one namespace, by a token that expires.
//
// The package never runs liqoctl. It knows nothing of HTTP.
package liqo
