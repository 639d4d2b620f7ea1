// Package bindings carries out ServiceBindings. On every cluster that holds the instance, it
// creates a ServiceAccount with one of Sluice's roles and a token that expires. An
// unbind deletes both and waits until they are gone.
//
// # Invariants
//
//   - status.clusters is written before anything is created. After a kill at any time, it
//     therefore names every cluster that may need cleaning up.
//   - The credentials exist in two places only: sealed in status, and at the consumer.
//     This package does not log them, and Credentials does not print them. A reader needs
//     the hub's keys but no code of this package: it unseals them for
//     seal.Owner("ServiceBinding", b.Namespace, b.Name, string(v1alpha1.UIDOf(b))).
//   - A bind that is reported as succeeded works at once: its permissions were seen in
//     force on every cluster.
//   - A binding follows its instance. When an update or a move puts the instance on other
//     clusters, credentials for those are issued and replace the old ones. The platform
//     sees them when it fetches the binding. So it is when a check finds that an account, or
//     its role, was deleted on a cluster: its tokens have ended.
//   - Every endpoint existed at the last check: the peering in force, the gateways
//     connected, the Service or pod ready. Endpoints that cannot be verified are not
//     listed, and status.endpointsAbsent gives the reason. By default a binding with
//     peering is checked at least every half minute, others every five minutes. A check
//     writes only changes.
//   - status.addressClusters is written before Liqo is asked for an address there. The
//     addresses of a binding are deleted with it.
//   - A predecessor (OSB 2.17, "Binding Rotation") is not touched: both bindings work until
//     the platform deletes the old one.
//
// A token is refused within seconds of unbinding (API servers cache a verified token for ten
// seconds). Its permissions end with the RoleBinding, which API servers notice within
// milliseconds.
//
// A binding of an instance on a pool is one of the instance that the pool has ordered for itself, the inner binding: a
// ServiceBinding of v1alpha1.PlatformSelf with the name of the outer one as v1alpha1.LabelBinding.
//
//   - status.pool names the inner binding before that is created. The outer one takes over its credentials, endpoints and
//     times, follows their changes, and goes after it.
//   - No name of a pool's cluster gets into an outer binding. Inner ones give clusters the name of the pool in all that
//     consumers read (shownAs); reasons that are put together of several clusters have another text (absentError). The
//     status.clusters and the events of an inner binding are for operators, and have the clusters' own names.
//
// If the instance is virtual nodes of the consumer's own cluster, there is no account and no
// token: the credentials are the names of the nodes.
//
// The package knows nothing of HTTP, plans or placement; it reads decisions and never makes
// one.
package bindings
