package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// sellBehind sells the plan of docs/brokers.md from two brokers. The first is the cheaper; pass shows its dashboards.
func (s *served) sellBehind(t *testing.T, first, second http.Handler, pass bool) {
	t.Helper()
	s.register(t, map[string]http.Handler{"eu": first, "near": second})
	s.offer(t, pass)
	s.until("it sells", func(ctx context.Context) error {
		status, body, err := s.ask(ctx, "GET", "/v2/catalog", "")
		if err == nil && !strings.Contains(body, planID) {
			err = fmt.Errorf("the catalog is %d %s", status, body)
		}
		return err
	})
}

func (s *served) offer(t *testing.T, pass bool) {
	t.Helper()
	offering := filepath.Join(s.dir, "offering.yaml")
	if err := os.WriteFile(offering, fmt.Appendf(nil, `apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: mysql}
spec:
  id: %s
  name: mysql
  description: MySQL of several providers
  plans:
  - id: %s
    name: small
    description: One database
    kind: upstream
    upstream:
      candidates:
      - {broker: eu, service: name-of-service, plan: small, passDashboard: %t, price: {currency: EUR, perMonth: "1"}}
      - {broker: near, service: name-of-service, plan: small, passDashboard: true, price: {currency: EUR, perMonth: "100"}}
      score: {price: 1}
`, serviceID, planID, pass), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must("catalog", "apply", "-f", offering)
}

// TestDashboardsOfBrokers: the first answer to an order has the dashboard_url that the broker gives, and later answers
// have the one that an update gives. One that cannot be a web page is not passed on; the operator reads so once, and
// the order succeeds. An order that goes to the next candidate has that one's dashboard, and a plan that does not pass
// dashboards on any more shows none.
func TestDashboardsOfBrokers(t *testing.T) {
	t.Parallel()
	s := serveAnother(t, "sluice")
	eu, near := newGate(&suitetest.Broker{}), newGate(&suitetest.Broker{})
	s.sellBehind(t, eu, near, true)
	answers := func(method string, status int, dashboard any) {
		body, err := json.Marshal(map[string]any{"dashboard_url": dashboard})
		if err != nil {
			t.Fatal(err)
		}
		eu.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method {
				return false
			}
			w.WriteHeader(status)
			_, _ = w.Write(body)
			return true
		})
	}
	order := func(id, parameters string) string {
		t.Helper()
		return s.answered(t, "PUT", id, `{"service_id": "`+serviceID+`", "plan_id": "`+planID+`", "organization_guid": "o", "space_guid": "s", "parameters": `+parameters+`}`)
	}
	const its = "https://eu.example/databases/1?token=a%20b#top"
	answers("PUT", http.StatusAccepted, its)
	first := order("good", `{"size": 1}`)
	if at := s.dashboard(t, "good"); first != its || at != its {
		t.Errorf("the order is answered with dashboard %q, and the instance has %q", first, at)
	}
	const moved = "http://eu.example:8080/moved" // as the broker itself has http
	answers("PATCH", http.StatusAccepted, moved)
	s.answered(t, "PATCH", "good", `{"service_id": "`+serviceID+`", "parameters": {"size": 2}}`)
	if at := s.dashboard(t, "good"); at != moved {
		t.Errorf("after an update the dashboard is %q", at)
	}
	eu.set(nil) // the broker's answers to updates have no dashboard_url
	s.answered(t, "PATCH", "good", `{"service_id": "`+serviceID+`", "parameters": {"size": 4}}`)
	if at := s.dashboard(t, "good"); at != moved {
		t.Errorf("an update that says nothing of the dashboard makes it %q", at)
	}
	answers("PATCH", http.StatusAccepted, "javascript:alert(1)")
	if at := s.answered(t, "PATCH", "good", `{"service_id": "`+serviceID+`", "parameters": {"size": 3}}`); at != moved {
		t.Errorf("an update is answered with dashboard %q", at)
	}
	if at := s.dashboard(t, "good"); at != moved {
		t.Errorf("a dashboard that is ignored replaces the one before: %q", at)
	}

	for i, row := range []struct {
		dashboard any
		says      string
	}{
		{"javascript:alert(1)", "it does not begin with https://"},
		{"/databases/1", "it does not begin with https://"},
		{"https://eu.example/" + strings.Repeat("x", 10_000), "it is 10019 bytes long, and at most 2048 are allowed"},
		{"https://eu.example/\u0000\r\nSet-Cookie: a=b", "it has characters that a URL cannot have (RFC 3986)"},
		{"https://eu.example@evil.example/", "it has a user"},
		{map[string]any{"url": its}, "it is no string"},
	} {
		answers("PUT", http.StatusAccepted, row.dashboard)
		id := fmt.Sprint("bad-", i)
		first := order(id, `{"size": 1}`)
		if at := s.dashboard(t, id); first != "" || at != "" {
			t.Errorf("%.40v: the order is answered with dashboard %q, and the instance has %q", row.dashboard, first, at)
		}
		if told := s.must("instance", "describe", id, "--platform", "first"); strings.Count(told, "broker eu: its dashboard_url is ignored: "+row.says) != 1 {
			t.Errorf("%.40v: the operator reads\n%s", row.dashboard, told)
		}
	}

	answers("PUT", http.StatusBadRequest, its)
	const of = "https://dashboard.example.com/instance" // of suitetest.Broker
	if first := order("next", `{"size": 1}`); first != of || s.dashboard(t, "next") != of {
		t.Errorf("an order that goes to the next candidate is answered with dashboard %q", first)
	}
	s.offer(t, false)
	s.until("the dashboard is withdrawn", func(context.Context) error {
		if at := s.dashboard(t, "good"); at != "" {
			return fmt.Errorf("it is %s", at)
		}
		return nil
	})
	if told := s.must("instance", "describe", "good", "--platform", "first"); !strings.Contains(told, moved) {
		t.Errorf("the operator reads\n%s", told)
	}
}

// answered sends a request that starts an operation of an instance, waits until that has succeeded, and returns the
// dashboard_url of the request's answer.
func (s *served) answered(t *testing.T, method, id, body string) string {
	t.Helper()
	path := "/v2/service_instances/" + id
	status, answer := s.send(t, method, path+"?accepts_incomplete=true", body)
	var said struct {
		DashboardURL string `json:"dashboard_url"`
	}
	if err := json.Unmarshal([]byte(answer), &said); status != http.StatusAccepted || err != nil {
		t.Fatalf("%s %s is answered %d %s", method, id, status, answer)
	}
	s.until("it is carried out", func(ctx context.Context) error {
		status, body, err := s.ask(ctx, "GET", path+"/last_operation", "")
		if err == nil && (status != http.StatusOK || !strings.Contains(body, `"succeeded"`)) {
			err = fmt.Errorf("it is %d %s", status, body)
		}
		return err
	})
	return said.DashboardURL
}
