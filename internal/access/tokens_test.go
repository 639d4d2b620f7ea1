package access

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var operator = Caller{Role: Operator}

// TestATokenNamesItsCaller: whoever it was issued to, until it expires.
func TestATokenNamesItsCaller(t *testing.T) {
	w := newWorld(t)
	w.provider("acme")
	var last string
	for _, caller := range []Caller{operator, {Platform, "cf"}, {Provider, "acme"}} {
		last = w.issued(caller)
		if got, err := w.Verify(t.Context(), last); err != nil || got != caller {
			t.Errorf("the token of %s is of %s, %v", caller, got, err)
		}
	}
	w.clock.SetTime(w.clock.Now().Add(time.Hour - time.Second))
	if _, err := w.Verify(t.Context(), last); err != nil {
		t.Errorf("before its end: %v", err)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.refuses("at its end", last, "has expired")

	for _, wrong := range []Caller{{}, {Operator, "me"}, {Platform, ""}, {Platform, "unknown"}, {Provider, "unknown"}, {"root", "me"}} {
		if _, err := w.Issue(t.Context(), wrong, time.Hour); err == nil {
			t.Errorf("%q got a token", wrong)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Second, MaxLifetime + time.Second} {
		if _, err := w.Issue(t.Context(), operator, ttl); err == nil {
			t.Errorf("a token for %s was issued", ttl)
		}
	}
}

func (w *world) refuses(when, token, why string) {
	w.Helper()
	if got, err := w.Verify(w.Context(), token); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), why) || got != (Caller{}) {
		w.Errorf("%s: got %q, %v; want it refused: %s", when, got, err, why)
	}
}

// TestATokenForAnEntryEndsWithIt: a token of whatever caller, and it ends as the caller's others do besides.
func TestATokenForAnEntryEndsWithIt(t *testing.T) {
	w := newWorld(t)
	w.provider("acme")
	for _, caller := range []Caller{{Platform, "cf"}, {Provider, "acme"}, operator} {
		name := strings.TrimPrefix(caller.String(), "platform:")
		w.platforms[name] = [][sha256.Size]byte{first, second}
		token, err := w.IssueFor(t.Context(), Proof{caller, first}, time.Hour)
		must(t, err)
		if got, err := w.Verify(t.Context(), token); err != nil || got != caller {
			t.Errorf("%s: got %s, %v", caller, got, err)
		}
		w.platforms[name] = w.platforms[name][1:]
		w.refuses(caller.String()+", without the entry", token, "not in the platforms file any more")
		if caller.Role == Platform {
			continue
		}
		token, err = w.IssueFor(t.Context(), Proof{caller, second}, time.Hour)
		must(t, err)
		must(t, w.Revoke(t.Context(), w.Client, caller))
		w.refuses(caller.String()+", revoked", token, "revoked")
	}
	if _, err := w.IssueFor(t.Context(), Proof{Caller{Provider, "nobody"}, first}, time.Hour); !errors.Is(err, ErrUnknown) {
		t.Errorf("a provider that the hub does not have: %v", err)
	}
}

// TestATokenEndsWithWhatItWasIssuedFor: and no other token does.
func TestATokenEndsWithWhatItWasIssuedFor(t *testing.T) {
	w := newWorld(t)
	acme, other := w.provider("acme"), w.provider("other")
	bySecond, err := w.IssueFor(t.Context(), Proof{Caller{Platform, "cf"}, second}, time.Hour)
	must(t, err)
	byFirst := w.issued(Caller{Platform, "cf"})
	ofAcme, ofOther, ofOperator := w.issued(Caller{Provider, "acme"}), w.issued(Caller{Provider, "other"}), w.issued(operator)
	holds := func(when string, tokens ...string) {
		t.Helper()
		for _, token := range tokens {
			if _, err := w.Verify(t.Context(), token); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}

	w.platforms["cf"] = w.platforms["cf"][1:]
	w.refuses("its password is removed", byFirst, "not in the platforms file any more")
	holds("another password is removed", bySecond)
	w.platforms["other"] = append(w.platforms["other"], first)
	w.refuses("another platform has its password", byFirst, "not in the platforms file any more")
	delete(w.platforms, "cf")
	w.refuses("the platform is removed", bySecond, "not in the platforms file any more")

	must(t, w.Revoke(t.Context(), w.Client, Caller{Provider, "acme"}))
	w.refuses("they are revoked", ofAcme, "revoked")
	holds("another provider's are revoked", ofOther)
	holds("after a revocation", w.issued(Caller{Provider, "acme"}))
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(acme), acme))
	ofAcme = w.issued(Caller{Provider, "acme"})
	acme.Spec.DID = "did:web:thief.example"
	must(t, w.Update(t.Context(), acme))
	w.refuses("the provider is somebody else", ofAcme, "revoked")
	must(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(other), other))
	other.Status.UsedNonces = []v1alpha1.UsedNonce{{ID: "n", ExpiresAt: metav1.Now()}}
	must(t, w.Status().Update(t.Context(), other))
	holds("a nonce is used", ofOther)
	must(t, w.Delete(t.Context(), other))
	w.refuses("the provider is removed", ofOther, "not known")
	w.provider("other")
	w.refuses("a provider of that name is added", ofOther, "revoked")

	must(t, w.Revoke(t.Context(), w.Client, operator))
	w.refuses("operators' are revoked", ofOperator, "revoked")
	holds("after that", w.issued(operator))
	if err := w.Revoke(t.Context(), w.Client, Caller{Platform, "cf"}); err == nil {
		t.Error("revoking a platform's did nothing, and said nothing")
	}
}

