package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// measureRequests measures how long a provision takes to be accepted.
func measureRequests(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How long does a provision take to be accepted (PUT to 202)?",
		note: "Embedded hub, no member cluster: every instance is stored, looked at, and waits for a cluster. " +
			"The clients run on the same machine. At 100 a second, requests are due whether or not those before were " +
			"answered, and latency counts from when they were due; the others send one request after the other. Looked at is how many " +
			"instances a second were accepted and had been looked at by the controller, which works beside the requests, when it had no more to do.",
		header: []string{"clients", "requests/s", "p50", "p99", "looked at/s", "bar", ""},
	}
	s, err := b.serveNew(ctx, "requests")
	if err != nil {
		return t, err
	}
	defer s.kill()
	var n atomic.Int64
	send := func(ctx context.Context) error {
		return s.provision(ctx, fmt.Sprintf("instance-%d", n.Add(1)), 1)
	}

	const perSecond = 100
	b.say("requests: %d a second", perSecond)
	l := openLoop(ctx, perSecond, pick(b, 20*time.Second, 200*time.Millisecond), send)
	looked, err := s.lookedAt(ctx, l)
	if err != nil {
		return t, err
	}
	const bar = 15 * time.Millisecond
	t.add(fmt.Sprintf("%d a second", perSecond), fmt.Sprintf("%.0f", l.rate()), milliseconds(l.median()), milliseconds(l.quantile(0.99)), looked,
		"p99 ≤ "+milliseconds(bar), verdict(l.quantile(0.99) <= bar))
	for _, clients := range []int{1, 10, 100, 400} {
		b.say("requests: %d clients", clients)
		l := closedLoop(ctx, clients, pick(b, 5*time.Second, 200*time.Millisecond), send)
		if looked, err = s.lookedAt(ctx, l); err != nil {
			return t, err
		}
		t.add(fmt.Sprint(clients), fmt.Sprintf("%.0f", l.rate()), milliseconds(l.median()), milliseconds(l.quantile(0.99)), looked, "", "")
	}
	return t, nil
}

// lookedAt waits after a load until the controller of instances has no more to do, and returns the
// rate at which it has come through them.
func (s *sluice) lookedAt(ctx context.Context, l load) (string, error) {
	if l.err != nil {
		return "", l.err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := poll(ctx, 20*time.Millisecond, func(ctx context.Context) error {
		for _, of := range []string{`workqueue_depth{controller="instance"`, `controller_runtime_active_workers{controller="instance"`} {
			if n, err := s.metric(ctx, of); err != nil || n > 0 {
				return errors.Join(err, fmt.Errorf("%s} is %.0f", of, n))
			}
		}
		return nil
	})
	return fmt.Sprintf("%.0f", float64(len(l.latencies))/(l.took+time.Since(began)).Seconds()), err
}

// measureCatalog measures how often the catalog can be fetched.
func measureCatalog(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How often can the catalog be fetched?",
		note:     "32 clients on the same machine, each sending one request after the other; half of the work is theirs.",
		header:   []string{"GET /v2/catalog", "requests/s", "p50", "p99", "bar", ""},
	}
	s, err := b.serveNew(ctx, "catalog")
	if err != nil {
		return t, err
	}
	defer s.kill()
	tag, err := s.fetchCatalog(ctx, "", http.StatusOK)
	if err != nil {
		return t, err
	}
	if tag == "" {
		return t, errors.New("the catalog has no ETag")
	}
	const bar = 5000
	for _, kind := range []struct {
		name, tag string
		status    int
	}{{"200", "", http.StatusOK}, {"304, by If-None-Match", tag, http.StatusNotModified}} {
		b.say("catalog: %s", kind.name)
		l := closedLoop(ctx, 32, pick(b, 5*time.Second, 200*time.Millisecond), func(ctx context.Context) error {
			_, err := s.fetchCatalog(ctx, kind.tag, kind.status)
			return err
		})
		if l.err != nil {
			return t, l.err
		}
		t.add(kind.name, fmt.Sprintf("%.0f", l.rate()), milliseconds(l.median()), milliseconds(l.quantile(0.99)),
			fmt.Sprintf("≥ %d/s", bar), verdict(l.rate() >= bar))
	}
	return t, nil
}

// fetchCatalog fetches the catalog and returns its ETag.
func (s *sluice) fetchCatalog(ctx context.Context, tag string, want int) (string, error) {
	r, err := s.request(ctx, http.MethodGet, "/v2/catalog", nil)
	if err != nil {
		return "", err
	}
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != want {
		return "", fmt.Errorf("GET /v2/catalog: %s, want %d", response.Status, want)
	}
	return response.Header.Get("ETag"), nil
}
