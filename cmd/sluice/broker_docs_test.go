package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// block is a block of a page: its language and its text.
var block = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")

// TestBrokersPage runs the commands of docs/brokers.md as they are printed, against two brokers on this
// machine, and orders what they make: the cheaper broker gets it, with the parameters of its candidate; when
// its plan vanishes, instances go on and new orders go to the other.
func TestBrokersPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "brokers.md"))
	if err != nil {
		t.Fatal(err)
	}
	s := serveAnother(t, "sluice")
	eu, near := newGate(&suitetest.Broker{}), newGate(&suitetest.Broker{})
	first, second := httptest.NewServer(eu), httptest.NewServer(near)
	defer first.Close()
	defer second.Close()
	work, path := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{filepath.Join(work, "eu.password"): "first-password\n", filepath.Join(work, "near.password"): "first-password\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(os.Args[0], filepath.Join(path, "sluice")); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, match := range block.FindAllStringSubmatch(string(page), -1) {
		if match[1] == "yaml" {
			if err := os.WriteFile(filepath.Join(work, "mysql.yaml"), []byte(match[2]), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		run := exec.CommandContext(t.Context(), "bash", "-euc", match[2])
		run.Dir = work
		run.Env = append(os.Environ(), asSluice+"=1", "SLUICE_DATA_DIR="+s.dir, "PATH="+path+":"+os.Getenv("PATH"), "EU="+first.URL, "NEAR="+second.URL)
		out, err := run.CombinedOutput()
		told.Write(out)
		if err != nil {
			t.Fatalf("%s: %v\n%s", match[2], err, out)
		}
	}
	for _, line := range []string{"broker eu: ready, 6 plans may be ordered", "name-of-service/small (service, plan-small)", "5 plans that may not be ordered", "0.026027397 EUR/h"} {
		if !strings.Contains(told.String(), line) {
			t.Errorf("the page's commands do not say %q:\n%s", line, told.String())
		}
	}
	s.order(t, "one", `{"size": 3}`)
	if here := near.left(); len(here) != 1 || len(eu.left()) != 0 {
		t.Errorf("the order went elsewhere than to the cheaper broker: %v", here)
	}
	var got struct {
		Parameters map[string]any `json:"parameters"`
	}
	if err := json.Unmarshal(near.body("PUT"), &got); err != nil || fmt.Sprint(got.Parameters) != "map[size:6]" {
		t.Errorf("the broker got %v, %v", got, err)
	}
	if status, body := s.send(t, "PUT", "/v2/service_instances/one/service_bindings/b", `{"service_id": "`+serviceID+`", "plan_id": "`+planID+`"}`); status != 201 || !strings.Contains(body, `"credentials":{"`) {
		t.Errorf("the binding is %d %s", status, body)
	}
	near.hide("plan-small")
	s.must("broker", "add", "near", "--refresh", "1s")
	s.until("the plan is gone", func(context.Context) error {
		out, err := s.sluice("broker", "describe", "near")
		if err == nil && !strings.Contains(out, "name-of-service/small: new orders are refused, instances go on") {
			err = fmt.Errorf("describe says\n%s", out)
		}
		return err
	})
	s.order(t, "two", `{"size": 3}`)
	if here := eu.left(); len(here) != 1 {
		t.Errorf("the order went elsewhere than to the broker that still offers it: %v", here)
	}
	s.withdraws(t, near, eu)
	if out, err := s.sluice("broker", "remove", "near"); err == nil || !strings.Contains(err.Error(), "broker near: 1 instance there: one (first)") {
		t.Errorf("a broker with instances is removed: %v\n%s", err, out)
	}
	s.send(t, "DELETE", "/v2/service_instances/one/service_bindings/b?service_id="+serviceID+"&plan_id="+planID, "")
	for _, id := range []string{"one", "two"} {
		s.send(t, "DELETE", "/v2/service_instances/"+id+"?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+planID, "")
	}
	s.until("both are deleted", func(context.Context) error {
		if left := append(eu.left(), near.left()...); len(left) > 0 {
			return fmt.Errorf("left at the brokers: %v", left)
		}
		return nil
	})
	s.must("broker", "remove", "near")
}

// withdraws checks that a plan whose candidates are all gone takes no new orders, and that its instance at a broker
// goes on: it can be bound.
func (s *served) withdraws(t *testing.T, at *gate, others ...*gate) {
	t.Helper()
	for _, g := range others {
		g.hide("plan-small")
	}
	s.must("broker", "add", "eu", "--refresh", "1s")
	s.until("the plan is withdrawn", func(context.Context) error {
		out, err := s.sluice("broker", "describe", "near")
		if err == nil && !strings.Contains(out, "mysql/small orders name-of-service/small; withdrawn: no broker offers it any more") {
			err = fmt.Errorf("describe says\n%s", out)
		}
		return err
	})
	const order = `{"service_id": "` + serviceID + `", "plan_id": "` + planID + `", "organization_guid": "o", "space_guid": "s", "parameters": {"size": 1}}`
	s.until("new orders are refused", func(context.Context) error {
		status, body := s.send(t, "PUT", "/v2/service_instances/three?accepts_incomplete=true", order)
		if status != 400 || !strings.Contains(body, "plan small of mysql is withdrawn: no provider offers it any more.") {
			return fmt.Errorf("an order is answered %d %s", status, body)
		}
		return nil
	})
	if _, body := s.send(t, "GET", "/v2/catalog", ""); !strings.Contains(body, planID) || !strings.Contains(body, `"withdrawn":true`) {
		t.Errorf("the catalog is %s", body)
	}
	if out := s.must("catalog", "list"); !strings.Contains(out, "withdrawn: no broker offers it") {
		t.Errorf("the list is\n%s", out)
	}
	before := len(at.left())
	if status, body := s.send(t, "PUT", "/v2/service_instances/one/service_bindings/c", `{"service_id": "`+serviceID+`", "plan_id": "`+planID+`"}`); status != 201 {
		t.Errorf("an instance of the plan is bound with %d %s", status, body)
	}
	s.send(t, "PATCH", "/v2/service_instances/one?accepts_incomplete=true", `{"service_id": "`+serviceID+`", "parameters": {"size": 4}}`)
	s.until("the instance is updated", func(context.Context) error {
		status, body := s.send(t, "GET", "/v2/service_instances/one/last_operation", "")
		if status != 200 || !strings.Contains(body, `"succeeded"`) {
			return fmt.Errorf("it is %d %s", status, body)
		}
		return nil
	})
	s.send(t, "DELETE", "/v2/service_instances/one/service_bindings/c?service_id="+serviceID+"&plan_id="+planID, "")
	s.until("the binding is gone", func(context.Context) error {
		if left := at.left(); len(left) != before {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

// Ids of the page's plan.
const serviceID, planID = "7d1c2b6e-3b0a-4d0e-9c3f-2f4f6f0f8b11", "0c7f5f4e-8f5e-4a53-8a53-0f6a4a5f6c22"

// order orders an instance of the page's plan, and waits until it is there.
func (s *served) order(t *testing.T, id, parameters string) {
	t.Helper()
	if status, body := s.send(t, "PUT", "/v2/service_instances/"+id+"?accepts_incomplete=true",
		`{"service_id": "`+serviceID+`", "plan_id": "`+planID+`", "organization_guid": "o", "space_guid": "s", "parameters": `+parameters+`}`); status != 202 {
		t.Fatalf("the order is answered %d %s", status, body)
	}
	s.until("the order is carried out", func(context.Context) error {
		status, body := s.send(t, "GET", "/v2/service_instances/"+id+"/last_operation", "")
		if status != 200 || !strings.Contains(body, `"succeeded"`) {
			return fmt.Errorf("it is %d %s", status, body)
		}
		return nil
	})
}

// send sends a request of the first platform.
func (s *served) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	status, answer, err := s.ask(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, answer
}

// ask is send without a test that fails.
func (s *served) ask(ctx context.Context, method, path, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.SetBasicAuth("first", "first-password")
	r.Header.Set("X-Broker-API-Version", "2.17")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(response.Body)
	return response.StatusCode, string(answer), err
}
