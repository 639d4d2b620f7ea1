package sinks

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	requests  = prometheus.NewDesc("sluice_event_sink_requests_total", "Events sent to a sink, by whether it accepted them.", []string{"sink", "accepted"}, nil)
	waiting   = prometheus.NewDesc("sluice_event_sink_waiting", "Instances, bindings, clusters and peerings with events that a sink has not accepted yet.", []string{"sink"}, nil)
	delivered = prometheus.NewDesc("sluice_event_sink_delivered_timestamp_seconds", "Time before which a sink has accepted all events.", []string{"sink"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Controller) Describe(to chan<- *prometheus.Desc) {
	to <- requests
	to <- waiting
	to <- delivered
}

// Collect implements prometheus.Collector. Replicas that do not lead send nothing, and have no metrics of it.
func (c *Controller) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, r := range c.running {
		r.mu.Lock()
		accepted, refused, left := r.accepted, r.refused, len(r.waiting)+len(r.underway)
		r.mu.Unlock()
		to <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(accepted), name, "true")
		to <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(refused), name, "false")
		to <- prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, float64(left), name)
		if until, _ := r.position(); !until.IsZero() {
			to <- deliveredTo(name, until)
		}
	}
	for name, until := range c.unusable {
		to <- deliveredTo(name, until)
	}
}

func deliveredTo(sink string, until time.Time) prometheus.Metric {
	return prometheus.MustNewConstMetric(delivered, prometheus.GaugeValue, float64(until.UnixMilli())/1000, sink)
}
