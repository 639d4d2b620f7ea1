package liqo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// as returns a client with a kubeconfig.
func as(t *testing.T, kubeconfig []byte) client.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	return newClient(t, config)
}

// refusedWith fails the test unless err is a refusal that mentions text.
func refusedWith(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want a refusal with %q", what, err, text)
	}
}

// may lists the rights of an identity, as text: verb group/resource in namespace.
type may struct {
	namespace, verb, group, resource, subresource, name string
	want                                                bool
}

func mayOnly(t *testing.T, c client.Client, all []may) {
	t.Helper()
	for _, m := range all {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: m.namespace, Verb: m.verb, Group: m.group, Resource: m.resource, Subresource: m.subresource, Name: m.name,
		}}}
		must(t, c.Create(t.Context(), review))
		if review.Status.Allowed != m.want {
			t.Errorf("may %s %s %s/%s %s in %q: %v, want %v", m.verb, m.group, m.resource, m.subresource, m.name, m.namespace, !m.want, m.want)
		}
	}
}

const (
	auth       = "authentication.liqo.io"
	networking = "networking.liqo.io"
	offloading = "offloading.liqo.io"
)

// sluiceMayDoNoMore tries, with Sluice's own token, what a thief of the token would.
func sluiceMayDoNoMore(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.untilReady(peering)
	sluice := as(p.T, p.provider.kubeconfig)
	ours := p.provider.tenant(p.consumer)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "liqo-tenant-foreign-", Labels: map[string]string{consts.TenantNamespaceLabel: "true"}}}
	must(p.T, p.provider.admin.Create(p.Context(), foreign))
	self := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "sluice-system", Name: "sluice"}
	bind := func(namespace, role string) error {
		return sluice.Create(p.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "thief"}, Subjects: []rbacv1.Subject{self},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		})
	}
	at := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "thief"}
	}
	for _, test := range []struct {
		name string
		try  func(context.Context) error
		by   string
	}{
		{"read secrets of Liqo", func(ctx context.Context) error {
			return sluice.List(ctx, &corev1.SecretList{}, client.InNamespace(p.provider.liqo))
		}, "cannot list resource"},
		{"read secrets everywhere", func(ctx context.Context) error { return sluice.List(ctx, &corev1.SecretList{}) }, "cannot list resource"},
		{"make a tenant namespace without its label", func(ctx context.Context) error {
			return sluice.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-thief", Labels: map[string]string{consts.TenantNamespaceLabel: "true"}}})
		}, "Sluice labels the namespaces"},
		{"take a foreign tenant namespace over", func(ctx context.Context) error {
			return sluice.Patch(ctx, foreign.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelHub+`":"`+hubID+`"}}}`)))
		}, "only namespaces that it has created"},
		{"admit a tenant elsewhere", func(ctx context.Context) error {
			return sluice.Create(ctx, &authv1beta1.Tenant{ObjectMeta: at(foreign.Name), Spec: authv1beta1.TenantSpec{ClusterID: "thief"}})
		}, "cannot create resource"},
		{"make a slice elsewhere", func(ctx context.Context) error {
			return sluice.Create(ctx, &authv1beta1.ResourceSlice{ObjectMeta: at(foreign.Name)})
		}, "cannot create resource"},
		{"offload a namespace elsewhere", func(ctx context.Context) error {
			return sluice.Create(ctx, &offloadingv1beta1.NamespaceOffloading{ObjectMeta: at(p.provider.liqo)})
		}, "cannot create resource"},
		{"read the networks of others", func(ctx context.Context) error {
			return sluice.List(ctx, &networkingv1beta1.ConfigurationList{}, client.InNamespace(foreign.Name))
		}, "cannot list resource"},
		{"make a ForeignCluster", func(ctx context.Context) error {
			return sluice.Create(ctx, &liqov1beta1.ForeignCluster{ObjectMeta: at(""), Spec: liqov1beta1.ForeignClusterSpec{ClusterID: "thief"}})
		}, "cannot create resource"},
		{"bind admin in a tenant namespace of its own", func(context.Context) error { return bind(ours, "admin") }, "attempting to grant RBAC permissions not currently held"},
		{"bind cluster-admin there", func(context.Context) error { return bind(ours, "cluster-admin") }, "attempting to grant RBAC permissions not currently held"},
		{"bind the role of peers elsewhere", func(context.Context) error { return bind(foreign.Name, liqo.PeerRole) }, "only in namespaces that it has created"},
		{"bind its tenant rules elsewhere", func(context.Context) error { return bind(p.provider.liqo, tenant.ClusterRole) }, "only in namespaces that it has created"},
		{"bind anything for the whole cluster", func(ctx context.Context) error {
			return sluice.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: at(""), Subjects: []rbacv1.Subject{self}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: liqo.PeerRole}})
		}, "cannot create resource"},
	} {
		refusedWith(p.T, test.name, test.try(p.Context()), test.by)
	}
	mayOnly(p.T, sluice, []may{
		{ours, "create", auth, "tenants", "", "", true},
		{ours, "update", auth, "resourceslices", "status", "", true},
		{foreign.Name, "update", auth, "resourceslices", "status", "", false},
		{foreign.Name, "get", "", "secrets", "", "", false},
		{p.provider.liqo, "get", "", "secrets", "", "", false},
		{p.provider.liqo, "list", "", "configmaps", "", "", true},
		{p.provider.liqo, "update", "", "configmaps", "", "", false},
		{"", "list", "core.liqo.io", "foreignclusters", "", "", false},
		{"", "update", "", "nodes", "", "", false},
		{"", "bind", rbacv1.GroupName, "clusterroles", "", liqo.PeerRole, true},
		{"", "bind", rbacv1.GroupName, "clusterroles", "", "liqo-remote-controlplane", false},
		{"", "escalate", rbacv1.GroupName, "clusterroles", "", liqo.PeerRole, false},
		{ours, "create", offloading, "virtualnodes", "", "", false},
		{ours, "update", networking, "connections", "status", "", false},
	})
}

