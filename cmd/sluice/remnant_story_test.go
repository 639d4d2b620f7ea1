package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestAdopt: after a backup two instances are ordered, and the disk is lost. Of the restored hub, the operator adopts one
// and removes the other: the first has its ids, its namespace and its core again, which are not sold twice, and works; the
// core of the other is free.
func TestAdopt(t *testing.T) {
	t.Parallel()
	member := controlplane.Start(t, controlplane.Options{Name: "member", Nodes: []controlplane.Node{{Name: "node", CPU: "2", Memory: "8Gi", Pods: "50"}}})
	s := &seen{served: serveAnother(t, "sluice", "--collect", "remove", "--collect-every", "500ms"), member: member}
	away := t.TempDir()
	path := func(name string) string { return filepath.Join(away, name) }
	for name, content := range map[string]string{"eu.kubeconfig": string(member.Kubeconfig()), "compute.yaml": compute, "backup.pub": mustSluice(t, "hub", "key", path("backup.key"))} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(member.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespaceOf := func(id string) (*corev1.Namespace, error) {
		var namespace corev1.Namespace
		err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))}, &namespace)
		return &namespace, err
	}
	s.must("cluster", "add", "eu", "--from-kubeconfig", path("eu.kubeconfig"), "--region", "eu-de")
	s.offers(path("compute.yaml"), "compute-small")
	s.must("hub", "backup", path("hub.backup"), "--key", path("backup.pub"))
	s.ends(t, http.MethodPut, "b", "compute", "small", "succeeded")
	s.ends(t, http.MethodPut, "d", "compute", "small", "succeeded")
	before, err := namespaceOf("b")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	s.must("hub", "restore", path("hub.backup"), "--key", path("backup.key"))
	s.start()

	var b, d string
	s.until("both are listed", func(context.Context) error {
		out := s.must("collect")
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			switch {
			case strings.Contains(line, "b of first") && strings.Contains(line, "1 cpu"):
				b = fields[0] + "/" + fields[3]
			case strings.Contains(line, "d of first"):
				d = fields[0] + "/" + fields[3]
			}
		}
		if b == "" || d == "" {
			return fmt.Errorf("collect lists\n%s", out)
		}
		return nil
	})
	refused := func(says string, args ...string) {
		t.Helper()
		if out, err := s.sluice(args...); err == nil || !strings.Contains(err.Error()+out, says) {
			t.Errorf("sluice %s: %v, want %q; it printed %s", strings.Join(args, " "), err, says, out)
		}
	}
	refused("no such namespace", "remnant", "adopt", "eu/sluice-none")
	refused("--yes", "remnant", "remove", d)
	if out := s.must("remnant", "adopt", b); !strings.Contains(out, "adopted instance b of first on eu") {
		t.Errorf("adopt: %s", out)
	}
	refused("no such namespace", "remnant", "adopt", b)
	refused("no such object", "remnant", "remove", b, "--yes")
	s.until("b is delivered by the new resource", func(context.Context) error {
		now, err := namespaceOf("b")
		if err == nil && (now.UID != before.UID || now.Annotations[v1alpha1.AnnotationOwner] == before.Annotations[v1alpha1.AnnotationOwner]) {
			err = fmt.Errorf("its namespace is %s, of %s", now.UID, now.Annotations[v1alpha1.AnnotationOwner])
		}
		return err
	})
	s.ends(t, http.MethodPut, "b/service_bindings/b", "compute", "small", "succeeded")
	waits := func(id string) {
		t.Helper()
		status, body := s.send(t, http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true",
			`{"service_id": "compute", "plan_id": "compute-small", "organization_guid": "o", "space_guid": "s"}`)
		if status != http.StatusAccepted {
			t.Fatalf("the order of %s is answered %d %s", id, status, body)
		}
		s.until(id+" waits for room", func(context.Context) error {
			if out := s.must("instance", "describe", id); !strings.Contains(out, "0 free of 2 after") {
				return fmt.Errorf("it is\n%s", out)
			}
			return nil
		})
	}
	waits("c")
	s.must("remnant", "remove", d, "--yes")
	s.until("c has the room of d", func(ctx context.Context) error {
		_, body, err := s.ask(ctx, http.MethodGet, "/v2/service_instances/c/last_operation", "")
		if err == nil && !strings.Contains(body, "succeeded") {
			err = fmt.Errorf("it is %s", body)
		}
		return err
	})
	s.until("the namespace of d is gone", func(context.Context) error {
		if now, err := namespaceOf("d"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is %s, %v", now.Status.Phase, err)
		}
		return nil
	})
	s.must("hub", "release") // from here on the collector removes what it finds
	waits("e")
	if now, err := namespaceOf("b"); err != nil || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the namespace of b after the release: %v, %v", now.DeletionTimestamp, err)
	}
	s.ends(t, http.MethodDelete, "b/service_bindings/b", "compute", "small", "gone")
	s.ends(t, http.MethodDelete, "b", "compute", "small", "gone")
	if _, err := namespaceOf("b"); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace of b after its deletion: %v", err)
	}
}
