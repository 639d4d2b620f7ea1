package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// poll is how often a condition of starting up is looked at.
const poll = 50 * time.Millisecond

// Options describe a control plane. The zero value is a full one without nodes.
type Options struct {
	Name   string // of the cluster and the context in the kubeconfig; "controlplane" when empty
	Nodes  []Node // there from the start
	LogDir string // keeps the components' logs; when empty they go with the control plane
	// AuditLog is a file that gets a line of JSON for every write that the API server has carried out, an Event
	// of audit.k8s.io/v1 at the level Metadata; when empty there is none.
	AuditLog string

	// APIServerOnly leaves out the controller manager, the scheduler and nodes: a place to keep objects in, and to
	// watch them, where namespaces do not end and nothing is collected as garbage.
	APIServerOnly bool
	// Controllers of the controller manager, by their names; when empty all that are on by default.
	Controllers []string
	// FeatureGates of Kubernetes, as NAME=true,…; when empty their defaults.
	FeatureGates string
}

// ControlPlane is a running Kubernetes control plane. Its methods may be called from any goroutine.
type ControlPlane struct {
	options    Options
	binaries   string
	dir, logs  string
	port       port
	kubeconfig []byte
	config     *rest.Config
	kubelets   *kubelets
	simulation sync.WaitGroup

	alive context.Context // until Stop, or until a component ends by itself; the cause says which
	end   context.CancelCauseFunc

	mu        sync.Mutex
	processes []*process
	apiServer *process // nil while killed
}

// errStopped is the cause of an end that was asked for.
var errStopped = errors.New("control plane stopped")

// Start starts a control plane for the length of a test, failing the test if it cannot be started or if one of its
// components ends before the test does. The components' logs are test artifacts: `go test -artifacts` keeps them.
func Start(t testing.TB, o Options) *ControlPlane {
	t.Helper()
	if o.LogDir == "" {
		o.LogDir = t.ArtifactDir()
	}
	cp, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// New starts a control plane and blocks until it is ready for use: the API server answers, and unless APIServerOnly is
// set, the controllers work and every node takes pods. ctx bounds the starting only; the control plane runs until Stop.
// Binaries that are missing are built first, see [Binaries]. On an error nothing is left running.
func New(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Name == "" {
		o.Name = "controlplane"
	}
	if o.APIServerOnly && len(o.Nodes) > 0 {
		return nil, fmt.Errorf("start control plane %s: nodes need a controller manager", o.Name)
	}
	binaries, err := Binaries(ctx)
	if err != nil {
		return nil, fmt.Errorf("start control plane %s: %w", o.Name, err)
	}
	cp := &ControlPlane{options: o, binaries: binaries, port: port{socket: -1}}
	cp.alive, cp.end = context.WithCancelCause(context.Background())
	if err := cp.start(ctx); err != nil {
		_ = cp.Stop() // would repeat err
		return nil, fmt.Errorf("start control plane %s: %w", o.Name, err)
	}
	return cp, nil
}

// Config returns a copy of the administrator's credentials (group system:masters), without a client-side rate limit.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.config) }

// Kubeconfig returns the administrator's kubeconfig, with its certificates inline.
func (cp *ControlPlane) Kubeconfig() []byte { return cp.kubeconfig }

// PIDs returns the process ids of the running components, for measuring them and for hurting them.
func (cp *ControlPlane) PIDs() map[string]int {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	pids := map[string]int{}
	for _, p := range cp.processes {
		if p.running() {
			pids[p.name] = p.cmd.Process.Pid
		}
	}
	return pids
}

// Stop ends every component at once, without asking, and removes everything but the logs in Options.LogDir. It returns
// an error if a component had ended by itself before. Stopping twice is the same as stopping once.
func (cp *ControlPlane) Stop() error {
	cp.end(errStopped)
	cp.simulation.Wait()
	cp.mu.Lock()
	defer cp.mu.Unlock()
	for _, p := range slices.Backward(cp.processes) { // users before what they use
		p.kill()
	}
	cp.processes, cp.apiServer = nil, nil
	if cp.port.socket >= 0 {
		cp.port.release()
		cp.port.socket = -1
	}
	if err := os.RemoveAll(cp.dir); err != nil {
		return fmt.Errorf("remove control plane %s: %w", cp.options.Name, err)
	}
	if cause := context.Cause(cp.alive); !errors.Is(cause, errStopped) {
		return fmt.Errorf("control plane %s: %w", cp.options.Name, cause)
	}
	return nil
}

// Pause freezes the API server: connections are accepted by the kernel and nothing answers, as when a cluster's network
// drops packets. Pausing twice is the same as pausing once.
func (cp *ControlPlane) Pause() error {
	return cp.withAPIServer(func(p *process) error {
		if err := p.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		return p.awaitStop()
	})
}

// Resume ends a Pause; without one it does nothing.
func (cp *ControlPlane) Resume() error {
	return cp.withAPIServer(func(p *process) error { return p.signal(syscall.SIGCONT) })
}

func (cp *ControlPlane) withAPIServer(do func(*process) error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.apiServer == nil {
		return fmt.Errorf("control plane %s has no API server running", cp.options.Name)
	}
	return do(cp.apiServer)
}

// KillAPIServer ends the API server, paused or not: from now on connections are refused. Its data stays, so does its
// address. Killing twice is the same as killing once.
func (cp *ControlPlane) KillAPIServer() {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.apiServer != nil {
		cp.apiServer.kill()
		cp.apiServer = nil
	}
}

// StartAPIServer undoes KillAPIServer and blocks until the API server is ready. It does nothing if it runs already.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if err := cp.startAPIServer(); err != nil {
		return err
	}
	return cp.until(ctx, "API server ready", cp.apiServerReady)
}

