package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/placement"
)

// metrics are the metrics of placement.
type metrics struct {
	decisions  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	duration   prometheus.Histogram
	inventory  *placement.Inventory
}

var (
	reservedRatio = prometheus.NewDesc("sluice_cluster_reserved_ratio",
		"Reserved share of what a member cluster has allocatable.", []string{"cluster", "resource"}, nil)
	clusterReady = prometheus.NewDesc("sluice_cluster_ready",
		"1 when the member cluster's API server answers, else 0.", []string{"cluster"}, nil)
	waitingInstances = prometheus.NewDesc("sluice_placement_waiting_instances",
		"Instances that wait for a cluster to take them.", nil, nil)
)

func newMetrics(inventory *placement.Inventory) *metrics {
	return &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_placement_decisions_total",
			Help: "Placement decisions by result: placed or unplaceable.",
		}, []string{"result"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_placement_rejections_total",
			Help: "Member clusters that were not chosen in decisions, by reason.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_placement_decision_duration_seconds",
			Help:    "Time to decide and reserve, waiting for other decisions included.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 2, 14), // 10 µs to 82 ms
		}),
		inventory: inventory,
	}
}

// register registers these metrics; those of an earlier manager in the same process are
// dropped.
func (m *metrics) register(registry prometheus.Registerer) error {
	err := registry.Register(m)
	if earlier := (prometheus.AlreadyRegisteredError{}); errors.As(err, &earlier) {
		registry.Unregister(earlier.ExistingCollector)
		err = registry.Register(m)
	}
	return err
}

// decided counts one decision, and the clusters that it rejects.
func (m *metrics) decided(took time.Duration, decision placement.Decision, err error) {
	result := "placed"
	if err != nil {
		result = "unplaceable"
	}
	if why := (*placement.UnplaceableError)(nil); errors.As(err, &why) {
		decision = why.Decision
	}
	for _, r := range decision.Rejections {
		m.rejections.WithLabelValues(string(r.Reason)).Add(float64(r.Count))
	}
	m.decisions.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descriptions chan<- *prometheus.Desc) {
	m.decisions.Describe(descriptions)
	m.rejections.Describe(descriptions)
	m.duration.Describe(descriptions)
	descriptions <- reservedRatio
	descriptions <- clusterReady
	descriptions <- waitingInstances
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	m.decisions.Collect(values)
	m.rejections.Collect(values)
	m.duration.Collect(values)
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		values <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for c, reserved := range m.inventory.Snapshot().Utilisation() {
		ready := 0.0
		if c.Ready {
			ready = 1
		}
		gauge(clusterReady, ready, c.Name)
		for name, amount := range reserved {
			gauge(reservedRatio, float64(amount)/float64(c.Allocatable[name]), c.Name, string(name))
		}
	}
	gauge(waitingInstances, float64(m.inventory.Waiting()))
}
