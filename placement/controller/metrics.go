package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// metrics are the metrics of placement.
type metrics struct {
	decisions  *prometheus.CounterVec
	rejections *prometheus.CounterVec
	duration   prometheus.Histogram
	deliveries *prometheus.HistogramVec
}

func newMetrics() *metrics {
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
		deliveries: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sluice_delivery_duration_seconds",
			Help:    "Time that a driver took on one member cluster, by driver and result: done, pending, refused or error.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"driver", "result"}),
	}
}

// delivered measures one call of a driver.
func (m *metrics) delivered(driver string, took time.Duration, err error) {
	result := "done"
	switch {
	case is[*delivery.PendingError](err):
		result = "pending"
	case is[*delivery.RefusedError](err):
		result = "refused"
	case err != nil:
		result = "error"
	}
	m.deliveries.WithLabelValues(driver, result).Observe(took.Seconds())
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
	m.deliveries.Describe(descriptions)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	m.decisions.Collect(values)
	m.rejections.Collect(values)
	m.duration.Collect(values)
	m.deliveries.Collect(values)
}
