package broker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// metrics of the broker. Their labels have few values: names of routes, platforms,
// offerings and plans, never ids.
type metrics struct {
	requests   *prometheus.HistogramVec
	operations *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sluice_broker_request_duration_seconds",
			Help:    "Time to answer OSB requests, by route, platform and HTTP status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"route", "platform", "code"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_broker_operations_total",
			Help: "Operations accepted by this replica, by service offering, plan and type; sluice_operation_duration_seconds has their ends.",
		}, []string{"service", "plan", "operation"}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.operations} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) answered(route, platform string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, platform, strconv.Itoa(status)).Observe(took.Seconds())
}

func (m *metrics) accepted(plan *catalog.Plan, operation v1alpha1.OperationType) {
	m.operations.WithLabelValues(plan.Offering.Name, plan.Name, string(operation)).Inc()
}
