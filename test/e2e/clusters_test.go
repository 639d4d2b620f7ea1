//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The kind clusters of these tests, all with the same address ranges, as clusters of different
// owners often have. For most tests one is the hub that the chart is installed on, the others are
// the members; TestPeering, which comes last, installs Liqo on them all.
const hubCluster = "sluice-c"

var members = []string{"sluice-a", "sluice-b"}

// root is the top of the source tree.
const root = "../.."

// kubeconfigs is the folder with NAME.kubeconfig and NAME.internal.kubeconfig.
var kubeconfigs string

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	flag.Parse()
	dir, err := os.MkdirTemp("", "sluice-e2e-")
	if err == nil {
		err = alone()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "begin:", err)
		os.Exit(1)
	}
	kubeconfigs = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// alone waits until no other run of these tests, perhaps of another checkout, uses the kind
// clusters, whose names they share. The lock is held until the process ends.
func alone() error {
	lock, err := syscall.Open(filepath.Join(os.TempDir(), "sluice-e2e.lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return nil
	}
	fmt.Fprintln(os.Stderr, "another run of these tests uses the kind clusters: waiting until it has ended")
	return syscall.Flock(lock, syscall.LOCK_EX)
}

// needMembers brings up the member clusters with the echo workload, once for all tests that
// share them, and removes what a run that was killed left there. Until the test ends, no other has them.
func needMembers(t *testing.T) {
	t.Helper()
	membersTaken.Lock()
	t.Cleanup(membersTaken.Unlock)
	must(t, membersUp())
}

var membersTaken sync.Mutex

var membersUp = sync.OnceValue(func() error {
	if err := clustersUp(members...); err != nil {
		return err
	}
	if err := loadEcho(members...); err != nil {
		return err
	}
	return sweep()
})

// clustersUp makes those of the clusters that are not there, and writes all their kubeconfigs.
func clustersUp(names ...string) error {
	return run("test/kind/up.sh", append([]string{"--same-ranges", "--out", kubeconfigs}, names...)...)
}

// echoImage is the workload that pods of these tests run.
var echoImage string

// buildEcho builds it, and returns the archive.
var buildEcho = sync.OnceValues(func() (archive string, err error) {
	out, err := output("test/kind/echo.sh")
	archive, echoImage, _ = strings.Cut(strings.TrimSpace(out), "\n")
	return archive, err
})

// loadEcho builds the workload, once, and loads it onto clusters.
func loadEcho(clusters ...string) error {
	archive, err := buildEcho()
	if err != nil {
		return err
	}
	for _, name := range clusters {
		if err := run("test/kind/load.sh", name, archive); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what a run that was killed left on the member clusters.
func sweep() error {
	kubectl, err := buildKubectl()
	if err != nil {
		return err
	}
	for _, name := range members {
		cmd := exec.Command(kubectl, "--kubeconfig", kubeconfig(name),
			"delete", "namespaces", "--selector", v1alpha1.LabelInstance, "--timeout", "2m")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("remove what an earlier run left on %s: %w", name, err)
		}
	}
	return nil
}

// buildKubectl returns kubectl's path; it is built once.
var buildKubectl = sync.OnceValues(func() (string, error) {
	folder, err := output("test/kubernetes/build.sh", "kubectl")
	return filepath.Join(strings.TrimSpace(folder), "kubectl"), err
})

// run runs a script or program of the source tree, its output shown.
func run(name string, args ...string) error {
	cmd := exec.Command("./"+name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stderr, os.Stderr
	return cmd.Run()
}

// output runs a program of the source tree and returns its standard output.
func output(name string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command("./"+name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &out, os.Stderr
	err := cmd.Run()
	return out.String(), err
}

// program builds the image of a program that is pinned, and returns its archive and its reference.
func program(t *testing.T, name string) (archive, reference string) {
	t.Helper()
	out, err := output("test/kind/program.sh", name)
	must(t, err)
	archive, reference, _ = strings.Cut(strings.TrimSpace(out), "\n")
	return archive, reference
}

// kubeconfig returns the path of a cluster's kubeconfig for this host.
func kubeconfig(cluster string) string { return filepath.Join(kubeconfigs, cluster+".kubeconfig") }

// internalKubeconfig returns the path of a cluster's kubeconfig with the address
// at which both this host and the pods of the other clusters reach it.
func internalKubeconfig(cluster string) string {
	return filepath.Join(kubeconfigs, cluster+".internal.kubeconfig")
}

// administrator returns a client with all rights on a cluster.
func administrator(t *testing.T, cluster string) (kubernetes.Interface, *rest.Config) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig(cluster))
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config), config
}

// busy is how much longer than an idle machine a busy one may take.
const busy = 3

// eventually fails the test unless the condition becomes true in time. The
// condition returns what is still missing, or "".
func eventually(t *testing.T, patience time.Duration, what string, missing func(context.Context) string) {
	t.Helper()
	patience *= busy
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began, last := time.Now(), ""
	for pause := 50 * time.Millisecond; ; pause = min(pause*5/4, time.Second) {
		if last = missing(ctx); last == "" {
			t.Logf("%s … %s", what, time.Since(began).Round(10*time.Millisecond))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %s", what, patience, last)
		case <-time.After(pause):
		}
	}
}
