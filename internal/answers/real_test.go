package answers_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/answers"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// Every answer of a real API server to Sluice's requests is accepted, in JSON and in protocol
// buffers, and in JSON only if it is a stranger's.
func TestARealAPIServerIsBelieved(t *testing.T) {
	cp := controlplane.Start(t, controlplane.Options{APIServerOnly: true})
	t.Run("the operator's", func(t *testing.T) { isBelieved(t, cp, false, "ns-1") })
	t.Run("a stranger's", func(t *testing.T) { isBelieved(t, cp, true, "ns-2") })
}

func isBelieved(t *testing.T, cp *controlplane.ControlPlane, stranger bool, ns string) {
	t.Helper()
	system, err := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pin := answers.KubeSystem()
	pin.For = 0
	pin.Set(string(system.UID))
	config := cp.Config()
	answers.Bound(config, stranger)
	answers.Check(config, pin)
	kube := kubernetes.NewForConfigOrDie(config)
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	owner := client.FieldOwner("test")
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	account := &corev1.ServiceAccount{ObjectMeta: in("a")}
	pod := &corev1.Pod{ObjectMeta: in("p"), Spec: corev1.PodSpec{
		ServiceAccountName: "a", NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"})
	names := &metav1.PartialObjectMetadataList{}
	names.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	done := func(err error) bool { return err == nil }
	for _, step := range []struct {
		what string
		do   func() error
		want func(error) bool
	}{
		{"create", func() error { return c.Create(ctx, namespace) }, done},
		{"create again", func() error { return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}) }, apierrors.IsAlreadyExists},
		{"create without a name", func() error { return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: in("")}) }, apierrors.IsInvalid},
		{"create in no namespace", func() error {
			return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "x"}})
		}, apierrors.IsNotFound},
		{"create an account", func() error { return c.Create(ctx, account) }, done},
		{"read", func() error { return c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace) }, done},
		{"read what is not there", func() error { return c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "none"}, &corev1.Secret{}) }, apierrors.IsNotFound},
		{"read of no namespace", func() error { return c.Get(ctx, client.ObjectKey{Namespace: "none", Name: "none"}, &corev1.Secret{}) }, apierrors.IsNotFound},
		{"apply", func() error {
			return c.Apply(ctx, corev1ac.ConfigMap("m", ns).WithData(map[string]string{"a": "b"}), owner)
		}, done},
		{"apply, dry", func() error { return c.Apply(ctx, corev1ac.ConfigMap("n", ns), owner, client.DryRunAll) }, done},
		{"conflict", func() error {
			stale := namespace.DeepCopy()
			stale.ResourceVersion = "1"
			return c.Update(ctx, stale)
		}, apierrors.IsConflict},
		{"update", func() error { return c.Update(ctx, namespace) }, done},
		{"status", func() error { return c.Status().Update(ctx, namespace) }, done},
		{"list", func() error { return c.List(ctx, &corev1.PodList{}, client.InNamespace(ns)) }, done},
		{"list names", func() error { return c.List(ctx, names) }, done},
		{"list pages", func() error { return c.List(ctx, &corev1.NamespaceList{}, client.Limit(1)) }, done},
		{"typed list", func() error { _, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); return err }, done},
		{"watch", func() error {
			watch, err := c.Watch(ctx, &corev1.NamespaceList{})
			if err == nil {
				<-watch.ResultChan()
				watch.Stop()
			}
			return err
		}, done},
		{"who am I", func() error { return c.Create(ctx, &authenticationv1.SelfSubjectReview{}) }, done},
		{"what may I", func() error {
			return c.Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/version", Verb: "get"},
			}})
		}, done},
		{"what may another", func() error {
			return c.Create(ctx, &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "x", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: "get", Resource: "pods"},
			}})
		}, done},
		{"token", func() error { return c.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{}) }, done},
		{"token of nobody", func() error {
			return c.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: in("none")}, &authenticationv1.TokenRequest{})
		}, apierrors.IsNotFound},
		{"pod", func() error { return c.Create(ctx, pod) }, done},
		{"evict", func() error {
			return c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: in("p")})
		}, done},
		{"delete with another UID", func() error {
			uid := namespace.UID + "x"
			return c.Delete(ctx, namespace, client.Preconditions{UID: &uid})
		}, apierrors.IsConflict},
		{"delete", func() error { return c.Delete(ctx, account) }, done},
		{"delete again", func() error { return c.Delete(ctx, account) }, apierrors.IsNotFound},
		{"delete what has a finalizer", func() error { return c.Delete(ctx, namespace) }, done},
		{"delete all", func() error { return c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(ns)) }, done},
		{"an API that is not there", func() error { return c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "w"}, widget) }, meta.IsNoMatchError},
		{"health", func() error { return kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() }, done},
		{"version", func() error { _, err := kube.Discovery().ServerVersion(); return err }, done},
		{"APIs", func() error { _, _, err := kube.Discovery().ServerGroupsAndResources(); return err }, done},
		{"OpenAPI", func() error { _, err := kube.Discovery().OpenAPIV3().Paths(); return err }, done},
	} {
		if err := step.do(); !step.want(err) {
			t.Errorf("%s: %v", step.what, err)
		}
	}
}
