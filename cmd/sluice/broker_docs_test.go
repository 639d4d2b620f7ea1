package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/databases"
)

var (
	// block is a block of a page: its language and its text. That of yaml is the file that was named last.
	block = regexp.MustCompile("(?s)```(sh|yaml)\n(.*?)```")
	named = regexp.MustCompile("`([a-z]+\\.yaml)`")
)

// TestBrokersPage runs the commands of docs/brokers.md as they are printed, against two brokers on this machine that
// sell databases of real servers, and orders what they make. A policy and then the price decide which broker gets an
// order, with the parameters of its candidate; credentials open connections; when a plan vanishes, instances go on and
// new orders go to the other; nothing is left on the servers in the end.
func TestBrokersPage(t *testing.T) {
	t.Parallel()
	eu, near := sellDatabases(t, databases.MariaDB), sellDatabases(t, databases.PostgreSQL)
	s := serveAnother(t, "sluice")
	told := s.follow(t, "brokers.md", map[string]string{"eu.password": "first-password\n", "near.password": "first-password\n"}, "EU="+eu.url, "NEAR="+near.url,
		envURL+"="+s.url, envUsername+"=first", envPassword+"=first-password")
	for _, line := range []string{
		"broker eu: ready, 2 plans may be ordered", "postgresql/small (postgresql, postgresql-small)", "1 plan that may not be ordered",
		"0.026027397 EUR/h", "policy germany, in-germany: does not hold", "mysql://u",
	} {
		if !strings.Contains(told, line) {
			t.Errorf("the page's commands do not say %q:\n%s", line, told)
		}
	}

	if err := errors.Join(eu.holds(t.Context(), 0), near.holds(t.Context(), 0)); err != nil {
		t.Errorf("what was given back is still there: %v", err)
	}
	s.order(t, "german", `{"connections": 2}`)
	if err := errors.Join(eu.holds(t.Context(), 1), near.holds(t.Context(), 0)); err != nil {
		t.Errorf("the policy does not decide: %v", err)
	}
	s.must("policy", "remove", "germany")
	s.order(t, "one", `{"connections": 2}`)
	if err := errors.Join(eu.holds(t.Context(), 1), near.holds(t.Context(), 1)); err != nil {
		t.Errorf("the order went elsewhere than to the cheaper broker: %v", err)
	}
	for id, want := range map[string][]string{
		"german": {"Ordered:     mariadb/small from eu\n", "Placed on:   eu, score 100, reserved 1 sluice.dev/instances, 0.039726027 EUR/h\n"},
		"one":    {"Ordered:     postgresql/small from near\n", "Placed on:   near, score 100, reserved 1 sluice.dev/instances, 0.026027397 EUR/h\n"},
	} {
		if out := s.must("instance", "describe", id); !strings.Contains(out, want[0]) || !strings.Contains(out, want[1]) {
			t.Errorf("%s is described as\n%s", id, out)
		}
	}
	var got struct {
		Parameters map[string]any `json:"parameters"`
	}
	if err := json.Unmarshal(near.body("PUT"), &got); err != nil || fmt.Sprint(got.Parameters) != "map[connection_limit:2]" {
		t.Errorf("the broker got %v, %v", got, err)
	}
	for id, want := range map[string]string{"german": "", "one": "https://postgresql.example/databases/"} {
		if at := s.dashboard(t, id); !strings.HasPrefix(at, want) || (at == "") != (want == "") {
			t.Errorf("the dashboard of %s is %q, want %q", id, at, want)
		}
	}
	s.uses(t, eu, "german", "mariadb")
	s.uses(t, near, "one", "postgresql")
	s.deprovision(t, "german")
	if err := eu.holds(t.Context(), 0); err != nil {
		t.Error(err)
	}

	near.hide("small")
	s.must("broker", "add", "near", "--refresh", "1s")
	s.until("the plan is gone", func(context.Context) error {
		out, err := s.sluice("broker", "describe", "near")
		if err == nil && !strings.Contains(out, "postgresql/small: new orders are refused, instances go on") {
			err = fmt.Errorf("describe says\n%s", out)
		}
		return err
	})
	s.order(t, "two", `{"connections": 3}`)
	if here := eu.left(); len(here) != 1 {
		t.Errorf("the order went elsewhere than to the broker that still offers it: %v", here)
	}
	s.withdraws(t, near.gate, eu.gate)
	if out, err := s.sluice("broker", "remove", "near"); err == nil || !strings.Contains(err.Error(), "broker near: 1 instance there: one (first)") {
		t.Errorf("a broker with instances is removed: %v\n%s", err, out)
	}
	s.deprovision(t, "one")
	s.deprovision(t, "two")
	if err := errors.Join(eu.holds(t.Context(), 0), near.holds(t.Context(), 0)); err != nil {
		t.Errorf("left at the brokers: %v", err)
	}
	s.must("broker", "remove", "near")
}

