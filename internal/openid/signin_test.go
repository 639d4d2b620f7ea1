package openid_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

const back = "https://broker.example/console/signed-in"

// signsIn lists the issuer as one at which people sign in.
func (w *world) signsIn() {
	w.T.Helper()
	w.Register(back)
	listed := w.Listed(callers...)
	listed.Audiences = []string{"for programs only"}
	listed.SignIn = &openid.ListedSignIn{ClientID: openidtest.Audience, ClientSecret: openidtest.ClientSecret, Scopes: []string{"profile"}}
	var err error
	if w.issuers, err = w.connections.Read([]openid.Listed{listed}); err != nil {
		w.T.Fatal(err)
	}
}

// begin begins a sign-in, and returns the query with which somebody comes back from it.
func (w *world) begin(name string) (openid.Pending, url.Values) {
	w.T.Helper()
	to, pending, err := w.issuers.Begin(w.T.Context(), w.URL, back)
	if err != nil {
		w.T.Fatal(err)
	}
	came := w.Authorize(to, name)
	if !strings.HasPrefix(came.String(), back+"?") {
		w.T.Fatalf("%s comes back to %s", name, came)
	}
	return pending, came.Query()
}

func TestPeopleSignIn(t *testing.T) {
	w := newWorld(t)
	w.signsIn()
	if got := w.issuers.SignIns(); len(got) != 1 || got[0] != w.URL {
		t.Errorf("people sign in at %v", got)
	}
	pending, query := w.begin("anna")
	proofs, err := w.issuers.Finish(t.Context(), pending, back, query)
	if err != nil || fmt.Sprint(proofs[0]) != "platform:anna" {
		t.Fatalf("got %v, %v", proofs, err)
	}
	w.refuses("a token for the client, at the API", w.Token(claims{"sub": "anna"}), "it is for another audience")

	for why, change := range map[string]func(*openid.Pending, url.Values){
		"not begun in this browser":                func(_ *openid.Pending, q url.Values) { q.Set("state", "another") },
		"not begun in this browser, or not lately": func(p *openid.Pending, q url.Values) { p.State = ""; q.Del("state") },
		"begun at another issuer":                  func(_ *openid.Pending, q url.Values) { q.Set("iss", "https://other.example") },
		`the issuer says "access_denied"`:          func(_ *openid.Pending, q url.Values) { q.Set("error", "access_denied") },
		"no such issuer":                           func(p *openid.Pending, q url.Values) { p.Issuer = "https://other.example"; q.Del("iss") },
		"does not accept the code":                 func(p *openid.Pending, _ url.Values) { p.Verifier = strings.Repeat("x", 43) },
		"not accept the code":                      func(_ *openid.Pending, q url.Values) { q.Set("code", "another") },
		"is of another sign-in":                    func(p *openid.Pending, _ url.Values) { p.Nonce = "another" },
	} {
		pending, query := w.begin("anna")
		change(&pending, query)
		if got, err := w.issuers.Finish(t.Context(), pending, back, query); !errors.Is(err, access.ErrRefused) || errors.Is(err, openid.ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, %v; want it refused: %s", got, err, why)
		}
	}
	pending, query = w.begin("nobody")
	if got, err := w.issuers.Finish(t.Context(), pending, back, query); !errors.Is(err, access.ErrRefused) || !strings.Contains(err.Error(), "no caller") {
		t.Errorf("nobody: got %v, %v", got, err)
	}

	pending, query = w.begin("anna")
	w.Instead(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	if got, err := w.issuers.Finish(t.Context(), pending, back, query); !errors.Is(err, openid.ErrUnavailable) {
		t.Errorf("the issuer is down: got %v, %v", got, err)
	}
	if _, _, err := w.issuers.Begin(t.Context(), "https://other.example", back); !errors.Is(err, access.ErrRefused) {
		t.Errorf("an issuer that is not listed: %v", err)
	}
}

// TestNobodySignsInOverPlainHTTP, nor where an issuer does not say.
func TestNobodySignsInOverPlainHTTP(t *testing.T) {
	for _, at := range []string{"http://login.example/authorize", "javascript:alert(1)", ""} {
		w := newWorld(t)
		w.signsIn()
		w.Instead(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" {
				w.Provider(rw, r)
				return
			}
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"issuer": %q, "jwks_uri": %q, "authorization_endpoint": %q, "token_endpoint": %q}`, w.URL, w.URL+"/keys", at, w.URL)
		})
		if to, _, err := w.issuers.Begin(t.Context(), w.URL, back); !errors.Is(err, openid.ErrUnavailable) || !strings.Contains(err.Error(), "want https URLs") {
			t.Errorf("%q: got %q, %v", at, to, err)
		}
	}
}
