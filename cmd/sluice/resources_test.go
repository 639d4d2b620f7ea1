package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/placement/reader/readertest"
	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/loopback"
)

// TestASluiceReadsAnothersResources: a cluster of one Sluice has the capacity that another one sells; what changes there
// follows, a wrong token is refused, and a Sluice that was killed is stale.
func TestASluiceReadsAnothersResources(t *testing.T) {
	t.Parallel()
	there := controlplane.Start(t, controlplane.Options{Name: "member"})
	files := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := write("kubeconfig", there.Kubeconfig())
	bundle, key := readertest.Certificate(t)
	certificate, address := write("tls.crt", bundle), loopback.Address()
	lower := serveAnother(t, "lower", "--resources-listen", address, "--resources-tls-cert", certificate, "--resources-tls-key", write("tls.key", key))
	upper := serveAnother(t, "upper")
	if err := os.WriteFile(filepath.Join(lower.dir, "platforms.yaml"), []byte(`platforms:
- name: first
  bearer: [first-token]
  reads: {fleet: "sold=together"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	lower.must("cluster", "add", "a", "--from-kubeconfig", kubeconfig, "--wait", "0", "--label", "sold=together", "--capacity", "cpu=8,memory=8Gi,pods=10")
	upper.must("cluster", "add", "fleet", "--from-kubeconfig", kubeconfig, "--wait", "0",
		"--reader-address", address, "--reader-ca-file", certificate, "--reader-token-file", write("token", []byte("guessed")), "--reader-period", "1s")
	upper.reads(t, "Syncing", "Unauthenticated", "0")
	upper.must("cluster", "add", "fleet", "--from-kubeconfig", kubeconfig, "--wait", "0", "--reader-token-file", write("token", []byte("first-token")))
	upper.reads(t, "", "", "8")
	lower.must("cluster", "add", "a", "--from-kubeconfig", kubeconfig, "--wait", "0", "--label", "sold=together", "--capacity", "cpu=6,memory=8Gi,pods=10", "--sell", "share=50")
	upper.reads(t, "", "", "3")
	if err := lower.process.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = lower.process.Wait()
	upper.reads(t, "Stale", "has been silent since", "3")
	lower.start()
	upper.reads(t, "", "", "3")
}

// reads waits until the cluster fleet has so many cores, and the condition CapacityKnown a reason and words; no reason
// means that it is true.
func (s *served) reads(t *testing.T, reason, words, cores string) {
	t.Helper()
	s.until(fmt.Sprintf("the fleet has %s cores, %s", cores, reason), func(context.Context) error {
		out, err := s.sluice("cluster", "list", "-o", "json")
		if err != nil {
			return err
		}
		var clusters []struct {
			Status struct {
				Allocatable map[string]string
				Conditions  []struct{ Type, Status, Reason, Message string }
			}
		}
		if err := json.Unmarshal([]byte(out), &clusters); err != nil {
			return err
		}
		for _, c := range clusters[0].Status.Conditions {
			if c.Type == "CapacityKnown" && (reason == "") == (c.Status == "True") && (reason == "" || c.Reason == reason) && strings.Contains(c.Message, words) &&
				(cores == "0" || clusters[0].Status.Allocatable["cpu"] == cores) {
				return nil
			}
		}
		return fmt.Errorf("it is\n%s", out)
	})
}
