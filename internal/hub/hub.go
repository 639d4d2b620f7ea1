package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/charts"
	"github.com/sluice-dev/sluice/internal/answers"
	"github.com/sluice-dev/sluice/internal/crashpoint"
)

// DefaultNamespace holds Sluice's resources unless Options or the pod say
// otherwise.
const DefaultNamespace = "sluice"

// identityCRD is the definition whose UID identifies the hub.
const identityCRD = "memberclusters.sluice.dev"

// Options select the API server that is the hub. The zero value embeds one in the directory
// "sluice-data", or, in a pod, uses the surrounding cluster.
type Options struct {
	// Kubeconfig is the path of a kubeconfig whose cluster is the hub. Only this
	// field selects a remote hub outside a pod: the environment variable
	// KUBECONFIG and ~/.kube/config are never consulted, so that a developer's
	// current context is not written to by accident.
	Kubeconfig string
	// Context is the kubeconfig context to use; empty means the current one.
	Context string
	// Namespace holds all of Sluice's resources. Empty means the pod's own
	// namespace in a pod, the kubeconfig context's namespace if it names one,
	// and otherwise DefaultNamespace.
	Namespace string
	// InstallCRDs applies Sluice's definitions, and creates the namespace, on a
	// remote hub. An embedded hub always has its definitions applied.
	InstallCRDs bool

	// Embedded forces an embedded hub in a pod too.
	Embedded bool
	// DataDir is the folder in which an embedded hub keeps its state; it is created with mode
	// 0700 if absent. Empty means "sluice-data" in the working directory.
	DataDir string
	// Port is the port of an embedded hub on 127.0.0.1; 0 means any free one.
	Port int

	// Prepare is called when an embedded hub has started, before its kubeconfig is written: other processes find it
	// only afterwards. May be nil.
	Prepare func() error

	// moving starts a hub that has moved elsewhere, too.
	moving bool

	// Logger receives warnings and errors of the hub and, with an embedded hub,
	// those of etcd and of everything in this process that logs through klog,
	// client-go included. Nil means slog.Default().
	Logger *slog.Logger
}

// Hub is a running hub, ready for use: its definitions are established and
// served.
type Hub struct {
	// Config reaches the hub. It has no client-side rate limit (QPS -1). Copy it
	// before changing it.
	Config *rest.Config
	// Embedded reports whether the hub lives and dies with this process.
	Embedded bool
	// Namespace holds all of Sluice's resources.
	Namespace string
	// ID identifies the hub for as long as its definitions are not deleted, over
	// restarts, upgrades and moves: the UID of the CRD memberclusters.sluice.dev in its
	// first home. It labels what Sluice owns on member clusters, so that two hubs never fight
	// over one object.
	ID string
	// Kubeconfig is the path of a kubeconfig that reaches this hub; empty in a pod.
	Kubeconfig string

	// Database returns the size of an embedded hub's database and the size beyond which it accepts no more
	// writes, in bytes; nil for a remote hub.
	Database func() (size, quota int64)

	definition string // UID of the identity's definition
	done       chan error
	stop       func() error // nil for a remote hub
	stopOnce   sync.Once
	stopErr    error
}

// Start returns a hub that is ready for use, or an error with the remedy.
// It blocks until the definitions are established; ctx bounds the start only,
// and cancelling it later changes nothing. End the hub with [Hub.Stop].
//
// With Options.Kubeconfig, or in a pod, the hub is that cluster; otherwise it
// is embedded.
func Start(ctx context.Context, o Options) (*Hub, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Kubeconfig != "" {
		if o.Embedded {
			return nil, errors.New("start hub: a kubeconfig and an embedded hub exclude each other")
		}
		return startKubeconfig(ctx, o)
	}
	if !o.Embedded {
		config, err := rest.InClusterConfig()
		if err == nil {
			return startInCluster(ctx, o, config)
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("start hub: in a pod, but its service account cannot be used: %w", err)
		}
	}
	return startEmbedded(ctx, o)
}

// Done receives the error that ended an embedded hub, if any, and is closed
// when the hub has ended. A remote hub ends only by Stop.
func (h *Hub) Done() <-chan error { return h.done }

// Stop ends the hub and returns when its data is closed and its lock released,
// within about two seconds. Stop the hub's clients first: requests still under
// way may fail. Stopping a remote hub only closes Done. Stop is idempotent and
// safe for concurrent use.
func (h *Hub) Stop() error {
	h.stopOnce.Do(func() {
		if h.stop == nil {
			close(h.done)
			return
		}
		h.stopErr = h.stop()
	})
	return h.stopErr
}

func startKubeconfig(ctx context.Context, o Options) (*Hub, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: o.Context},
	)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("start hub: load kubeconfig %s: %w", o.Kubeconfig, err)
	}
	// Namespace answers "default" when the context names none.
	contextNamespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("start hub: read the namespace of kubeconfig %s: %w", o.Kubeconfig, err)
	}
	if contextNamespace == "default" {
		contextNamespace = ""
	}
	h := &Hub{
		Config:     config,
		Namespace:  firstOf(o.Namespace, contextNamespace, DefaultNamespace),
		Kubeconfig: o.Kubeconfig,
		done:       make(chan error, 1),
	}
	if err := h.connect(ctx, o, charts.CRDs); err != nil {
		return nil, fmt.Errorf("start hub from kubeconfig %s: %w", o.Kubeconfig, err)
	}
	h.checkAnswers()
	return h, nil
}

func startInCluster(ctx context.Context, o Options, config *rest.Config) (*Hub, error) {
	own, err := podNamespace()
	if err != nil {
		return nil, fmt.Errorf("start hub: %w", err)
	}
	h := &Hub{
		Config:    config,
		Namespace: firstOf(o.Namespace, own, DefaultNamespace),
		done:      make(chan error, 1),
	}
	if err := h.connect(ctx, o, charts.CRDs); err != nil {
		return nil, fmt.Errorf("start hub in the surrounding cluster: %w", err)
	}
	h.checkAnswers()
	return h, nil
}

// checkAnswers makes clients accept only answers of an API server (package answers), and "not
// found" only from the hub that was started.
func (h *Hub) checkAnswers() {
	pin := &answers.Pin{
		Path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + identityCRD, Kind: "CustomResourceDefinition",
		For: 10 * time.Second, // the broker looks up every new instance before it creates it
	}
	pin.Set(h.definition)
	answers.Check(h.Config, pin)
	crashpoint.Guard(h.Config, "hub")
}

func firstOf(names ...string) string {
	for _, name := range names {
		if name != "" {
			return name
		}
	}
	return ""
}
