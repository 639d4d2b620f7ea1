package kube

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Names on a member cluster.
const (
	// DefaultNamespace holds Sluice's own ServiceAccount.
	DefaultNamespace = "sluice-system"
	// ServiceAccountName is Sluice's ServiceAccount, its ClusterRole and the binding of the two.
	ServiceAccountName = "sluice"
	// AgreedName and LiqoAgreedName are the admission policies that enforce rules of policies for pods: in the namespaces
	// of instances, and in those that Liqo makes.
	AgreedName     = "sluice-agreed"
	LiqoAgreedName = "sluice-liqo-agreed"
)

var (
	read  = []string{"get", "list", "watch"}
	write = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// Rules returns what Sluice may do anywhere on a member cluster: everything that the driver, the
// bindings and the reader of its capacity need outside of instances' namespaces.
func Rules(reader string) []rbacv1.PolicyRule {
	return append(tenant.Rules(), ReaderRules(reader)...)
}

// ReaderRules returns what a reader of the cluster's capacity needs there: none but the reader of nodes
// needs anything.
func ReaderRules(reader string) []rbacv1.PolicyRule {
	if reader != v1alpha1.ReaderNodes {
		return nil
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Verbs: read},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"storageclasses"}, Verbs: read},
	}
}

// WatchRules lets Sluice see four things in addition to Rules: that an object in an instance's namespace was
// deleted or changed, what other hubs have reserved, whether the cluster enforces rules for pods (GuardRules), and, with
// the reader of nodes, which devices there are and who uses them.
// Registration grants it. A cluster that was registered before works without it: an object is then restored
// at the next periodic check, other hubs' reservations and devices do not count, and orders with rules for pods go elsewhere.
func WatchRules(reader string) []rbacv1.PolicyRule {
	watch := []string{"list", "watch"}
	rules := GuardRules()
	if reader == v1alpha1.ReaderNodes {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"deviceclasses", "resourceclaims", "resourceslices"}, Verbs: watch})
	}
	return append(rules, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"resourcequotas", "limitranges", "services"}, Verbs: watch},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: watch},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: watch},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: watch},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: watch},
		{APIGroups: []string{workload.HTTPRoutes.Group}, Resources: []string{"httproutes", "tlsroutes", "tcproutes"}, Verbs: watch},
		{APIGroups: []string{workload.DNSEndpoints.Group}, Resources: []string{"dnsendpoints"}, Verbs: watch},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: watch},
	}...)
}

// GuardRules lets Sluice see whether the admission policies are there that enforce rules for pods (AgreedGuard).
func GuardRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		ResourceNames: []string{AgreedName, LiqoAgreedName}, Verbs: []string{"get"},
	}}
}

// TenantRules returns the ceiling inside an instance's namespace: what Sluice needs
// there, and what a binding with the role edit gets.
func TenantRules() []rbacv1.PolicyRule {
	own := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"resourcequotas", "limitranges"}, Verbs: []string{"get", "create", "patch"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{workload.HTTPRoutes.Group}, Resources: []string{"httproutes", "tlsroutes", "tcproutes"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{workload.DNSEndpoints.Group}, Resources: []string{"dnsendpoints"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: roleNames(), Verbs: []string{"bind"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create", "patch"}}, // of hooks with results; nothing beyond these rules
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"localsubjectaccessreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list", "patch"}}, // to remove finalizers
	}
	return append(own, editRules()...)
}

// consumerRole is a ClusterRole that bindings choose.
type consumerRole struct {
	name  string
	rules []rbacv1.PolicyRule
}

func consumerRoles() []consumerRole {
	return []consumerRole{
		{v1alpha1.MemberRole("edit"), editRules()}, {v1alpha1.MemberRole("view"), viewRules()},
		{v1alpha1.OpaqueRole("edit"), withoutEvents(editRules())}, {v1alpha1.OpaqueRole("view"), withoutEvents(viewRules())},
	}
}

func roleNames() (names []string) {
	for _, role := range consumerRoles() {
		names = append(names, role.name)
	}
	return names
}

// withoutEvents returns rules without the resource events.
func withoutEvents(rules []rbacv1.PolicyRule) (left []rbacv1.PolicyRule) {
	for _, rule := range rules {
		if rule.Resources = lists.Without(rule.Resources, []string{"events"}); len(rule.Resources) > 0 {
			left = append(left, rule)
		}
	}
	return left
}

// editRules returns what a binding with the role edit may do: run workloads. It may not change who
// may do what (RBAC, ServiceAccounts and their tokens), how much (quota and limits), with whom
// to talk (NetworkPolicies; Ingresses and routes, because NetworkPolicies refuse traffic from
// outside of the namespace, and a host belongs to one instance) or when a node may be drained. The
// last means PodDisruptionBudgets: one that matches pods without a controller, or a pod that another
// budget matches, blocks drains for ever, and no admission policy can detect that.
func editRules() []rbacv1.PolicyRule {
	readWrite := slices.Concat(read, write)
	return append(viewRules(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps", "persistentvolumeclaims", "pods", "secrets", "services"}, Verbs: readWrite},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/attach", "pods/exec", "pods/portforward"}, Verbs: []string{"get", "create"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{
			"daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale",
		}, Verbs: readWrite},
		rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"cronjobs", "jobs"}, Verbs: readWrite},
		rbacv1.PolicyRule{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: readWrite},
		rbacv1.PolicyRule{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims", "resourceclaimtemplates"}, Verbs: readWrite},
	)
}

// viewRules returns what a binding with the role view may do: read everything but
// Secrets.
func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{
			"configmaps", "endpoints", "events", "limitranges", "persistentvolumeclaims", "pods", "pods/log",
			"resourcequotas", "serviceaccounts", "services",
		}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"}, Verbs: read},
		{APIGroups: []string{"batch"}, Resources: []string{"cronjobs", "jobs"}, Verbs: read},
		{APIGroups: []string{"autoscaling"}, Resources: []string{"horizontalpodautoscalers"}, Verbs: read},
		{APIGroups: []string{resourcev1.GroupName}, Resources: []string{"resourceclaims", "resourceclaimtemplates"}, Verbs: read},
		{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: read},
		{APIGroups: []string{"metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
	}
}
