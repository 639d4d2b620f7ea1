package openid_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

type claims = map[string]any

// callers of the issuers of these tests.
var callers = []openid.ListedCaller{
	{Is: "operator", Claims: map[string]string{"groups": "operators"}},
	{Is: "platform:ci", Claims: map[string]string{"sub": "repo:acme/shop", "ref": "main"}},
	{Is: "provider:acme", Claims: map[string]string{"tenant": "7", "email_verified": "true"}},
	{Is: "platform:anna", Claims: map[string]string{"sub": "anna"}},
}

// world is an issuer, and who verifies its tokens.
type world struct {
	*testing.T
	*openidtest.Issuer
	clock       *clocktesting.FakePassiveClock
	connections *openid.Connections
	issuers     *openid.Issuers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Issuer: openidtest.Start(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	w.connections = &openid.Connections{Clock: w.clock}
	var err error
	if w.issuers, err = w.connections.Read([]openid.Listed{w.Listed(callers...)}); err != nil {
		t.Fatal(err)
	}
	return w
}

// names returns whom a token identifies.
func (w *world) names(token string) (string, error) {
	proofs, err := w.issuers.Identify(w.T.Context(), token)
	var names []string
	for _, proven := range proofs {
		names = append(names, proven.String())
	}
	return strings.Join(names, " "), err
}

// refuses checks that a token is refused, for a reason that does not quote it.
func (w *world) refuses(when, token, why string) {
	w.T.Helper()
	got, err := w.names(token)
	if got != "" || !errors.Is(err, access.ErrRefused) || errors.Is(err, openid.ErrUnavailable) || !strings.Contains(err.Error(), why) {
		w.T.Errorf("%s: got %q, %v; want it refused: %s", when, got, err, why)
	}
	if err != nil && len(token) > 20 && strings.Contains(err.Error(), token[len(token)/2:]) {
		w.T.Errorf("%s: the error quotes the token: %v", when, err)
	}
}

func TestATokenIdentifiesCallers(t *testing.T) {
	w := newWorld(t)
	ci := claims{"sub": "repo:acme/shop", "ref": "main"}
	for name, row := range map[string]struct{ token, want string }{
		"somebody who has signed in":   {w.SignIn("anna"), "platform:anna"},
		"all claims":                   {w.Token(ci), "platform:ci"},
		"one of several audiences":     {w.Token(claims{"sub": "anna", "aud": []string{"other", openidtest.Audience}}), "platform:anna"},
		"a list with the value":        {w.Token(claims{"groups": []string{"users", "operators"}}), "operator"},
		"several, in the list's order": {w.Token(claims{"sub": "anna", "groups": "operators"}), "operator platform:anna"},
		"a number and a boolean":       {w.Token(claims{"tenant": 7, "email_verified": true}), "provider:acme"},
		"an access token":              {w.Signed(w.Key(), map[jose.HeaderKey]any{"typ": "at+jwt"}, w.Claims(ci)), "platform:ci"},
		"nbf within the skew":          {w.Token(claims{"sub": "anna", "nbf": w.clock.Now().Add(time.Minute).Unix()}), "platform:anna"},
	} {
		if got, err := w.names(row.token); err != nil || got != row.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, row.want)
		}
	}
	for name, wrong := range map[string]claims{
		"nothing of it":          {},
		"one claim of two":       {"sub": "repo:acme/shop"},
		"another value":          {"sub": "repo:acme/shop", "ref": "mainline"},
		"a list without it":      {"groups": []string{"operators2"}},
		"a list in a list":       {"groups": []any{[]string{"operators"}}},
		"an object":              {"groups": claims{"operators": true}},
		"another number":         {"tenant": 7.5, "email_verified": true},
		"null":                   {"sub": "repo:acme/shop", "ref": json.RawMessage("null")},
		"a text with more to it": {"sub": "anna\n"},
	} {
		w.refuses(name, w.Token(wrong), "no caller that the platforms file lists")
	}
	if n := w.KeyFetches.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

