package main

import (
	"errors"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-dev/sluice/internal/hub"
)

// registerProcess registers the metrics of the binary and of an embedded hub's database.
func registerProcess(registry prometheus.Registerer, h *hub.Hub) error {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "1, with the version of Sluice and of Go.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	err := registry.Register(build)
	if h.Database == nil {
		return err
	}
	return errors.Join(err,
		registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_hub_database_size_bytes", Help: "Size of the embedded hub's database.",
		}, func() float64 { size, _ := h.Database(); return float64(size) })),
		registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_hub_database_quota_bytes", Help: "Size of the embedded hub's database beyond which it accepts no more writes.",
		}, func() float64 { _, quota := h.Database(); return float64(quota) })),
	)
}
