// Package kube is the driver that delivers instances straight to a member
// cluster's API server. An instance is one namespace there, with a quota, limits,
// network policies and the two Roles that bindings choose from.
//
// # Least privilege
//
// Sluice holds no consumer's power over a member cluster, and cannot take it:
//
//   - The ClusterRole sluice (Rules) lets it create and delete namespaces, read
//     what the inventory needs, create RoleBindings, and bind exactly one
//     ClusterRole: sluice-tenant.
//   - The ClusterRole sluice-tenant (TenantRules) is the ceiling of what anyone may
//     do inside an instance's namespace. Delivering binds Sluice itself to it, in
//     that namespace only; as it then holds those rules there, it may hand out
//     narrower Roles without the verb escalate.
//   - RBAC cannot tell one namespace from another before it exists. So the
//     ValidatingAdmissionPolicy sluice-own-namespaces keeps Sluice's hands off every
//     namespace without the label sluice.dev/hub: it can neither delete or change
//     one nor make a RoleBinding in it. Where a cluster cannot have that policy
//     (before Kubernetes 1.30), only Sluice's own checks stand between a stolen
//     token and the sluice-tenant rules in a foreign namespace.
//   - The policies sluice-tenants, sluice-pods, sluice-pod-ends and sluice-objects
//     close what RBAC leaves open to a consumer inside a namespace: another
//     binding's ServiceAccount, external IPs, pods that reach their node or other
//     nodes, mounts past the NetworkPolicies, pods and objects that do not end,
//     objects without bound.
//
// Objects lists all that, Manifest renders it and Register applies it.
//
// The package knows nothing of OSB, of the hub's operations or of placement's
// choices: it carries out a placement.Delivery.
package kube
