//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/loopback"
)

// leaseDuration is the shortest, so that many rounds are played.
const leaseDuration = 2 * time.Second

// replicas are several `sluice serve` on one hub, whose API server is that of the only
// member cluster too. One that ends is started again.
type replicas struct {
	*member
	hub    client.Client
	folder string
	all    []*replica
}

// replica is one of them.
type replica struct {
	platform
	name, metrics string

	mu      sync.Mutex
	process *os.Process
}

// newReplicas starts so many replicas, and a cluster with so many cores for them.
func newReplicas(ctx context.Context, t *testing.T, many int, cores string) *replicas {
	t.Helper()
	cluster := controlplane.Start(t, controlplane.Options{Name: "hub", Nodes: []controlplane.Node{{Name: "node", CPU: cores, Memory: "32Gi"}}})
	b := &replicas{member: &member{Interface: kubernetes.NewForConfigOrDie(cluster.Config())}, folder: t.TempDir()}
	b.kubeconfig = b.path("kubeconfig")
	if err := os.WriteFile(b.kubeconfig, cluster.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	b.hub = installHub(ctx, t, b.kubeconfig, b.path("keyset.json"))
	if err := os.WriteFile(b.path("platforms.yaml"), []byte(platforms), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		b.all = append(b.all, b.start(t, fmt.Sprintf("replica-%d", i+1)))
	}
	b.operate(ctx, t, "cluster", "add", "eu-1", "--from-kubeconfig", b.kubeconfig, "--kubeconfig", b.kubeconfig)
	b.operate(ctx, t, "catalog", "apply", "-f", "testdata/offering.yaml", "--kubeconfig", b.kubeconfig)
	return b
}

// operate runs a command of the operator's.
func (b *replicas) operate(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("sluice %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (b *replicas) path(name string) string { return filepath.Join(b.folder, name) }

// start runs a replica until the test ends.
func (b *replicas) start(t *testing.T, name string) *replica {
	r := &replica{name: name, metrics: loopback.Address()}
	address := loopback.Address()
	r.platform = platform{"http://" + address}
	log, err := os.Create(filepath.Join(t.ArtifactDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var supervision sync.WaitGroup
	supervision.Go(func() {
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, binary, "serve", "--kubeconfig", b.kubeconfig, "--listen", address, "--metrics-listen", r.metrics,
				"--platforms", b.path("platforms.yaml"), "--keyset", b.path("keyset.json"), "--collect", "off", "--lease-duration", leaseDuration.String())
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Errorf("start sluice: %v", err)
				return
			}
			r.mu.Lock()
			r.process = cmd.Process
			r.mu.Unlock()
			fmt.Fprintln(log, "--- ended:", cmd.Wait())
		}
	})
	t.Cleanup(func() {
		cancel() // kills, also one that is stopped
		supervision.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of %s (its end):\n%s", name, text[max(0, len(text)-6000):])
		}
	})
	return r
}

// signal sends a signal to the process as it runs now.
func (r *replica) signal(s syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process.Signal(s)
}

// leads reports whether the replica takes itself for the leader.
func (r *replica) leads(ctx context.Context) (bool, error) {
	text, err := get(ctx, "http://"+r.metrics+"/metrics")
	return strings.Contains(text, `leader_election_master_status{name="sluice"} 1`), err
}

// ready reports, by an error, that the replica does not answer platforms.
func (r *replica) ready(ctx context.Context) error {
	_, err := get(ctx, "http://"+r.metrics+"/readyz")
	return err
}

// get reads a page. A process that is stopped does not answer.
func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return string(text), err
}

// roles waits until one replica leads and another one is ready, leaving out one that sleeps.
func (b *replicas) roles(ctx context.Context, asleep *replica) (leader, standby *replica, err error) {
	err = until(ctx, func(ctx context.Context) error {
		leader, standby = nil, nil
		for _, r := range b.all {
			if r == asleep {
				continue
			}
			leads, err := r.leads(ctx)
			switch {
			case err != nil: // it is starting
			case leads:
				leader = r
			case r.ready(ctx) == nil:
				standby = r
			}
		}
		if leader == nil {
			return errors.New("nobody leads")
		}
		if standby == nil && asleep == nil {
			return errors.New("nobody stands by")
		}
		return nil
	})
	return leader, standby, err
}

// instances of the hub, by name.
func (b *replicas) instances(ctx context.Context) (map[string]*v1alpha1.ServiceInstance, error) {
	var list v1alpha1.ServiceInstanceList
	if err := b.hub.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	all := map[string]*v1alpha1.ServiceInstance{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all, nil
}
