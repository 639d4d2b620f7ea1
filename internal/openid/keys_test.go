package openid_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

// anna is the token of a caller.
func (w *world) anna() string {
	w.T.Helper()
	return w.Token(claims{"sub": "anna", "exp": w.clock.Now().Add(time.Hour).Unix()})
}

func (w *world) holds(when, token string) {
	w.T.Helper()
	if got, err := w.names(token); err != nil || got != "platform:anna" {
		w.T.Errorf("%s: got %q, %v", when, got, err)
	}
}

// unknown checks that a token cannot be judged.
func (w *world) unknown(when, token, why string) {
	w.T.Helper()
	if got, err := w.names(token); got != "" || !errors.Is(err, openid.ErrUnavailable) || errors.Is(err, access.ErrRefused) || !strings.Contains(err.Error(), why) {
		w.T.Errorf("%s: got %q, %v; want that it is not known: %s", when, got, err, why)
	}
}

func (w *world) later(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// await waits for a condition that something in the background brings about.
func (w *world) await(what string, met func() bool) {
	w.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); !met(); {
		if time.Now().After(deadline) {
			w.T.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestKeysAreRotated: a new key is known at its first token, and the old one is forgotten.
func TestKeysAreRotated(t *testing.T) {
	w := newWorld(t)
	w.holds("at first", w.anna())
	before := w.Rotate()
	old := func() string {
		return w.Signed(before, nil, w.Claims(claims{"sub": "anna", "exp": w.clock.Now().Add(time.Hour).Unix()}))
	}
	w.later(11 * time.Second)
	w.holds("by the new key", w.anna())
	w.refuses("by the old one", old(), "no key of its issuer has signed it")

	before = w.Rotate()
	w.holds("by a key that was withdrawn since", old())
	w.later(11 * time.Minute)
	w.await("the withdrawn key is forgotten", func() bool { _, err := w.names(old()); return errors.Is(err, access.ErrRefused) })
	w.holds("by the new one", w.anna())
}

// TestUnknownKeysAreAskedForSeldom, however many tokens name some.
func TestUnknownKeysAreAskedForSeldom(t *testing.T) {
	w := newWorld(t)
	for round := range 3 {
		var all sync.WaitGroup
		for i := range 64 {
			key := w.Key()
			key.Name = fmt.Sprint("unknown-", i)
			token := w.Signed(key, nil, w.Claims(claims{"sub": "anna"}))
			all.Go(func() { w.refuses("a key that nobody knows", token, "no key of its issuer has signed it") })
		}
		all.Wait()
		if n := w.KeyFetches.Load(); n != int64(round+1) {
			t.Errorf("after %d times ten seconds, the keys were fetched %d times", round, n)
		}
		w.later(10 * time.Second)
	}
}

// TestKeysServeWhileTheIssuerIsDown: for a day, and not for tokens by keys that are not known.
func TestKeysServeWhileTheIssuerIsDown(t *testing.T) {
	w := newWorld(t)
	w.holds("at first", w.anna())
	w.Instead(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	w.later(23 * time.Hour)
	w.holds("23 hours later", w.anna())
	other := w.Key()
	other.Name = "new"
	w.unknown("a key that is not known", w.Signed(other, nil, w.Claims(nil)), "502 Bad Gateway")
	again, err := w.connections.Read([]openid.Listed{w.Listed(append(callers, openid.ListedCaller{Is: "operator", Claims: map[string]string{"sub": "bert"}})...)})
	if err != nil {
		t.Fatal(err)
	}
	w.issuers = again
	w.holds("after a change of the list", w.anna())
	w.later(61 * time.Minute)
	w.unknown("a day later", w.anna(), "502 Bad Gateway")
	w.Instead(nil)
	w.unknown("within ten seconds of that", w.anna(), "502 Bad Gateway")
	w.later(10 * time.Second)
	w.holds("when it is back", w.anna())
}

// TestIssuersThatMisbehave: no token of theirs is judged, and nobody else is asked.
func TestIssuersThatMisbehave(t *testing.T) {
	var elsewhere atomic.Int64
	stranger := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(stranger.Close)
	document := func(value any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value)
		}
	}
	discovery := func(i *openidtest.Issuer, keys string) http.HandlerFunc {
		return document(claims{"issuer": i.URL, "jwks_uri": keys, "authorization_endpoint": i.URL, "token_endpoint": i.URL})
	}
	huge := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"issuer": "`))
		for chunk := bytes.Repeat([]byte("x"), 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	type at func(i *openidtest.Issuer) http.HandlerFunc
	always := func(h http.HandlerFunc) at { return func(*openidtest.Issuer) http.HandlerFunc { return h } }
	withKeys := func(at func(*openidtest.Issuer) string) at {
		return func(i *openidtest.Issuer) http.HandlerFunc { return discovery(i, at(i)) }
	}
	private := func(i *openidtest.Issuer) http.HandlerFunc {
		return document(claims{"keys": []any{
			jose.JSONWebKey{Key: i.Key().Private, KeyID: i.Key().Name}, claims{"kty": "oct", "k": "c2VjcmV0", "kid": i.Key().Name}, claims{"kty": "new"},
		}})
	}
	for name, row := range map[string]struct {
		discovery, keys at
		why             string
	}{
		"it is not found":                    {discovery: always(http.NotFound), why: "404 Not Found"},
		"it redirects":                       {discovery: always(http.RedirectHandler(stranger.URL, http.StatusFound).ServeHTTP), why: "redirects are not followed"},
		"its keys are elsewhere by redirect": {keys: always(http.RedirectHandler(stranger.URL, http.StatusTemporaryRedirect).ServeHTTP), why: "redirects are not followed"},
		"it answers without end":             {discovery: always(huge), why: "too large"},
		"its keys have no end":               {keys: always(huge), why: "too large"},
		"it is another issuer":               {discovery: always(document(claims{"issuer": stranger.URL, "jwks_uri": stranger.URL})), why: "fetch the keys of"},
		"it answers nonsense":                {discovery: always(document("nonsense")), why: "fetch the keys of"},
		"its keys are nonsense":              {keys: always(document("nonsense")), why: "cannot unmarshal"},
		"it has no keys":                     {keys: always(document(claims{"keys": []any{}})), why: "no public key for signatures"},
		"its keys are secrets":               {keys: private, why: "no public key for signatures"},
		"its keys are on plain HTTP":         {discovery: withKeys(func(i *openidtest.Issuer) string { return "http" + strings.TrimPrefix(i.URL, "https") + "/keys" }), why: "want an https URL"},
		"its keys are on a private network":  {discovery: withKeys(func(*openidtest.Issuer) string { return "https://169.254.169.254/latest" }), why: "169.254.169.254 is not public"},
		"its keys are in a file":             {discovery: withKeys(func(*openidtest.Issuer) string { return "file:///etc/passwd" }), why: "want an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Instead(func(rw http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/keys" && row.keys != nil:
					row.keys(w.Issuer)(rw, r)
				case r.URL.Path != "/keys" && row.discovery != nil:
					row.discovery(w.Issuer)(rw, r)
				default:
					w.Provider(rw, r)
				}
			})
			w.unknown("at first", w.anna(), row.why)
			w.unknown("again", w.anna(), row.why)
			w.Instead(nil)
			w.later(10 * time.Second)
			w.holds("once it behaves", w.anna())
		})
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("a stranger was asked %d times", n)
	}
}

