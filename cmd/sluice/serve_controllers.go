package main

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/probe"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/elastic"
	"github.com/sluice-dev/sluice/placement/gauges"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/measure"
	"github.com/sluice-dev/sluice/placement/osb"
	"github.com/sluice-dev/sluice/placement/pool"
	"github.com/sluice-dev/sluice/placement/rebalance"
	"github.com/sluice-dev/sluice/placement/registration"
)

// addControllers adds all runnables and controllers to the manager, except self-descriptions.
func (f *serveFlags) addControllers(mgr ctrl.Manager, h *hub.Hub, live client.WithWatch, served *catalog.Catalog, sold *soldInventory, kept *store.Hub, platforms *broker.Platforms, keys *seal.Keyset, probes *probe.Server) error {
	reader, err := clusterReader(mgr, h, live)
	if err != nil {
		return err
	}
	connections := &member.Connections{Reader: reader, Namespace: h.Namespace, Keys: keys, Wrap: f.lease.Fence, AllowAddresses: f.joinAddresses}
	if err := (&catalog.Controller{Client: mgr.GetClient(), Live: live, Namespace: h.Namespace, Charts: kept, Archives: f.prepared.charts}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the catalog: %w", err)
	}
	brokers := &osbclient.Brokers{Members: connections}
	driver := &kube.Driver{Connections: connections, Hub: h.ID, InternetEgress: f.internetEgress, ProbeAddresses: f.trust.probes.GetSlice(), Charts: kept}
	recorder := journal.NewRecorder(served.Names)
	f.trust.recorder = recorder
	if err := metrics.Registry.Register(recorder); err != nil {
		return fmt.Errorf("register the metrics of events: %w", err)
	}
	if err := registerProcess(metrics.Registry, h); err != nil {
		return fmt.Errorf("register the metrics of the process: %w", err)
	}
	if err := f.addBackups(mgr, h); err != nil {
		return fmt.Errorf("set up backups: %w", err)
	}
	counted := gauges.New(mgr.GetCache(), served.Names, clock.RealClock{})
	if err := errors.Join(metrics.Registry.Register(counted), mgr.Add(counted)); err != nil {
		return fmt.Errorf("set up the metrics of what the hub has: %w", err)
	}
	inventory := sold.Inventory
	filled, err := f.resources.add(mgr, platforms, inventory)
	if err != nil {
		return err
	}
	growing := &elastic.Controller{
		Client: mgr.GetClient(), Namespace: h.Namespace, Catalog: served, Inventory: inventory, Filled: sold.filled, Hold: f.hold, Leadership: f.leadership(),
	}
	if forecaster := f.prepared.forecaster; forecaster != nil {
		if err := mgr.Add(forecaster); err != nil {
			return fmt.Errorf("set up the forecaster: %w", err)
		}
		growing.Forecast = forecaster.Latest
	}
	members := &registration.Members{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: h.Namespace, Connections: connections, Store: registration.Sealed{Keys: keys},
	}
	if err := growing.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up elastic clusters: %w", err)
	}
	if err := (&measure.Controller{Client: mgr.GetClient(), Namespace: h.Namespace, Catalog: served}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the order of probes: %w", err)
	}
	if err := mgr.Add(&rebalance.Controller{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Namespace: h.Namespace, Catalog: served}); err != nil {
		return fmt.Errorf("set up rebalancing: %w", err)
	}
	if err := controller.SetupWithManager(mgr, controller.Options{
		Recorder: recorder, Inventory: inventory, Filled: sync.OnceFunc(func() { sold.fill(); filled() }), Target: f.prepared.target,
		ProbeEvery: f.probeEvery, ProbeTimeout: min(f.probeEvery, 5*time.Second), MovesAtOnce: f.movesAtOnce, Scorer: f.prepared.scorer, Promises: growing, Keys: keys,
		Namespace: h.Namespace, HubID: h.ID, Hold: f.hold, Leadership: f.leadership(), Catalog: served, Connections: connections, Brokers: brokers,
		Drivers: map[string]delivery.Driver{
			v1alpha1.DriverKube: driver,
			v1alpha1.DriverCAPI: &capi.Driver{Connections: connections, Hub: h.ID, Charts: f.prepared.charts, Members: members},
			v1alpha1.DriverLiqo: &liqo.Driver{Namespaces: driver, Client: mgr.GetClient(), Live: live, Selectable: selectableIn(served), Hold: f.hold},
			v1alpha1.DriverOSB:  &osb.Driver{Brokers: brokers, Hub: h.ID, Keys: keys},
			v1alpha1.DriverPool: &pool.Driver{Client: mgr.GetClient(), Live: live},
		},
		Rules: registration.Rules, Unguarded: registration.Unguarded,
		Probed: f.prepared.probed(), Connection: probes.Connection,
	}); err != nil {
		return fmt.Errorf("set up placement: %w", err)
	}
	if err := (&capi.Classes{Client: mgr.GetClient(), Connections: connections}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the classes of clusters: %w", err)
	}
	if err := (&liqo.Peerings{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Connections: connections, Hub: h.ID, Recorder: recorder, Hold: f.hold}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peerings: %w", err)
	}
	if err := mgr.Add(&liqo.Judge{
		Client: mgr.GetClient(), Live: live, Connections: connections, Namespace: h.Namespace, Hub: h.ID, Refuses: inventory.Refuses,
		Selectable:     selectableIn(served),
		Hold:           f.hold,
		InternetEgress: f.internetEgress,
		Leadership:     f.leadership(),
	}); err != nil {
		return err
	}
	if err := (&bindings.Controller{Client: mgr.GetClient(), Live: live, Connections: connections, Brokers: brokers, Keys: keys, Hub: h.ID, Recorder: recorder}).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up bindings: %w", err)
	}
	delivered := &sinks.Controller{Client: mgr.GetClient(), Live: live, Cache: mgr.GetCache(), Keys: keys, Namespace: h.Namespace, Hub: h.ID}
	if err := errors.Join(metrics.Registry.Register(delivered), delivered.SetupWithManager(mgr)); err != nil {
		return fmt.Errorf("set up event sinks: %w", err)
	}
	collector := &kube.Collector{
		Live: live, Connections: connections, Namespace: h.Namespace, Hub: h.ID,
		Mode: f.collect, Period: f.collectEvery, Hold: f.hold,
	}
	if err := mgr.Add(collector); err != nil {
		return err
	}
	return mgr.Add(&journal.Retention{Client: mgr.GetClient(), Live: live, Namespace: h.Namespace, Age: f.keepJournals, Most: f.mostJournals, UsageAge: f.keepUsage})
}