// Run starts another program of this host beside the components, for instance somebody's controllers, with these
// variables in its environment and hardly any others. It ends with the control plane, and the control plane ends with it.
func (cp *ControlPlane) Run(binary string, environment []string, flags ...string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	_, err := cp.runLocked(binary, environment, flags)
	return err
}

// AddNode registers a node and blocks until it takes pods.
func (cp *ControlPlane) AddNode(ctx context.Context, n Node) error {
	if cp.kubelets == nil {
		return fmt.Errorf("add node %s: nodes need a controller manager", n.Name)
	}
	if err := cp.kubelets.register(ctx, n); err != nil {
		return err
	}
	return cp.until(ctx, "node "+n.Name+" schedulable", func(ctx context.Context) (bool, error) {
		node, err := cp.kubelets.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		return err == nil && schedulable(node), nil
	})
}

// RemoveNode deletes a node. Its pods stay until the pod garbage collector finds them without a node, in about a minute.
// Removing an absent node does nothing.
func (cp *ControlPlane) RemoveNode(ctx context.Context, name string) error {
	if cp.kubelets == nil {
		return nil
	}
	return cp.kubelets.deregister(ctx, name)
}

// start brings the components up, each as soon as it can do anything.
func (cp *ControlPlane) start(ctx context.Context) error {
	if err := cp.prepare(); err != nil {
		return err
	}
	if err := cp.startComponent(etcd, etcdFlags(cp.dir)); err != nil {
		return err
	}
	if err := cp.StartAPIServer(ctx); err != nil {
		return err
	}
	if cp.options.APIServerOnly {
		return nil
	}
	if err := cp.startComponent(controllerManager, cp.gated(controllerManagerFlags(cp.dir, cp.options.Controllers))); err != nil {
		return err
	}
	if err := cp.startComponent(scheduler, cp.gated(schedulerFlags(cp.dir))); err != nil {
		return err
	}
	if err := cp.simulate(); err != nil {
		return err
	}
	return cp.settle(ctx)
}

