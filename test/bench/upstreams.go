package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// upstreamOffering sells a plan of the first broker.
const upstreamOffering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: upstream
  namespace: sluice
spec:
  id: upstream
  name: upstream
  description: What another broker sells
  plans:
    - id: other
      name: other
      description: A plan of another broker
      kind: upstream
      upstream:
        candidates: [{broker: broker-0, service: service, plan: plan-0}]
`

// upstream is a broker that carries out everything at once, and sells 50 plans.
type upstream struct {
	*httptest.Server
	// read counts the fetches of its catalog.
	read atomic.Int64
}

func newUpstream(number int) *upstream {
	u := &upstream{}
	var plans []string
	for i := range 50 {
		plans = append(plans, fmt.Sprintf(`{"id": "%d-%d", "name": "plan-%d", "description": "A plan."}`, number, i, i))
	}
	catalog := fmt.Sprintf(`{"services": [{"id": "service-%d", "name": "service", "description": "A service.", "bindable": true, "plans": [%s]}]}`, number, strings.Join(plans, ", "))
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := "{}"
		switch {
		case r.URL.Path == "/v2/catalog":
			u.read.Add(1)
			body = catalog
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(body))
	}))
	return u
}

// measureUpstreams measures what Sluice adds to a broker behind it, and how long it takes to know many of them.
func measureUpstreams(ctx context.Context, b *bench) (table, error) {
	count := pick(b, 100, 2)
	t := table{
		question: "What does Sluice add to a broker behind it?",
		note: fmt.Sprintf("%d brokers on this machine with 50 plans each, which carry out everything at once. An order goes to one of them, one after the "+
			"other. A watch of the hub says when it is delivered, and one poll then has to say so, too: polls every 2 ms would take a core. Known is the time from /readyz until all catalogs have been read.", count),
		header: []string{"", "p50", "p99", "bar", ""},
	}
	s, err := b.serveNew(ctx, "upstreams")
	if err != nil {
		return t, err
	}
	defer func() { s.kill() }()
	brokers := make([]*upstream, count)
	for i := range brokers {
		brokers[i] = newUpstream(i)
		defer brokers[i].Close()
	}
	if err := s.register(ctx, b, brokers); err != nil {
		return t, err
	}
	s.kill()
	for _, u := range brokers {
		u.read.Store(0)
	}
	if s, err = b.serve(ctx, s.dataDir); err != nil {
		return t, err
	}
	began := time.Now()
	err = poll(ctx, 5*time.Millisecond, func(context.Context) error {
		for i, u := range brokers {
			if u.read.Load() == 0 {
				return fmt.Errorf("the catalog of broker %d has not been read", i)
			}
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	known := time.Since(began)
	const most, bar = 2 * time.Second, 20 * time.Millisecond
	t.add(fmt.Sprintf("%d brokers known after a restart", count), milliseconds(known), "", "≤ "+milliseconds(most), verdict(known <= most))

	if err := s.operate(ctx, strings.NewReader(upstreamOffering), "catalog", "apply", "-f", "-"); err != nil {
		return t, err
	}
	var n atomic.Int64
	const body = `{"service_id":"upstream","plan_id":"other","organization_guid":"o","space_guid":"s"}`
	direct := closedLoop(ctx, 1, pick(b, 5*time.Second, 200*time.Millisecond), func(ctx context.Context) error {
		path := fmt.Sprintf("/v2/service_instances/order-%d?accepts_incomplete=true", n.Add(1))
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, brokers[0].URL+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		return s.send(r, http.StatusCreated, nil)
	})
	c, err := s.hub()
	if err != nil {
		return t, err
	}
	changes, err := c.Watch(ctx, &v1alpha1.ServiceInstanceList{}, client.InNamespace("sluice"))
	if err != nil {
		return t, err
	}
	defer changes.Stop()
	through := closedLoop(ctx, 1, pick(b, 10*time.Second, 200*time.Millisecond), func(ctx context.Context) error {
		id := fmt.Sprintf("order-%d", n.Add(1))
		if err := s.order(ctx, id, body); err != nil {
			return err
		}
		for event := range changes.ResultChan() {
			if i, ok := event.Object.(*v1alpha1.ServiceInstance); ok && i.Spec.InstanceID == id && i.IsSettled() {
				return s.awaitOnce(ctx, id)
			}
		}
		return errors.New("the hub's watch has ended")
	})
	for _, l := range []load{direct, through} {
		if l.err != nil {
			return t, l.err
		}
	}
	added := through.median() - direct.median()
	t.add("an order at the broker", milliseconds(direct.median()), milliseconds(direct.quantile(0.99)), "", "")
	t.add("an order through Sluice", milliseconds(through.median()), milliseconds(through.quantile(0.99)), "", "")
	t.add("added", milliseconds(added), "", "p50 ≤ "+milliseconds(bar), verdict(added <= bar))
	return t, nil
}

// register registers brokers, a few at a time.
func (s *sluice) register(ctx context.Context, b *bench, brokers []*upstream) error {
	password := filepath.Join(b.folder, "upstream.password")
	if err := os.WriteFile(password, []byte("password"), 0o600); err != nil {
		return err
	}
	errs := make(chan error, len(brokers))
	var registrations sync.WaitGroup
	places := make(chan struct{}, 4)
	for i, u := range brokers {
		registrations.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs <- s.operate(ctx, nil, "broker", "add", fmt.Sprintf("broker-%d", i), "--url", u.URL, "--address", "127.0.0.0/8",
				"--username", "sluice", "--password-file", password, "--wait", "0")
		})
	}
	registrations.Wait()
	for range brokers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
