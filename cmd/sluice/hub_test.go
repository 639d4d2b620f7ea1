package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestHubBackup: an operator backs a hub up while it runs, loses its folder, and restores it elsewhere with the key
// alone: what was sealed opens, and nothing is removed from clusters before the release.
func TestHubBackup(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	dir := filepath.Dir(h.Kubeconfig)
	away := t.TempDir()
	key, public, file := filepath.Join(away, "backup.key"), filepath.Join(away, "backup.pub"), filepath.Join(away, "hub.backup")
	if err := os.WriteFile(public, []byte(mustSluice(t, "hub", "key", key)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		if out, err := operator(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("sluice %s: %v, want %q; it printed %s", strings.Join(args, " "), err, says, out)
		}
	}
	refused("keyset.json", "hub", "backup", file, "--key", public) // there is none yet
	keys, err := seal.Open(filepath.Join(dir, "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeDefaultPlatform(platformsPath(dir)); err != nil {
		t.Fatal(err)
	}
	eu := readyCluster(t, c, h.Namespace, "eu", 4)
	if eu.Spec.Access.SealedKubeconfig, err = keys.Seal([]byte("kubeconfig"), member.Owner(eu.Namespace, eu.Name)); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	if out := must("hub", "backup", file, "--key", public); !strings.Contains(out, "2 resources at revision ") {
		t.Errorf("backup: %s", out)
	}
	inside := filepath.Join(dir, "backup.key")
	mustSluice(t, "hub", "key", inside)
	refused("would be lost with it", "hub", "backup", file+"2", "--key", inside)
	refused("exists: name another file", "hub", "backup", file, "--key", public)
	refused("there is a hub in", "hub", "restore", file, "--key", key)
	refused("not a cluster", "hub", "restore", file, "--key", key, "--kubeconfig", h.Kubeconfig)
	if _, err := sluice(t, "hub", "key", key); err == nil || !strings.Contains(err.Error(), "is not replaced") {
		t.Errorf("a second key: %v", err)
	}
	if out := must("hub", "release"); !strings.Contains(out, "holds nothing") {
		t.Errorf("release of a hub that was not restored: %s", out)
	}

	elsewhere := filepath.Join(away, "data")
	there := func(args ...string) (string, error) { return sluice(t, append(args, "--data-dir", elsewhere)...) }
	if _, err := there("hub", "restore", file, "--key", inside); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("restore with another key: %v", err)
	}
	if out, err := there("hub", "restore", file, "--key", key); err != nil || !strings.Contains(out, "restored 2 resources") {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	again, err := hub.Start(t.Context(), hub.Options{DataDir: elsewhere})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	says := func(want string, args ...string) {
		t.Helper()
		out, err := there(args...)
		if err != nil {
			out += err.Error()
		}
		if !strings.Contains(out, want) {
			t.Errorf("sluice %s: no %q in\n%s", strings.Join(args, " "), want, out)
		}
	}
	says("✔ keyset       opens what is sealed in 1 resource", "doctor")
	says("✔ platforms ", "doctor")
	says("✘ restored     the hub was restored at ", "doctor")
	says("The hub was restored at ", "status")
	says("nothing is removed before `sluice hub release`", "collect", "--remove")
	says("is released", "hub", "release")
	says("✔ restored     nothing is held back", "doctor")
	restored, err := client.New(again.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "si-1"}}
	if err := restored.Get(t.Context(), client.ObjectKeyFromObject(instance), instance); err != nil || instance.Status.Delivered == nil {
		t.Errorf("the instance: %v, %+v", err, instance.Status)
	}
}