// follow runs the commands of a page as they are printed, in a folder with some files, and returns what they say. The
// page's own files are there, too.
func (s *served) follow(t *testing.T, page string, files map[string]string, environment ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	return s.runs(t, content, files, environment...)
}

// runs runs the commands of a text of a page, in an empty folder with these files, and returns what they print.
func (s *served) runs(t *testing.T, content []byte, files map[string]string, environment ...string) string {
	t.Helper()
	work, path := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	if err := os.Symlink(os.Args[0], filepath.Join(path, "sluice")); err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	for _, at := range block.FindAllSubmatchIndex(content, -1) {
		language, text := string(content[at[2]:at[3]]), string(content[at[4]:at[5]])
		if language == "yaml" {
			names := named.FindAllSubmatch(content[:at[0]], -1)
			write(string(names[len(names)-1][1]), text)
			continue
		}
		run := exec.CommandContext(t.Context(), "bash", "-euc", text)
		run.Dir = work
		run.Env = append(append(os.Environ(), asSluice+"=1", "SLUICE_DATA_DIR="+s.dir, "PATH="+path+":"+os.Getenv("PATH")), environment...)
		out, err := run.CombinedOutput()
		told.Write(out)
		if err != nil {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}
	}
	return told.String()
}

// withdraws checks that a plan whose candidates are all gone takes no new orders, and that its instance at a broker
// goes on: it can be bound.
func (s *served) withdraws(t *testing.T, at *gate, others ...*gate) {
	t.Helper()
	for _, g := range others {
		g.hide("small")
	}
	s.must("broker", "add", "eu", "--refresh", "1s")
	s.until("the plan is withdrawn", func(context.Context) error {
		out, err := s.sluice("broker", "describe", "near")
		if err == nil && !strings.Contains(out, "database/small orders postgresql/small; withdrawn: no broker offers it any more") {
			err = fmt.Errorf("describe says\n%s", out)
		}
		return err
	})
	const order = `{"service_id": "` + serviceID + `", "plan_id": "` + planID + `", "organization_guid": "o", "space_guid": "s", "parameters": {"connections": 1}}`
	s.until("new orders are refused", func(context.Context) error {
		status, body := s.send(t, "PUT", "/v2/service_instances/three?accepts_incomplete=true", order)
		if status != 400 || !strings.Contains(body, "plan small of database is withdrawn: no provider offers it any more.") {
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
	s.send(t, "PATCH", "/v2/service_instances/one?accepts_incomplete=true", `{"service_id": "`+serviceID+`", "parameters": {"connections": 4}}`)
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

// dashboard returns the dashboard_url of an instance of the page's plan: the same when it is fetched and when the order
// is repeated.
func (s *served) dashboard(t *testing.T, id string) string {
	t.Helper()
	_, fetched := s.send(t, "GET", "/v2/service_instances/"+id, "")
	var shown, again struct {
		DashboardURL string          `json:"dashboard_url"`
		Parameters   json.RawMessage `json:"parameters"`
	}
	if err := json.Unmarshal([]byte(fetched), &shown); err != nil {
		t.Fatalf("%s is fetched as %s, %v", id, fetched, err)
	}
	status, repeated := s.send(t, "PUT", "/v2/service_instances/"+id+"?accepts_incomplete=true", `{"service_id": "`+serviceID+`", "plan_id": "`+planID+
		`", "organization_guid": "o", "space_guid": "s", "parameters": `+string(shown.Parameters)+`}`)
	if err := json.Unmarshal([]byte(repeated), &again); err != nil || status != 200 || again.DashboardURL != shown.DashboardURL {
		t.Errorf("%s is fetched as %s; the repeated order is answered %d %s", id, fetched, status, repeated)
	}
	return shown.DashboardURL
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
