package external

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// forecastServer is a fake forecaster outside Sluice.
func forecastServer(t *testing.T, answer http.HandlerFunc) (*Forecaster, *clocktesting.FakeClock) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	forecaster, err := NewForecaster(Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	fake := clocktesting.NewFakeClock(time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC))
	forecaster.Clock = fake
	return forecaster, fake
}

// It is asked at once and then every minute, until its context ends; its times count from the question.
func TestAForecasterIsAskedEveryMinute(t *testing.T) {
	asked := make(chan string)
	forecaster, clock := forecastServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("at,plan,count\n10m,small,2\n"))
		asked <- r.Method
	})
	began := clock.Now()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- forecaster.Start(ctx) }()
	if method := <-asked; method != http.MethodGet {
		t.Errorf("it is asked by %s", method)
	}
	for forecaster.Latest().At.IsZero() {
		time.Sleep(time.Millisecond)
	}
	if f := forecaster.Latest(); len(f.Orders) != 2 || time.Duration(f.Orders[1].At) != 10*time.Minute || !f.At.Equal(began) || f.Problem != nil {
		t.Errorf("it has said %+v", f)
	}
	clock.Step(59 * time.Second)
	select {
	case <-asked:
		t.Error("it is asked before a minute has passed")
	default:
	}
	clock.Step(time.Second)
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What cannot be used leaves the last answer as it is, and says why.
func TestAForecasterThatFails(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"an error":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "it answers 418"},
		"no order book":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}\n")) }, `the forecaster's order book: line 1: column "{}"`},
		"too many orders": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plan,count\na,9999\nb,2\n")) }, "line 3: with it there are more than 10000 orders"},
		"too many bytes": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("plan\n" + strings.Repeat("#\n", maxAnswer/2)))
		}, "its answer is longer than 1048576 bytes"},
		"another address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://localhost/", http.StatusFound)
		}, "it answers 302"},
	} {
		t.Run(name, func(t *testing.T) {
			var fails atomic.Bool
			forecaster, clock := forecastServer(t, func(w http.ResponseWriter, r *http.Request) {
				if fails.Load() {
					row.answer(w, r)
					return
				}
				_, _ = w.Write([]byte("plan\nsmall\n"))
			})
			forecaster.look(t.Context())
			before := forecaster.Latest()
			clock.Step(time.Minute)
			fails.Store(true)
			forecaster.look(t.Context())
			after := forecaster.Latest()
			if after.Problem == nil || !strings.Contains(after.Problem.Error(), row.want) || len(after.Orders) != 1 || !after.At.Equal(before.At) {
				t.Errorf("it has said %+v, want %q", after, row.want)
			}
			fails.Store(false)
			forecaster.look(t.Context())
			if f := forecaster.Latest(); f.Problem != nil || !f.At.Equal(clock.Now()) {
				t.Errorf("when it answers again, it has said %+v", f)
			}
		})
	}
}