// TestAttacks: nothing that a stranger can make is taken for a token of the issuer, and nothing is fetched for it.
func TestAttacks(t *testing.T) {
	w, other := newWorld(t), openidtest.Start(t)
	right := w.Token(claims{"sub": "anna"})
	if got, err := w.names(right); err != nil || got != "platform:anna" {
		t.Fatalf("the right token: %q, %v", got, err)
	}
	fetched := w.KeyFetches.Load()
	valid := w.Claims(claims{"sub": "anna"})
	public, err := x509.MarshalPKIXPublicKey(w.PublicKey())
	if err != nil {
		t.Fatal(err)
	}
	secret := func(bytes []byte) openidtest.Key {
		return openidtest.Key{Name: w.Key().Name, Algorithm: jose.HS256, Private: bytes}
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	asJWK, err := json.Marshal(jose.JSONWebKey{Key: w.PublicKey()})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	strangers := openidtest.Key{Name: w.Key().Name, Algorithm: jose.ES256, Private: stranger}
	part := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	parts := strings.Split(right, ".")
	const noKey, noJWT = "no key of its issuer has signed it", "it is not a JWT"
	signed := func(changes claims) string { return w.Token(changes) }
	now := w.clock.Now()
	for _, row := range []struct{ name, token, why string }{
		{"nothing", "", noJWT},
		{"a password", "hush-hush", noJWT},
		{"none", part(claims{"alg": "none"}) + "." + part(valid) + ".", noJWT},
		{"None, with a signature", part(claims{"alg": "None"}) + "." + part(valid) + "." + parts[2], noJWT},
		{"HS256 with the public key in PEM", w.Signed(secret(asPEM), nil, valid), noJWT},
		{"HS256 with the public key in DER", w.Signed(secret(public), nil, valid), noJWT},
		{"HS256 with the public key as JWK", w.Signed(secret(asJWK), nil, valid), noJWT},
		{"no signature", parts[0] + "." + parts[1] + ".", noKey},
		{"other claims", parts[0] + "." + part(w.Claims(claims{"groups": "operators"})) + "." + parts[2], noKey},
		{"another algorithm", part(claims{"alg": "PS256", "kid": w.Key().Name}) + "." + parts[1] + "." + parts[2], noKey},
		{"a stranger's key by the same name", w.Signed(strangers, nil, valid), noKey},
		{"a stranger's key without a name", w.Signed(openidtest.Key{Algorithm: jose.ES256, Private: stranger}, nil, valid), noKey},
		{"a key in the header", w.Signed(strangers, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: stranger.Public()}}, valid), noKey},
		{"a URL of keys in the header", w.Signed(strangers, map[jose.HeaderKey]any{"jku": other.URL + "/keys", "x5u": other.URL + "/keys"}, valid), noKey},
		{"an issuer that is not listed", other.Token(claims{"sub": "anna"}), "its issuer is none"},
		{"another issuer's key", w.Signed(other.Key(), nil, valid), noKey},
		{"another issuer's claim", signed(claims{"sub": "anna", "iss": other.URL}), "its issuer is none"},
		{"the issuer with a slash", signed(claims{"sub": "anna", "iss": w.URL + "/"}), "its issuer is none"},
		{"no issuer", signed(claims{"sub": "anna", "iss": nil}), "its issuer is none"},
		{"an issuer that is a list", signed(claims{"sub": "anna", "iss": []string{w.URL}}), "its claims are no JSON object"},
		{"another audience", signed(claims{"sub": "anna", "aud": "other"}), "it is for another audience"},
		{"no audience", signed(claims{"sub": "anna", "aud": nil}), "it is for another audience"},
		{"expired", signed(claims{"sub": "anna", "exp": now.Add(-time.Second).Unix()}), "it has expired"},
		{"no expiry", signed(claims{"sub": "anna", "exp": nil}), "it has expired, or has no expiry"},
		{"not yet valid", signed(claims{"sub": "anna", "nbf": now.Add(time.Hour).Unix()}), "before the nbf"},
		{"a logout token", w.Signed(w.Key(), map[jose.HeaderKey]any{"typ": "logout+jwt"}, valid), "neither an id token nor an access token"},
		{"a logout token without a type", signed(claims{"sub": "anna", "events": claims{"http://schemas.openid.net/event/backchannel-logout": claims{}}}), "it reports events"},
		{"claims that are no object", w.Signed(w.Key(), nil, []string{"anna"}), "its claims are no JSON object"},
		{"too long", signed(claims{"sub": "anna", "pad": strings.Repeat("x", 16<<10)}), "it is longer than 16384 bytes"},
		{"two signatures", `{"payload":"` + parts[1] + `","signatures":[]}`, noJWT},
	} {
		w.refuses(row.name, row.token, row.why)
	}
	if got, err := w.names(right); err != nil || got != "platform:anna" {
		t.Errorf("afterwards, the right token: %q, %v", got, err)
	}
	if n, m := w.KeyFetches.Load()-fetched, other.KeyFetches.Load(); n != 0 || m != 0 {
		t.Errorf("keys were fetched %d times from the issuer, within ten seconds, and %d times from another", n, m)
	}
}

