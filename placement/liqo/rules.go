package liqo

import (
	"fmt"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	admissionregistrationv1ac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

const (
	authGroup       = "authentication.liqo.io"
	networkingGroup = "networking.liqo.io"
	offloadingGroup = "offloading.liqo.io"
	ipamGroup       = "ipam.liqo.io"
	coreGroup       = "core.liqo.io"
)

// Rules returns what Sluice may do anywhere on a cluster that takes part in peerings: what the driver
// kube may do, give consumers the role of a peer in their tenant namespaces, and delete
// ForeignClusters, which are not in a namespace.
func Rules(reader string) []rbacv1.PolicyRule {
	return append(kube.Rules(reader),
		rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{PeerRole}, Verbs: []string{"bind"}},
		rbacv1.PolicyRule{APIGroups: []string{coreGroup}, Resources: []string{"foreignclusters"}, Verbs: []string{"delete"}},
	)
}

// TenantRules returns the ceiling inside the namespaces that Sluice creates: what the driver kube
// needs, and the objects of a peering. It follows Liqo's own role for users that peer
// (liqo-peering-user-tenant-ns), without the rights that only its tool needs.
func TenantRules() []rbacv1.PolicyRule {
	keep := []string{"get", "list", "create", "patch", "delete"}
	return append(kube.TenantRules(),
		rbacv1.PolicyRule{APIGroups: []string{networkingGroup}, Resources: []string{"configurations", "gatewayclients", "gatewayservers", "publickeies"}, Verbs: keep},
		rbacv1.PolicyRule{APIGroups: []string{networkingGroup}, Resources: []string{"connections"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{authGroup}, Resources: []string{"tenants", "resourceslices"}, Verbs: keep},
		rbacv1.PolicyRule{APIGroups: []string{authGroup}, Resources: []string{"resourceslices/status"}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{offloadingGroup}, Resources: []string{"namespaceoffloadings"}, Verbs: keep},
		rbacv1.PolicyRule{APIGroups: []string{offloadingGroup}, Resources: []string{"virtualnodes"}, Verbs: []string{"get", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{ipamGroup}, Resources: []string{"ips"}, Verbs: keep},
	)
}

// peerRules returns what a consumer's cluster may do in its tenant namespace on a provider: request
// resources and namespaces. It is Liqo's liqo-remote-controlplane without the statuses, in
// which the provider answers: with those, a consumer could accept its own slices.
func peerRules() []rbacv1.PolicyRule {
	replicate := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{authGroup}, Resources: []string{"renews", "resourceslices"}, Verbs: replicate},
		{APIGroups: []string{offloadingGroup}, Resources: []string{"namespacemaps"}, Verbs: replicate},
	}
}

// JoinedRules returns what Sluice may do anywhere on a cluster that has joined by invitation: read.
func JoinedRules(reader string) []rbacv1.PolicyRule {
	return append([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{NonResourceURLs: []string{"/livez", "/readyz", "/version"}, Verbs: []string{"get"}},
	}, kube.ReaderRules(reader)...)
}

// networkRules returns what Sluice may do in the one tenant namespace of a cluster that has joined:
// read whether its gateway is connected, and how it sees the other cluster's addresses.
func networkRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{networkingGroup}, Resources: []string{"configurations", "connections"}, Verbs: []string{"get", "list"}},
	}
}

// askRules returns what Sluice may do there in addition if the cluster consumes: request slices,
// delete their nodes, and store the identity for the cluster's requests.
func askRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{authGroup}, Resources: []string{"resourceslices", "identities"}, Verbs: []string{"get", "list", "create", "patch", "delete"}},
		{APIGroups: []string{offloadingGroup}, Resources: []string{"virtualnodes"}, Verbs: []string{"get", "delete"}},
	}
}

// judgeRules returns what Sluice may do there in addition to networkRules if the cluster provides: judge
// slices.
func judgeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{authGroup}, Resources: []string{"resourceslices"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{authGroup}, Resources: []string{"resourceslices/status"}, Verbs: []string{"update"}},
	}
}

