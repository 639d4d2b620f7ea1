package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/databases"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestKilledWhileABrokerAnswers: Sluice is killed, as by kill -9, at each request that changes something at
// another broker, when the broker has carried it out and nobody has heard the answer. After a restart it goes
// on: after each request, the broker has what was ordered, and nothing else.
func TestKilledWhileABrokerAnswers(t *testing.T) {
	t.Parallel()
	t.Run("a fake, asynchronous", func(t *testing.T) {
		bottom := newGate(&suitetest.Broker{})
		killedAtEachRequest(t, bottom, "name-of-service", "", func(_ context.Context, want int) error {
			if left := bottom.left(); len(left) != want {
				return fmt.Errorf("it has %v, want %d", left, want)
			}
			return nil
		})
	})
	t.Run("databases of MariaDB, synchronous", func(t *testing.T) {
		bottom := sellDatabases(t, databases.MariaDB)
		killedAtEachRequest(t, bottom.gate, "mariadb", `{max_user_connections: "${parameters.size}"}`, bottom.holds)
	})
}

// killedAtEachRequest orders a service of a broker. has checks how many instances and bindings the broker has.
func killedAtEachRequest(t *testing.T, bottom *gate, service, parameters string, has func(ctx context.Context, want int) error) {
	killed, seen := make(chan string, 8), map[string]bool{}
	s := serveAnother(t, "sluice")
	bottom.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		what := r.Method
		if strings.Contains(r.URL.Path, "service_bindings") {
			what += " binding"
		}
		bottom.mu.Lock()
		defer bottom.mu.Unlock()
		if seen[what] || r.Method == http.MethodGet {
			return false
		}
		seen[what] = true
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		killed <- what
		panic(http.ErrAbortHandler)
	}
	server := httptest.NewServer(bottom)
	defer server.Close()
	s.behind("bottom", server.URL, service, parameters)
	s.until("it sells", func(context.Context) error { return sells(s) })
	const instance, ids = "/v2/service_instances/one", "service_id=upstream&plan_id=ours-small"
	body := func(plan, more string) string {
		return `{"service_id": "upstream", "plan_id": "ours-` + plan + `", "organization_guid": "o", "space_guid": "s"` + more + `}`
	}
	ended := func(path, state string) func(context.Context) error {
		return func(context.Context) error {
			if status, answer, err := s.ask(t.Context(), "GET", path+"/last_operation", ""); err != nil || !strings.Contains(answer, state) && status != http.StatusGone && (state != "gone" || status != http.StatusNotFound) {
				return fmt.Errorf("it is %d %s, %v", status, answer, err)
			}
			return nil
		}
	}
	for _, step := range []struct {
		method, path, body, kills string
		ended                     func(context.Context) error
		has                       int
	}{
		{"PUT", instance + "?accepts_incomplete=true", body("small", `, "parameters": {"size": 1}`), "PUT", ended(instance, "succeeded"), 1},
		{"PATCH", instance + "?accepts_incomplete=true", `{"service_id": "upstream", "plan_id": "ours-large", "parameters": {"size": 2}}`, "PATCH", ended(instance, "succeeded"), 1},
		{"PUT", instance + "/service_bindings/b?accepts_incomplete=true", body("large", ""), "PUT binding", ended(instance+"/service_bindings/b", "succeeded"), 2},
		{"DELETE", instance + "/service_bindings/b?accepts_incomplete=true&" + ids, "", "DELETE binding", ended(instance+"/service_bindings/b", "gone"), 1},
		{"DELETE", instance + "?accepts_incomplete=true&" + ids, "", "DELETE", ended(instance, "gone"), 0},
	} {
		_, _, _ = s.ask(t.Context(), step.method, step.path, step.body) // the answer may be lost with the process
		select {
		case at := <-killed:
			if at != step.kills {
				t.Errorf("it died at %s, want %s", at, step.kills)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it did not die at %s", step.kills)
		}
		s.start()
		s.until(step.kills+" is accepted", func(ctx context.Context) error { // as a platform repeats it
			status, answer, err := s.ask(ctx, step.method, step.path, step.body)
			if err == nil && status != http.StatusAccepted && status != http.StatusOK && status != http.StatusCreated && status != http.StatusGone {
				err = fmt.Errorf("it is %d %s", status, answer)
			}
			return err
		})
		s.until(step.kills+" has ended", step.ended)
		if err := has(t.Context(), step.has); err != nil {
			t.Errorf("after %s: %v", step.kills, err)
		}
		if step.kills == "PUT binding" {
			wantEvents(t, "describe", s.must("instance", "describe", "one"), `Ordered, Placed on bottom.*: score \d+ on bottom, Delivered on bottom, Ordered, Placed on bottom.*, Delivered on bottom.*`)
		}
	}
	wantEvents(t, "events", s.must("events", "one", "--platform", "first"),
		`- Ordered provision .*, - Placed provision .*, - Delivered provision .*, - Ordered update .*, - Placed update .*, - Delivered update .*, `+
			`b Ordered bind .*, b Bound bind .*, b Ordered unbind .*, b Removed unbind .*, - Ordered deprovision .*, - Removed deprovision .*`)
	if out := s.must("events", "one", "--platform", "second", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("events of another platform's instance: %s", out)
	}
	if _, err := s.sluice("events", "none"); err == nil || !strings.Contains(err.Error(), `no events of an instance or a cluster "none"`) {
		t.Errorf("events of an instance that never was: %v", err)
	}
}

// wantEvents compares the lines that begin with a time, or have one after the key, with patterns.
func wantEvents(t *testing.T, what, out, want string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(out) {
		if at := regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +(one +)?`).FindStringIndex(line); at != nil {
			got = append(got, strings.Join(strings.Fields(line[at[1]:]), " "))
		}
	}
	patterns := strings.Split(want, ", ")
	if len(got) != len(patterns) {
		t.Errorf("%s: %d events, want %d:\n%s", what, len(got), len(patterns), out)
		return
	}
	for i, pattern := range patterns {
		if !regexp.MustCompile(`^` + pattern).MatchString(got[i]) {
			t.Errorf("%s: event %d is %q, want %s\n%s", what, i+1, got[i], pattern, out)
		}
	}
}
