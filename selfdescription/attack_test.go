package selfdescription

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription/did"
)

// Every row is a credential that the owner of a published key might make. The step meant for it
// refuses it, and the message gives the reason.
func TestForgedCredentialsAreRefused(t *testing.T) {
	for _, row := range []struct {
		name  string
		forge func(*world, *forgery)
		step  StepName
		want  string // in the message
	}{
		{"no algorithm", func(_ *world, f *forgery) { delete(f.header, "alg") }, StepParse, "/alg"},
		{"algorithm none", func(_ *world, f *forgery) {
			f.header["alg"] = "none"
			f.after = func(s string) string { return s[:strings.LastIndex(s, ".")+1] }
		}, StepAlgorithm, `got "none"`},
		{"algorithm None in another case", func(_ *world, f *forgery) { f.header["alg"] = "NoNe" }, StepAlgorithm, `got "NoNe"`},
		{"algorithm not on the list", func(_ *world, f *forgery) { f.header["alg"] = "ES512" }, StepAlgorithm, `got "ES512"`},
		{"algorithm of another kind of key", func(w *world, f *forgery) {
			key := w.keys[provider]
			key.Algorithm = "" // as many publish theirs
			w.keys[provider] = key
			f.header["alg"] = "ES256"
		}, StepKey, "does not fit algorithm ES256"},
		{"algorithm other than the JWK's", func(w *world, f *forgery) {
			key := w.keys[provider]
			key.Algorithm = "ES256"
			w.keys[provider] = key
		}, StepKey, "the key is for ES256"},
		{"key for encryption", func(w *world, f *forgery) {
			key := w.keys[provider]
			key.Use = "enc"
			w.keys[provider] = key
		}, StepKey, `"enc"`},

		{"header jwk", func(_ *world, f *forgery) { f.header["jwk"] = f.key.Public() }, StepParse, "/jwk"},
		{"header jku", func(_ *world, f *forgery) { f.header["jku"] = "https://rival.example/jwks.json" }, StepParse, "/jku"},
		{"header x5c", func(_ *world, f *forgery) { f.header["x5c"] = []string{"MIIB"} }, StepParse, "/x5c"},
		{"header x5u", func(_ *world, f *forgery) { f.header["x5u"] = "https://rival.example/chain.pem" }, StepParse, "/x5u"},
		{"header crit", func(_ *world, f *forgery) { f.header["crit"] = []string{"exp"} }, StepParse, "/crit"},
		{"header b64", func(_ *world, f *forgery) { f.header["b64"] = false }, StepParse, "/b64"},

		{"typ JWT", func(_ *world, f *forgery) { f.header["typ"] = "JWT" }, StepParse, "/typ"},
		{"typ of a presentation", func(_ *world, f *forgery) { f.header["typ"], f.header["cty"] = "vp+jwt", "vp" }, StepParse, "/typ"},
		{"no typ", func(_ *world, f *forgery) { delete(f.header, "typ") }, StepParse, "/typ"},
		{"cty of another generation", func(_ *world, f *forgery) { f.header["cty"] = "vc+ld+json" }, StepParse, "/cty"},
		{"an audience", func(_ *world, f *forgery) { f.payload["aud"] = broker }, StepParse, "/aud"},
		{"a twin of credentialStatus", func(_ *world, f *forgery) {
			f.payload["https://www.w3.org/2018/credentials#credentialStatus"] = []any{}
		}, StepParse, "want the term"},
		{"a twin of issuer", func(_ *world, f *forgery) { f.payload["cred:issuer"] = rival }, StepParse, "want the term"},
		{"a twin of id", func(_ *world, f *forgery) { f.payload["@id"] = "https://rival.example/vc" }, StepParse, "/@id"},
		{"a twin of type", func(_ *world, f *forgery) { f.payload["@type"] = "LegalPerson" }, StepParse, "/@type"},
		{"a graph", func(_ *world, f *forgery) { f.payload["@graph"] = []any{} }, StepParse, "/@graph"},
		{"a proof beside the signature", func(_ *world, f *forgery) { f.payload["proof"] = object{"type": "DataIntegrityProof"} }, StepParse, "/proof"},
		{"claim vc", func(_ *world, f *forgery) { f.payload["vc"] = object{"type": "VerifiableCredential"} }, StepParse, "/vc"},
		{"claim vp", func(_ *world, f *forgery) { f.payload["vp"] = object{} }, StepParse, "/vp"},
		{"dates of VCDM 1.1", func(_ *world, f *forgery) { f.payload["expirationDate"] = "2030-01-01T00:00:00Z" }, StepParse, "/expirationDate"},
		{"no VerifiableCredential", func(_ *world, f *forgery) { f.payload["type"] = []string{"ComputeServiceOffering"} }, StepParse, "/type"},

		{"duplicate name in the header", func(_ *world, f *forgery) {
			f.rawHeader = doubled(f.header, `"alg":"none"`)
		}, StepParse, `duplicate member at "/alg"`},
		{"duplicate name in the payload", func(_ *world, f *forgery) {
			f.rawPayload = doubled(f.payload, `"issuer":"did:web:rival.example"`)
		}, StepParse, `duplicate member at "/issuer"`},
		{"duplicate name in an escaped form", func(_ *world, f *forgery) {
			f.rawPayload = doubled(f.payload, `"\u0069ssuer":"did:web:rival.example"`)
		}, StepParse, `duplicate member at "/issuer"`},
		{"trailing data after the header", func(_ *world, f *forgery) { f.rawHeader = doubled(f.header, "") + "{}" }, StepParse, "trailing data"},
		{"trailing data after the payload", func(_ *world, f *forgery) { f.rawPayload = doubled(f.payload, "") + "{}" }, StepParse, "trailing data"},
		{"payload too deep", func(_ *world, f *forgery) {
			f.rawPayload = doubled(f.payload, `"deep":`+strings.Repeat("[", 40)+strings.Repeat("]", 40))
		}, StepParse, "too deep"},
		{"payload that is an array", func(_ *world, f *forgery) { f.rawPayload = "[]" }, StepParse, "want an object"},
		{"payload that is nothing", func(_ *world, f *forgery) { f.rawPayload = "null" }, StepParse, "want an object"},
		{"too large", func(_ *world, f *forgery) { f.payload["name"] = strings.Repeat("x", MaxCredential) }, StepParse, "longer than"},
		{"four parts", func(_ *world, f *forgery) { f.after = func(s string) string { return s + "." } }, StepParse, "4 parts"},
		{"line break in base64url", func(_ *world, f *forgery) { f.after = func(s string) string { return s + "\n" } }, StepParse, "line break"},
		{"padding in base64url", func(_ *world, f *forgery) { f.after = func(s string) string { return s + "==" } }, StepParse, "signature"},
		{"padding in base64url of the header", func(_ *world, f *forgery) {
			f.after = func(s string) string { return strings.Replace(s, ".", "=.", 1) }
		}, StepParse, "header: illegal base64"},
		{"header that signatures are not made with", func(_ *world, f *forgery) { f.header["nonce"] = 1 }, StepSignature, "not what"},
		{"stray bits in base64url", func(_ *world, f *forgery) { f.after = strayBits }, StepParse, "signature"},

		{"no first context", func(_ *world, f *forgery) { f.payload["@context"] = []string{ContextGaiaX} }, StepParse, "/@context/0"},
		{"contexts in another order", func(_ *world, f *forgery) { f.payload["@context"] = []string{ContextGaiaX, ContextCredentials} }, StepParse, "/@context/0"},
		{"unknown context", func(_ *world, f *forgery) {
			f.payload["@context"] = []string{ContextCredentials, ContextGaiaX, "https://rival.example/ns"}
		}, StepParse, "/@context/2"},
		{"context that differs by a slash", func(_ *world, f *forgery) {
			f.payload["@context"] = []string{ContextCredentials, "https://w3id.org/gaia-x/development/#"}
		}, StepParse, "/@context/1"},
		{"one context twice", func(_ *world, f *forgery) {
			f.payload["@context"] = []string{ContextCredentials, ContextGaiaX, ContextGaiaX}
		}, StepParse, "a second time"},
		{"inline context redefines countryCode", func(_ *world, f *forgery) {
			f.payload["@context"] = []any{ContextCredentials, ContextGaiaX, object{"countryCode": "https://schema.org/name"}}
		}, StepParse, "/@context/2: want a URL"},
		{"inline context in the subject", func(_ *world, f *forgery) {
			f.subject()["@context"] = object{"labelLevel": "https://schema.org/name"}
		}, StepParse, "/credentialSubject/@context"},
		{"inline context deep in the subject", func(_ *world, f *forgery) {
			f.subject()["providedBy"] = object{"id": "https://provider.example/lp", "x": []any{object{"@context": object{}}}}
		}, StepParse, "/credentialSubject/providedBy/x/0/@context"},
		{"keyword @reverse", func(_ *world, f *forgery) { f.subject()["@reverse"] = object{} }, StepParse, "/@reverse"},
		{"type whose context is not there", func(_ *world, f *forgery) { f.payload["@context"] = []string{ContextCredentials} }, StepParse, "which defines"},
		{"one term in two forms", func(_ *world, f *forgery) {
			f.subject()["gx:hostedOn"] = object{"id": "https://rival.example/dc"}
		}, StepParse, "in another form"},
		{"one term as a full IRI", func(_ *world, f *forgery) {
			f.subject()[ContextGaiaX+"hostedOn"] = object{"id": "https://rival.example/dc"}
		}, StepParse, "in another form"},
		{"foreign claim in a closed shape", func(_ *world, f *forgery) { f.subject()["madeUp"] = "x" }, StepShape, "/credentialSubject/madeUp"},
		{"more violations than are named", func(_ *world, f *forgery) {
			for i := range 7 {
				f.subject()[fmt.Sprintf("madeUp%d", i)] = "x"
			}
		}, StepShape, "; and 2 more"},
		{"required attribute left out", func(_ *world, f *forgery) { delete(f.subject(), "providedBy") }, StepShape, "/credentialSubject/providedBy"},
		{"unknown type", func(_ *world, f *forgery) { f.subject()["type"] = "KubernetesCluster" }, StepShape, "KubernetesCluster"},
		{"status list in place of a self-description", func(_ *world, f *forgery) {
			f.payload["credentialSubject"] = object{"id": "https://provider.example/l#list", "type": TypeStatusList, "statusPurpose": "revocation", "encodedList": "u"}
		}, StepShape, TypeStatusList},
		{"claims beside a literal", func(_ *world, f *forgery) {
			f.subject()["name"] = object{"@value": "Kubernetes", "description": "x"}
		}, StepParse, "/credentialSubject/name/description"},
		{"language beside a literal", func(_ *world, f *forgery) {
			f.subject()["name"] = object{"@value": "Kubernetes", "@language": "en"}
		}, StepParse, "/credentialSubject/name/@language"},
		{"literal that is an object", func(_ *world, f *forgery) {
			f.subject()["name"] = object{"@value": object{"hostedOn": "x"}}
		}, StepParse, "/credentialSubject/name/@value"},
		{"relative id", func(_ *world, f *forgery) { f.subject()["id"] = "k8s" }, StepParse, "/credentialSubject/id"},
		{"two subjects", func(_ *world, f *forgery) { f.payload["credentialSubject"] = []any{f.subject(), f.subject()} }, StepParse, "/credentialSubject: want one object"},
		{"subject that is a literal", func(_ *world, f *forgery) { f.payload["credentialSubject"] = object{"@value": "x"} }, StepParse, "got a literal"},
		{"subject without id", func(_ *world, f *forgery) { delete(f.subject(), "id") }, StepParse, "/credentialSubject/id"},
		{"subject without type", func(_ *world, f *forgery) { delete(f.subject(), "type") }, StepParse, "/credentialSubject/type"},
		{"subject of two types", func(_ *world, f *forgery) { f.subject()["type"] = []string{"ComputeServiceOffering", "LegalPerson"} }, StepParse, "/credentialSubject/type"},
		{"id that is no text", func(_ *world, f *forgery) { f.payload["id"] = 1 }, StepParse, "/id"},

		{"issuer other than the key's", func(_ *world, f *forgery) { f.payload["issuer"] = rival }, StepParse, "/issuer"},
		{"issuer object other than the key's", func(_ *world, f *forgery) { f.payload["issuer"] = object{"id": rival} }, StepParse, "/issuer"},
		{"no issuer", func(_ *world, f *forgery) { delete(f.payload, "issuer") }, StepParse, "/issuer"},
		{"iss other than the key's", func(_ *world, f *forgery) { f.payload["iss"] = rival }, StepParse, "payload: /iss"},
		{"iss in the header other than the key's", func(_ *world, f *forgery) { f.header["iss"] = rival }, StepParse, "header: /iss"},
		{"kid of somebody else", func(_ *world, f *forgery) { f.header["kid"] = rival + "#key-1" }, StepParse, "/iss"},
		{"everything of somebody else but the key", func(_ *world, f *forgery) {
			f.header["kid"], f.header["iss"], f.payload["iss"], f.payload["issuer"] = rival+"#key-1", rival, rival, rival
		}, StepSignature, "not what"},
		{"kid that is no DID URL", func(_ *world, f *forgery) { f.header["kid"] = "key-1" }, StepParse, "/kid"},
		{"kid without fragment", func(_ *world, f *forgery) { f.header["kid"] = provider }, StepParse, "/kid"},
		{"kid that is a URL", func(_ *world, f *forgery) { f.header["kid"] = "https://provider.example/key#1" }, StepParse, "/kid"},
		{"kid with a path", func(_ *world, f *forgery) { f.header["kid"] = provider + "/../x#key-1" }, StepParse, "/kid"},
		{"kid that was withdrawn", func(_ *world, f *forgery) { f.header["kid"] = provider + "#key-0" }, StepKey, "not published"},
		{"jti other than the id", func(_ *world, f *forgery) {
			f.payload["id"], f.payload["jti"] = "https://provider.example/vc", "https://rival.example/vc"
		}, StepParse, "/jti"},
		{"sub other than the subject", func(_ *world, f *forgery) { f.payload["sub"] = rival }, StepParse, "/sub"},

		{"expired by validUntil", func(_ *world, f *forgery) { f.payload["validUntil"] = "2026-11-20T11:58:59Z" }, StepWindow, "/validUntil: ended"},
		{"expired by exp", func(_ *world, f *forgery) { f.payload["exp"] = at.Add(-DefaultSkew).Unix() }, StepWindow, "/validUntil: ended"},
		{"expired by exp in the header", func(_ *world, f *forgery) { f.header["exp"] = at.Add(-time.Hour).Unix() }, StepWindow, "/validUntil: ended"},
		{"expired by milliseconds in the header", func(_ *world, f *forgery) {
			f.header["typ"], f.header["cty"], f.header["exp"] = "vc+ld+jwt", "vc+ld", at.Add(-time.Hour).UnixMilli()
		}, StepWindow, "/validUntil: ended"},
		{"milliseconds in another generation", func(_ *world, f *forgery) { f.header["exp"] = at.Add(-time.Hour).UnixMilli() }, StepParse, "/exp"},
		{"not yet valid by validFrom", func(_ *world, f *forgery) { f.payload["validFrom"] = "2026-11-20T12:01:01Z" }, StepWindow, "/validFrom: not before"},
		{"not yet valid by nbf", func(_ *world, f *forgery) { f.payload["nbf"] = at.Add(time.Hour).Unix() }, StepWindow, "/validFrom: not before"},
		{"not yet valid by iat", func(_ *world, f *forgery) { f.payload["iat"] = at.Add(time.Hour).Unix() }, StepWindow, "/validFrom: not before"},
		{"not yet valid by iat in the header", func(_ *world, f *forgery) { f.header["iat"] = at.Add(time.Hour).Unix() }, StepWindow, "/validFrom: not before"},
		{"dates that contradict each other", func(_ *world, f *forgery) { f.payload["exp"] = at.AddDate(-1, 0, 0).Unix() }, StepParse, "never valid"},
		{"date without time zone", func(_ *world, f *forgery) { f.payload["validUntil"] = "2027-01-01T00:00:00" }, StepParse, "/validUntil"},
		{"date that is a string", func(_ *world, f *forgery) { f.payload["exp"] = "1900000000" }, StepParse, "/exp"},
		{"time of issue that is a string", func(_ *world, f *forgery) { f.payload["iat"] = "1700000000" }, StepParse, "/iat"},
		{"date out of range", func(_ *world, f *forgery) { f.payload["exp"] = json.Number("1e17") }, StepParse, "/exp"},
		{"date that means none", func(_ *world, f *forgery) { f.payload["validUntil"] = "0001-01-01T00:00:00Z" }, StepParse, "/validUntil"},
		{"date beyond numbers", func(_ *world, f *forgery) { f.payload["exp"] = json.Number("1e400") }, StepParse, "/exp: want a number of seconds"},
		{"negative date", func(_ *world, f *forgery) { f.payload["exp"] = -1 }, StepParse, "never valid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact)
			row.forge(w, f)
			w.asked = nil
			c, report := w.verifier().Credential(context.Background(), f.compact(t))
			refused(t, report, row.step, row.want)
			if c != nil {
				t.Error("a credential was returned")
			}
			before := slices.Index([]StepName{StepParse, StepAlgorithm}, row.step) >= 0
			if before && len(w.asked) > 0 {
				t.Errorf("keys were looked for: %s", w.asked)
			}
		})
	}
}

