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
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/registration"
)

// TestHubOnAClusterBecomesEmbedded: the backup of a hub on a cluster is restored as an embedded one, with the same
// identity and UIDs. What was in Secrets is sealed in it: the access to the member cluster, which it reaches, the token for
// the cluster's reader, the identity of a cluster that has joined, and the key of a sink. Another installation's resources
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
		"reader.token":   "the-token",
	} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := []string{"--kubeconfig", h.Kubeconfig, "--namespace", h.Namespace}
	mustSluice(t, append([]string{"cluster", "add", "us", "--from-kubeconfig", h.Kubeconfig, "--wait", "0",
		"--reader", "external", "--reader-address", "reader.example:443", "--reader-token-file", path("reader.token")}, there...)...)
	joinedCluster(t, c, h.Namespace, "them", "identity")
	printed := strings.Fields(mustSluice(t, append([]string{"sink", "add", "billing", "--url", "https://billing.example"}, there...)...))
	key := printed[len(printed)-1]
	before := deliveredInstance(t, c, h.Namespace, "si-1", "us")
	deliveredInstance(t, c, "default", "si-of-others", "us")

	backup := append([]string{"hub", "backup", path("hub.backup"), "--key", path("backup.pub"), "--keyset", path("keyset.json")}, there...)
	if _, err := sluice(t, backup...); err == nil || !strings.Contains(err.Error(), "--platforms") {
		t.Errorf("a backup without the platforms: %v", err)
	}
	if out := mustSluice(t, append(backup, "--platforms", path("platforms.yaml"))...); !strings.Contains(out, ": 4 resources at revision ") {
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
	sealed := func(of *v1alpha1.MemberCluster, want string) {
		t.Helper()
		if got, err := connections.Kubeconfig(t.Context(), of); err != nil || string(got) != want || of.Spec.Access.SecretRef != nil {
			t.Errorf("sealed for %s is %q, want %q: %v, %+v", of.Name, got, want, err, of.Spec.Access)
		}
	}
	sealed(v1alpha1.ReaderIdentity(cluster), "the-token")
	them, err := connections.Cluster(t.Context(), "them")
	if err != nil {
		t.Fatal(err)
	}
	sealed(them, "theirs")
	sealed(v1alpha1.JoinedIdentity(them), "identity")
	var sink v1alpha1.EventSink
	if err := restored.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: "billing"}, &sink); err != nil {
		t.Fatal(err)
	}
	got, err := keys.Unseal(sink.Spec.Key.Sealed, sinks.Owner(sink.Namespace, sink.Name))
	if err != nil || sink.Spec.Key.SecretName != "" || string(got.Reveal()) != key {
		t.Errorf("the key of the sink: %v, %+v", err, sink.Spec.Key)
	}
}

// joinedCluster makes a cluster that has joined by invitation, as "peering join" does on a hub with Secrets.
func joinedCluster(t *testing.T, c client.Client, namespace, name, identity string) {
	t.Helper()
	store := registration.Secrets{Client: c, Owner: "test"}
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	joined := &v1alpha1.JoinedPeering{With: "us", PublicKey: []byte("key"), Network: v1alpha1.LiqoNetwork{ClusterID: "their-id"}}
	cluster.Spec.Driver, cluster.Spec.Liqo = v1alpha1.DriverLiqo, &v1alpha1.LiqoCluster{Joined: joined}
	access, err := store.Store(t.Context(), cluster, []byte("theirs"))
	if err != nil {
		t.Fatal(err)
	}
	given, err := store.Store(t.Context(), v1alpha1.JoinedIdentity(cluster), []byte(identity))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Spec.Access, joined.Identity = access, &given
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}
