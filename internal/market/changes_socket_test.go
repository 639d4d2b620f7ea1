package market

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-dev/sluice/internal/access"
)

// TestWebSocketsThatAreNotOpened: with the status and the reason of the API, and as it is described.
func TestWebSocketsThatAreNotOpened(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	for name, row := range map[string]struct {
		header map[string]string
		status int
		why    string
	}{
		"another's page":             {map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden, "Origin: want " + host + " or none; https://evil.example may not"},
		"a page of the host's name":  {map[string]string{"Origin": "https://" + host + ".evil.example"}, http.StatusForbidden, "Origin: "},
		"a page without an origin":   {map[string]string{"Origin": "null"}, http.StatusForbidden, "Origin: "},
		"the broker's page":          {map[string]string{"Origin": "http://" + host}, http.StatusSwitchingProtocols, ""},
		"a token that does not hold": {map[string]string{"Authorization": "Bearer x"}, http.StatusUnauthorized, "Authorization: "},
		"no token":                   {map[string]string{"Authorization": ""}, http.StatusUnauthorized, "Authorization: "},
		"another version":            {map[string]string{"Sec-WebSocket-Version": "8"}, http.StatusBadRequest, "opens no WebSocket: unsupported WebSocket protocol version"},
		"no key":                     {map[string]string{"Sec-WebSocket-Key": "x"}, http.StatusBadRequest, "Sec-WebSocket-Key"},
		"no upgrade":                 {map[string]string{"Connection": "keep-alive"}, http.StatusUpgradeRequired, "Connection header"},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/market/v1/changes", nil)
			must(t, err)
			for name, value := range map[string]string{"Authorization": "Bearer " + w.as("platform:cf"), "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
				r.Header.Set(name, value)
			}
			for name, value := range row.header {
				r.Header.Set(name, value)
			}
			w.answered(r, row.status, row.why)
		})
	}
	w.T = t
}

// answered sends a request to a real server, and checks its answer as refused does.
func (w *world) answered(r *http.Request, status int, why string) {
	w.Helper()
	answer, err := http.DefaultTransport.RoundTrip(r)
	must(w.T, err)
	defer answer.Body.Close()
	body := make([]byte, 4096)
	n := 0
	if status != http.StatusSwitchingProtocols {
		n, _ = answer.Body.Read(body)
	}
	if wrong := w.described.judge(r.Method, r.URL.Path, answer, body[:n]); wrong != "" || answer.StatusCode != status || !strings.Contains(string(body[:n]), why) {
		w.Errorf("it is answered %d, %s; want %d, %q; %s", answer.StatusCode, body[:n], status, why, wrong)
	}
}

// TestWebSocketsThatEnd: with their token, with a message, and without a pong.
func TestWebSocketsThatEnd(t *testing.T) {
	w := newWorld(t)
	w.options.Heartbeat, w.options.Patience = 50*time.Millisecond, 300*time.Millisecond
	w.start()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	ends := func(name string, f *reader, code websocket.StatusCode, reason string) {
		t.Helper()
		e, ok := f.next()
		for ok {
			e, ok = f.next()
		}
		if f.why().Code != code || !strings.Contains(f.why().Reason, reason) {
			t.Errorf("%s: after %+v it ends with %v", name, e, f.why())
		}
	}
	talks, revoked := w.followingSocket(server, w.as("platform:cf"), ""), w.followingSocket(server, w.as("provider:acme"), "")
	talks.next()
	must(t, talks.conn.Write(t.Context(), websocket.MessageText, make([]byte, 1<<20)))
	ends("a message", talks, websocket.StatusPolicyViolation, "unexpected data message")
	revoked.next()
	time.Sleep(4 * w.options.Heartbeat) // while it reads nothing, pongs are still owed
	must(t, w.options.Tokens.Revoke(t.Context(), w.Client, access.Caller{Role: access.Provider, Name: "acme"}))
	ends("a token", revoked, websocket.StatusPolicyViolation, "the token has ended")

	silent := w.followingSocket(server, w.as("platform:cf"), "")
	silent.next()
	time.Sleep(3 * (w.options.Heartbeat + w.options.Patience))
	if e, ok := silent.next(); ok || silent.why().Code != 0 {
		t.Errorf("without a pong comes %+v, %v", e, silent.why())
	}
}

// TestASlowReader: ends, in either encoding, and keeps nobody waiting.
func TestASlowReader(t *testing.T) {
	w := newWorld(t)
	sell(t, w.catalog, many(8_000)...)
	w.options.Heartbeat, w.options.Patience = time.Hour, time.Second
	w.start()
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	token := w.as("platform:cf")
	for name, header := range map[string]string{
		"events": "", "socket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		must(t, err)
		t.Cleanup(func() { conn.Close() })
		must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = conn.Write([]byte("GET /market/v1/changes HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + "\r\n" + header + "\r\n"))
		must(t, err)
		quick, _, err := websocket.Dial(t.Context(), server.URL+"/market/v1/changes", &websocket.DialOptions{HTTPHeader: followersHeader(token, "")})
		must(t, err)
		quick.SetReadLimit(-1)
		if _, _, err := quick.Read(t.Context()); err != nil {
			t.Errorf("beside a slow reader, another: %v", err)
		}
		must(t, quick.CloseNow())
		w.eventually(name+" end", func() string {
			if left := w.handler.server.followers.count(); left > 0 {
				return fmt.Sprintf("%d followers", left)
			}
			return ""
		})
	}
}
