package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/placement/liqo"
)

// TestAccessInSecrets: where the hub is a cluster, the access to a member cluster is in a Secret,
// which goes with the member cluster, and is not overwritten by another cluster of that name.
func TestAccessInSecrets(t *testing.T) {
	t.Setenv("SLUICE_TEST_HUB", "kube")
	h := hubtest.Start(t)
	there := h.Kubeconfig
	c, err := client.New(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		_, err := sluice(t, append(args, "--kubeconfig", there, "--namespace", h.Namespace)...)
		return err
	}
	secrets := func() map[string]string {
		t.Helper()
		var list corev1.SecretList
		if err := c.List(t.Context(), &list, client.InNamespace(h.Namespace)); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, secret := range list.Items {
			found[secret.Name] = string(secret.Data["kubeconfig"])
		}
		return found
	}
	joins := func(name string) error {
		answer, err := yaml.Marshal(liqo.Answer{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: liqo.KindAnswer},
			Cluster:  name, With: "eu", Role: v1alpha1.SideProvider, Network: v1alpha1.LiqoNetwork{ClusterID: "their-id"}, PublicKey: []byte("key"),
			Kubeconfig: answered(""), Identity: answered(""),
		})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "answer.yaml")
		if err := os.WriteFile(file, answer, 0o600); err != nil {
			t.Fatal(err)
		}
		return run("peering", "join", file, "--wait", "0")
	}

	if err := run("cluster", "add", "us", "--from-kubeconfig", there, "--wait", "0"); err != nil {
		t.Fatal(err)
	}
	readyCluster(t, c, h.Namespace, "eu", 4)
	before := secrets()["sluice-cluster-us"]
	if before == "" {
		t.Fatalf("the access to us is in none of %v", secrets())
	}
	for _, name := range []string{"us", "them"} {
		if err := run("peering", "invite", name, "--cluster-id", "their-id", "--with", "eu", "--wait", "0"); err != nil && !strings.Contains(err.Error(), "run the command again") {
			t.Fatal(err)
		}
	}
	if err := joins("us"); err == nil || !strings.Contains(err.Error(), "another member cluster has that name") {
		t.Errorf("a stranger joins under the name of us: %v", err)
	}
	if secrets()["sluice-cluster-us"] != before {
		t.Error("the access to us is the stranger's now")
	}
	if err := joins("them"); err != nil {
		t.Fatal(err)
	}
	if len(secrets()) != 3 { // the access to us, the access to them, and the identity that they gave
		t.Errorf("with two clusters there are %d Secrets", len(secrets()))
	}
	if err := run("peering", "withdraw", "them", "--with", "eu"); err != nil {
		t.Fatal(err)
	}
	if err := run("cluster", "remove", "us"); err != nil {
		t.Fatal(err)
	}
	if left := secrets(); len(left) != 0 {
		t.Errorf("the clusters have left, and %d Secrets are still there", len(left))
	}
}

// TestSinkRemovedByHalves: a removal that deleted the sink and not the Secret with its key does so when it is repeated.
func TestSinkRemovedByHalves(t *testing.T) {
	t.Setenv("SLUICE_TEST_HUB", "kube")
	h := hubtest.Start(t)
	c, err := client.New(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		return sluice(t, append(args, "--kubeconfig", h.Kubeconfig, "--namespace", h.Namespace)...)
	}
	if _, err := run("sink", "add", "billing", "--url", "https://billing.example"); err != nil {
		t.Fatal(err)
	}
	key := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: "sluice-sink-billing"}, key); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "billing"}}); err != nil {
		t.Fatal(err)
	}
	if out, err := run("sink", "remove", "billing"); err != nil || out != "sink billing: removed\n" {
		t.Errorf("the removal when it is repeated: %v\n%s", err, out)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(key), key); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret with the key of a removed sink: %v", err)
	}
	if _, err := run("sink", "remove", "billing"); err == nil || !strings.Contains(err.Error(), "sink billing: there is none of this name") {
		t.Errorf("a removal of nothing: %v", err)
	}
}

// TestClusterRemovalThatEnds: the Secrets with the access to a cluster are named if the command ends before it deletes them.
func TestClusterRemovalThatEnds(t *testing.T) {
	key := client.ObjectKey{Namespace: "sluice", Name: "us"}
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	cluster.Spec.Access.SecretRef = &v1alpha1.SecretKeyReference{Name: "sluice-cluster-us"}
	cluster.Spec.Reader = &v1alpha1.ExternalReader{Token: &v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: "sluice-cluster-us-reader"}}}
	const left = "; the access to it stays in Secret sluice-cluster-us, sluice-cluster-us-reader: delete that when it has left"
	refused := errors.New("connection refused")
	isDeleted := false
	for when, funcs := range map[string]interceptor.Funcs{
		"its look at the cluster fails": {
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if isDeleted {
					return refused
				}
				return c.Get(ctx, key, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				isDeleted = true
				return c.Delete(ctx, o, opts...)
			},
		},
		"a Secret cannot be deleted": {
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if _, ok := o.(*corev1.Secret); ok {
					return refused
				}
				return c.Delete(ctx, o, opts...)
			},
		},
	} {
		isDeleted = false
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster.DeepCopy()).WithInterceptorFuncs(funcs).Build()
		if err := removeCluster(t.Context(), io.Discard, c, "cluster", key, time.Minute); !errors.Is(err, refused) || !strings.Contains(err.Error(), left) {
			t.Errorf("if %s: %v, want %q", when, err, left)
		}
	}
}

// TestSecretOfTwoClusters: a Secret to which another cluster refers, too, stays when a cluster is removed.
func TestSecretOfTwoClusters(t *testing.T) {
	const shared = "sluice-cluster-eu-reader"
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "sluice", Name: name} }
	access := func(secret string) v1alpha1.ClusterAccess {
		return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: secret}}
	}
	eu, other, token := &v1alpha1.MemberCluster{ObjectMeta: in("eu")}, &v1alpha1.MemberCluster{ObjectMeta: in("eu-reader")}, access(shared)
	eu.Spec.Access, other.Spec.Access = access("sluice-cluster-eu"), access(shared)
	eu.Spec.Reader = &v1alpha1.ExternalReader{Token: &token}
	for _, name := range []string{"eu", "eu-reader"} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(eu.DeepCopy(), other.DeepCopy(),
			&corev1.Secret{ObjectMeta: in("sluice-cluster-eu")}, &corev1.Secret{ObjectMeta: in(shared)}).Build()
		if err := removeCluster(t.Context(), io.Discard, c, "cluster", client.ObjectKey{Namespace: "sluice", Name: name}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: shared}, &corev1.Secret{}); err != nil {
			t.Errorf("after the removal of %s the other cluster has no Secret: %v", name, err)
		}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "sluice-cluster-eu"}, &corev1.Secret{}); apierrors.IsNotFound(err) != (name == "eu") {
			t.Errorf("after the removal of %s, the Secret of eu: %v", name, err)
		}
	}
}
