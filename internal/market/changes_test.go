package market

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

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

// heard is an event as a client reads it.
type heard struct {
	Event, ID string
	Data      struct {
		Plans, Changed []Plan
		Removed        []string
	}
}

// reader reads events; next returns false at the end.
type reader struct {
	next func() (heard, bool)
	// conn is the WebSocket, and why how it has ended.
	conn *websocket.Conn
	why  func() websocket.CloseError
}

// understood decodes an event, and checks that it is as the description has it.
func (w *world) understood(message []byte) (e heard) {
	w.Helper()
	if why := w.described.check(json.RawMessage(`{"$ref": "#/components/schemas/Change"}`), message); why != "" {
		w.Errorf("%.200s: %s", message, why)
	}
	must(w.T, json.Unmarshal(message, &e))
	return e
}

// followingEvents follows by server-sent events, and has the event of that id; "" has none.
func (w *world) followingEvents(server *httptest.Server, token, last string) *reader {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/market/v1/changes", nil)
	must(w.T, err)
	r.Header = followersHeader(token, last)
	answer, err := server.Client().Do(r)
	must(w.T, err)
	w.Cleanup(func() { answer.Body.Close() })
	if server.EnableHTTP2 && answer.ProtoMajor != 2 {
		w.Errorf("it is answered in %s", answer.Proto)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		w.Fatalf("it is answered %d, %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 32<<20)
	return &reader{next: func() (heard, bool) {
		name, id := "", ""
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				name = value
			case "id":
				id = value
			case "data":
				return w.understood(fmt.Appendf(nil, `{"event": %q, "id": %q, "data": %s}`, name, id, value)), true
			}
		}
		return heard{}, false
	}}
}

// followingStream is followingEvents with HTTP/2, where a connection has many requests.
func (w *world) followingStream(server *httptest.Server, token, last string) *reader {
	w.Helper()
	secure := httptest.NewUnstartedServer(server.Config.Handler)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	w.Cleanup(secure.Close)
	return w.followingEvents(secure, token, last)
}

func followersHeader(token, last string) http.Header {
	h := http.Header{"Authorization": {"Bearer " + token}}
	if last != "" {
		h.Set("Last-Event-ID", last)
	}
	return h
}

// followingSocket follows by a WebSocket.
func (w *world) followingSocket(server *httptest.Server, token, last string) *reader {
	w.Helper()
	conn, answer, err := websocket.Dial(w.Context(), server.URL+"/market/v1/changes", &websocket.DialOptions{HTTPHeader: followersHeader(token, last)})
	must(w.T, err)
	w.Cleanup(func() { conn.CloseNow() })
	if why := w.described.judge(http.MethodGet, "/market/v1/changes", answer, nil); why != "" {
		w.Errorf("it is answered %d: %s", answer.StatusCode, why)
	}
	conn.SetReadLimit(32 << 20)
	var end websocket.CloseError
	return &reader{
		next: func() (heard, bool) {
			kind, message, err := conn.Read(w.Context())
			if errors.As(err, &end) || err != nil {
				return heard{}, false
			}
			if kind != websocket.MessageText {
				w.Errorf("a message is %s", kind)
			}
			return w.understood(message), true
		},
		conn: conn, why: func() websocket.CloseError { return end },
	}
}

// TestFollowers: get the whole list and then what changes; those who come back get what they missed. Server-sent events
// and WebSockets are the same, and who has begun with one goes on with the other.
func TestFollowers(t *testing.T) {
	w := newWorld(t)
	for name, following := range map[string]func(*httptest.Server, string, string) *reader{"events": w.followingEvents, "events over HTTP/2": w.followingStream, "socket": w.followingSocket} {
		t.Run(name, func(t *testing.T) {
			w.T, w.catalog, w.rooms = t, &catalog.Catalog{}, newFakeInventory()
			w.options.Catalog, w.options.Inventory, w.options.Patience = w.catalog, w.rooms, time.Second
			w.start()
			testFollowers(w, following)
		})
	}
}

