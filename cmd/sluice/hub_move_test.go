package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestHubMoves: an embedded hub with an instance and a binding moves to a cluster, by the commands of docs/operating.md, and
// back. Its platform repeats its requests and finds everything as it was; the instance keeps its namespace, the binding its
// credentials. No Sluice starts in the former home, and no move while one runs.
func TestHubMoves(t *testing.T) {
	t.Parallel()
	member := controlplane.Start(t, controlplane.Options{Name: "member", Nodes: []controlplane.Node{{Name: "node", CPU: "2", Memory: "8Gi", Pods: "50"}}})
	there := controlplane.Start(t, controlplane.Options{Name: "hub", APIServerOnly: true})
	s := &seen{served: serveAnother(t, "sluice"), member: member}
	away := t.TempDir()
	path := func(name string) string { return filepath.Join(away, name) }
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("eu.kubeconfig", member.Kubeconfig())
	write("compute.yaml", []byte(compute))
	write("hub.kubeconfig", there.Kubeconfig())
	s.must("cluster", "add", "eu", "--from-kubeconfig", path("eu.kubeconfig"), "--region", "eu-de")
	s.offers(path("compute.yaml"), "compute-small")
	s.ends(t, http.MethodPut, "a", "compute", "small", "succeeded")
	s.ends(t, http.MethodPut, "a/service_bindings/b", "compute", "small", "succeeded")
	admin, err := client.New(member.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace := func() (n corev1.Namespace) {
		t.Helper()
		if err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", "a"))}, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const binding = "/v2/service_instances/a/service_bindings/b"
	_, credentials := s.send(t, http.MethodGet, binding, "")
	if !strings.Contains(credentials, `"credentials"`) {
		t.Fatalf("the binding is %s", credentials)
	}
	was, events := namespace(), eventsIn(t, s.must("events", "-o", "json"))
	stays := func() {
		t.Helper()
		s.ends(t, http.MethodPut, "a", "compute", "small", "succeeded")
		s.ends(t, http.MethodPut, "a/service_bindings/b", "compute", "small", "succeeded")
		if _, now := s.send(t, http.MethodGet, binding, ""); now != credentials {
			t.Errorf("the binding is\n%s\nwas\n%s", now, credentials)
		}
		if is := namespace(); is.UID != was.UID || is.Annotations[v1alpha1.AnnotationOwner] != was.Annotations[v1alpha1.AnnotationOwner] || is.Labels[v1alpha1.LabelHub] != was.Labels[v1alpha1.LabelHub] {
			t.Errorf("the namespace is %+v, was %+v", is.ObjectMeta, was.ObjectMeta)
		}
	}

	page := commandsOf(t, "## Moving the hub")
	if out, err := s.sluice("hub", "move", "--to-kubeconfig", path("hub.kubeconfig")); err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("a move while Sluice runs: %v\n%s", err, out)
	}
	ends := func() {
		t.Helper()
		_ = s.process.Process.Signal(syscall.SIGTERM)
		_ = s.process.Wait()
	}
	ends()
	installed, err := hub.Start(t.Context(), hub.Options{Kubeconfig: path("hub.kubeconfig"), InstallCRDs: true})
	if err != nil {
		t.Fatal(err)
	}
	mustSluice(t, "keyset", "new", path("other.json"))
	if _, err := s.sluice("hub", "move", "--to-kubeconfig", path("hub.kubeconfig"), "--keyset", path("other.json")); err == nil || !strings.Contains(err.Error(), "name the hub's keyset with --keyset") {
		t.Errorf("a move with another keyset: %v", err)
	}
	for _, command := range page[:2] {
		s.follows(t, away, command)
	}
	if _, err := s.sluice("serve", "--listen", "127.0.0.1:0", "--metrics-listen", "0"); err == nil || !strings.Contains(err.Error(), "the hub moved from here to the namespace sluice of the cluster") {
		t.Errorf("Sluice in the former home: %v", err)
	}
	secrets := kubernetes.NewForConfigOrDie(there.Config()).CoreV1().Secrets("sluice")
	for secret, file := range map[string]string{"sluice-keyset": "keyset.json", "sluice-platforms": "platforms.yaml"} {
		moved, err := secrets.Get(t.Context(), secret, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		write(file, moved.Data[file])
	}
	embedded := s.args
	onCluster := []string{"--kubeconfig", path("hub.kubeconfig")}
	s.args = append(embedded[:len(embedded):len(embedded)], append(onCluster, "--keyset", path("keyset.json"), "--platforms", path("platforms.yaml"))...)
	s.start()
	stays()
	now := eventsIn(t, s.must(append([]string{"events", "-o", "json"}, onCluster...)...))
	for event := range events {
		if !now[event] {
			t.Errorf("event %v is lost", event)
		}
	}
	if id, err := hub.Identity(t.Context(), installed.Config); err != nil || id != was.Labels[v1alpha1.LabelHub] {
		t.Errorf("the hub is %s, %v", id, err)
	}
	s.dir = filepath.Join(t.TempDir(), "back")
	back := append([]string{"hub", "move", "--to-data-dir", s.dir, "--keyset", path("keyset.json"), "--platforms", path("platforms.yaml")}, onCluster...)
	if _, err := s.sluice(back...); err == nil || !strings.Contains(err.Error(), "a Sluice runs on that cluster") {
		t.Errorf("a move while Sluice runs: %v", err)
	}
	ends()
	s.must(back...)
	s.args = append(embedded[:len(embedded):len(embedded)], "--data-dir", s.dir, "--platforms", filepath.Join(s.dir, "platforms.yaml"))
	s.start()
	stays()
	s.ends(t, http.MethodDelete, "a/service_bindings/b", "compute", "small", "gone")
	s.ends(t, http.MethodDelete, "a", "compute", "small", "gone")
}

// eventKey identifies an event.
type eventKey struct {
	UID      string `json:"uid"`
	Sequence int64  `json:"sequence"`
}

func eventsIn(t *testing.T, encoded string) map[eventKey]bool {
	t.Helper()
	var list []eventKey
	if err := json.Unmarshal([]byte(encoded), &list); err != nil || len(list) == 0 {
		t.Fatalf("events: %v\n%s", err, encoded)
	}
	events := map[eventKey]bool{}
	for _, event := range list {
		events[event] = true
	}
	return events
}
