package kube_test

import (
	"bytes"
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// sluiceMayDoNoMore tries, with Sluice's own token, what a thief of the token would.
func sluiceMayDoNoMore(t *testing.T, f *fixture) {
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "foreign-"}}
	if err := f.admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	self := rbacv1.Subject{Kind: "ServiceAccount", Namespace: kube.DefaultNamespace, Name: kube.ServiceAccountName}
	meta := func(namespace string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "thief"}
	}
	roleRef := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	const kubeSystem = "kube-system"
	ours := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, ours)
	relabel := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelHub+`":"hub-1"}}}`))
	unlabel := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+v1alpha1.LabelHub+`":null}}}`))

	for _, test := range []struct {
		name string
		try  func(context.Context) error
		by   string // what refuses it
	}{
		{"read secrets of the system", func(ctx context.Context) error {
			return f.sluice.List(ctx, &corev1.SecretList{}, client.InNamespace(kubeSystem))
		}, "cannot list resource"},
		{"create a ClusterRole", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta(""), Rules: everything})
		}, "cannot create resource"},
		{"bind itself to cluster-admin", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta(""), Subjects: []rbacv1.Subject{self}, RoleRef: roleRef("ClusterRole", "cluster-admin")})
		}, "cannot create resource"},
		{"bind itself to admin in its own namespace", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta(namespaceOf(ours)), Subjects: []rbacv1.Subject{self}, RoleRef: roleRef("ClusterRole", "admin")})
		}, "attempting to grant RBAC permissions not currently held"},
		{"make a Role in its own namespace", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.Role{ObjectMeta: meta(namespaceOf(ours)), Rules: everything})
		}, "attempting to grant RBAC permissions not currently held"},
		{"change a consumer's role", func(ctx context.Context) error {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberRole("view")}}
			return f.sluice.Patch(ctx, role, client.RawPatch("application/merge-patch+json", []byte(`{"rules":[]}`)))
		}, "cannot patch resource"},
		{"bind a consumer's role in a foreign namespace", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta(foreign.Name), Subjects: []rbacv1.Subject{self}, RoleRef: roleRef("ClusterRole", v1alpha1.MemberRole("edit"))})
		}, "attempting to grant RBAC permissions not currently held"},
		{"request a token of the system", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &corev1.Pod{ObjectMeta: meta(kubeSystem), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}})
		}, "cannot create resource"},
		{"bind itself to its tenant rules in the system", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta(kubeSystem), Subjects: []rbacv1.Subject{self}, RoleRef: roleRef("ClusterRole", tenant.ClusterRole)})
		}, "only in namespaces that it has created"},
		{"bind itself to its tenant rules in a foreign namespace", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta(foreign.Name), Subjects: []rbacv1.Subject{self}, RoleRef: roleRef("ClusterRole", tenant.ClusterRole)})
		}, "only in namespaces that it has created"},
		{"delete a foreign namespace", func(ctx context.Context) error {
			return f.sluice.Delete(ctx, foreign.DeepCopy())
		}, "only namespaces that it has created"},
		{"take a foreign namespace over", func(ctx context.Context) error {
			return f.sluice.Patch(ctx, foreign.DeepCopy(), relabel)
		}, "only namespaces that it has created"},
		{"let go of a namespace", func(ctx context.Context) error {
			return f.sluice.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(ours)}}, unlabel)
		}, "for good"},
		{"create a namespace without its label", func(ctx context.Context) error {
			return f.sluice.Create(ctx, &corev1.Namespace{ObjectMeta: meta("")})
		}, "Sluice labels the namespaces"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusedWith(t, test.name, test.try(t.Context()), test.by)
		})
	}
	for _, attributes := range []authorizationv1.ResourceAttributes{
		{Namespace: kubeSystem, Verb: "create", Resource: "pods", Subresource: "exec"},
		{Namespace: kubeSystem, Verb: "create", Resource: "serviceaccounts", Subresource: "token"},
		{Namespace: foreign.Name, Verb: "get", Resource: "secrets"},
		{Namespace: foreign.Name, Verb: "delete", Group: rbacv1.GroupName, Resource: "rolebindings"},
		{Verb: "update", Resource: "nodes"},
		{Verb: "impersonate", Resource: "users"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
		if err := f.sluice.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			t.Errorf("Sluice may %s %s/%s in %q", attributes.Verb, attributes.Resource, attributes.Subresource, attributes.Namespace)
		}
	}
}

// tenantsMayDoNoMore tries what RBAC cannot deny to an account that runs workloads.
func tenantsMayDoNoMore(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	asBinding, asSystem := pod(ns, "as-binding"), pod(ns, "as-system")
	asBinding.Spec.ServiceAccountName = "sb-another"
	asSystem.Spec.PriorityClassName = "system-cluster-critical"
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "hijack"},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if err := f.admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sb-another"}}); err != nil {
		t.Fatal(err)
	}
	for by, object := range map[string]client.Object{
		"a binding's ServiceAccount is not for pods":  asBinding,
		"the priority of system pods is not for sale": asSystem,
		"external IPs are not for sale":               service,
		"tokens come from service bindings":           token,
	} {
		refusedWith(t, object.GetName(), f.admin.Create(t.Context(), object), by)
	}
	for _, allowed := range []client.Object{
		pod(ns, "plain"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plain"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plain"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
	} {
		if err := f.admin.Create(t.Context(), allowed); err != nil {
			t.Errorf("%T %s: %v", allowed, allowed.GetName(), err)
		}
	}
}

func registeringAgainKeepsTheToken(t *testing.T, f *fixture) {
	again, err := kube.Register(t.Context(), f.adminConfig, kube.ManifestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again, f.kubeconfig) {
		t.Error("the kubeconfig is another one")
	}
	config, err := member.Config(again)
	if err != nil {
		t.Fatalf("Sluice does not take its own kubeconfig: %v", err)
	}
	if config.BearerToken == "" || len(config.CertData) > 0 || config.Username != "" {
		t.Error("the kubeconfig holds something else than a token")
	}
}
