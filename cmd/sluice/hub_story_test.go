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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestLostDisk: an instance is ordered before a backup, another one after it, and the disk is lost. The restored hub
// has the first, which works as before. The other one is on its cluster only: it is reported, not removed, though
// the collector removes what it finds, and its core is not sold again before the operator has released it.
func TestLostDisk(t *testing.T) {
	t.Parallel()
	member := controlplane.Start(t, controlplane.Options{Name: "member", Nodes: []controlplane.Node{{Name: "node", CPU: "2", Memory: "8Gi", Pods: "50"}}})
	s := &seen{served: serveAnother(t, "sluice", "--collect", "remove", "--collect-every", "500ms"), member: member}
	away := t.TempDir()
	path := func(name string) string { return filepath.Join(away, name) }
	for name, content := range map[string]string{"eu.kubeconfig": string(member.Kubeconfig()), "compute.yaml": compute} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(member.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespaceOf := func(id string) *corev1.Namespace {
		t.Helper()
		var namespace corev1.Namespace
		if err := admin.Get(t.Context(), client.ObjectKey{Name: v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))}, &namespace); err != nil {
			t.Fatalf("the namespace of %s: %v", id, err)
		}
		return &namespace
	}
	s.must("cluster", "add", "eu", "--from-kubeconfig", path("eu.kubeconfig"), "--region", "eu-de")
	s.offers(path("compute.yaml"), "compute-small")
	s.ends(t, http.MethodPut, "a", "compute", "small", "succeeded")
	before := namespaceOf("a").UID
	page := commandsOf(t, "## Backup and restore")
	for _, command := range page[:2] {
		s.follows(t, away, command)
	}
	s.ends(t, http.MethodPut, "b", "compute", "small", "succeeded")

	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	for _, command := range page[2:5] {
		s.follows(t, away, command)
	}

	s.until("b is reported", func(context.Context) error {
		out := s.must("collect")
		if !strings.Contains(out, namespaceOf("b").Name) || strings.Contains(out, namespaceOf("a").Name) {
			return fmt.Errorf("collect lists\n%s", out)
		}
		return nil
	})
	s.ends(t, http.MethodPut, "a/service_bindings/b", "compute", "small", "succeeded")
	if after := namespaceOf("a").UID; after != before {
		t.Errorf("the namespace of a is another one: %s, was %s", after, before)
	}
	status, body := s.send(t, http.MethodPut, "/v2/service_instances/c?accepts_incomplete=true",
		`{"service_id": "compute", "plan_id": "compute-small", "organization_guid": "o", "space_guid": "s"}`)
	if status != http.StatusAccepted {
		t.Fatalf("the order of c is answered %d %s", status, body)
	}
	s.until("the collector has looked again", func(context.Context) error {
		text, err := os.ReadFile(s.log.Name())
		if err == nil && strings.Count(string(text), "found remnant") < 3 {
			err = fmt.Errorf("it has not found b three times")
		}
		return err
	})
	s.until("c waits for room", func(context.Context) error {
		if out := s.must("instance", "describe", "c"); !strings.Contains(out, "0 free of 2 after 1 reserved and 1 used by others") {
			return fmt.Errorf("c is\n%s", out)
		}
		return nil
	})
	if b := namespaceOf("b"); !b.DeletionTimestamp.IsZero() {
		t.Error("b is being removed before the release")
	}

	s.follows(t, away, page[5])
	s.until("c has the room of b", func(ctx context.Context) error {
		_, body, err := s.ask(ctx, http.MethodGet, "/v2/service_instances/c/last_operation", "")
		if err == nil && !strings.Contains(body, "succeeded") {
			err = fmt.Errorf("it is %s", body)
		}
		return err
	})
	s.ends(t, http.MethodDelete, "a/service_bindings/b", "compute", "small", "gone")
	s.ends(t, http.MethodDelete, "a", "compute", "small", "gone")
}

// commandsOf returns the commands in a section of docs/operating.md, without comments.
func commandsOf(t *testing.T, section string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if command, _, _ := strings.Cut(line, "#"); strings.HasPrefix(command, "sluice ") {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if len(commands) < 2 {
		t.Fatalf("%s has the commands %q", section, commands)
	}
	return commands
}

// follows runs a command as a page has it, in a folder: it may write its output to a file, or go on in the background.
func (s *seen) follows(t *testing.T, folder, command string) {
	t.Helper()
	if command == "sluice serve &" {
		s.start()
		return
	}
	command, into, _ := strings.Cut(command, " > ")
	args := strings.Fields(command)[1:]
	for i, arg := range args {
		if strings.HasPrefix(arg, "backup.") || strings.HasPrefix(arg, "hub.") {
			args[i] = filepath.Join(folder, arg)
		}
	}
	run := s.must
	if strings.Join(args[:min(2, len(args))], " ") == "hub key" {
		run = func(args ...string) string { return mustSluice(t, args...) } // it needs no hub
	}
	if out := run(args...); into != "" {
		if err := os.WriteFile(filepath.Join(folder, into), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