// TestAnIssuerThatHangsKeepsNobodyLonger than they wait, and is asked once for all of them.
func TestAnIssuerThatHangsKeepsNobodyLonger(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int64
	reached := make(chan struct{}, 1)
	w.Instead(func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			reached <- struct{}{}
		}
		<-r.Context().Done()
	})
	ctx, hangUp := context.WithCancel(t.Context())
	token := w.anna()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := w.issuers.Identify(ctx, token); !errors.Is(err, openid.ErrUnavailable) || !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	<-reached
	hangUp()
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
}

// TestAnIssuerAtAPrivateAddressIsReachedIfListed, and not otherwise.
func TestAnIssuerAtAPrivateAddressIsReachedIfListed(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		why    string
		change func(*openid.Listed)
	}{
		{"127.0.0.1 is not public", func(l *openid.Listed) { l.Addresses = nil }},
		{"127.0.0.1 is not public", func(l *openid.Listed) { l.Addresses = []string{"10.0.0.0/8"} }},
		{"certificate", func(l *openid.Listed) { l.CABundle = "" }},
	} {
		listed := w.Listed(callers...)
		row.change(&listed)
		var err error
		if w.issuers, err = w.connections.Read([]openid.Listed{listed}); err != nil {
			t.Fatal(err)
		}
		w.unknown(row.why, w.anna(), row.why)
	}
	if n := w.KeyFetches.Load(); n != 0 {
		t.Errorf("the keys were fetched %d times", n)
	}
}
