package selfdescription

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Changing any byte of a token, to any other, makes it another token or none. A different
// encoding of the same bytes would be the same credential under another digest.
func TestNoByteOfATokenCanBeChanged(t *testing.T) {
	for _, algorithm := range Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			w := newWorld(t)
			w.keys[provider] = newKey(t, algorithm, provider)
			credential := w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact
			expect := Expect{Audience: broker, Nonce: "n-1"}
			presentation := w.present(t, expect)
			v := w.verifier()
			rapid.Check(t, func(t *rapid.T) {
				token := rapid.SampledFrom([]string{credential, presentation}).Draw(t, "token")
				changed := []byte(token)
				i := rapid.IntRange(0, len(changed)-1).Draw(t, "index")
				changed[i] = rapid.Byte().Filter(func(b byte) bool { return b != changed[i] }).Draw(t, "byte")
				if _, report := v.Credential(context.Background(), string(changed)); report.OK() {
					t.Fatalf("credential verifies with byte %d changed", i)
				}
				if _, report := v.Presentation(context.Background(), string(changed), expect); report.OK() {
					t.Fatalf("presentation verifies with byte %d changed", i)
				}
			})
		})
	}
}

// In base64 only the last characters leave room for that.
func TestNoCharacterOfASignatureHasASecondSpelling(t *testing.T) {
	w := newWorld(t)
	compact := w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact
	v := w.verifier()
	for i := len(compact) - 4; i < len(compact); i++ {
		for b := range 256 {
			changed := compact[:i] + string([]byte{byte(b)}) + compact[i+1:]
			if _, report := v.Credential(context.Background(), changed); report.OK() != (changed == compact) {
				t.Errorf("byte %d as %#x: OK is %t", i, b, report.OK())
			}
		}
	}
}

// seed is a token with a wrong signature; everything else is right.
func seed(header, payload string) string {
	e := base64.RawURLEncoding.EncodeToString
	return e([]byte(header)) + "." + e([]byte(payload)) + "." + e(make([]byte, 64))
}

const (
	seedHeader  = `{"alg":"ES256","typ":"vc+jwt","cty":"vc","kid":"did:web:provider.example#key-1","iss":"did:web:provider.example"}`
	seedPayload = `{"@context":["https://www.w3.org/ns/credentials/v2","https://w3id.org/gaia-x/development#"],` +
		`"type":["VerifiableCredential","VatID"],"issuer":{"id":"did:web:provider.example"},"validFrom":"2026-11-01T00:00:00Z","exp":1900000000.5,` +
		`"credentialStatus":{"type":"BitstringStatusListEntry","statusPurpose":"revocation","statusListIndex":"7","statusListCredential":"https://provider.example/s"},` +
		`"credentialSubject":{"id":"https://provider.example/vat","gx:type":"x","@type":["gx:VatID"],"gx:vatID":{"@value":"FR40303265045","@type":"xsd:string"}}}`
)

func FuzzCredential(f *testing.F) {
	f.Add(seedHeader, seedPayload)
	f.Add(strings.Replace(seedHeader, "vc+jwt", "vc+ld+jwt", 1), seedPayload)
	f.Add(`{}`, `{"@context":[{}]}`)
	w := newWorld(f)
	v := w.verifier()
	f.Fuzz(func(t *testing.T, header, payload string) {
		compact := seed(header, payload)
		if c, report := v.Credential(context.Background(), compact); report.OK() || c != nil {
			t.Fatal("verifies without a signature")
		}
		c, err := Parse(compact)
		if err != nil {
			return
		}
		if c.Issuer == "" || c.Subject == "" || c.Type == "" || !strings.HasPrefix(c.KeyID, c.Issuer+"#") || c.Claims == nil {
			t.Errorf("incomplete: %+v", c)
		}
		if !c.ValidUntil.IsZero() && !c.ValidFrom.Before(c.ValidUntil) {
			t.Errorf("never valid: %s to %s", c.ValidFrom, c.ValidUntil)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add(seed(seedHeader, seedPayload))
	f.Add("..")
	f.Fuzz(func(t *testing.T, compact string) {
		if c, err := Parse(compact); err == nil && (c.Compact != compact || len(compact) > MaxCredential) {
			t.Error("accepted something else")
		}
	})
}

func FuzzPresentation(f *testing.F) {
	header := strings.NewReplacer("vc+jwt", "vp+jwt", `"vc"`, `"vp"`).Replace(seedHeader)
	f.Add(header, `{"@context":["https://www.w3.org/ns/credentials/v2"],"type":"VerifiablePresentation","iat":1763640000,"exp":1763640060,`+
		`"verifiableCredential":[{"type":"EnvelopedVerifiableCredential","id":"data:application/vc+jwt,e30.e30.e30"}]}`)
	f.Fuzz(func(t *testing.T, header, payload string) {
		_, p, err := parsePresentation(seed(header, payload))
		if err != nil {
			return
		}
		if p.Holder == "" || len(p.Credentials) > MaxCredentials || p.ExpiresAt.Sub(p.IssuedAt) > MaxPresentationLifetime || !p.IssuedAt.Before(p.ExpiresAt) {
			t.Errorf("accepted %+v", p)
		}
	})
}

func FuzzStatusList(f *testing.F) {
	f.Add(NewStatusList(0).Encode())
	f.Add(encoded(1<<20, nil))
	f.Add("u")
	f.Fuzz(func(t *testing.T, encoded string) {
		list, err := decodeStatusList(encoded)
		if err != nil {
			return
		}
		if list.Len() < MinStatusList || list.Len() > MaxStatusList {
			t.Fatalf("%d bits", list.Len())
		}
		again, err := decodeStatusList(list.Encode())
		if err != nil || !bytes.Equal(again.bits, list.bits) {
			t.Errorf("does not go round: %v", err)
		}
	})
}

// Claims are read in one form, without keywords.
func FuzzSubject(f *testing.F) {
	f.Add(`{"id":"https://a.example/x","type":"VatID","vatID":"DE1"}`)
	f.Add(`{"@id":"x","@type":["gx:A"],"gx:b":[{"@value":1,"@type":"xsd:int"},{"gx:c":{"@value":true}}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		var object map[string]any
		limits := strictjson.Limits{Depth: maxDepth, Object: true}
		if strictjson.Decode(strings.NewReader(raw), limits, &object) != nil || object == nil {
			return
		}
		subject, err := readSubject(object)
		if err != nil {
			return
		}
		once, err := json.Marshal(subject)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(once, []byte(`"@value":`)) || bytes.Contains(once, []byte(`"@context":`)) {
			t.Errorf("a keyword is left: %s", once)
		}
		references(subject["hostedOn"])
		registration(subject)
	})
}