// TestARotationEndsNoToken: the old key's retirement does.
func TestARotationEndsNoToken(t *testing.T) {
	w := newWorld(t)
	before := w.issued(operator)
	w.rotate("second")
	after := w.issued(operator)
	for _, token := range []string{before, after} {
		if _, err := w.Verify(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	w.retire("first")
	w.refuses("its key is retired", before, "retired")
	if _, err := w.Verify(t.Context(), after); err != nil {
		t.Error(err)
	}
}

// TestForgedTokensAreRefused: RFC 8725, section 2.
func TestForgedTokensAreRefused(t *testing.T) {
	w := newWorld(t)
	key, now := w.signingKey(), w.clock.Now()
	id := w.stored()
	good := func() claims {
		return claims{Issuer: broker, Audience: jwt.Audience{broker}, Subject: "operator", ID: "1", IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour)), Grounds: operators(id)}
	}
	sign := func(with jose.SigningKey, typ string, c claims) string {
		t.Helper()
		signer, err := jose.NewSigner(with, (&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
		must(t, err)
		token, err := jwt.Signed(signer).Claims(c).Serialize()
		must(t, err)
		return token
	}
	ours := jose.SigningKey{Algorithm: algorithm, Key: key}
	if got, err := w.Verify(t.Context(), sign(ours, typeToken, good())); err != nil || got != operator {
		t.Fatalf("a right one: %q, %v", got, err)
	}

	foreign := newWorld(t).signingKey()
	foreign.KeyID = key.KeyID
	stranger := foreign
	stranger.KeyID = broker + "#another"
	public, err := json.Marshal(key.Public())
	must(t, err)
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: foreign.Key}, (&jose.SignerOptions{EmbedJWK: true}).WithType(typeToken))
	must(t, err)
	withKey, err := jwt.Signed(embedded).Claims(good()).Serialize()
	must(t, err)
	part := func(v any) string {
		raw, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	right := sign(ours, typeToken, good())
	head, rest, _ := strings.Cut(right, ".")
	body, signature, _ := strings.Cut(rest, ".")
	other := good()
	other.Subject = "provider:acme"

	for name, token := range map[string]string{
		"nothing":                     "",
		"no JWT":                      "token",
		"too long":                    right + strings.Repeat("A", maxBytes),
		"no algorithm":                part(map[string]any{"alg": "none", "typ": typeToken, "kid": key.KeyID}) + "." + body + ".",
		"no algorithm, a signature":   part(map[string]any{"alg": "none", "typ": typeToken, "kid": key.KeyID}) + "." + body + "." + signature,
		"the public key as a secret":  sign(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: public, KeyID: key.KeyID}}, typeToken, good()),
		"another's key, our name":     sign(jose.SigningKey{Algorithm: algorithm, Key: foreign}, typeToken, good()),
		"another's key":               sign(jose.SigningKey{Algorithm: algorithm, Key: stranger}, typeToken, good()),
		"a key that it brings":        withKey,
		"other claims":                head + "." + part(other) + "." + signature,
		"no signature":                head + "." + body + ".",
		"JSON serialisation":          `{"payload":"` + body + `","protected":"` + head + `","signature":"` + signature + `"}`,
		"a critical header":           part(map[string]any{"alg": "ES256", "typ": typeToken, "kid": key.KeyID, "crit": []string{"x"}, "x": 1}) + "." + body + "." + signature,
		"a ticket":                    sign(ours, typeTicket, good()),
		"a credential":                sign(ours, "vc+jwt", good()),
		"a token of another standard": sign(ours, "at+jwt", good()),
	} {
		w.refuses(name, token, "")
	}
	for name, change := range map[string]func(*claims){
		"another audience":      func(c *claims) { c.Audience = jwt.Audience{"did:web:other.example"} },
		"two audiences":         func(c *claims) { c.Audience = append(c.Audience, "did:web:other.example") },
		"no audience":           func(c *claims) { c.Audience = nil },
		"another issuer":        func(c *claims) { c.Issuer = "did:web:other.example" },
		"no end":                func(c *claims) { c.Expiry = nil },
		"an end in the past":    func(c *claims) { c.Expiry = jwt.NewNumericDate(now) },
		"an end too far away":   func(c *claims) { c.Expiry = jwt.NewNumericDate(now.Add(MaxLifetime + time.Second)) },
		"no beginning":          func(c *claims) { c.IssuedAt = nil },
		"a beginning to come":   func(c *claims) { c.IssuedAt = jwt.NewNumericDate(now.Add(2 * skew)) },
		"no id":                 func(c *claims) { c.ID = "" },
		"another role":          func(c *claims) { c.Subject = "root" },
		"an operator with name": func(c *claims) { c.Subject = "operator:" },
		"nobody":                func(c *claims) { c.Subject = "" },
		"no grounds":            func(c *claims) { c.Grounds = "" },
		"a platform's grounds":  func(c *claims) { c.Subject = "platform:cf" },
	} {
		c := good()
		change(&c)
		w.refuses(name, sign(ours, typeToken, c), "")
	}
}

// TestABrokerWithoutANameHasTokens: of its own, which no other broker accepts.
func TestABrokerWithoutANameHasTokens(t *testing.T) {
	w := newWorld(t)
	named := w.issued(operator)
	id := w.stored()
	id.Spec.DID = ""
	must(t, w.Update(t.Context(), id))
	if got, err := w.Verify(t.Context(), w.issued(operator)); err != nil || got != operator {
		t.Errorf("got %q, %v", got, err)
	}
	w.refuses("issued under another name", named, "another broker")
}
