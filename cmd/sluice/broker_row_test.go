package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestThreeSluicesInARow: what is ordered, bound, unbound and deprovisioned at the top arrives at the bottom, also if
// the one in the middle is killed in between; price and room of the bottom are known at the top; and an order for which
// the bottom has no room waits at the top, which says why, until there is room.
func TestThreeSluicesInARow(t *testing.T) {
	t.Parallel()
	broker := newGate(&suitetest.Broker{})
	server := httptest.NewServer(broker)
	defer server.Close()
	bottom, middle, top := serveAnother(t, "bottom"), serveAnother(t, "middle"), serveAnother(t, "top")
	bottom.behind("provider", server.URL, "name-of-service", "")
	bottom.must("broker", "add", "provider", "--instances", "2", "--price", "sluice.dev/instances=0.02")
	bottom.until("it sells", func(context.Context) error { return sells(bottom) })
	middle.behind("bottom", bottom.url, "upstream", "")
	middle.until("it sells", func(context.Context) error { return says(middle, `"depth":2`) })
	top.behind("middle", middle.url, "upstream", "")
	top.until("its catalog has the whole row", func(context.Context) error { return says(top, `"depth":3`) })
	top.shows("2 orders fit on 1 cluster; 14.6 EUR a month; in eu", "broker", "describe", "middle")
	top.shows("0.02 EUR/h", "place", "--service", "upstream", "--plan", "small", "--dry-run")

	top.does(t, http.MethodPut, "one", "", "succeeded")
	broker.counts(t, 1)
	top.does(t, http.MethodPut, "one", "b", "succeeded")
	broker.counts(t, 2)
	_ = middle.process.Process.Kill() // nothing is asked of it between here and its start
	_ = middle.process.Wait()
	if status, answer := top.send(t, http.MethodDelete, pathOf("one", "b")+"?accepts_incomplete=true&"+rowPlan, ""); status >= http.StatusBadRequest {
		t.Fatalf("unbind without the middle: %d %s", status, answer)
	}
	middle.start()
	top.ends("one", "b", "gone")
	broker.counts(t, 1)

	if status, answer := top.send(t, http.MethodPut, pathOf("two", "")+"?accepts_incomplete=true", rowOrder); status != http.StatusAccepted {
		t.Fatalf("the second order: %d %s", status, answer)
	}
	middle.until("it has the order", func(context.Context) error {
		if listed := middle.must("instance", "list"); strings.Count(listed, "upstream/small") < 2 {
			return fmt.Errorf("it has\n%s", listed)
		}
		return nil
	})
	_ = middle.process.Process.Kill()
	_ = middle.process.Wait()
	middle.start()
	top.ends("two", "", "succeeded")
	broker.counts(t, 2)

	top.shows("no order fits: nothing on offer fits at the moment: ", "broker", "describe", "middle")
	top.shows("NoRoom", "place", "--service", "upstream", "--plan", "small", "--dry-run")
	if status, answer := top.send(t, http.MethodPut, pathOf("three", "")+"?accepts_incomplete=true", rowOrder); status != http.StatusAccepted {
		t.Fatalf("the third order: %d %s", status, answer)
	}
	top.shows("its market has no room for one more: nothing on offer fits at the moment", "instance", "describe", "three")
	if _, answer := top.send(t, http.MethodGet, pathOf("three", "")+"/last_operation", ""); !strings.Contains(answer, "in progress") || !strings.Contains(answer, "NoRoom (nothing on offer fits at the moment: NoRoom (nothing on offer fits at the moment: Insufficient") || strings.Contains(answer, "bottom") {
		t.Errorf("the third order is %s", answer)
	}
	if listed := middle.must("instance", "list"); strings.Count(listed, "upstream/small") != 2 {
		t.Errorf("the third order has reached the middle, which has no room:\n%s", listed)
	}
	top.does(t, http.MethodDelete, "one", "", "gone")
	top.ends("three", "", "succeeded")
	broker.counts(t, 2)
	for _, id := range []string{"two", "three"} {
		top.does(t, http.MethodDelete, id, "", "gone")
	}
	broker.counts(t, 0)
	for _, s := range []*served{bottom, middle, top} {
		s.until("it has nothing left", func(context.Context) error {
			if listed := s.must("instance", "list"); strings.Contains(listed, "upstream/small") {
				return fmt.Errorf("it has\n%s", listed)
			}
			return nil
		})
	}
}

// rowPlan names the plan that is ordered, and rowOrder orders it.
const (
	rowPlan  = "service_id=upstream&plan_id=ours-small"
	rowOrder = `{"service_id": "upstream", "plan_id": "ours-small", "organization_guid": "o", "space_guid": "s"}`
)

// pathOf returns the path of an instance, or of its binding.
func pathOf(instance, binding string) string {
	path := "/v2/service_instances/" + instance
	if binding != "" {
		path += "/service_bindings/" + binding
	}
	return path
}

// does sends a request for an instance, or its binding, and waits for how it ends.
func (s *served) does(t *testing.T, method, instance, binding, state string) {
	t.Helper()
	query, body := "?accepts_incomplete=true", rowOrder
	if method == http.MethodDelete {
		query, body = query+"&"+rowPlan, ""
	}
	if status, answer := s.send(t, method, pathOf(instance, binding)+query, body); status >= http.StatusBadRequest {
		t.Fatalf("%s %s %s: %d %s", method, instance, binding, status, answer)
	}
	s.ends(instance, binding, state)
}

// ends waits until an operation has ended.
func (s *served) ends(instance, binding, state string) {
	s.Helper()
	s.until(fmt.Sprintf("%s %s is %s", instance, binding, state), func(ctx context.Context) error {
		status, answer, err := s.ask(ctx, http.MethodGet, pathOf(instance, binding)+"/last_operation", "")
		if isGone := status == http.StatusGone || status == http.StatusNotFound; err != nil || !(state == "gone" && isGone) && !strings.Contains(answer, `"`+state+`"`) {
			return fmt.Errorf("it is %d %s, %v", status, answer, err)
		}
		return nil
	})
}

// shows waits until a command prints a text.
func (s *served) shows(text string, args ...string) {
	s.Helper()
	s.until(fmt.Sprintf("%v shows %q", args, text), func(context.Context) error {
		if out, err := s.sluice(args...); !strings.Contains(out, text) {
			return fmt.Errorf("it shows %v\n%s", err, out)
		}
		return nil
	})
}

// counts checks how many instances and bindings a broker has.
func (g *gate) counts(t *testing.T, want int) {
	t.Helper()
	if left := g.left(); len(left) != want {
		t.Errorf("the provider has %q, want %d", left, want)
	}
}