// Manifest completes the options of a cluster's registration with Sluice's rights and the role
// of peers. If the cluster sells, it also adds the policies that reject slices other than
// Sluice's, and that protect the cluster from consumers' pods (Guards). A consumer's own
// cluster needs none of them: its owner may peer it with others. liqoNamespace is the namespace
// of Liqo there.
func Manifest(o kube.ManifestOptions, liqoNamespace string, sells bool) kube.ManifestOptions {
	o.Rules, o.TenantRules = append(Rules(o.ReaderName()), kube.WatchRules(o.ReaderName())...), TenantRules()
	account := o.Namespace
	if account == "" {
		account = kube.DefaultNamespace
	}
	const reader = "sluice-liqo-reader"
	o.Powers = append(kube.ConsumerRoles(),
		rbacv1ac.ClusterRole(PeerRole).WithRules(kube.ApplyRules(peerRules())...),
		rbacv1ac.Role(reader, liqoNamespace).WithRules(kube.ApplyRules([]rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
			{APIGroups: []string{ipamGroup}, Resources: []string{"networks"}, Verbs: []string{"list"}},
		})...),
		rbacv1ac.RoleBinding(reader, liqoNamespace).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(reader)).
			WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(account).WithName(kube.ServiceAccountName)),
	)
	if sells {
		o.Guards = Guards(account)
		o.Powers = append(o.Powers, isolationPowers(account)...)
	}
	return o
}

// slicesPolicy denies ResourceSlices of other classes, which Liqo itself would accept in any
// size, and denies everybody to change a slice's class. It denies consumers to write the
// statuses: consumers that have proven their key to Liqo get a role of Liqo's that allows it. It
// also limits how many namespaces a consumer's cluster has here (maxNamespaces).
func slicesPolicy() []tenant.Object {
	label := "'" + consts.ReplicationStatusLabel + "'"
	replicated := func(o string) string {
		return "(has(" + o + ".metadata.labels) && " + label + " in " + o + ".metadata.labels && " + o + ".metadata.labels[" + label + "] == 'true')"
	}
	const answer = "request.?subResource.orValue('') == 'status'"
	return kube.Policy("sluice-slices",
		admissionregistrationv1ac.ValidatingAdmissionPolicySpec().
			WithFailurePolicy(admissionregistrationv1.Fail).
			WithMatchConstraints(admissionregistrationv1ac.MatchResources().WithResourceRules(
				kube.Matching(authGroup, authv1beta1.GroupVersion.Version, "resourceslices",
					admissionregistrationv1.Create, admissionregistrationv1.Update),
				kube.Matching(authGroup, authv1beta1.GroupVersion.Version, "resourceslices/status", admissionregistrationv1.Update),
				kube.Matching(offloadingGroup, offloadingv1beta1.SchemeGroupVersion.Version, "namespacemaps/status", admissionregistrationv1.Update),
				kube.Matching(offloadingGroup, offloadingv1beta1.SchemeGroupVersion.Version, "namespacemaps", create, change))).
			WithValidations(
				kube.Validation(fmt.Sprintf("request.resource.resource != 'namespacemaps' || dyn(object).?spec.?desiredMapping.orValue({}).size() <= %d", maxNamespaces),
					fmt.Sprintf("a cluster has at most %d namespaces here", maxNamespaces)),
				kube.Validation(
					"request.resource.resource == 'namespacemaps' || "+answer+" || !"+replicated("object")+" || (has(object.spec.class) && object.spec.class == '"+string(names.Class)+"')",
					"resources of this cluster are sold by Sluice: the class of the ResourceSlice must be "+string(names.Class)),
				kube.Validation(
					"!("+answer+" && '"+authentication.OrganizationControlPlaneCSR()+"' in request.userInfo.groups)",
					"a consumer asks, and does not answer itself")),
		admissionregistrationv1ac.MatchResources())
}
