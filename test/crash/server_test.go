//go:build faults

package crash

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/test/loopback"
)

// The platform of these tests.
const (
	platformName     = "first"
	platformPassword = "first-password"
	platforms        = `
platforms:
- name: first
  basic: [{username: first, password: first-password}]
`
)

// host is the name of the broker, and did its identity.
const (
	host = "broker.example"
	did  = "did:web:" + host
)

// backupTarget is the place for the backups of hooks; nothing in these tests calls it.
const backupTarget = "{url: 'https://target.example', username: ann, password: hush, addresses: [192.0.2.0/24]}"

// charts of the add-ons.
const charts = "../../internal/charts/store/testdata/charts"

// namespace of Sluice's resources in the hub.
const namespace = hub.DefaultNamespace

// server is a supervised `sluice serve`: whenever it is killed, it is
// started again, on the same hub and address.
type server struct {
	folder  string // holds the data folder and what else the process reads
	cluster string // kubeconfig of the cluster that is the hub; empty if the hub is embedded
	address string
	log     *os.File
	// deaths are the writes after which it was killed.
	deaths []string
	// passed are the writes after which it is not killed any more.
	passed *passed
}

// passed are looks at clusters, and reports how far the delivery of events is, after which a server of the same test has died:
// they go on beside every step.
type passed struct {
	mu    sync.Mutex
	looks []string
}

func (p *passed) add(writes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, write := range writes {
		if strings.Contains(write, "memberclusters/status") || strings.Contains(write, "eventsinks/status") {
			p.looks = append(p.looks, write)
		}
	}
}

// lines returns the looks as the file has them that arms a server.
func (p *passed) lines() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines strings.Builder
	for _, look := range p.looks {
		fmt.Fprintln(&lines, look)
	}
	return lines.String()
}

// embedded stands for the kubeconfig of a hub that the server has embedded.
const embedded = ""

