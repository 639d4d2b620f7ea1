// Package bindings carries out ServiceBindings: on every cluster that holds the
// instance, a ServiceAccount with one of the instance's Roles and a token that
// expires; unbinding deletes both and waits until they are gone.
//
// # What must hold
//
//   - status.clusters is written before anything is created, so that whoever
//     cleans up knows where to look, whenever Sluice was killed.
//   - The credentials exist in two places only: sealed in status, and in the hands
//     of the consumer. Nothing here logs them, and Credentials does not print them.
//     Who may read them back needs the hub's keys and no code of this package: it
//     unseals them for seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)).
//   - A bind that was reported as succeeded works at once: its permissions have
//     been seen in force on every cluster.
//   - A binding follows its instance. When an update or a move puts the instance on
//     other clusters, credentials for those are issued and replace what was there;
//     the platform sees them when it fetches the binding.
//   - Every endpoint was seen to be there when somebody last looked: the peering in
//     force, the gateways connected, the Service or pod ready. What cannot be verified
//     is not listed, and status.endpointsAbsent says why. One look in half a minute
//     keeps them so; it writes nothing when nothing is new.
//   - status.addressClusters is written before Liqo is asked for an address there, and
//     the addresses that a binding has taken end with it.
//   - A predecessor (OSB 2.17, "Binding Rotation") is not touched: both work until
//     the platform deletes the old one.
//
// A token is refused within seconds of unbinding (API servers keep a verified
// token for ten); its permissions end with the RoleBinding, which API servers see
// within milliseconds.
//
// Where the instance is virtual nodes of the consumer's own cluster, there is no account
// and no token: the credentials are the nodes' names.
//
// The package knows nothing of HTTP, plans or placement; it reads decisions and
// never makes one.
package bindings
