package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAlerts: promtool finds nothing wrong with the alerts, and they fire when their faults are there
// (sluice/rules/alerts_test.yaml).
func TestAlerts(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.CommandContext(t.Context(), tool, args...)
		command.Dir = filepath.Join("sluice", "rules")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// promtool returns the path of promtool: the one that is installed, or that of Debian's package prometheus, which is
// unpacked on first use and kept in the user's cache. Nothing is installed, because the package starts a server.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(cache, "sluice", "prometheus")
	path := filepath.Join(kept, "usr", "bin", "promtool")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	unpacked, err := os.MkdirTemp(filepath.Dir(kept), "prometheus-")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", "(apt-get download prometheus || apt-get update && apt-get download prometheus) && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb")
	command.Dir = unpacked
	if out, err := command.CombinedOutput(); err != nil {
		_ = os.RemoveAll(unpacked)
		t.Fatalf("fetch Debian's package prometheus, which has promtool: %v\n%s", err, out)
	}
	if err := os.Rename(unpacked, kept); err != nil {
		_ = os.RemoveAll(unpacked)
		if _, err := os.Stat(path); err != nil { // nobody else was faster
			t.Fatal(err)
		}
	}
	return path
}
