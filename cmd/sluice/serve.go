package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
)

// serveFlags are the settings of `sluice serve`.
type serveFlags struct {
	dataDir, kubeconfig, namespace string
	listener                       listener
	trust                          trustFlags
	charts                         chartFlags
	metricsListen                  string
	platforms, keyset              string
	collect                        string
	collectEvery                   time.Duration
	bindWait, bindTimeout          time.Duration
	internetEgress                 bool
	logFormat                      string
	verbose                        bool
	probeEvery                     time.Duration
	movesAtOnce                    int
	scorerURL                      string
	scorerTimeout                  time.Duration
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the broker and its controllers",
		Long: `Run the broker and its controllers.

Without --kubeconfig, outside a cluster, Sluice embeds its hub: everything it stores lies in --data-dir. With
--kubeconfig, or in a pod, that cluster is the hub; all replicas then serve, and one, elected by a Lease,
reconciles.

With an embedded hub and no --platforms, the first start makes a platform "default" with a random password, in
platforms.yaml of the data folder.`,
		Example: `  sluice serve
  sluice serve --listen :8443 --tls-cert tls.crt --tls-key tls.key --platforms platforms.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", defaultDataDir(), "folder of the embedded hub")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster that is the hub")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "namespace of Sluice's resources (default: the pod's own, or sluice)")
	f.listener.bind(flags)
	f.trust.bind(cmd)
	flags.StringVar(&f.metricsListen, "metrics-listen", "127.0.0.1:8081", "address of /metrics, /healthz and /readyz; 0 switches it off")
	flags.StringVar(&f.platforms, "platforms", "", "file that lists the platforms and their credentials; read again when it changes")
	flags.StringVar(&f.keyset, "keyset", "", "file with the keys that seal what is stored (default: keyset.json in the data folder)")
	flags.StringVar(&f.collect, "collect", string(kube.CollectorReport), "what to do with things on member clusters that nobody owns: off, report or remove")
	flags.DurationVar(&f.collectEvery, "collect-every", 10*time.Minute, "how often to look for them")
	flags.DurationVar(&f.bindWait, "bind-wait", 10*time.Second, "how long a bind that may be answered asynchronously is held before it is")
	flags.DurationVar(&f.bindTimeout, "bind-timeout", 50*time.Second, "how long a bind that must be answered synchronously may take; platforms give up after 60s")
	flags.BoolVar(&f.internetEgress, "internet-egress", false, "let consumers' pods reach the internet")
	flags.DurationVar(&f.probeEvery, "probe-every", placement.DefaultProbeEvery, "how often to ask each member cluster whether it answers; it counts as lost after three failures")
	flags.IntVar(&f.movesAtOnce, "moves-at-once", 10, "how many instances move from lost or drained clusters at the same time")
	f.charts.bind(flags)
	flags.StringVar(&f.scorerURL, "scorer-url", "", "URL of an external scorer, which plans and policies weigh as score.external (docs/placement.md)")
	flags.DurationVar(&f.scorerTimeout, "scorer-timeout", placement.DefaultScorerTimeout, "how long it may take to answer; then it counts for nothing")
	flags.StringVar(&f.logFormat, "log-format", "text", "format of the log: text or json")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log what the controllers do, step by step")
	return cmd
}

// serve runs until the context ends, or something it needs fails.
func (f *serveFlags) serve(ctx context.Context) error {
	logger, err := f.logger()
	if err != nil {
		return err
	}
	shutdownTracing, err := startTracing(ctx)
	if err != nil {
		return err
	}
	defer shutdownTracing()

	logger.Info("starting the hub", "embedded in", f.dataDir, "kubeconfig", f.kubeconfig)
	h, err := hub.Start(ctx, hub.Options{DataDir: f.dataDir, Kubeconfig: f.kubeconfig, Namespace: f.namespace, Logger: logger})
	if err != nil {
		return err
	}
	defer func() {
		if err := h.Stop(); err != nil {
			logger.Error("stop the hub", "error", err)
		}
	}()
	if h.Embedded {
		if err := f.firstStart(logger); err != nil {
			return err
		}
	}
	if f.platforms == "" || f.keyset == "" {
		return fmt.Errorf("--platforms and --keyset are needed when a cluster is the hub")
	}
	keys, err := seal.Open(f.keyset)
	if err != nil {
		return err
	}
	live, err := client.NewWithWatch(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the hub: %w", err)
	}
	served := &catalog.Catalog{}
	f.listener.ready = served.Loaded
	if f.listener.handler, err = f.broker(h, live, served, keys, logger); err != nil {
		return err
	}
	mgr, err := f.manager(h)
	if err != nil {
		return err
	}
	if err := f.assemble(ctx, mgr, h, live, served, keys); err != nil {
		return err
	}
	if f.listener.handler, err = f.trust.assemble(mgr, h, keys, f.listener.handler); err != nil {
		return fmt.Errorf("set up self-descriptions: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- <-h.Done()
	}()
	logger.Info("serving", "address", f.listener.address, "hub", h.ID, "version", version)
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("it was stopped")
		}
		return fmt.Errorf("the hub ended: %w", err)
	default:
		return nil
	}
}

// manager returns the controllers' manager. With a cluster as the hub, replicas
// elect the one that reconciles.
func (f *serveFlags) manager(h *hub.Hub) (ctrl.Manager, error) {
	return ctrl.NewManager(h.Config, manager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{h.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(), // nothing reads them, and they are half of an object
		},
		LeaderElection:                !h.Embedded,
		LeaderElectionID:              "sluice",
		LeaderElectionNamespace:       h.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr(10 * time.Second),
		RenewDeadline:                 ptr(7 * time.Second),
		RetryPeriod:                   ptr(2 * time.Second),
		GracefulShutdownTimeout:       ptr(65 * time.Second),
		Metrics: metricsserver.Options{BindAddress: f.metricsListen, ExtraHandlers: map[string]http.Handler{
			"/healthz": f.listener.handler, "/readyz": f.listener.handler,
		}},
	})
}

// broker returns the OSB API.
func (f *serveFlags) broker(h *hub.Hub, live client.WithWatch, served *catalog.Catalog, keys *seal.Keyset, logger *slog.Logger) (http.Handler, error) {
	platforms, err := broker.LoadPlatforms(f.platforms)
	if err != nil {
		return nil, err
	}
	return broker.New(broker.Options{
		Client: live, Namespace: h.Namespace, Catalog: served, Platforms: platforms, Keys: keys,
		BindWait: f.bindWait, BindTimeout: f.bindTimeout, Logger: logger, Registerer: metrics.Registry,
	})
}

// assemble adds everything that runs to the manager.
func (f *serveFlags) assemble(ctx context.Context, mgr ctrl.Manager, h *hub.Hub, live client.WithWatch, served *catalog.Catalog, keys *seal.Keyset) error {
	connections := &member.Connections{Reader: live, Namespace: h.Namespace, Keys: keys}
	if err := mgr.Add(&catalog.Feed{Cache: mgr.GetCache(), Namespace: h.Namespace, Catalog: served}); err != nil {
		return err
	}
	if err := (&catalog.Controller{Client: mgr.GetClient(), Live: live, Namespace: h.Namespace}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the catalog: %w", err)
	}
	charts, err := f.charts.open()
	if err != nil {
		return err
	}
	driver := &kube.Driver{Connections: connections, Hub: h.ID, InternetEgress: f.internetEgress}
	var scorer *placement.ExternalScorer
	if f.scorerURL != "" {
		scorer = placement.NewExternalScorer(f.scorerURL, f.scorerTimeout)
	}
	inventory := placement.NewInventory()
	if err := placement.SetupWithManager(mgr, placement.Options{
		Inventory:  inventory,
		ProbeEvery: f.probeEvery, ProbeTimeout: min(f.probeEvery, 5*time.Second), MovesAtOnce: f.movesAtOnce, Scorer: scorer,
		Namespace: h.Namespace, HubID: h.ID, SoleWriter: h.Embedded, Catalog: served, Connections: connections,
		Drivers: map[string]placement.Driver{
			v1alpha1.DriverKube: driver,
			v1alpha1.DriverCAPI: &capi.Driver{Connections: connections, Hub: h.ID, Charts: charts},
			v1alpha1.DriverLiqo: &liqo.Driver{Namespaces: driver, Client: mgr.GetClient(), Live: live},
		},
		Rules: map[string][]rbacv1.PolicyRule{
			v1alpha1.DriverKube: kube.Rules(), v1alpha1.DriverCAPI: capi.Rules(), v1alpha1.DriverLiqo: liqo.Rules(),
		},
		JoinedRules: liqo.JoinedRules(),
		Probed:      f.trust.probed(),
		Join: func(ctx context.Context, management, instance string, member *v1alpha1.MemberCluster) (v1alpha1.ClusterAccess, error) {
			return join(ctx, connections, keys, management, instance, member)
		},
	}); err != nil {
		return fmt.Errorf("set up placement: %w", err)
	}
	if err := (&liqo.Peerings{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Connections: connections, Hub: h.ID}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peerings: %w", err)
	}
	if err := mgr.Add(&liqo.Judge{
		Client: mgr.GetClient(), Live: live, Connections: connections, Namespace: h.Namespace, Hub: h.ID, Refuses: inventory.Refuses,
	}); err != nil {
		return err
	}
	if err := (&bindings.Controller{Client: mgr.GetClient(), Live: live, Connections: connections, Keys: keys, Hub: h.ID}).SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("set up bindings: %w", err)
	}
	collector := &kube.Collector{
		Live: live, Connections: connections, Namespace: h.Namespace, Hub: h.ID,
		Mode: kube.CollectorMode(f.collect), Period: f.collectEvery,
	}
	if err := mgr.Add(collector); err != nil {
		return err
	}
	return mgr.Add(&f.listener)
}

// join registers Sluice on a cluster that was made, as `sluice cluster add` does on
// others.
func join(ctx context.Context, connections *member.Connections, keys *seal.Keyset, management, instance string, as *v1alpha1.MemberCluster) (v1alpha1.ClusterAccess, error) {
	made, err := connections.Made(ctx, management, instance)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	liqoNamespace := ""
	if as.Spec.Liqo != nil {
		liqoNamespace = as.Spec.Liqo.Namespace
	}
	manifest, err := forDriver(kube.ManifestOptions{}, as.Spec.Driver, liqoNamespace, true)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	kubeconfig, err := kube.Register(ctx, made.Config, manifest)
	if err != nil {
		return v1alpha1.ClusterAccess{}, err
	}
	sealed, err := keys.Seal(kubeconfig, member.Owner(as.Namespace, as.Name))
	return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}, err
}

// firstStart makes what an embedded hub needs and nobody named: a keyset, and a
// platform that can call.
func (f *serveFlags) firstStart(logger *slog.Logger) error {
	if f.keyset == "" {
		f.keyset = filepath.Join(f.dataDir, "keyset.json")
	}
	if f.platforms != "" {
		return nil
	}
	f.platforms = filepath.Join(f.dataDir, "platforms.yaml")
	if _, err := os.Stat(f.platforms); err == nil {
		return nil
	}
	if err := writeDefaultPlatform(f.platforms); err != nil {
		return err
	}
	logger.Info("made a platform named default; its user and password are in the file", "file", f.platforms)
	return nil
}

// logger returns the process's log, and gives it to the libraries too.
func (f *serveFlags) logger() (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	if f.verbose {
		options.Level = slog.LevelDebug
	}
	var handler slog.Handler
	switch f.logFormat {
	case "text":
		handler = slog.NewTextHandler(os.Stderr, options)
	case "json":
		handler = slog.NewJSONHandler(os.Stderr, options)
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", f.logFormat)
	}
	logger := slog.New(handler)
	slog.SetDefault(logger)
	klog.SetLogger(logr.FromSlogHandler(handler))
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	return logger, nil
}

func ptr[T any](v T) *T { return &v }
