package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestBrokersWithDefects: a broker that carries out what it is asked for, and answers something else, gets the
// order first, because it is cheaper. The order ends at the other broker, or there if the defect passes; the
// operator reads which broker did what wrong, the consumer reads no names, and nothing is left at either.
func TestBrokersWithDefects(t *testing.T) {
	t.Parallel()
	s := serveAnother(t, "sluice")
	eu, near := newGate(&suitetest.Broker{}), newGate(&suitetest.Broker{})
	s.register(t, map[string]http.Handler{"eu": eu, "near": near})
	offering := filepath.Join(s.dir, "offering.yaml")
	if err := os.WriteFile(offering, []byte(`apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: mysql}
spec:
  id: `+serviceID+`
  name: mysql
  description: MySQL of several providers
  plans:
  - id: `+planID+`
    name: small
    description: One database
    kind: upstream
    upstream:
      candidates:
      - {broker: eu, service: name-of-service, plan: small, parameters: &given {size: "${size(parameters.token)}"}, price: {currency: EUR, perMonth: "1"}}
      - {broker: near, service: name-of-service, plan: small, parameters: *given, price: {currency: EUR, perMonth: "100"}}
      score: {price: 1}
    schemas:
      instanceCreate: {type: object, properties: {token: {type: string, writeOnly: true}}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.offers(offering, planID)
	const polls = "last_operation"
	for i, row := range []struct {
		name, method, path string
		status             int
		body               string
		times              int    // that it answers this; 0 means always
		says               string // of the broker to the operator; "" if the order stays there
	}{
		{"fails", "PUT", "", 500, `{"description": "no disk"}`, 0, "provision: 500 Internal Server Error: no disk"},
		{"refuses", "PUT", "", 400, `{"description": "no room"}`, 0, "provision: 400 Bad Request: no room"},
		{"no JSON", "PUT", "", 201, `<html>`, 0, "201 Created, with a body that is not OSB"},
		{"an array", "PUT", "", 202, `[]`, 0, "want an object"},
		{"a wrong type", "PUT", "", 202, `{"operation": {"id": 1}}`, 0, "with a body that is not OSB"},
		{"a huge body", "PUT", "", 202, `{"operation": "` + strings.Repeat("x", 2<<20) + `"}`, 0, "longer than 1048576 bytes"},
		{"a deep body", "PUT", "", 202, `{"x":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`, 0, "nested more than 64 levels"},
		{"an odd success", "PUT", "", 203, `{}`, 0, "203 Non-Authoritative Information"},
		{"a redirect", "PUT", "", 307, ``, 0, "307 Temporary Redirect"},
		{"gone", "PUT", "", 410, `{}`, 0, "provision: 410 Gone"},
		{"not found", "PUT", "", 404, `not here`, 0, "provision: 404 Not Found"},
		{"needs an app", "PUT", "", 422, `{"error": "RequiresApp"}`, 0, "422 Unprocessable Entity RequiresApp"},
		{"no operation", "PUT", "", 202, `{}`, 0, ""},
		{"busy for a moment", "PUT", "", 503, ``, 2, ""},
		{"fails later", "GET", polls, 200, `{"state": "failed", "description": "no licence"}`, 0, "broker eu: no licence"},
		{"gone while it is made", "GET", polls, 410, `{}`, 0, "it does not know the instance any more"},
		{"an unknown operation", "GET", polls, 404, `{}`, 1, ""},
		{"cannot be polled", "GET", polls, 422, `{}`, 1, ""},
		{"an odd state", "GET", polls, 200, `{"state": {}}`, 1, ""},
		{"does not delete", "DELETE", "", 500, `{}`, 2, ""},
		{"deletes asynchronously without a word", "DELETE", "", 202, ``, 1, ""},
	} {
		answered := 0
		eu.set(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != row.method || !strings.HasSuffix(r.URL.Path, row.path) || row.times > 0 && answered == row.times {
				return false
			}
			answered++
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(row.status)
			_, _ = w.Write([]byte(row.body))
			return true
		})
		id := fmt.Sprint("order-", i)
		s.order(t, id, `{"token": "hunter2"}`)
		told := s.must("instance", "describe", id, "--platform", "first")
		at, empty := near, eu
		if row.says == "" {
			at, empty = eu, near
		}
		if here := at.left(); len(here) != 1 {
			t.Errorf("%s: the order went elsewhere:\n%s", row.name, told)
		}
		if row.says != "" && (!strings.Contains(told, "by eu, ") || !strings.Contains(told, row.says)) {
			t.Errorf("%s: the operator does not read %q:\n%s", row.name, row.says, told)
		}
		if i == 0 { // the token is hidden, and the broker gets what is made of it
			_, fetched := s.send(t, "GET", "/v2/service_instances/"+id, "")
			if stored := s.must("instance", "list", "-o", "json"); strings.Contains(stored+fetched, "hunter2") || !strings.Contains(stored, "sealed") {
				t.Errorf("the token is stored as\n%s\nand fetched as %s", stored, fetched)
			}
			if got := string(near.body("PUT")); !strings.Contains(got, `"parameters":{"size":7}`) {
				t.Errorf("the broker gets %s", got)
			}
		}
		s.until("nothing is left of "+row.name, func(context.Context) error { return empty.isEmpty() })
		s.send(t, "DELETE", "/v2/service_instances/"+id+"?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+planID, "")
		s.until(row.name+" is deleted", func(context.Context) error { return at.isEmpty() })
	}
	eu.set(nil)
	s.until("what failed is shown", func(context.Context) error {
		out, err := s.sluice("broker", "describe", "eu")
		if err == nil && (strings.Count(out, "name-of-service/small, ") != 1 || !strings.Contains(out, " ago, for first/o: broker eu: ")) {
			err = fmt.Errorf("it says\n%s", out)
		}
		return err
	})
}

// TestABrokersSchemas: a plan without schemas has its candidate's. Parameters that it does not allow are refused with
// the parameter's name, the broker is asked for nothing, and the plan says what it passes on.
func TestABrokersSchemas(t *testing.T) {
	t.Parallel()
	s, bottom := serveAnother(t, "sluice"), newGate(&suitetest.Broker{})
	server := httptest.NewServer(bottom)
	defer server.Close()
	s.behind("bottom", server.URL, "name-of-service", "")
	const path = "/v2/service_instances/one"
	order := func(parameters string) string {
		return `{"service_id": "other", "plan_id": "other-small", "organization_guid": "o", "space_guid": "s", "parameters": ` + parameters + `}`
	}
	for parameters, says := range map[string]string{
		`{"colour": "red"}`: "parameters/colour: the plan takes no such parameter", `{"size": "L"}`: "parameters/size: got string, want integer",
	} {
		s.until("the schemas are known", func(ctx context.Context) error {
			_, body, err := s.ask(ctx, "GET", "/v2/catalog", "")
			if err == nil && !strings.Contains(body, `"definitions":{"size"`) {
				err = fmt.Errorf("the catalog is %s", body)
			}
			return err
		})
		if status, body := s.send(t, "PUT", path+"?accepts_incomplete=true", order(parameters)); status != 400 || !strings.Contains(body, says) {
			t.Errorf("%s: %d %s", parameters, status, body)
		}
	}
	if status, body := s.send(t, "GET", path, ""); status != 404 || bottom.body("PUT") != nil {
		t.Errorf("after the refusals: %d %s, and the broker got %s", status, body, bottom.body("PUT"))
	}
	if status, body := s.send(t, "PUT", path+"?accepts_incomplete=true", strings.Replace(order(`{"size": 2}`), `"parameters"`, `"maintenance_info": {"version": "1.2.0"}, "parameters"`, 1)); status != 202 {
		t.Errorf("an order for the broker's maintenance_info: %d %s", status, body)
	}
	s.until("it is ordered", func(context.Context) error {
		if len(bottom.left()) != 1 {
			return fmt.Errorf("it has %v", bottom.left())
		}
		return nil
	})
}

// register registers brokers by name.
func (s *served) register(t *testing.T, brokers map[string]http.Handler) {
	t.Helper()
	for name, broker := range brokers {
		server := httptest.NewServer(broker)
		t.Cleanup(server.Close)
		password := filepath.Join(s.dir, name)
		if err := os.WriteFile(password, []byte("first-password"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.must("broker", "add", name, "--url", server.URL, "--address", "127.0.0.0/8", "--username", "first", "--password-file", password)
	}
}

func (g *gate) set(instead func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.instead = instead
}

func (g *gate) isEmpty() error {
	if left := g.left(); len(left) > 0 {
		return fmt.Errorf("left: %v", left)
	}
	return nil
}