// refused checks that a report failed at a step, and that it skipped the rest.
func refused(t *testing.T, report Report, step StepName, want string) {
	t.Helper()
	failed := report.Failed()
	if failed == nil {
		t.Fatalf("accepted:\n%s", &report)
	}
	if failed.Name != step || !strings.Contains(failed.Message, want) {
		t.Errorf("refused by %s: %s\nwant %s: …%s…", failed.Name, failed.Message, step, want)
	}
	if report.OK() || report.State == Verified {
		t.Errorf("a report that failed is OK, or %s", report.State)
	}
	after := report.Steps[slices.Index(report.Steps, *failed)+1:]
	for _, s := range after {
		if s.Result != Skipped {
			t.Errorf("%s %s after a step that failed", s.Name, s.Result)
		}
	}
}

// doubled returns the JSON of an object with more appended.
func doubled(parts object, more string) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		panic(err)
	}
	if more == "" {
		return string(raw)
	}
	return string(raw[:len(raw)-1]) + "," + more + "}"
}

// strayBits changes bits of the last character that are not part of the signature: 64 bytes end
// in a character with four of them.
func strayBits(compact string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(compact) - 1
	return compact[:last] + string(alphabet[strings.IndexByte(alphabet, compact[last])|1])
}

// The classical confusion: the public key, which is public, as a shared secret.
func TestHS256WithThePublicKeyIsRefusedBeforeAKeyIsLookedFor(t *testing.T) {
	w := newWorld(t)
	f := w.forge(t, w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact)
	f.header["alg"] = "HS256"
	key := w.keys[provider]
	public, err := json.Marshal(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	f.after = func(compact string) string {
		input := compact[:strings.LastIndex(compact, ".")]
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(input))
		return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	w.asked = nil
	_, report := w.verifier().Credential(context.Background(), f.compact(t))
	refused(t, report, StepAlgorithm, `got "HS256"`)
	if len(w.asked) > 0 {
		t.Errorf("keys were looked for: %s", w.asked)
	}
}

func TestKeysThatDoNotFitAreRefused(t *testing.T) {
	keys := make(map[string]jose.JSONWebKey)
	for _, algorithm := range Algorithms() {
		keys[algorithm] = newKey(t, algorithm, provider)
	}
	kinds := map[string]string{"EdDSA": "an Ed25519 key", "ES256": "an ECDSA key on P-256", "ES384": "an ECDSA key on P-384", "PS256": "an RSA key", "RS256": "an RSA key"}
	for _, algorithm := range Algorithms() {
		for of, key := range keys {
			public := key.Public()
			public.Algorithm = "" // as many publish it
			err := did.Fits(algorithm, &public)
			fits := algorithm == of || strings.HasSuffix(algorithm, "S256") && algorithm[0] != 'E' && strings.HasSuffix(of, "S256") && of[0] != 'E'
			if (err == nil) != fits || err != nil && err.Error() != kinds[of]+" does not fit algorithm "+algorithm {
				t.Errorf("key for %s used for %s: %v", of, algorithm, err)
			}
		}
	}
}

func TestAnIssuerIsHeldToItsTypes(t *testing.T) {
	w := newWorld(t)
	compact, err := w.signer(t, notary).Credential(document(offering("https://provider.example/k8s")))
	if err != nil {
		t.Fatal(err)
	}
	_, report := w.verifier().Credential(context.Background(), compact)
	refused(t, report, StepIssuer, notary+" may not issue ComputeServiceOffering")

	v := w.verifier()
	v.Issuers = nil
	if _, report := v.Credential(context.Background(), compact); !report.OK() {
		t.Errorf("without a list of issuers:\n%s", &report)
	}
}

// An old key verifies only as long as it is published.
func TestRotationEndsWithTheKey(t *testing.T) {
	w := newWorld(t)
	old := w.issue(t, provider, document(offering("https://provider.example/k8s")))
	next, err := GenerateKey("ES256", provider+"#key-2")
	if err != nil {
		t.Fatal(err)
	}
	published := w.keys[provider]
	w.keys[provider], w.keys["published"] = next, published
	w.issue(t, provider, document(offering("https://provider.example/k8s")))
	if _, report := w.verifier().Credential(context.Background(), old.Compact); !report.OK() {
		t.Errorf("with overlap:\n%s", &report)
	}
	delete(w.keys, "published")
	_, report := w.verifier().Credential(context.Background(), old.Compact)
	refused(t, report, StepKey, "not published")
}

// unreachable is a KeySource whose network is down.
type unreachable struct{}

func (unreachable) Key(_ context.Context, id string) (*did.Key, error) {
	return nil, fmt.Errorf("get %s: %w", id, temporaryError{errors.New("timeout")})
}

func TestAKeyThatCannotBeReachedIsTemporary(t *testing.T) {
	w := newWorld(t)
	c := w.issue(t, provider, document(offering("https://provider.example/k8s")))
	v := w.verifier()
	v.Keys = unreachable{}
	_, report := v.Credential(context.Background(), c.Compact)
	refused(t, report, StepKey, "")
	if !report.Temporary {
		t.Error("not temporary")
	}
	_, report = w.verifier().Credential(context.Background(), strings.Replace(c.Compact, ".", ".e30.", 1))
	if report.Temporary {
		t.Error("a malformed token is temporary")
	}
}

func TestSkewIsBounded(t *testing.T) {
	w := newWorld(t)
	doc := document(offering("https://provider.example/k8s"))
	doc.ValidUntil = at.Add(-3 * time.Minute)
	compact, err := w.signer(t, provider).Credential(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		skew  time.Duration
		after time.Duration // at
		valid bool
	}{
		{0, -3*time.Minute + 59*time.Second, true},
		{0, -2 * time.Minute, false},
		{-1, -3*time.Minute - time.Second, true},
		{-1, -3 * time.Minute, false},
		{-time.Hour, -3*time.Minute - time.Second, true},
		{4 * time.Minute, 59 * time.Second, true},
		{4 * time.Minute, time.Minute, false},
		{time.Hour, 2*time.Minute - time.Second, true},
		{time.Hour, 2 * time.Minute, false},
	} {
		v := w.verifier()
		v.Skew, v.Now = row.skew, func() time.Time { return at.Add(row.after) }
		_, report := v.Credential(context.Background(), compact)
		if report.OK() != row.valid {
			t.Errorf("skew %s, %s after the end: %s", row.skew, row.after+3*time.Minute, report.State)
		}
		if !row.valid && report.State != Expired {
			t.Errorf("state %s, want expired", report.State)
		}
	}
}
