package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(openAPI, &described); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, route := range routes {
		want = append(want, route.method+" "+route.path)
	}
	for path, methods := range described.Paths {
		for method := range methods {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-served +described:\n%s", diff)
	}
}

func TestWhatIsNotOursIsHandedOnAsItWasSent(t *testing.T) {
	var got string
	handler := New(Options{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Method + " " + r.URL.EscapedPath() }))
	for _, sent := range []string{
		"GET /v2/catalog", "GET /v2/service_instances//last_operation", "PUT /v2/service_instances/a%2Fb%2F",
		"GET /v2/../v2/catalog", "DELETE /selfdescriptions", "GET /selfdescriptions/a/b/c",
	} {
		method, path, _ := strings.Cut(sent, " ")
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
		if got != sent || recorder.Code != http.StatusOK {
			t.Errorf("%s arrives as %q, answered %d", sent, got, recorder.Code)
		}
	}
}

func TestACallerWhoCallsTooOftenWaits(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	c := newCallers(clock)
	one, neighbour, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.1")
	for range burst {
		if wait := c.wait(one); wait > 0 {
			t.Fatalf("waits %s within its burst", wait)
		}
	}
	if wait := c.wait(neighbour); wait <= 0 {
		t.Error("an address of the same /64 has a burst of its own")
	}
	if wait := c.wait(other); wait > 0 {
		t.Errorf("another address waits %s", wait)
	}
	wait := c.wait(one)
	clock.SetTime(clock.Now().Add(wait))
	if wait <= 0 || c.wait(one) > 0 {
		t.Errorf("after waiting %s as it was told it waits again", wait)
	}
}
