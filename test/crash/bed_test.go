//go:build faults

package crash

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// bed is a supervised Sluice with two member clusters and a catalog.
type bed struct {
	*server
	platform
	members map[string]*member
	spare   *member
	// told are the servers that event sinks tell what happens, and meter measures what instances have.
	told  []*subscriber
	meter *meter

	mu       sync.Mutex
	failures []error // of the auditor
}

// member is a member cluster as its administrator sees it.
type member struct {
	kubernetes.Interface
	kubeconfig  string
	auditLog    string
	allocatable corev1.ResourceList
}

// memberNames are the names of the member clusters. spare is one that stories register,
// tainted so that nothing is placed there, and remove.
var memberNames = []string{"eu-1", "eu-2"}

const spare = "spare"

// newBed starts everything, and clusters beside the usual ones. The hub is the member cluster of that name, or embedded.
// ctx is ended when Sluice ends by itself.
func newBed(ctx context.Context, t *testing.T, stop context.CancelCauseFunc, hub string, more ...string) *bed {
	t.Helper()
	b := startMembers(t, slices.Concat(more, memberNames)...)
	b.spare = b.members[spare]
	delete(b.members, spare)
	cluster := embedded
	if hub != embedded {
		cluster = b.members[hub].kubeconfig
	}
	b.server = serve(ctx, t, stop, cluster)
	b.platform = platform{"http://" + b.address}

	b.meter = b.startMeter(ctx)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	b.subscribe(ctx, t)
	for _, name := range memberNames {
		if err := b.operate(ctx, "cluster", "add", name, "--from-kubeconfig", b.members[name].kubeconfig, "--region", "eu"); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range [][]string{
		{"catalog", "apply", "-f", "testdata/offering.yaml"},
		{"policy", "apply", "-f", "testdata/policy.yaml"},
	} {
		if err := b.operate(ctx, command...); err != nil {
			t.Fatal(err)
		}
	}
	if err := until(ctx, func(ctx context.Context) error { return b.sells(ctx, "stories", true) }); err != nil {
		t.Fatal(err)
	}
	return b
}

// startMembers returns a bed with member clusters, and no Sluice yet.
func startMembers(t *testing.T, names ...string) *bed {
	t.Helper()
	b := &bed{members: map[string]*member{}}
	var starting sync.WaitGroup
	for _, name := range names {
		m := &member{}
		b.members[name] = m
		starting.Go(func() { m.start(t, name) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return b
}

// start starts the cluster. It may be called from any goroutine.
func (m *member) start(t *testing.T, name string) {
	m.auditLog = filepath.Join(t.ArtifactDir(), name+"-audit.log")
	cluster, err := controlplane.New(t.Context(), controlplane.Options{
		Name: name, LogDir: t.ArtifactDir(), AuditLog: m.auditLog, Nodes: []controlplane.Node{{Name: name + "-node", CPU: "8", Memory: "32Gi"}},
	})
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	m.kubeconfig = fmt.Sprintf("%s/%s.kubeconfig", t.TempDir(), name)
	if err := os.WriteFile(m.kubeconfig, cluster.Kubeconfig(), 0o600); err != nil {
		t.Error(err)
		return
	}
	m.Interface = kubernetes.NewForConfigOrDie(cluster.Config())
	nodes, err := m.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	m.allocatable = corev1.ResourceList{}
	for _, node := range nodes.Items {
		add(m.allocatable, node.Status.Allocatable)
	}
}

// add adds more to a total, resource by resource.
func add(total, more corev1.ResourceList) {
	for name, quantity := range more {
		sum := total[name]
		sum.Add(quantity)
		total[name] = sum
	}
}

// each calls do for every member cluster, in order, and stops at the first error,
// which then names the cluster.
func (b *bed) each(do func(name string, m *member) error) error {
	for _, name := range slices.Sorted(maps.Keys(b.members)) {
		if err := do(name, b.members[name]); err != nil {
			return fmt.Errorf("on %s: %w", name, err)
		}
	}
	return nil
}

// report keeps an error that came up in the background.
func (b *bed) report(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, err)
}

func (b *bed) reported() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.failures)
}
