package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestHubOnAClusterBecomesEmbedded: the backup of a hub on a cluster is restored as an embedded one, with the same
// identity and UIDs. It reaches the member cluster, the access to which was in a Secret. Another installation's resources
// are not in it.
func TestHubOnAClusterBecomesEmbedded(t *testing.T) {
	t.Setenv("SLUICE_TEST_HUB", "kube")
	h := hubtest.Start(t)
	c, err := client.New(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	away, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "data")
	path := func(name string) string { return filepath.Join(away, name) }
	mustSluice(t, "keyset", "new", path("keyset.json"))
	for name, content := range map[string]string{
		"backup.pub":     mustSluice(t, "hub", "key", path("backup.key")),
		"platforms.yaml": "platforms:\n- {name: cf, basic: [{username: u, password: p}]}\n",
	} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := []string{"--kubeconfig", h.Kubeconfig, "--namespace", h.Namespace}
	mustSluice(t, append([]string{"cluster", "add", "us", "--from-kubeconfig", h.Kubeconfig, "--wait", "0"}, there...)...)
	before := deliveredInstance(t, c, h.Namespace, "si-1", "us")
	deliveredInstance(t, c, "default", "si-of-others", "us")

	backup := append([]string{"hub", "backup", path("hub.backup"), "--key", path("backup.pub"), "--keyset", path("keyset.json")}, there...)
	if _, err := sluice(t, backup...); err == nil || !strings.Contains(err.Error(), "--platforms") {
		t.Errorf("a backup without the platforms: %v", err)
	}
	if out := mustSluice(t, append(backup, "--platforms", path("platforms.yaml"))...); !strings.Contains(out, ": 2 resources at revision ") {
		t.Errorf("backup: %s", out)
	}
	mustSluice(t, "hub", "restore", path("hub.backup"), "--key", path("backup.key"), "--data-dir", elsewhere)
	again, err := hub.Start(t.Context(), hub.Options{DataDir: elsewhere, Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	if again.ID != h.ID {
		t.Errorf("its identity is %s, was %s", again.ID, h.ID)
	}
	restored, err := client.New(again.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	after := &v1alpha1.ServiceInstance{}
	if err := restored.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil || after.UID != before.UID || after.Generation != before.Generation || after.Status.Delivered == nil {
		t.Errorf("the instance: %v, %s, was %s", err, after.UID, before.UID)
	}
	keys, err := seal.Load(filepath.Join(elsewhere, "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	connections := &member.Connections{Reader: restored, Namespace: h.Namespace, Keys: keys}
	cluster, err := connections.Cluster(t.Context(), "us")
	if err != nil || cluster.Spec.Access.SecretRef != nil {
		t.Fatalf("the cluster: %v, %+v", err, cluster)
	}
	if _, err := connections.Open(t.Context(), cluster); err != nil {
		t.Errorf("the restored hub does not reach it: %v", err)
	}
}
