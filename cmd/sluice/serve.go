package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/console"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/lease"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/placement/external"
	"github.com/sluice-dev/sluice/placement/kube"
)

// serveFlags are the settings of `sluice serve`.
type serveFlags struct {
	dataDir, kubeconfig, namespace string
	listener                       listener
	trust                          trustFlags
	charts                         chartFlags
	backupTarget                   string
	backups                        backupSchedule
	metricsListen                  string
	resources                      resourcesListener
	platforms, keyset              string
	collect                        kube.CollectorMode
	collectEvery                   time.Duration
	bindWait, bindTimeout          time.Duration
	internetEgress                 bool
	console                        bool
	joinAddresses                  ranges
	log                            logFlags
	probeEvery                     time.Duration
	movesAtOnce                    int
	keepJournals                   time.Duration
	mostJournals                   int
	keepUsage                      time.Duration
	scorer, forecast               external.Options
	prepared                       prepared
	leaseDuration                  time.Duration
	lease                          *lease.Lease // nil with an embedded hub
	// hold returns why nothing may be removed that the hub does not know; nil if it was not restored.
	hold func(context.Context) error
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

With an embedded hub and without --platforms, the first start creates the platform "default" with a random
password, in platforms.yaml of the data folder.`,
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
	flags.BoolVar(&f.console, "console", true, "serve the web console at /console/; sluice console prints a link to it")
	bindJoinAddresses(flags, &f.joinAddresses)
	flags.StringVar(&f.metricsListen, "metrics-listen", "127.0.0.1:8081", "address of /metrics, /healthz and /readyz; 0 disables it")
	f.resources.bind(flags)
	flags.StringVar(&f.platforms, "platforms", "", "file that lists the platforms, their credentials and OpenID Connect issuers; read again when it changes")
	flags.StringVar(&f.keyset, "keyset", "", "file with the keys that seal what is stored (default: keyset.json in the data folder)")
	bindChoice(cmd, &f.collect, "collect", "", "action on objects on member clusters that belong to no instance any more", kube.CollectorReport, kube.CollectorOff, kube.CollectorRemove)
	flags.DurationVar(&f.collectEvery, "collect-every", 10*time.Minute, "time between two searches for objects that belong to no instance any more")
	flags.DurationVar(&f.bindWait, "bind-wait", 10*time.Second, "how long a bind waits for its result before it is answered asynchronously")
	flags.DurationVar(&f.bindTimeout, "bind-timeout", 50*time.Second, "longest time of a synchronous bind; platforms give up after 60s")
	flags.BoolVar(&f.internetEgress, "internet-egress", false, "let pods of instances reach the internet")
	flags.DurationVar(&f.probeEvery, "probe-every", controller.DefaultProbeEvery, "time between two probes of each member cluster; it counts as lost after three failures")
	flags.StringVar(&f.backupTarget, "backup-target", "", "YAML file with the storage for backups of volumes, with which workloads move (docs/operating.md); read again when it changes")
	f.backups.bind(flags)
	flags.IntVar(&f.movesAtOnce, "moves-at-once", 10, "how many instances move from lost or drained clusters at the same time")
	flags.DurationVar(&f.keepJournals, "keep-journals", 90*24*time.Hour, "how long events are kept after their instance, binding, cluster or peering was removed; 0 keeps them for ever")
	flags.IntVar(&f.mostJournals, "most-journals", 100_000, "number of removed instances, bindings, clusters and peerings whose events are kept; the oldest go first, 0 means any number")
	flags.DurationVar(&f.keepUsage, "keep-usage", 400*24*time.Hour, "how long the usage of removed instances is kept; 0 keeps it for ever")
	f.charts.bind(flags)
	flags.StringVar(&f.scorer.URL, "scorer-url", "", "https URL of an external scorer, which plans and policies weigh as score.external (docs/placement.md)")
	flags.StringVar(&f.scorer.TokenFile, "scorer-token-file", "", "file with the bearer token for the scorer, read for each request; required unless the scorer has a loopback address")
	flags.StringVar(&f.scorer.CAFile, "scorer-ca-file", "", "PEM file with the certificate authorities that verify the scorer (default: those of the system)")
	flags.DurationVar(&f.scorer.Timeout, "scorer-timeout", external.DefaultTimeout, "timeout of a request to the scorer; without an answer its scores do not count")
	flags.StringVar(&f.forecast.URL, "forecast-url", "", "https URL of a forecaster, which says what will be ordered; policies with elastic.aheadSeconds make clusters for it (docs/clusters.md)")
	flags.StringVar(&f.forecast.TokenFile, "forecast-token-file", "", "file with the bearer token for the forecaster, read for each request; required unless it has a loopback address")
	flags.StringVar(&f.forecast.CAFile, "forecast-ca-file", "", "PEM file with the certificate authorities that verify the forecaster (default: those of the system)")
	f.log.bind(cmd)
	flags.DurationVar(&f.leaseDuration, "lease-duration", 10*time.Second, "how long the other replicas wait for a leader that does not answer; must be the same on all replicas")
	return cmd
}

// serve runs until the context ends or something that it needs fails.
func (f *serveFlags) serve(ctx context.Context) error {
	logger := f.log.logger()
	var err error
	if f.prepared, err = f.prepare(); err != nil {
		return err
	}
	if err := f.checkPorts(ctx); err != nil {
		return err
	}
	shutdownTracing, err := startTracing(ctx)
	if err != nil {
		return err
	}
	defer shutdownTracing()
	// Close to the limit of its container, garbage is collected more often instead of more memory taken.
	if _, err := memlimit.SetGoMemLimitWithOpts(); err != nil {
		logger.Debug("no limit of memory is known", "reason", err)
	}

	logger.Info("starting the hub")
	h, err := hub.Start(ctx, hub.Options{
		DataDir: f.dataDir, Kubeconfig: f.kubeconfig, Namespace: f.namespace, Logger: logger, Prepare: func() error { return f.firstStart(logger) },
	})
	switch {
	case err != nil && ctx.Err() != nil:
		logger.Info("stopped while the hub was starting")
		return nil
	case err != nil:
		return err
	}
	defer func() {
		if err := h.Stop(); err != nil {
			logger.Error("stop the hub", "error", err)
			return
		}
		logger.Info("stopped")
	}()
	logger.Info("the hub answers", "hub", h.ID, "kubeconfig", h.Kubeconfig, "namespace", h.Namespace, "version", version)
	if mark, err := hub.Restored(ctx, h.Config); err != nil {
		return err
	} else if mark != nil {
		f.hold = cached(holdOf(h.Config), holdCheck)
		logger.Warn("the hub was " + mark.String() + ": nothing that it does not know is removed before `sluice hub release`")
	}
	if f.platforms == "" || f.keyset == "" {
		return fmt.Errorf("--platforms and --keyset are needed when a cluster is the hub")
	}
	if f.backups.every != 0 && !h.Embedded {
		return errors.New("--backup-every: only an embedded hub is backed up by its own process; for a hub on a cluster, run `sluice hub backup` by cron")
	}
	all, err := f.assemble(h, logger)
	if err != nil {
		return err
	}
	return all.run(ctx, h.Done())
}

// parts are the broker and its controllers, on one hub.
type parts struct {
	listener *listener
	manager  ctrl.Manager
	feed     *catalog.Feed
	usage    *broker.Usage
	changes  *console.Changes
}

// assemble returns the parts, which have not started.
func (f *serveFlags) assemble(h *hub.Hub, logger *slog.Logger) (*parts, error) {
	keys, err := seal.Open(f.keyset)
	if err != nil {
		return nil, err
	}
	live, err := client.NewWithWatch(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the hub: %w", err)
	}
	platforms, err := broker.LoadPlatforms(f.platforms)
	if err != nil {
		return nil, err
	}
	served, kept := &catalog.Catalog{}, &store.Hub{Reader: live, Namespace: h.Namespace}
	sold, usage := newSoldInventory(), broker.NewUsage(clock.RealClock{})
	handler, err := f.broker(h, live, served, platforms, keys, usage, logger)
	if err != nil {
		return nil, err
	}
	mgr, err := f.manager(h, handler)
	if err != nil {
		return nil, err
	}
	probes, err := f.probes(mgr, h, keys)
	if err != nil {
		return nil, err
	}
	if err := f.addControllers(mgr, h, live, served, sold, kept, platforms, keys, probes); err != nil {
		return nil, err
	}
	if err := announce(mgr, logger, "metrics", f.metricsListen); err != nil {
		return nil, err
	}
	changes := console.NewChanges()
	if f.listener.handler, err = f.web(mgr, h, served, sold, platforms, keys, handler, probes, changes); err != nil {
		return nil, err
	}
	f.listener.ready, f.listener.longest = served.Loaded, f.bindTimeout
	feed := &catalog.Feed{Cache: mgr.GetCache(), Namespace: h.Namespace, Charts: kept, Catalog: served}
	return &parts{listener: &f.listener, manager: mgr, feed: feed, usage: usage, changes: changes}, nil
}

// run serves until the context or the hub ends, or something fails.
func (p *parts) run(ctx context.Context, hubDone <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- <-hubDone
	}()
	// The manager starts nothing before its cache has read everything: a minute with a hundred
	// thousand instances. The broker reads the hub itself, and needs the catalog only.
	running, ctx := errgroup.WithContext(ctx)
	answering, answered := context.WithCancel(context.WithoutCancel(ctx)) // requests that wait for the controllers are answered first
	running.Go(func() error { return p.manager.Start(answering) })
	running.Go(func() error { return p.feed.Start(ctx) })
	running.Go(func() error { return p.usage.Follow(ctx, p.manager.GetCache()) })
	running.Go(func() error { return p.changes.Follow(ctx, p.manager.GetCache()) })
	running.Go(func() error {
		defer answered()
		return p.listener.Start(ctx)
	})
	if err := running.Wait(); err != nil {
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

// manager returns the controllers' manager, which answers for the health of the broker where its metrics are. If
// a cluster is the hub, the replicas elect a leader.
func (f *serveFlags) manager(h *hub.Hub, health http.Handler) (ctrl.Manager, error) {
	options := manager.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{h.Namespace: {}},
			DefaultTransform:  newInterned().slim,
		},
		GracefulShutdownTimeout: ptr.To(max(f.bindTimeout, time.Minute) + 5*time.Second),
		Metrics: metricsserver.Options{BindAddress: f.metricsListen, ExtraHandlers: map[string]http.Handler{
			"/healthz": health, "/readyz": health,
		}},
	}
	if !h.Embedded {
		if err := f.elect(h, &options); err != nil {
			return nil, err
		}
	}
	return ctrl.NewManager(h.Config, options)
}

// leaseName is the name of the Lease by which replicas elect their leader.
const leaseName = "sluice"

// elect makes the replicas elect a leader, and keeps the controllers of the others from
// writing.
func (f *serveFlags) elect(h *hub.Hub, options *manager.Options) (err error) {
	durations := lease.Of(f.leaseDuration)
	if f.lease, err = lease.New(h.Config, h.Namespace, leaseName, durations); err != nil {
		return fmt.Errorf("set up the election of a leader: %w", err)
	}
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaderElectionID, options.LeaderElectionResourceLockInterface = leaseName, f.lease
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &durations.Lease, &durations.Renew, &durations.Retry
	options.NewClient = func(config *rest.Config, o client.Options) (client.Client, error) {
		fenced := *o.HTTPClient
		fenced.Transport = f.lease.Fence(fenced.Transport)
		o.HTTPClient = &fenced
		return client.New(config, o)
	}
	return nil
}

// leadership returns the election among several replicas; nil with an embedded hub, which
// has one.
func (f *serveFlags) leadership() controller.Leadership {
	if f.lease == nil {
		return nil
	}
	return f.lease
}

// broker returns the OSB API.
func (f *serveFlags) broker(h *hub.Hub, live client.WithWatch, served *catalog.Catalog, platforms *broker.Platforms, keys *seal.Keyset, usage *broker.Usage, logger *slog.Logger) (http.Handler, error) {
	return broker.New(broker.Options{
		Client: live, Namespace: h.Namespace, Hub: h.ID, Catalog: served, Platforms: platforms, Keys: keys, Usage: usage,
		BindWait: f.bindWait, BindTimeout: f.bindTimeout, Logger: logger, Registerer: metrics.Registry,
	})
}

// firstStart notes for other commands what an embedded hub is served with. Of the files that no flag names, it creates the
// platforms file, with one platform.
func (f *serveFlags) firstStart(logger *slog.Logger) error {
	own := f.platforms == ""
	f.keyset = cmp.Or(f.keyset, filepath.Join(f.dataDir, keysetName))
	f.platforms = cmp.Or(f.platforms, filepath.Join(f.dataDir, platformsName))
	err := errors.Join(writeBrokerURL(f.dataDir, f.publicURL()), notePath(f.dataDir, keysetName, f.keyset), notePath(f.dataDir, platformsName, f.platforms))
	if err != nil || !own {
		return err
	}
	if _, err := os.Stat(f.platforms); err == nil {
		return nil
	}
	if err := writeDefaultPlatform(f.platforms); err != nil {
		return err
	}
	logger.Info("created the platform default; sluice platform show default prints its user and password", "file", f.platforms)
	return nil
}

// publicURL returns the URL of the OSB API for platforms, as far as the flags show it; ""
// if they do not.
func (f *serveFlags) publicURL() string {
	if f.trust.publicURL != "" {
		return f.trust.publicURL
	}
	host, port, err := net.SplitHostPort(f.listener.address)
	if err != nil || port == "0" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if f.listener.certificate != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
