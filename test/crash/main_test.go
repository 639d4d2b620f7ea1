//go:build faults

package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// binary is Sluice as it is, except package internal/crashpoint.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// Connections to a hub that dies break, which is no news here.
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	folder, err := os.MkdirTemp("", "sluice-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	binary = filepath.Join(folder, "sluice")
	build := exec.CommandContext(context.Background(), "go", "build", "-tags", "faults", "-ldflags", "-s -w", "-o", binary, "../../cmd/sluice")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build sluice: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