// prepare makes the folder, the port and the credentials.
func (cp *ControlPlane) prepare() (err error) {
	// Directly in the temporary folder, however long its own: a socket's path ends at about 100 bytes.
	if cp.dir, err = os.MkdirTemp("", "controlplane-"); err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	cp.logs = cp.dir
	if cp.options.LogDir != "" {
		if cp.logs, err = os.MkdirTemp(cp.options.LogDir, cp.options.Name+"-"); err != nil {
			return fmt.Errorf("make its log folder: %w", err)
		}
	}
	if cp.port, err = reservePort(); err != nil {
		return err
	}
	if cp.kubeconfig, err = writeFiles(cp.dir, cp.options.Name, cp.port.number); err != nil {
		return err
	}
	if cp.config, err = clientcmd.RESTConfigFromKubeConfig(cp.kubeconfig); err != nil {
		return fmt.Errorf("read its kubeconfig: %w", err)
	}
	cp.config.QPS = -1
	return nil
}

func (cp *ControlPlane) startAPIServer() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.apiServer != nil {
		return nil
	}
	p, err := cp.startLocked(apiServer, cp.gated(apiServerFlags(cp.dir, cp.port.number, cp.options.AuditLog)))
	cp.apiServer = p
	return err
}

// gated adds the feature gates to the flags of a component.
func (cp *ControlPlane) gated(flags []string) []string {
	if cp.options.FeatureGates != "" {
		flags = append(flags, "--feature-gates="+cp.options.FeatureGates)
	}
	return flags
}

func (cp *ControlPlane) startComponent(name string, flags []string) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	_, err := cp.startLocked(name, flags)
	return err
}

func (cp *ControlPlane) startLocked(name string, flags []string) (*process, error) {
	return cp.runLocked(filepath.Join(cp.binaries, name), nil, flags)
}

func (cp *ControlPlane) runLocked(binary string, environment, flags []string) (*process, error) {
	if err := context.Cause(cp.alive); err != nil {
		return nil, err
	}
	p, err := startProcess(binary, filepath.Join(cp.logs, filepath.Base(binary)+".log"), environment, flags, cp.end)
	if err != nil {
		return nil, err
	}
	cp.processes = append(cp.processes, p)
	return p, nil
}

// simulate starts the kubelets.
func (cp *ControlPlane) simulate() (err error) {
	if cp.kubelets, err = newKubelets(cp.config); err != nil {
		return err
	}
	cp.simulation.Go(func() { cp.kubelets.run(cp.alive) })
	return nil
}

// settle waits for what a user of the cluster may take for granted: pods can be created in the default namespace and
// every node takes them.
func (cp *ControlPlane) settle(ctx context.Context) error {
	core := cp.kubelets.client.CoreV1()
	err := cp.until(ctx, "system namespaces created", func(ctx context.Context) (bool, error) {
		_, err := core.Namespaces().Get(ctx, corev1.NamespaceNodeLease, metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	settling, ctx := errgroup.WithContext(ctx)
	settling.SetLimit(podWorkers)
	settling.Go(func() error {
		return cp.until(ctx, "default service account created", func(ctx context.Context) (bool, error) {
			_, err := core.ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, nil
		})
	})
	for _, node := range cp.options.Nodes {
		settling.Go(func() error { return cp.AddNode(ctx, node) })
	}
	return settling.Wait()
}

// until polls for a condition and gives up with the reason when ctx is done or a component has ended.
func (cp *ControlPlane) until(ctx context.Context, what string, condition wait.ConditionWithContextFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(cp.alive, func() { cancel(context.Cause(cp.alive)) })()
	err := wait.PollUntilContextCancel(ctx, poll, true, condition)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

func (cp *ControlPlane) apiServerReady(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cp.config.Host+"/readyz", nil)
	if err != nil {
		return false, err
	}
	client, err := rest.HTTPClientFor(cp.config)
	if err != nil {
		return false, err
	}
	response, err := client.Do(request)
	if err != nil {
		return false, nil // not listening yet, or too busy
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK, nil
}