// selectableIn looks up in the catalog the label keys by which consumers of an instance's
// plan may select clusters.
func selectableIn(served *catalog.Catalog) liqo.Selectable {
	return func(instance *v1alpha1.ServiceInstance) []string {
		plan, err := served.Snapshot().Plan(instance.Spec.ServiceID, instance.StateInForce().PlanID)
		if err != nil || plan.Resources == nil {
			return nil
		}
		return plan.Resources.Selectable
	}
}

// clusterReader returns what reads member clusters for each delivery: the cache of an embedded hub, which changes only
// while this process runs. That of a cluster as hub may be old after a pause, and would name the access of another day.
func clusterReader(mgr ctrl.Manager, h *hub.Hub, live client.Client) (client.Client, error) {
	if !h.Embedded {
		return live, nil
	}
	cached := &client.CacheOptions{Reader: mgr.GetCache(), DisableFor: []client.Object{&corev1.Secret{}}}
	return client.New(h.Config, client.Options{Scheme: scheme, Cache: cached})
}

// addBackups adds the backups of the hub, if there are to be any.
func (f *serveFlags) addBackups(mgr ctrl.Manager, h *hub.Hub) error {
	if f.backups.every == 0 {
		return nil
	}
	s := &f.backups
	s.config, s.keyset, s.platforms, s.logger = h.Config, f.keyset, f.platforms, slog.Default()
	return errors.Join(s.register(metrics.Registry), mgr.Add(s))
}
