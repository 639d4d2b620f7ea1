package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// childDirEnv makes the test binary run as the process that gets killed; its
// value is the data directory.
const childDirEnv = "SLUICE_TEST_HUB_CHILD_DIR"

var errStillThere = errors.New("still there")

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirEnv); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if asked := os.Getenv(restoreEnv); asked != "" {
		fmt.Fprintln(os.Stderr, restoreAndDie(asked))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver starts a hub in dir and prints the name of each object once its
// creation is acknowledged.
func writeForEver(dir string) error {
	ctx := context.Background()
	h, err := Start(ctx, Options{DataDir: dir, Embedded: true})
	if err != nil {
		return err
	}
	crds, err := readCRDs(os.DirFS("testdata"))
	if err != nil {
		return err
	}
	if err := errors.Join(applyCRDs(ctx, h.Config, crds), awaitServed(ctx, h.Config, crds)); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(h.Config)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("acknowledged-%d", i)
		if _, err := client.Resource(widgetResource).Namespace(widgetNamespace).Create(ctx, widget(name, 1), metav1.CreateOptions{}); err != nil {
			return err
		}
		fmt.Println(name)
	}
}

// startChild runs this test binary as a hub in dir and returns once it has
// acknowledged a write.
func startChild(t *testing.T, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDirEnv+"="+dir)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if child.ProcessState == nil {
			_ = child.Process.Kill()
			_ = child.Wait()
		}
	})
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		t.Fatalf("the child acknowledged nothing: %v", lines.Err())
	}
	return child, lines
}

// While a process has a hub, a second one is refused. A kill of the first loses no acknowledged write.
func TestKillLosesNoAcknowledgedWrite(t *testing.T) {
	dir := t.TempDir()
	child, lines := startChild(t, dir)
	wantRefused(t, dir, child.Process.Pid)
	acknowledged := []string{lines.Text()}
	for len(acknowledged) < 50 && lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // acknowledged between the last read and the kill
		acknowledged = append(acknowledged, lines.Text())
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the child ended by itself")
	}

	h := startHub(t, dir)
	client := widgets(t, h.Config)
	for _, name := range acknowledged {
		if _, err := client.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("%d writes were acknowledged, but: %v", len(acknowledged), err)
		}
	}
}

// wantRefused checks that no second hub starts in dir, and that the error names the process of the first.
func wantRefused(t *testing.T, dir string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := Start(ctx, Options{DataDir: dir, Embedded: true}); err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(pid)) {
		t.Errorf("got %v, want the pid %d in it", err, pid)
	}
}
