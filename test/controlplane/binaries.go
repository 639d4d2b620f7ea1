package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// BinariesEnv names the environment variable that points at a folder with ready-made binaries (etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubectl). When it is set nothing is built.
const BinariesEnv = "SLUICE_KUBERNETES_BIN"

var binaries struct {
	sync.Mutex
	dir string
}

// Binaries returns the folder that holds the control plane's binaries and kubectl, building them from Go modules with
// test/kubernetes/build.sh when they are missing: minutes the first time on a machine, at once afterwards. The answer is
// remembered for the life of the process; a failure is not, so a later call tries again.
func Binaries(ctx context.Context) (string, error) {
	if dir := os.Getenv(BinariesEnv); dir != "" {
		return dir, nil
	}
	binaries.Lock()
	defer binaries.Unlock()
	if binaries.dir != "" {
		return binaries.dir, nil
	}
	dir, err := build(ctx)
	if err != nil {
		return "", fmt.Errorf("build the Kubernetes binaries (or set %s): %w", BinariesEnv, err)
	}
	binaries.dir = dir
	return dir, nil
}

func build(ctx context.Context) (string, error) {
	script, err := buildScript()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, script, etcd, apiServer, controllerManager, scheduler, "kubectl")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, tail(stderr.Bytes(), 20))
	}
	return strings.TrimSpace(string(out)), nil
}

// buildScript finds test/kubernetes/build.sh in the working directory, where tests and `go run` are, or above it.
func buildScript() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "test", "kubernetes", "build.sh")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no test/kubernetes/build.sh in %s or above it: run it from within the source tree", start)
		}
	}
}
