// Package hubtest gives tests a hub: the same API server that Sluice runs on, not a fake. The
// environment of the test run selects it:
//
//   - By default it is an embedded hub in a temporary directory: about a second,
//     no other program needed.
//   - With SLUICE_TEST_HUB=kube it is a real control plane started by package
//     test/controlplane, or, where SLUICE_TEST_HUB_KUBECONFIG names a kubeconfig,
//     that cluster. Sluice's definitions are installed there.
//
// A package shares one hub between its tests with
//
//	func TestMain(m *testing.M) { hubtest.Main(m) }
//
// and each test takes a namespace of its own, so that tests may run in parallel.
//
// This package must not know what is tested.
package hubtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/test/controlplane"
)

const (
	modeEnv       = "SLUICE_TEST_HUB"
	kubeconfigEnv = "SLUICE_TEST_HUB_KUBECONFIG"
	// startTimeout bounds the start of a hub. Building a control plane's binaries,
	// once per machine, takes most of it.
	startTimeout = 15 * time.Minute
	// deleteTimeout bounds the request that deletes a namespace.
	deleteTimeout = 10 * time.Second
)

// OnKube reports whether tests run on a Kubernetes cluster, which has Secrets,
// Events and Leases, instead of an embedded hub, which has not.
func OnKube() bool { return os.Getenv(modeEnv) == "kube" }

// shared is the hub of a package whose TestMain calls Main.
var shared struct {
	sync.Mutex
	on      bool
	running *running
	err     error
	dir     string
}

// running is a hub and what runs beneath it.
type running struct {
	*hub.Hub
	cluster *controlplane.ControlPlane // nil if the hub is embedded or given
}

func (r *running) stop() error {
	err := r.Hub.Stop()
	if r.cluster != nil {
		err = errors.Join(err, r.cluster.Stop())
	}
	return err
}

// Main runs the tests with one hub, which starts when the first test asks for
// it, and ends the process with their exit code.
func Main(m *testing.M) {
	shared.on = true
	hub.RouteLogs(slog.Default()) // before anything of an earlier test may read where logs go
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Start returns a running hub: the package's if its TestMain calls Main, and
// otherwise a new one that ends with the test. It fails the test if it cannot.
func Start(t testing.TB) *hub.Hub {
	t.Helper()
	if shared.on {
		r, err := startShared()
		if err != nil {
			t.Fatal(err)
		}
		return r.Hub
	}
	r, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r.Hub
}

// Namespace returns a namespace that no other test uses, on the package's hub;
// where namespaces are objects it is created, and deleted after the test. The
// package's TestMain must call Main.
func Namespace(t testing.TB) string {
	t.Helper()
	if !shared.on {
		t.Fatal("hubtest.Namespace needs a TestMain that calls hubtest.Main")
	}
	h := Start(t)
	name := namespaceName(t.Name())
	if h.Embedded {
		return name
	}
	client, err := kubernetes.NewForConfig(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	// Deletion of a namespace goes on after it was asked for, so a name must not
	// come back when tests are repeated.
	created, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"}}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return name // the embedded hub of another process
	}
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
		defer cancel()
		if err := client.CoreV1().Namespaces().Delete(ctx, created.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", created.Name, err)
		}
	})
	return created.Name
}

// repeats counts the tests of one name, which go test -count repeats.
var repeats struct {
	sync.Mutex
	of map[string]int
}

// namespaceName makes a DNS label of a test's name that is unique in this
// process. The start of the name remains readable.
func namespaceName(test string) string {
	repeats.Lock()
	defer repeats.Unlock()
	if repeats.of == nil {
		repeats.of = make(map[string]int)
	}
	repeats.of[test]++

	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, test)
	digest := sha256.Sum256(fmt.Appendf(nil, "%s %d", test, repeats.of[test]))
	return strings.Trim(readable[:min(len(readable), 40)], "-") + "-" + hex.EncodeToString(digest[:4])
}

func startShared() (*running, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.running == nil && shared.err == nil {
		shared.dir, shared.err = os.MkdirTemp("", "sluice-hubtest-")
		if shared.err == nil {
			shared.running, shared.err = start(shared.dir)
		}
	}
	return shared.running, shared.err
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	if shared.running != nil {
		errs = append(errs, shared.running.stop())
	}
	if shared.dir != "" {
		errs = append(errs, os.RemoveAll(shared.dir))
	}
	return errors.Join(errs...)
}

// start starts the hub that the environment selects.
func start(dir string) (*running, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	r := &running{}
	options := hub.Options{Embedded: true, DataDir: dir}
	switch mode := os.Getenv(modeEnv); mode {
	case "", "embedded":
	case "kube":
		options = hub.Options{Kubeconfig: os.Getenv(kubeconfigEnv), InstallCRDs: true}
		if options.Kubeconfig == "" {
			var err error
			if r.cluster, options.Kubeconfig, err = startCluster(ctx, dir); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fmt.Errorf("%s=%s: want embedded or kube", modeEnv, mode)
	}
	var err error
	if r.Hub, err = hub.Start(ctx, options); err != nil {
		if r.cluster != nil {
			err = errors.Join(err, r.cluster.Stop())
		}
		return nil, err
	}
	return r, nil
}

// startCluster starts a control plane and returns the path of its kubeconfig.
func startCluster(ctx context.Context, dir string) (*controlplane.ControlPlane, string, error) {
	cluster, err := controlplane.New(ctx, controlplane.Options{Name: "hub"})
	if err != nil {
		return nil, "", err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, cluster.Kubeconfig(), 0o600); err != nil {
		return nil, "", errors.Join(err, cluster.Stop())
	}
	return cluster, kubeconfig, nil
}