// TestTheListIsChecked: errors name the entry and the field.
func TestTheListIsChecked(t *testing.T) {
	listed := func(change func(*openid.Listed)) []openid.Listed {
		one := openid.Listed{Issuer: "https://login.example", Audiences: []string{"sluice"}, Callers: callers[:1]}
		change(&one)
		return []openid.Listed{one}
	}
	caller := func(is string, claims map[string]string) []openid.Listed {
		return listed(func(l *openid.Listed) { l.Callers = []openid.ListedCaller{{Is: is, Claims: claims}} })
	}
	some := map[string]string{"sub": "x"}
	for want, list := range map[string][]openid.Listed{
		"":                             listed(func(*openid.Listed) {}),
		"is listed twice":              append(listed(func(*openid.Listed) {}), listed(func(*openid.Listed) {})...),
		"issuer: want an https URL":    listed(func(l *openid.Listed) { l.Issuer = "http://login.example" }),
		"without user":                 listed(func(l *openid.Listed) { l.Issuer = "https://a:b@login.example" }),
		"query and fragment":           listed(func(l *openid.Listed) { l.Issuer = "https://login.example?a=b" }),
		"audiences: want at least":     listed(func(l *openid.Listed) { l.Audiences = nil }),
		"none of them empty":           listed(func(l *openid.Listed) { l.Audiences = []string{"sluice", ""} }),
		"caBundle: ":                   listed(func(l *openid.Listed) { l.CABundle = "PEM" }),
		"addresses: ":                  listed(func(l *openid.Listed) { l.Addresses = []string{"10.0.0.1"} }),
		"callers: want":                listed(func(l *openid.Listed) { l.Callers = nil }),
		"callers[0].is: ":              caller("platform", some),
		"want operator, platform:":     caller("operator:anna", some),
		"callers[0].claims: want":      caller("operator", nil),
		"claims: a name or a value is": caller("operator", map[string]string{"sub": ""}),
	} {
		_, err := new(openid.Connections).Read(list)
		if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && (!strings.Contains(got, want) || !strings.HasPrefix(got, "openid[") || strings.Contains(got, "a:b@")) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// BenchmarkIdentify shows the cost of a request with a token, by the algorithm of its signature.
func BenchmarkIdentify(b *testing.B) {
	issuer := openidtest.Start(b)
	for range 2 {
		issuers, err := new(openid.Connections).Read([]openid.Listed{issuer.Listed(callers...)})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(issuer.Key().Algorithm), func(b *testing.B) {
			token := issuer.Token(claims{"sub": "anna"})
			for b.Loop() {
				if _, err := issuers.Identify(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
		issuer.Rotate()
	}
}
