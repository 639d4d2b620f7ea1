package external

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/placement/replay"
)

// Forecaster asks a service outside Sluice what will be ordered, once a minute. Its answer is an order book
// (replay.ParseOrders) whose times count from when it is asked. A service that is down changes nothing: the orders of
// its last answer are expected until their times have passed.
type Forecaster struct {
	service *service
	// Clock; nil means the real one.
	Clock clock.WithTicker

	mu     sync.Mutex
	latest Forecast
}

// Forecast holds the latest answer of a forecaster.
type Forecast struct {
	// Orders that are expected, at times after At.
	Orders []replay.Booked
	At     time.Time
	// Problem with a newer answer; nil if there is none.
	Problem error
}

const (
	forecastEvery   = time.Minute
	forecastTimeout = 10 * time.Second
	// mostExpected bounds the orders of a forecast.
	mostExpected = 10_000
)

// NewForecaster returns a forecaster that GETs its URL. The error names the wrong option.
func NewForecaster(o Options) (*Forecaster, error) {
	service, err := newService("forecaster", o, forecastTimeout)
	if err != nil {
		return nil, err
	}
	return &Forecaster{service: service, Clock: clock.RealClock{}}, nil
}

// NeedLeaderElection returns true: only the leader makes clusters.
func (*Forecaster) NeedLeaderElection() bool { return true }

// Start asks until the context ends.
func (f *Forecaster) Start(ctx context.Context) error {
	tick := f.Clock.NewTicker(forecastEvery)
	defer tick.Stop()
	for {
		f.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

func (f *Forecaster) look(ctx context.Context) {
	at := f.Clock.Now()
	orders, err := f.ask(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.latest = Forecast{Orders: orders, At: at}
		return
	}
	if f.latest.Problem == nil {
		log.FromContext(ctx).Info("The forecaster does not answer", "error", err.Error())
	}
	f.latest.Problem = err
}

func (f *Forecaster) ask(ctx context.Context) ([]replay.Booked, error) {
	data, err := f.service.ask(ctx, http.MethodGet, "", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the forecaster: %w", err)
	}
	orders, err := replay.ParseOrders(data, mostExpected)
	if err != nil {
		return nil, fmt.Errorf("the forecaster's order book: %w", err)
	}
	return orders, nil
}

// Latest returns the latest forecast. It does not block.
func (f *Forecaster) Latest() Forecast {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}