func testFollowers(w *world, following func(server *httptest.Server, token, last string) *reader) {
	t := w.T
	marketplace(w)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	token := w.as("platform:cf")
	one, other := following(server, token, ""), following(server, w.as("operator"), "")
	all, _ := one.next()
	if all.Event != "plans" || len(all.Data.Plans) != 6 {
		t.Fatalf("got %+v", all)
	}
	if e, _ := other.next(); len(e.Data.Plans) != 8 {
		t.Errorf("an operator gets %+v", e)
	}
	w.rooms.set("db-small", Room{Known: true, Orders: 1, Clusters: 1})
	room, _ := one.next()
	if room.Event != "change" || len(room.Data.Changed) != 1 || room.Data.Changed[0].ID != "db-small" || room.Data.Changed[0].Availability.Orders != 1 || len(room.Data.Removed) != 0 {
		t.Errorf("got %+v", room)
	}
	sell(t, w.catalog, sold{name: "db", provider: "acme", monthly: "29.50"}, sold{name: "new"})
	gone, _ := one.next()
	if len(gone.Data.Changed) != 2 || gone.Data.Changed[0].Offering.Name != "new" || fmt.Sprint(gone.Data.Removed) != "[cache-large cache-small raw-large raw-small]" {
		t.Errorf("got %+v", gone)
	}
	for last, want := range map[string]heard{all.ID: room, room.ID: gone} {
		if e, _ := following(server, token, last).next(); e.Event != "change" || e.ID != want.ID {
			t.Errorf("after %s comes %s %s, want %s", last, e.Event, e.ID, want.ID)
		}
	}
	// A change for others only is none; neither is a look that finds nothing new.
	back := following(server, token, gone.ID)
	sell(t, w.catalog, sold{name: "db", provider: "acme", monthly: "29.50"}, sold{name: "new"}, sold{name: "secret", platforms: []string{"korifi"}})
	w.rooms.set("new-small", Room{Known: true, Orders: 2, Clusters: 1})
	if e, _ := back.next(); len(e.Data.Changed) != 1 || e.Data.Changed[0].ID != "new-small" {
		t.Errorf("got %+v", e)
	}
	for _, unusable := range []string{"nonsense", "another-1", strings.TrimSuffix(gone.ID, "3") + "99"} {
		if e, _ := following(server, token, unusable).next(); e.Event != "plans" || len(e.Data.Plans) != 4 {
			t.Errorf("after %s comes %s with %d plans", unusable, e.Event, len(e.Data.Plans))
		}
	}
	for name, other := range map[string]func(*httptest.Server, string, string) *reader{"events": w.followingEvents, "socket": w.followingSocket} {
		if e, _ := other(server, token, room.ID).next(); e.ID != gone.ID {
			t.Errorf("%s go on with %s, want %s", name, e.ID, gone.ID)
		}
	}
	go w.handler.EndFollowing()
	w.handler.EndFollowing()
	if e, ok := back.next(); ok {
		t.Errorf("after the end comes %+v", e)
	}
	if back.why != nil && back.why().Code != websocket.StatusGoingAway {
		t.Errorf("it ends with %v", back.why())
	}
}

// TestFollowersHead: asks for the header alone, and follows nothing.
func TestFollowersHead(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/market/v1/changes", nil)
	must(t, err)
	r.Header = followersHeader(w.as("platform:cf"), "")
	for range 2 { // the second on the same connection
		answer, err := http.DefaultClient.Do(r)
		must(t, err)
		must(t, answer.Body.Close())
		if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" || answer.Close {
			t.Errorf("it is answered %s, %v", answer.Status, answer.Header)
		}
	}
	if n := w.handler.server.followers.count(); n != 0 {
		t.Errorf("%d follow", n)
	}
}

// TestNoCallerTakesEveryPlaceOfFollowers: one token, of however many addresses, leaves as many as it has to others.
func TestNoCallerTakesEveryPlaceOfFollowers(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	took, cf := &w.handler.server.followers, access.Caller{Role: access.Platform, Name: "cf"}
	for took.enter(cf) {
	}
	if n := took.count(); n != mostFollowers/2 {
		t.Errorf("a caller has %d places", n)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/market/v1/changes", nil)
	must(t, err)
	r.Header = followersHeader(w.as("platform:cf"), "")
	w.answered(r, http.StatusServiceUnavailable, "Too many clients follow the market here, many of them as platform:cf.")
	for range 2 {
		if _, ok := w.followingEvents(server, w.as("operator"), "").next(); !ok {
			t.Error("another caller hears nothing")
		}
		took.leave(cf)
		took.leave(cf)
		if _, ok := w.followingEvents(server, w.as("platform:cf"), "").next(); !ok {
			t.Error("the caller hears nothing")
		}
	}
}

// TestTheLogIsBounded: in number and in bytes; who is too far behind gets the whole list.
func TestTheLogIsBounded(t *testing.T) {
	l := changeLog{}
	of := func(bytes int) *event { return &event{message: make([]byte, bytes)} }
	for range 2 * mostChanges {
		l.add(of(1))
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
	l.add(of(mostLogged))
	if events, ok := l.since(now, now+1); !ok || len(events) != 1 || l.bytes != mostLogged {
		t.Errorf("beside a large one, %d bytes are kept", l.bytes)
	}
	l.add(of(mostLogged + 1))
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
