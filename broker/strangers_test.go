package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func from(address string) sending { return func(r *http.Request) { r.RemoteAddr = address + ":4711" } }

func wrong(r *http.Request) { r.SetBasicAuth("cf", "wrong") }

// TestGuessersAreSlowed: an address that guesses must wait; other addresses, and callers
// with credentials that were right earlier from the same address, need not.
func TestGuessersAreSlowed(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	f := newFixture(t, func(o *Options) { o.Clock = now })
	const proxy, elsewhere = "192.0.2.1", "192.0.2.2"
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, from(proxy))
	for range wrongBurst {
		f.refused(http.StatusUnauthorized, "Unauthorized", "GET", "/v2/catalog", nil, wrong, from(proxy))
	}
	for range 2000 {
		f.refused(http.StatusTooManyRequests, "TooManyFailures", "GET", "/v2/catalog", nil, wrong, from(proxy))
	}
	late := f.refused(http.StatusTooManyRequests, "TooManyFailures", "GET", "/v2/catalog", nil, asK8s, from(proxy))
	if late.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", late.header.Get("Retry-After"))
	}
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, from(proxy))
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, asK8s, from(elsewhere))
	if lines := strings.Count(f.log.String(), "TooManyFailures"); lines > refusalsLogged+10 {
		t.Errorf("%d lines in the log", lines)
	}
	now.SetTime(now.Now().Add(time.Second / wrongPerSecond))
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, asK8s, from(proxy))
}

// TestRefusalsAreCounted: refusals that are not logged are counted in the next line.
func TestRefusalsAreCounted(t *testing.T) {
	s := &strangers{logged: rate.Sometimes{Every: 3}}
	var lines []string
	for range 7 {
		var attributes []slog.Attr
		s.record(&attributes, func() { lines = append(lines, fmt.Sprint(attributes)) })
	}
	if want := []string{"[]", "[more like this=2]", "[more like this=2]"}; !slices.Equal(lines, want) {
		t.Errorf("logged are %v, want %v", lines, want)
	}
}

// countingHub counts list requests, each of which takes a moment.
type countingHub struct {
	client.WithWatch
	lists atomic.Int64
}

func (h *countingHub) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	h.lists.Add(1)
	return h.WithWatch.List(ctx, list, options...)
}

// TestReadinessIsLookedUpOnceASecond, however many ask.
func TestReadinessIsLookedUpOnceASecond(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	hub := &countingHub{}
	f := newFixture(t, func(o *Options) { hub.WithWatch, o.Client, o.Clock = o.Client, hub, now })
	for range 3 {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				answer := httptest.NewRecorder()
				f.handler.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
				if answer.Code != http.StatusOK {
					t.Errorf("not ready: %s", answer.Body)
				}
			})
		}
		all.Wait()
		now.SetTime(now.Now().Add(time.Second))
	}
	if n := hub.lists.Load(); n < 3 || n > 9 {
		t.Errorf("%d looks at the hub in three seconds", n)
	}
}