// peersMayOnlyAsk tries what a consumer could do with the identity that Sluice has issued.
func peersMayOnlyAsk(p *pair) {
	p.untilReady(p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true)))
	peer := as(p.T, p.identity().Data[consts.KubeconfigSecretField])
	ours := p.provider.tenant(p.consumer)
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: ours, Name: "asked", Labels: map[string]string{consts.ReplicationStatusLabel: "true", consts.ReplicationOriginLabel: p.consumer.id},
	}, Spec: authv1beta1.ResourceSliceSpec{Class: "sluice", Resources: amounts("64")}}
	must(p.T, peer.Create(p.Context(), slice))
	slice.Status.Conditions = []authv1beta1.ResourceSliceCondition{{
		Type: authv1beta1.ResourceSliceConditionTypeResources, Status: authv1beta1.ResourceSliceConditionAccepted, LastTransitionTime: metav1.Now(),
	}}
	refusedWith(p.T, "accept its own slice", peer.Status().Update(p.Context(), slice), "cannot update resource")
	refusedWith(p.T, "accept it by a patch", peer.Status().Patch(p.Context(), slice, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"resources":{"cpu":"64"}}}`))), "cannot patch resource")
	slice.Namespace, slice.ResourceVersion = p.provider.liqo, ""
	refusedWith(p.T, "ask in another namespace", peer.Create(p.Context(), slice), "cannot create resource")
	refusedWith(p.T, "read secrets there", peer.List(p.Context(), &corev1.SecretList{}, client.InNamespace(ours)), "cannot list resource")
	mayOnly(p.T, peer, []may{
		{ours, "create", auth, "resourceslices", "", "", true},
		{ours, "update", offloading, "namespacemaps", "", "", true},
		{ours, "update", offloading, "namespacemaps", "status", "", false},
		{ours, "update", auth, "renews", "status", "", false},
		{ours, "update", auth, "tenants", "", "", false},
		{ours, "create", "", "pods", "", "", false},
		{ours, "create", "", "serviceaccounts", "token", "", false},
		{ours, "create", networking, "configurations", "", "", false},
		{ours, "create", rbacv1.GroupName, "rolebindings", "", "", false},
		{"kube-system", "get", "", "secrets", "", "", false},
		{"", "list", auth, "resourceslices", "", "", false},
		{"", "list", "", "namespaces", "", "", false},
		{"", "list", "", "nodes", "", "", false},
	})

	judge := &liqo.Judge{
		Client: p.hub, Live: p.hub, Connections: p.connections, Namespace: p.namespace, Hub: hubID, Every: 50 * time.Millisecond,
		Refuses: func(string, []v1alpha1.ConsumerReference) string { return "" },
	}
	ctx, stop := context.WithCancel(p.Context())
	done := make(chan error, 1)
	go func() { done <- judge.Start(ctx) }()
	p.eventually("the slice that nobody has bought is denied, with the reason", func(ctx context.Context) (bool, error) {
		var now authv1beta1.ResourceSlice
		if err := p.provider.admin.Get(ctx, client.ObjectKey{Namespace: ours, Name: "asked"}, &now); err != nil {
			return false, err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == authv1beta1.ResourceSliceConditionTypeResources {
				return c.Status == authv1beta1.ResourceSliceConditionDenied && c.Reason == "NotReserved" && strings.Contains(c.Message, "order one"), nil
			}
		}
		return false, nil
	}, func() string { return "" })
	stop()
	must(p.T, <-done)
}

// otherClassesAreRefused: Liqo itself would accept them in any size.
func otherClassesAreRefused(p *pair) {
	p.untilReady(p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true)))
	peer := as(p.T, p.identity().Data[consts.KubeconfigSecretField])
	const why = "resources of this cluster are sold by Sluice"
	made := func(name string, class authv1beta1.ResourceSliceClass, replicated string) *authv1beta1.ResourceSlice {
		return &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.provider.tenant(p.consumer), Name: name, Labels: map[string]string{consts.ReplicationStatusLabel: replicated, consts.ReplicationOriginLabel: p.consumer.id},
		}, Spec: authv1beta1.ResourceSliceSpec{Class: class, Resources: amounts("64")}}
	}
	for who, c := range map[string]client.Client{"the peer": peer, "an administrator": p.provider.admin, "sluice": as(p.T, p.provider.kubeconfig)} {
		for _, class := range []authv1beta1.ResourceSliceClass{"default", "", "sluice2", "Sluice"} {
			refusedWith(p.T, who+" makes one of class "+string(class), c.Create(p.Context(), made("bypass", class, "true")), why)
		}
	}
	accepted := made("accepted", "sluice", "true")
	must(p.T, peer.Create(p.Context(), accepted))
	patch := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	for what, text := range map[string]string{
		"another class": `{"spec":{"class":"default"}}`,
		"no class":      `{"spec":{"class":null}}`,
	} {
		refusedWith(p.T, what+" for an accepted one", peer.Patch(p.Context(), accepted.DeepCopy(), patch(text)), why)
	}
	// Nor by a slice that Liqo ignores.
	must(p.T, peer.Create(p.Context(), made("later", "default", "false")))
	later := made("later", "default", "false")
	refusedWith(p.T, "a slice of another class that becomes a replica", peer.Patch(p.Context(), later, patch(`{"metadata":{"labels":{"`+consts.ReplicationStatusLabel+`":"true"}}}`)), why)
}

// TestJoinedClustersAreLookedAtOnly checks the rights that accepting an invitation grants.
func TestJoinedClustersAreLookedAtOnly(t *testing.T) {
	hubtest.Start(t) // first, as it sets the logger that the other would be using
	on := newPlane(t, "joined")
	p := &pair{T: t, consumer: &end{plane: on, name: "hub", id: "hub-id"}, provider: installed(t, "theirs", on)}
	startStandIn(t, p.consumer, p.provider)
	invitation := &liqo.Invitation{
		Role: v1alpha1.SideProvider, Cluster: p.provider.name, ClusterID: p.provider.id, With: p.consumer.name, Hub: hubID,
		Network: v1alpha1.LiqoNetwork{ClusterID: p.consumer.id, PodCIDRs: []string{"10.128.0.0/16"}, ExternalCIDR: "10.70.0.0/16"},
		Gateway: v1alpha1.GatewayAddress{Addresses: []string{"192.0.2.1"}, Port: 32000, PublicKey: []byte("key of the inviting")},
	}
	o := liqo.AcceptOptions{LiqoNamespace: p.provider.liqo, Progress: func(string) {}}
	wrong := *invitation
	wrong.ClusterID = "another"
	if _, err := liqo.Accept(p.Context(), p.provider.Config(), &wrong, o); err == nil || !strings.Contains(err.Error(), "--cluster-id "+p.provider.id) {
		p.Errorf("an invitation for another cluster: %v", err)
	}
	answer, err := liqo.Accept(p.Context(), p.provider.Config(), invitation, o)
	must(p.T, err)
	again, err := liqo.Accept(p.Context(), p.provider.Config(), invitation, o)
	must(p.T, err)
	if again.Kubeconfig != answer.Kubeconfig || again.Identity != answer.Identity || string(again.PublicKey) != "key of "+p.provider.id {
		p.Error("accepted again, the answer is another one")
	}
	ours := p.provider.tenant(p.consumer)
	look := []may{
		{"", "list", "", "nodes", "", "", true},
		{"", "list", "", "pods", "", "", true},
		{ours, "list", auth, "resourceslices", "", "", true},
		{ours, "update", auth, "resourceslices", "status", "", true},
		{ours, "update", auth, "resourceslices", "", "", false},
		{ours, "create", auth, "resourceslices", "", "", false},
		{ours, "create", auth, "tenants", "", "", false},
		{ours, "get", "", "secrets", "", "", false},
		{ours, "create", "", "serviceaccounts", "token", "", false},
		{ours, "create", networking, "gatewayclients", "", "", false},
		{ours, "create", rbacv1.GroupName, "rolebindings", "", "", false},
		{ours, "create", "", "pods", "", "", false},
		{"", "create", "", "namespaces", "", "", false},
		{"", "delete", "", "namespaces", "", ours, false},
		{"", "bind", rbacv1.GroupName, "clusterroles", "", liqo.PeerRole, false},
		{"", "delete", "core.liqo.io", "foreignclusters", "", "", false},
		{"default", "list", auth, "resourceslices", "", "", false},
		{"default", "update", auth, "resourceslices", "status", "", false},
		{p.provider.liqo, "list", "", "configmaps", "", "", false},
	}
	mayOnly(p.T, as(p.T, []byte(answer.Kubeconfig)), look)
	mayOnly(p.T, as(p.T, []byte(answer.Identity)), []may{
		{ours, "create", auth, "resourceslices", "", "", true},
		{ours, "update", auth, "resourceslices", "status", "", false},
		{ours, "get", "", "secrets", "", "", false},
		{"default", "create", auth, "resourceslices", "", "", false},
		{"", "list", "", "nodes", "", "", false},
	})
	refusedWith(p.T, "a slice of another class", as(p.T, []byte(answer.Identity)).Create(p.Context(), &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: ours, Name: "bypass", Labels: map[string]string{consts.ReplicationStatusLabel: "true"},
	}}), "resources of this cluster are sold by Sluice")

	// With a declared capacity it is not looked at.
	o.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	declared, err := liqo.Accept(p.Context(), p.provider.Config(), invitation, o)
	must(p.T, err)
	if declared.Capacity.Cpu().Value() != 8 || declared.Kubeconfig != answer.Kubeconfig {
		p.Errorf("the answer has the capacity %v, or another access", declared.Capacity)
	}
	must(p.T, wait.PollUntilContextTimeout(p.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(as(p.T, []byte(declared.Kubeconfig)).List(ctx, &corev1.NodeList{})), nil
	}))
	mayOnly(p.T, as(p.T, []byte(declared.Kubeconfig)), append([]may{
		{"", "list", "", "nodes", "", "", false},
		{"", "list", "", "pods", "", "", false},
		{"", "list", "storage.k8s.io", "storageclasses", "", "", false},
		{"", "list", "", "namespaces", "", "", true},
	}, look[2:]...))

	must(p.T, liqo.Leave(p.Context(), p.provider.Config(), invitation, p.provider.liqo))
	if p.provider.has(p.T, "", ours, &corev1.Namespace{}) || p.provider.has(p.T, "", p.consumer.id, &liqov1beta1.ForeignCluster{}) {
		p.Error("after leaving, something is left")
	}
}
