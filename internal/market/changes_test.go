package market

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/test/controlplane"
)

var operator = access.Caller{Role: access.Operator}

func catalogOf(t testing.TB, offerings int) *catalog.Catalog {
	c := &catalog.Catalog{}
	sell(t, c, many(offerings)...)
	return c
}

func (w *world) eventually(what string, missing func() string) {
	w.Helper()
	still := ""
	err := controlplane.Until(w.Context(), 10*time.Millisecond, 100*time.Millisecond, 30*time.Second, func(context.Context) (bool, error) {
		still = missing()
		return still == "", nil
	})
	if err != nil {
		w.Fatalf("%s: not yet: %s", what, still)
	}
}

// event is a server-sent event.
type event struct {
	name, id string
	data     struct {
		Plans, Changed []Plan
		Removed        []string
	}
}

// follower reads events.
type follower struct {
	*testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

// following returns a follower that has the event of that id; "" has none.
func (w *world) following(server *httptest.Server, token, last string) *follower {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/market/v1/changes", nil)
	must(w.T, err)
	r.Header.Set("Authorization", "Bearer "+token)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultClient.Do(r)
	must(w.T, err)
	w.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("it is answered %d, %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 32<<20)
	return &follower{w.T, lines, cancel}
}

// next returns the next event; ok is false at the end.
func (f *follower) next() (e event, ok bool) {
	f.Helper()
	for f.lines.Scan() {
		name, value, _ := strings.Cut(f.lines.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			must(f.T, json.Unmarshal([]byte(value), &e.data))
			return e, true
		}
	}
	return e, false
}

// TestFollowers: get the whole list and then what changes; those who come back get what they missed.
func TestFollowers(t *testing.T) {
	w := newWorld(t)
	marketplace(w)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	token := w.as("platform:cf")
	one, other := w.following(server, token, ""), w.following(server, w.as("operator"), "")
	all, _ := one.next()
	if all.name != "plans" || len(all.data.Plans) != 6 {
		t.Fatalf("got %+v", all)
	}
	if e, _ := other.next(); len(e.data.Plans) != 8 {
		t.Errorf("an operator gets %+v", e)
	}
	w.rooms.set("db-small", Room{Known: true, Orders: 1, Clusters: 1})
	room, _ := one.next()
	if room.name != "change" || len(room.data.Changed) != 1 || room.data.Changed[0].ID != "db-small" || room.data.Changed[0].Availability.Orders != 1 || len(room.data.Removed) != 0 {
		t.Errorf("got %+v", room)
	}
	sell(t, w.catalog, sold{name: "db", provider: "acme", monthly: "29.50"}, sold{name: "new"})
	gone, _ := one.next()
	if len(gone.data.Changed) != 2 || gone.data.Changed[0].Offering.Name != "new" || fmt.Sprint(gone.data.Removed) != "[cache-large cache-small raw-large raw-small]" {
		t.Errorf("got %+v", gone)
	}
	for last, want := range map[string]event{all.id: room, room.id: gone} {
		if e, _ := w.following(server, token, last).next(); e.name != "change" || e.id != want.id {
			t.Errorf("after %s comes %s %s, want %s", last, e.name, e.id, want.id)
		}
	}
	// A change for others only is none; neither is a look that finds nothing new.
	back := w.following(server, token, gone.id)
	sell(t, w.catalog, sold{name: "db", provider: "acme", monthly: "29.50"}, sold{name: "new"}, sold{name: "secret", platforms: []string{"korifi"}})
	w.rooms.set("new-small", Room{Known: true, Orders: 2, Clusters: 1})
	if e, _ := back.next(); len(e.data.Changed) != 1 || e.data.Changed[0].ID != "new-small" {
		t.Errorf("got %+v", e)
	}
	for _, unusable := range []string{"nonsense", "another-1", strings.TrimSuffix(gone.id, "3") + "99"} {
		if e, _ := w.following(server, token, unusable).next(); e.name != "plans" || len(e.data.Plans) != 4 {
			t.Errorf("after %s comes %s with %d plans", unusable, e.name, len(e.data.Plans))
		}
	}
	w.handler.EndFollowing()
	w.handler.EndFollowing()
	if e, ok := back.next(); ok {
		t.Errorf("after the end comes %+v", e)
	}
}

// TestTheLogIsBounded: in number and in bytes; who is too far behind gets the whole list.
func TestTheLogIsBounded(t *testing.T) {
	l := changeLog{}
	for i := range int64(2 * mostChanges) {
		l.add(i+1, []byte("x"))
	}
	now := int64(2 * mostChanges)
	if events, ok := l.since(now-mostChanges, now); !ok || len(events) != mostChanges {
		t.Errorf("%d events are kept", len(events))
	}
	if _, ok := l.since(now-mostChanges-1, now); ok {
		t.Error("more are kept")
	}
	if events, ok := l.since(now, now); !ok || len(events) != 0 {
		t.Error("who has all gets something")
	}
	l.add(now+1, make([]byte, mostLogged))
	if events, ok := l.since(now, now+1); !ok || len(events) != 1 || l.bytes != mostLogged {
		t.Errorf("beside a large one, %d bytes are kept", l.bytes)
	}
	l.add(now+2, make([]byte, mostLogged+1))
	if _, ok := l.since(now+1, now+2); ok || l.bytes != 0 {
		t.Errorf("one that is too large is kept: %d bytes", l.bytes)
	}
}

// TestNobodyLooksForNobody: when the last follower has left, nothing runs any more.
func TestNobodyLooksForNobody(t *testing.T) {
	v := newViews(catalogOf(t, 1), newFakeInventory()).of(operator)
	before := runtime.NumGoroutine()
	v.follow()
	v.follow()
	v.unfollow()
	if n := runtime.NumGoroutine(); n != before+1 {
		t.Errorf("%d goroutines look for one follower", n-before)
	}
	v.unfollow()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines look for nobody", n-before)
	}
}
