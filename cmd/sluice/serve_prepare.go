package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/secretfile"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/placement/external"
	selfdescribed "github.com/sluice-dev/sluice/selfdescription/controller"
	"github.com/sluice-dev/sluice/selfdescription/draft"
)

// prepared are the parts of `sluice serve` that are made of its flags alone.
type prepared struct {
	scorer     controller.Scorer     // nil without --scorer-url
	forecaster *external.Forecaster  // nil without --forecast-url
	charts     *store.Store          // nil without --charts
	target     controller.Target     // nil without --backup-target
	did        string                // of the broker; "" without --public-url
	runBy      *draft.Draft          // nil without --describe
	measure    selfdescribed.Measure // empty without --vantage
}

// probed returns the receiver of the probes of member clusters; nil if nothing is measured.
func (p *prepared) probed() func(cluster string, at time.Time, latency time.Duration, err error) {
	if p.measure.Probes == nil {
		return nil
	}
	return p.measure.Probes.Probed
}

// checkPorts checks that the addresses can be listened on, so that no hub starts for nothing. If another process serves the
// data folder, the hub says so.
func (f *serveFlags) checkPorts(ctx context.Context) error {
	if hub.Holder(f.dataDir) != 0 {
		return nil
	}
	for _, one := range []struct{ flag, address string }{
		{"--listen", f.listener.address}, {"--metrics-listen", f.metricsListen}, {"--resources-listen", f.resources.address},
	} {
		if one.address == "" || one.address == "0" {
			continue
		}
		socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", one.address)
		if err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
		if err := socket.Close(); err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
	}
	return nil
}

// prepare checks the flags, and the files that they name, so that nothing has started if one is wrong.
func (f *serveFlags) prepare() (p prepared, err error) {
	if f.scorer.URL != "" {
		if p.scorer, err = external.NewScorer(f.scorer); err != nil {
			return p, fmt.Errorf("--scorer-url: %w", err)
		}
	}
	if f.forecast.URL != "" {
		if p.forecaster, err = external.NewForecaster(f.forecast); err != nil {
			return p, fmt.Errorf("--forecast-url: %w", err)
		}
	}
	if p.charts, err = f.charts.open(); err != nil {
		return p, err
	}
	if f.backupTarget != "" {
		if p.target, err = secretfile.Open("the backup target", f.backupTarget, workload.ParseTarget); err != nil {
			return p, fmt.Errorf("--backup-target: %w", err)
		}
	}
	if p.did, err = f.trust.name(); err != nil {
		return p, err
	}
	if p.runBy, err = f.trust.organisation(p.did); err != nil {
		return p, err
	}
	if f.platforms != "" {
		if _, err := broker.LoadPlatforms(f.platforms); err != nil {
			return p, fmt.Errorf("--platforms: %w", err)
		}
	}
	if f.leaseDuration < 2*time.Second || f.leaseDuration%time.Second != 0 {
		return p, fmt.Errorf("--lease-duration %s: want whole seconds, at least two", f.leaseDuration)
	}
	p.measure = f.trust.measured(f.probeEvery)
	return p, errors.Join(f.trust.checkMeasure(p.measure), f.backups.check(f.dataDir), f.listener.check(), f.resources.check(&f.listener))
}
