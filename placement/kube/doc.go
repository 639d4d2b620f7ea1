// Package kube is the driver that delivers instances straight to a member
// cluster's API server. An instance is one namespace there, with a quota, limits
// and network policies.
//
// # Least privilege
//
// Sluice has no consumer's rights on a member cluster, and cannot obtain them:
//
//   - The ClusterRole sluice (Rules) lets it create and delete namespaces, read
//     what the inventory needs, create RoleBindings, and bind exactly one
//     ClusterRole: sluice-tenant.
//   - The ClusterRole sluice-tenant (TenantRules) is the ceiling of what anyone may
//     do inside an instance's namespace. Delivering binds Sluice itself to it, in
//     that namespace only. It may bind consumers to two narrower ClusterRoles there,
//     sluice-edit and sluice-view, which registration installs. The Roles that it may
//     make there, for hooks with results, can have no more than its own rules (RBAC).
//   - RBAC cannot distinguish namespaces that do not exist yet. So the
//     ValidatingAdmissionPolicy sluice-own-namespaces denies Sluice every namespace
//     without the label sluice.dev/hub: it can neither delete or change one nor
//     make a RoleBinding in it. On a cluster that cannot have that policy
//     (before Kubernetes 1.30), only Sluice's own checks stand between a stolen
//     token and the sluice-tenant rules in a foreign namespace.
//   - The policies sluice-tenants, sluice-pods, sluice-priorities, sluice-pod-ends
//     and sluice-objects deny what RBAC leaves open to a consumer inside a namespace:
//     another binding's ServiceAccount, external IPs, pods that reach their node or
//     other nodes or evict the pods of others, mounts past the NetworkPolicies, pods
//     and objects that do not end, objects of unlimited size.
//
// Objects lists all of these, Manifest renders them and Register applies them.
//
// The package knows nothing of OSB, of the hub's operations or of placement's choices: it
// carries out a delivery.Delivery.
package kube
