package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
			Kubeconfig: "theirs", Identity: "identity",
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
