package selfdescription

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/sdtest"
)

func TestNobodySignsWithAKeyThatOthersWouldRefuse(t *testing.T) {
	good := newKey(t, "ES256", provider)
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*jose.JSONWebKey)) jose.JSONWebKey {
		key := good
		change(&key)
		return key
	}
	for _, row := range []struct {
		name string
		key  jose.JSONWebKey
		want string
	}{
		{"a public key", good.Public(), "not a private key"},
		{"no key", jose.JSONWebKey{KeyID: good.KeyID}, "not a private key"},
		{"an id that is no DID URL", with(func(k *jose.JSONWebKey) { k.KeyID = "key-1" }), "not a DID URL"},
		{"an algorithm of another kind", with(func(k *jose.JSONWebKey) { k.Algorithm = "PS256" }), "does not fit algorithm PS256"},
		{"no algorithm", with(func(k *jose.JSONWebKey) { k.Algorithm = "" }), "does not fit"},
		{"a short RSA key", jose.JSONWebKey{Key: short, KeyID: good.KeyID, Algorithm: "PS256"}, "1024 bits"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := NewSigner(row.key); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want …%s…", err, row.want)
			}
		})
	}
	if _, err := GenerateKey("HS256", good.KeyID); err == nil {
		t.Error("a key for HS256")
	}
	shortest := jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}}
	if err := did.Fits("PS256", &shortest); err != nil {
		t.Errorf("a key of 2048 bits: %v", err)
	}
}

func TestADocumentThatSaysTooLittleIsNotIssued(t *testing.T) {
	s := newWorld(t).signer(t, provider)
	for name, doc := range map[string]Document{
		"no type":                   {Subject: object{"id": "x:y"}, ValidFrom: at},
		"no id":                     {Subject: object{"type": "VatID"}, ValidFrom: at},
		"no beginning":              {Subject: vat()},
		"an end before the start":   {Subject: vat(), ValidFrom: at, ValidUntil: at},
		"something that isn't JSON": {Subject: object{"id": "x:y", "type": "VatID", "vatID": func() {}}, ValidFrom: at},
	} {
		if compact, err := s.Credential(doc); err == nil {
			t.Errorf("%s: %s", name, compact)
		}
	}
	if _, err := s.Presentation(nil, Expect{Nonce: "n"}, at); err == nil {
		t.Error("a presentation for nobody")
	}
	if _, err := s.Presentation(nil, Expect{Audience: "a"}, at); err == nil {
		t.Error("a presentation that nobody asked for")
	}
	if _, err := s.Presentation(make([]string, MaxCredentials+1), Expect{Audience: "a", Nonce: "n"}, at); err == nil {
		t.Error("a presentation of too much")
	}
}

// The members of a credential are those of VC-JOSE-COSE, 3.1.1, and for readers of JWTs the registered claims too. A member
// that says nothing is left out: other verifiers refuse an empty one.
func TestMembersOfACredential(t *testing.T) {
	w := newWorld(t)
	end := at.AddDate(0, 1, 0)
	list := []any{object{"type": typeStatusListEntry, "statusPurpose": "revocation", "statusListIndex": "7", "statusListCredential": listURL}}
	number := func(at time.Time) json.Number { return json.Number(strconv.FormatInt(at.Unix(), 10)) }
	always := object{
		"@context": []any{ContextCredentials, ContextGaiaX}, "type": []any{typeVerifiableCredential, "VatID"},
		"issuer": provider, "iss": provider, "validFrom": "2026-11-20T12:00:00Z", "iat": number(at), "credentialSubject": vat(),
	}
	for name, row := range map[string]struct {
		doc  Document
		more object
	}{
		"the least": {Document{Subject: vat(), ValidFrom: at}, nil},
		"everything": {
			Document{ID: "https://provider.example/vc/1", Subject: vat(), ValidFrom: at, ValidUntil: end, Status: []StatusEntry{{PurposeRevocation, 7, listURL}}},
			object{"id": "https://provider.example/vc/1", "validUntil": "2026-12-20T12:00:00Z", "exp": number(end), "credentialStatus": list},
		},
	} {
		compact, err := w.signer(t, provider).Credential(row.doc)
		if err != nil {
			t.Fatal(err)
		}
		f := w.forge(t, compact)
		want := maps.Clone(always)
		maps.Copy(want, row.more)
		if diff := cmp.Diff(want, f.payload); diff != "" {
			t.Errorf("%s: payload (-want +got):\n%s", name, diff)
		}
		header := object{"alg": "EdDSA", "kid": provider + "#key-1", "typ": "vc+jwt", "cty": "vc", "iss": provider}
		if diff := cmp.Diff(header, f.header); diff != "" {
			t.Errorf("%s: header (-want +got):\n%s", name, diff)
		}
	}
}

// The holder of an ECDSA token can negate s, which gives a second valid signature.
func TestASecondFormOfASignatureIsTheSameCredential(t *testing.T) {
	d := newDossier(t)
	d.keys[auditor] = newKey(t, "ES256", auditor)
	c := d.issue(t, auditor, document(certification(offeringID)))
	again := d.negated(t, c)
	if again.Digest == c.Digest {
		t.Fatal("the digest did not change")
	}
	if again.Signed != c.Signed {
		t.Error("what was signed changed")
	}
	d.more = append(d.more, c, again)
	claims, report := d.admit()
	if !report.OK() || len(claims) != 4 {
		t.Errorf("%v\n%s", summary(claims), &report)
	}
}

// negated returns a credential by ES256 with its signature in the other form.
func (w *world) negated(t *testing.T, c *Credential) *Credential {
	t.Helper()
	again, report := w.verifier().Credential(context.Background(), sdtest.Negated(t, c.Compact))
	if !report.OK() {
		t.Fatalf("\n%s", &report)
	}
	return again
}

func ExampleSigner_Credential() {
	key, err := GenerateKey("ES256", "did:web:provider.example#key-1")
	if err != nil {
		panic(err)
	}
	signer, err := NewSigner(key)
	if err != nil {
		panic(err)
	}
	from := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	compact, err := signer.Credential(Document{
		Subject:   map[string]any{"id": "https://provider.example/vat", "type": "VatID", "vatID": "DE123456789"},
		ValidFrom: from, ValidUntil: from.AddDate(0, 3, 0),
	})
	if err != nil {
		panic(err)
	}
	c, err := Parse(compact)
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Issuer, "says", c.Type, c.Claims["vatID"])
	// Output: did:web:provider.example says VatID DE123456789
}
