package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/controlplane"
)

func TestALostAPIServer(t *testing.T) {
	cp := controlplane.Start(t, controlplane.Options{Nodes: []controlplane.Node{{Name: "n1"}}})
	c := newCluster(t, cp)
	readVersion := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := c.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return err
	}
	stillWorks := func(t *testing.T, name string) {
		eventually(t, "the API server answers", func(ctx context.Context) (bool, error) { return readVersion(ctx) == nil, nil })
		c.create(t, pod(name))
		c.running(t, name)
	}

	t.Run("paused, it lets requests time out until it is resumed", func(t *testing.T) {
		for range 2 {
			if err := cp.Pause(); err != nil {
				t.Fatal(err)
			}
		}
		if err := readVersion(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("request: %v, want it to time out", err)
		}
		if err := cp.Resume(); err != nil {
			t.Fatal(err)
		}
		stillWorks(t, "after-pause")
	})

	t.Run("killed, it refuses connections until it is started, and has forgotten nothing", func(t *testing.T) {
		cp.KillAPIServer()
		cp.KillAPIServer()
		// The first request may still be sent over the connection that the kill has cut.
		eventually(t, "the connection is refused", func(ctx context.Context) (bool, error) {
			return errors.Is(readVersion(ctx), syscall.ECONNREFUSED), nil
		})
		if err := cp.Pause(); err == nil {
			t.Error("a dead API server can be paused")
		}
		for range 2 {
			if err := cp.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		stillWorks(t, "after-kill")
	})
}

func TestAnAPIServerOnly(t *testing.T) {
	cp := controlplane.Start(t, controlplane.Options{APIServerOnly: true})
	client := kubernetes.NewForConfigOrDie(cp.Config())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, StringData: map[string]string{"key": "value"}}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Secrets(metav1.NamespaceDefault).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || string(got.Data["key"]) != "value" {
		t.Errorf("got %v, %v; want what was put", got, err)
	}
	if err := cp.AddNode(t.Context(), controlplane.Node{Name: "n1"}); err == nil {
		t.Error("it takes nodes")
	}
}

func TestNew_tells_why_a_component_failed(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"etcd":           "#!/bin/sh\necho no space left\nexit 3\n",
		"kube-apiserver": "#!/bin/sh\nexec sleep 60\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(controlplane.BinariesEnv, bin)
	_, err := controlplane.New(t.Context(), controlplane.Options{Name: "doomed", APIServerOnly: true})
	for _, want := range []string{"doomed", "etcd ended by itself", "exit status 3", "no space left"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want it to say %q", err, want)
		}
	}
}

func TestStop_tells_which_component_had_died(t *testing.T) {
	cp, err := controlplane.New(t.Context(), controlplane.Options{APIServerOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(cp.PIDs()["etcd"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "etcd has ended", func(context.Context) (bool, error) {
		_, running := cp.PIDs()["etcd"]
		return !running, nil
	})
	for range 2 {
		if err := cp.Stop(); err == nil || !strings.Contains(err.Error(), "etcd ended by itself (signal: killed)") {
			t.Errorf("error is %v, want it to name etcd", err)
		}
	}
}

func TestNew_gives_up_with_its_context(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := controlplane.Binaries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.New(ctx, controlplane.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want the context's", err)
	}
}

// startedByTest makes the test binary start a control plane and wait to be killed.
const startedByTest = "CONTROLPLANE_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(startedByTest) == "" {
		os.Exit(m.Run())
	}
	cp, err := controlplane.New(context.Background(), controlplane.Options{APIServerOnly: true, LogDir: os.TempDir()})
	if err != nil {
		panic(err)
	}
	for _, pid := range cp.PIDs() {
		os.Stdout.WriteString(strconv.Itoa(pid) + "\n")
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

func TestComponentsDieWithTheirParent(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), startedByTest+"=1", "TMPDIR="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatalf("the parent says %q", lines.Text())
		}
		pids = append(pids, pid)
	}
	if len(pids) != 2 {
		t.Fatalf("processes are %v, want two", pids)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range pids {
		eventually(t, "the component is dead", func(context.Context) (bool, error) {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil
		})
	}
}
