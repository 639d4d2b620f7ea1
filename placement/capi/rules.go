package capi

import (
	rbacv1 "k8s.io/api/rbac/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/sluice-dev/sluice/placement/tenant"
)

// Rules returns what Sluice may do anywhere on a management cluster.
func Rules() []rbacv1.PolicyRule {
	return append(tenant.Rules(),
		rbacv1.PolicyRule{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusterclasses"}, Verbs: []string{"get"}})
}

// TenantRules returns the ceiling inside an instance's namespace there.
func TenantRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{clusterv1.GroupVersion.Group}, Resources: []string{"clusters"}, Verbs: []string{"get", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"get"}},
	}
}
