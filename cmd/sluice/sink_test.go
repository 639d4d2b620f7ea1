package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// TestSink: a server that an operator names is told what happens, signed with the key that the operator was given, also
// what it refused before Sluice was killed.
func TestSink(t *testing.T) {
	t.Parallel()
	s := serveAnother(t, "sluice")
	offering := filepath.Join(s.dir, "rooms.yaml")
	if err := os.WriteFile(offering, []byte(`apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: rooms}
spec:
  id: rooms
  name: rooms
  description: Rooms
  plans:
  - {id: small, name: small, description: A small one, kind: resources, resources: {limits: {cpu: "1"}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("catalog", "apply", "-f", offering)

	var mu sync.Mutex
	var signer *standardwebhooks.Webhook
	var told []string
	accepts := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct{ Type, Subject string }
		_ = json.Unmarshal(body, &e)
		mu.Lock()
		defer mu.Unlock()
		if !accepts || signer.Verify(body, r.Header) != nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if one := e.Subject + " " + e.Type; !slices.Contains(told, one) {
			told = append(told, one)
		}
	}))
	t.Cleanup(server.Close)

	if out, err := s.sluice("sink", "add", "all", "--url", server.URL, "--address", "127.0.0.0/8", "--filter", "event.tpe == 'Ordered'"); err == nil || !strings.Contains(err.Error(), "sink all: --filter: no such key: tpe") {
		t.Errorf("a filter that reads no field: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--nats", "nats://10.0.0.1:4222", "--subject", "sluice.events"); err == nil || !strings.Contains(err.Error(), "servers without tls:// are only for private networks, which addresses lists") {
		t.Errorf("plain NATS: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--nats", "tls://nats.example:4222", "--subject", "sluice.events", "--url", "https://sink.example"); err == nil || !strings.Contains(err.Error(), "exactly one of url, nats, kafka and kubernetesEvents says where events are sent") {
		t.Errorf("two destinations: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--nats", "tls://nats.example:4222", "--subject", "sluice.events", "--user", "sluice"); err == nil || !strings.Contains(err.Error(), "a user needs a key, which is the password") {
		t.Errorf("a user without a password: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--kafka", "10.0.0.1:9092", "--topic", "events", "--plaintext"); err == nil || !strings.Contains(err.Error(), "brokers without TLS are only for private networks, which addresses lists") {
		t.Errorf("plain Kafka: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--url", server.URL, "--address", "127.0.0.0/8", "--user", "sluice"); err == nil || !strings.Contains(err.Error(), "spec.nats.servers") {
		t.Errorf("a user of nothing: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--url", server.URL); err == nil || !strings.Contains(err.Error(), "a url with http is only for private networks, which addresses lists") {
		t.Errorf("plain http: %v\n%s", err, out)
	}
	if out, err := s.sluice("sink", "add", "all", "--kubernetes"); err == nil || !strings.Contains(err.Error(), "this hub is embedded in Sluice and has no Events") {
		t.Errorf("Kubernetes Events of an embedded hub: %v %s", err, out)
	}
	out := s.must("sink", "add", "all", "--url", server.URL, "--address", "127.0.0.0/8")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	verifier, err := standardwebhooks.NewWebhook(lines[len(lines)-1])
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mu.Lock()
	signer = verifier
	mu.Unlock()

	order := func(id string) {
		t.Helper()
		code, answer := s.send(t, http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true", `{"service_id": "rooms", "plan_id": "small", "organization_guid": "o", "space_guid": "s"}`)
		if code != http.StatusAccepted {
			t.Fatalf("the order is answered %d %s", code, answer)
		}
	}
	order("before")
	s.until("the sink is not ready", func(context.Context) error {
		if out := s.must("sink", "list"); !strings.Contains(out, "no: it does not accept events: it answered 403 Forbidden") {
			return errors.New(out)
		}
		return nil
	})
	if err := s.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.process.Wait()
	s.start()
	order("after")
	mu.Lock()
	accepts = true
	mu.Unlock()
	want := []string{"after dev.sluice.instance.failed", "after dev.sluice.instance.ordered", "before dev.sluice.instance.failed", "before dev.sluice.instance.ordered"}
	s.until("everything is told", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(told)
		if !slices.Equal(told, want) {
			return fmt.Errorf("told %q, want %q", told, want)
		}
		return nil
	})
	s.until("the sink is ready", func(context.Context) error {
		if out := s.must("sink", "list"); !strings.Contains(out, " yes ") {
			return errors.New(out)
		}
		return nil
	})
	s.must("sink", "remove", "all")
	if out := s.must("sink", "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("after the removal: %s", out)
	}
}