// serve starts the server and stops it when the test ends. Should it end by
// itself, the test fails at once, through stop. Its hub is the cluster of a kubeconfig, or embedded: starting that
// takes most of a life, so that what is killed often has a cluster as its hub.
func serve(ctx context.Context, t *testing.T, stop context.CancelCauseFunc, cluster string) *server {
	t.Helper()
	s := &server{folder: t.TempDir(), cluster: cluster, address: loopback.Address(), passed: &passed{}}
	if cluster != embedded {
		installHub(ctx, t, cluster, s.keyset())
	}
	if err := os.WriteFile(s.path("platforms.yaml"), []byte(platforms), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("target.yaml"), []byte(backupTarget), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.log, err = os.Create(filepath.Join(t.ArtifactDir(), "sluice.log")); err != nil {
		t.Fatal(err)
	}
	lives, cancel := context.WithCancel(context.Background())
	var supervision sync.WaitGroup
	supervision.Go(func() {
		if err := s.supervise(lives); err != nil {
			stop(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		supervision.Wait()
		s.log.Close()
		if t.Failed() {
			t.Logf("log of sluice serve (its end):\n%s", s.logEnd())
		}
	})
	return s
}

func (s *server) path(name string) string { return filepath.Join(s.folder, name) }
func (s *server) dataDir() string         { return s.path("data") }
func (s *server) keyset() string          { return s.path("keyset.json") }
func (s *server) crashFile() string       { return s.path("armed") }

// atHub returns the flags by which a command finds the hub.
func (s *server) atHub() []string {
	if s.cluster == embedded {
		return []string{"--data-dir", s.dataDir()}
	}
	return []string{"--kubeconfig", s.cluster}
}

// installHub makes a cluster a hub, as the chart does, with a new keyset in a file, and returns its client.
func installHub(ctx context.Context, t *testing.T, kubeconfig, keyset string) client.Client {
	t.Helper()
	h, err := hub.Start(ctx, hub.Options{Kubeconfig: kubeconfig, Namespace: namespace, InstallCRDs: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(h.Config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(ctx, binary, "keyset", "new", keyset).CombinedOutput(); err != nil {
		t.Fatalf("sluice keyset new: %v: %s", err, out)
	}
	return c
}

// supervise runs the process again and again until ctx ends; an end other than by
// kill -9 is an error.
func (s *server) supervise(ctx context.Context) error {
	for life := 1; ; life++ {
		cmd := exec.Command(binary, append(s.atHub(), "serve", "--listen", s.address,
			"--metrics-listen", "127.0.0.1:0", "--platforms", s.path("platforms.yaml"), "--collect", "off",
			"--charts", charts, "--backup-target", s.path("target.yaml"), "--public-url", "https://"+host)...)
		if s.cluster != embedded {
			cmd.Args = append(cmd.Args, "--keyset", s.keyset(), "--lease-duration", leaseDuration.String())
		}
		// A life is short: collecting is a fifth of it at GOGC=400, and more at less. Writes of the Lease do not kill, as
		// TestLeaderSleeps is about these.
		cmd.Env = append(os.Environ(), "SLUICE_CRASH_FILE="+s.crashFile(), "SLUICE_CRASH_PAST=^hub [a-z]+ leases", "GOGC=off", "GOMEMLIMIT=512MiB")
		cmd.Stdout, cmd.Stderr = s.log, s.log
		fmt.Fprintf(s.log, "--- life %d\n", life)
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start sluice: %w", err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
			return nil
		case err := <-ended:
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != syscall.SIGKILL {
				return fmt.Errorf("sluice serve ended by itself: %w", err)
			}
			fmt.Fprintln(s.log, "--- killed")
			if err := s.endLease(ctx); err != nil {
				return err
			}
		}
	}
}

// endLease takes the Lease from the process that has just been killed, instead of waiting until its duration is over.
func (s *server) endLease(ctx context.Context) error {
	if s.cluster == embedded {
		return nil
	}
	c, err := s.hub()
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sluice"}}
	if err := client.IgnoreNotFound(c.Delete(ctx, lease)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("end the Lease of a process that was killed: %w", err)
	}
	return nil
}

// killed calls do while the process dies after each of its writes but those of before, once.
func (s *server) killed(before []string, do func() error) error {
	passed := s.passed.lines()
	for _, write := range before {
		passed += write + "\n"
	}
	if err := os.WriteFile(s.crashFile(), []byte(passed), 0o600); err != nil {
		return err
	}
	err := do()
	text, readErr := os.ReadFile(s.crashFile())
	err = errors.Join(err, readErr, os.Remove(s.crashFile()))
	deaths := strings.FieldsFunc(strings.TrimPrefix(string(text), passed), func(r rune) bool { return r == '\n' })
	s.deaths = append(s.deaths, deaths...)
	s.passed.add(deaths)
	switch {
	case err != nil:
		return fmt.Errorf("killed after %s: %w", strings.Join(deaths, "; "), err)
	case len(deaths)+len(before) == 0:
		return errors.New("nothing was written, so there was no kill")
	}
	return nil
}

func (s *server) logEnd() string {
	text, _ := os.ReadFile(s.log.Name())
	return string(text[max(0, len(text)-20_000):])
}

// operate runs a command of the operator's, as often as it takes: the commands are
// made to be repeated.
func (s *server) operate(ctx context.Context, args ...string) error {
	_, err := s.output(ctx, args...)
	return err
}

// output does the same, and returns what the command prints.
func (s *server) output(ctx context.Context, args ...string) (out []byte, err error) {
	err = until(ctx, func(ctx context.Context) (err error) {
		out, err = sluice(ctx, slices.Concat(args, s.atHub())...)
		return err
	})
	return out, err
}

// sluice runs a command once, and returns what it prints.
func sluice(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, binary, args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("sluice %s: %w: %s%s", strings.Join(args, " "), err, out, problems.Bytes())
	}
	return out, nil
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	return s
}()

// mapper knows Sluice's resources without asking each life for them.
var mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return m
}()

// hub is a client of the hub as it runs now: every life of an embedded one has another
// address.
func (s *server) hub() (client.Client, error) { return s.hubFor(10 * time.Second) }

// hubFor is one whose requests take at most so long; zero means any time.
func (s *server) hubFor(longest time.Duration) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", cmp.Or(s.cluster, hub.KubeconfigPath(s.dataDir())))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Timeout = -1, longest
	return client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// withHub calls do until it succeeds, with a client of the hub that answers.
func (s *server) withHub(ctx context.Context, do func(client.Client) error) error {
	return until(ctx, func(context.Context) error {
		c, err := s.hub()
		if err != nil {
			return err
		}
		return do(c)
	})
}

// until repeats do, ten times a second, until it succeeds. When ctx ends first, the
// error is the last one that was not for that reason.
func until(ctx context.Context, do func(context.Context) error) error {
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	var last error
	for {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, until: %w", context.Cause(ctx), last)
		case <-ticks.C:
		}
	}
}
