//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/loopback"
)

// platforms are the callers of these tests: the second one has an instance-id
// space of its own, the first one two valid passwords and a token.
const platforms = `
platforms:
- name: first
  basic:
  - {username: first, password: first-password-in-use}
  - {username: first, password: first-password-before}
  bearer: [first-bearer-token]
- name: second
  basic:
  - {username: second, password: second-password}
`

// TestEmbeddedHub runs the story and the conformance suite against `sluice
// serve` on its embedded hub, with binds answered asynchronously where allowed.
func TestEmbeddedHub(t *testing.T) {
	needMembers(t)
	s := serve(t)
	for _, name := range members {
		s.sluice("cluster", "add", name, "--from-kubeconfig", kubeconfig(name), "--region", "region-of-"+name)
	}
	s.sluice("catalog", "apply", "-f", filepath.Join(root, "docs/examples/offering.yaml"))
	s.sluice("catalog", "apply", "-f", "catalog.yaml")

	t.Run("story", func(t *testing.T) { story(t, s.broker) }) // alone: it says which clusters are chosen
	t.Run("side by side", func(t *testing.T) {
		besides(t, "isolation", func(t *testing.T) { isolation(t, s.broker) })
		besides(t, "conformance", func(t *testing.T) { conformance(t, s.broker, "", "OSB_ASYNC_BIND=1") })
	})
	t.Run("nothing is left", func(t *testing.T) {
		for _, name := range members {
			nothingLeft(t, name)
		}
	})
}

// server is a running `sluice serve` with an embedded hub.
type server struct {
	t       *testing.T
	dataDir string
	broker  broker
	// args it was started with; stop ends it before the test does.
	args []string
	stop func()
}

func serve(t *testing.T, flags ...string) server {
	t.Helper()
	dataDir := t.TempDir()
	file := filepath.Join(dataDir, "platforms.yaml")
	if err := os.WriteFile(file, []byte(platforms), 0o600); err != nil {
		t.Fatal(err)
	}
	address := loopback.Address()
	log, err := os.Create(filepath.Join(t.TempDir(), "sluice.log"))
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"serve", "--data-dir", dataDir, "--listen", address,
		"--metrics-listen", "127.0.0.1:0", "--platforms", file, "--bind-wait", "0s"}, flags...)
	cmd := exec.Command(filepath.Join(root, "bin/sluice"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of sluice serve (its end):\n%s", text[max(0, len(text)-20_000):])
		}
	})
	s := server{t: t, dataDir: dataDir, broker: broker{"http://" + address, "first", "first-password-in-use"}, args: args, stop: stop}
	ready(t, s.broker.url)
	return s
}

// ready waits until the broker at the URL is ready.
func ready(t *testing.T, url string) {
	t.Helper()
	eventually(t, 2*time.Minute, "broker ready", func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	})
}

// sluice runs a command of the operator's against the server's hub.
func (s server) sluice(args ...string) {
	s.t.Helper()
	operate(s.t, append(args, "--data-dir", s.dataDir)...)
}

func operate(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/sluice"), args...).CombinedOutput()
	t.Logf("sluice %v\n%s", args[:2], out)
	if err != nil {
		t.Fatalf("sluice %v: %v", args, err)
	}
}

// conformance runs the black-box suite against the broker, or the specs that a label filter
// selects; one that it would skip is a failure here. Settings are further variables of the suite.
func conformance(t *testing.T, b broker, filter string, settings ...string) {
	t.Helper()
	// Every spec waits seconds for namespaces to go, so many run side by side.
	cmd := exec.CommandContext(t.Context(), "go", "tool", "ginkgo", "--procs=12", "--no-color", "--succinct", "--timeout=15m", "--poll-progress-after=2m",
		"--label-filter="+filter, "./test/osb")
	cmd.Dir = root
	cmd.Env = append(os.Environ(),
		"OSB_STRICT=1",
		"OSB_POLLING_INTERVAL=500ms", // twelve that ask ten times as often take a processor from the clusters
		"OSB_URL="+b.url,
		"OSB_USERNAME="+b.username,
		"OSB_PASSWORD="+b.password,
		"OSB_PREVIOUS_PASSWORD=first-password-before",
		"OSB_TOKEN=first-bearer-token",
		"OSB_PLATFORM2_USERNAME=second",
		"OSB_PLATFORM2_PASSWORD=second-password",
		"OSB_SERVICE_ID=conformance",
		"OSB_PLAN_ID=conformance-small",
		"OSB_OTHER_PLAN_ID=conformance-medium",
		`OSB_OTHER_PARAMETERS={"selector":{"sluice.dev/tier":"cloud"}}`,
		"OSB_PENDING_PLAN_ID=conformance-nowhere", "OSB_PENDING_PARAMETERS={}",
		"OSB_FAILING_UPDATE_PLAN_ID=conformance-nowhere", "OSB_FAILING_UPDATE_PARAMETERS={}",
	)
	cmd.Env = append(cmd.Env, settings...)
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s\n", out)
	if err != nil {
		t.Errorf("conformance: %v", err)
	}
}
