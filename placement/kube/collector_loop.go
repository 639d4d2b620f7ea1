package kube

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var (
	remnantsFound = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_remnants",
		Help: "Objects on member clusters whose instance or binding is gone, as the last collection left them.",
	}, []string{"cluster", "kind"})
	remnantsRemoved = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "sluice_remnants_removed_total",
		Help: "Objects on member clusters whose instance or binding was gone and that the collector deleted.",
	})
)

func init() { metrics.Registry.MustRegister(remnantsFound, remnantsRemoved) }

var (
	_ manager.Runnable               = (*Collector)(nil)
	_ manager.LeaderElectionRunnable = (*Collector)(nil)
)

// NeedLeaderElection makes the periodic collection run on the leader only.
func (*Collector) NeedLeaderElection() bool { return true }

// Start collects once a Period until ctx ends, and logs the result. With the mode off it does
// nothing.
func (c *Collector) Start(ctx context.Context) error {
	if c.Mode == CollectorOff || c.Mode == "" {
		return nil
	}
	period := c.Period
	if period == 0 {
		period = defaultCollectorPeriod
	}
	// The first collection is after one period, when the controllers have reconciled everything
	// that waited for the start.
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(period):
	}
	wait.JitterUntilWithContext(ctx, c.collectOnce, period, 0.1, true)
	return nil
}

func (c *Collector) collectOnce(ctx context.Context) {
	logger := log.FromContext(ctx).WithName("collector")
	remove := c.Mode == CollectorRemove
	if err := c.held(ctx); remove && err != nil {
		logger.Info("nothing is removed", "reason", err.Error())
		remove = false
	}
	report, err := c.Collect(log.IntoContext(ctx, logger), remove)
	if err != nil {
		logger.Error(err, "some clusters could not be looked at")
	}
	remnantsFound.Reset()
	for _, r := range report.Remnants {
		if r.Removed {
			remnantsRemoved.Inc()
			continue
		}
		remnantsFound.WithLabelValues(r.Cluster, r.Kind).Inc()
		logger.Info("found remnant", "cluster", r.Cluster, "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "owner", r.Owner)
	}
}
