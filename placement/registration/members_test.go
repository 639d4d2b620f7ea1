package registration

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// waits fails the test unless an error is a wait that says something.
func waits(t *testing.T, err error, says string) {
	t.Helper()
	if pending := (*delivery.PendingError)(nil); !errors.As(err, &pending) || !strings.Contains(err.Error(), says) {
		t.Fatalf("%v, want a wait that says %q", err, says)
	}
}

// The cluster of an instance joins, is another kind of member cluster after an update, and leaves: each
// step again and again, on a management cluster whose one cluster is itself.
func TestMembers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	hub, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, namespace := t.Context(), hubtest.Namespace(t)
	made := controlplane.Start(t, controlplane.Options{})
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.InstanceName("cf", "mine")}}
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.InstanceClusterName(instance.Name)}
	admin := kubernetes.NewForConfigOrDie(made.Config())
	haveKubeconfig(ctx, t, admin, instance.Name, made.Kubeconfig())
	if _, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	access, err := Sealed{keys}.Store(ctx, &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "makers"}}, made.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.Create(ctx, &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "makers"},
		Spec:       v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverCAPI, Capacity: corev1.ResourceList{v1alpha1.ResourceClusters: resource.MustParse("1")}, Access: access},
	}); err != nil {
		t.Fatal(err)
	}
	m := &Members{
		Client: hub, Live: hub, Namespace: namespace, Store: Sealed{keys},
		Connections: &member.Connections{Reader: hub, Namespace: namespace, Keys: keys},
	}
	seen := func() *v1alpha1.MemberCluster {
		t.Helper()
		cluster := &v1alpha1.MemberCluster{}
		if err := hub.Get(ctx, key, cluster); err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	report := func(status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		cluster := seen()
		v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, v1alpha1.ConditionReady, status, reason, message)
		if err := hub.Status().Update(ctx, cluster); err != nil {
			t.Fatal(err)
		}
	}
	alone := &v1alpha1.ClusterShape{}
	provider := &v1alpha1.ClusterShape{Member: &v1alpha1.ShapeMember{MemberTemplate: v1alpha1.MemberTemplate{Region: "eu"}}}
	owner := v1alpha1.ConsumerReference{Platform: "cf", Organization: "org", Space: "space"}
	consumer := &v1alpha1.ClusterShape{Member: &v1alpha1.ShapeMember{Consumers: []v1alpha1.ConsumerReference{owner}}, AddOns: []v1alpha1.AddOn{{Name: "liqo", AddOnChart: v1alpha1.AddOnChart{Chart: "liqo-v1.2.0.tgz", Namespace: "liqo"}}}}

	for _, step := range []func() error{
		func() error { return m.Join(ctx, "makers", instance, alone) },
		func() error { return m.Joined(ctx, instance, alone) },
		func() error { return m.Leave(ctx, instance) },
	} {
		if err := step(); err != nil {
			t.Fatalf("a cluster that does not join: %v", err)
		}
	}

	if err := m.Joined(ctx, instance, provider); err == nil || !strings.Contains(err.Error(), "is not in the inventory") {
		t.Errorf("before it joins: %v", err)
	}
	waits(t, m.Join(ctx, "makers", instance, provider), "joins the inventory: it is not ready yet")
	waits(t, m.Join(ctx, "makers", instance, provider), "joins the inventory: it is not ready yet")
	joined := seen()
	if joined.Spec.Driver != v1alpha1.DriverKube || joined.Spec.Region != "eu" || len(joined.Spec.Consumers) > 0 {
		t.Errorf("it joins as %+v", joined.Spec)
	}
	plain, err := keys.Unseal(joined.Spec.Access.SealedKubeconfig, member.Owner(namespace, joined.Name))
	if err != nil || strings.Contains(string(plain.Reveal()), "client-certificate-data") {
		t.Errorf("Sluice keeps an administrator's access: %v", err)
	}
	report(metav1.ConditionFalse, "Denied", "not verified yet")
	waits(t, m.Join(ctx, "makers", instance, provider), "not verified yet")
	report(metav1.ConditionTrue, v1alpha1.ReasonReady, "takes placements")
	for range 2 {
		if err := errors.Join(m.Join(ctx, "makers", instance, provider), m.Joined(ctx, instance, provider)); err != nil {
			t.Fatal(err)
		}
	}

	// As another kind of member cluster it leaves first, which something on it delays.
	joined = seen()
	joined.Finalizers = []string{v1alpha1.Finalizer}
	if err := hub.Update(ctx, joined); err != nil {
		t.Fatal(err)
	}
	if err := m.Joined(ctx, instance, consumer); err == nil || !strings.Contains(err.Error(), "as something else") {
		t.Errorf("as another kind: %v", err)
	}
	waits(t, m.Join(ctx, "makers", instance, consumer), "leaves the inventory")
	report(metav1.ConditionFalse, v1alpha1.ReasonDeleting, "it is in use by si-other")
	waits(t, m.Join(ctx, "makers", instance, consumer), "in use by si-other")
	joined = seen()
	joined.Finalizers = nil
	if err := hub.Update(ctx, joined); err != nil {
		t.Fatal(err)
	}
	waits(t, m.Join(ctx, "makers", instance, consumer), "joins the inventory")
	if spec := seen().Spec; spec.Driver != v1alpha1.DriverLiqo || len(spec.Consumers) != 1 || spec.Consumers[0] != owner || spec.Liqo == nil {
		t.Errorf("it joins as %+v", spec)
	}

	waits(t, m.Leave(ctx, instance), "leaves the inventory")
	if err := m.Leave(ctx, instance); err != nil {
		t.Errorf("once it has left: %v", err)
	}

	// A member cluster of the same name that somebody else has added is not touched.
	if err := hub.Create(ctx, &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}, Spec: v1alpha1.MemberClusterSpec{Access: access}}); err != nil {
		t.Fatal(err)
	}
	if no := (*delivery.RefusedError)(nil); !errors.As(m.Join(ctx, "makers", instance, provider), &no) {
		t.Error("it joins by the name of another")
	}
	if err := m.Leave(ctx, instance); err != nil || !seen().DeletionTimestamp.IsZero() {
		t.Errorf("another's leaves: %v", err)
	}
}

// haveKubeconfig stores the kubeconfig of an instance's cluster as Cluster API does.
func haveKubeconfig(ctx context.Context, t *testing.T, management kubernetes.Interface, instance string, kubeconfig []byte) {
	t.Helper()
	namespace := v1alpha1.MemberNamespace(instance)
	_, err := management.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err == nil {
		_, err = management.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceClusterName(instance) + "-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}
