package did

import (
	"errors"
	"strings"
	"testing"
)

// DID documents, and the result for the key #key-1 of each. D stands for the DID, K for a good
// publicKeyJwk.
func TestDocumentsThatListNoUsableKey(t *testing.T) {
	net := newInternet(t)
	const method = `{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}`
	var notListed, refused, foreign = new(NotListedError), new(InvalidError), new(UnreachableError)
	for _, row := range []struct {
		name, document string
		want           error
		says           string
	}{
		{"key is not an assertionMethod", `{"id":"D","verificationMethod":[` + method + `],"authentication":["D#key-1"]}`, notListed, ""},
		{"reference to a key that is not there", `{"id":"D","assertionMethod":["D#key-1"]}`, notListed, ""},
		{"key of the same fragment of another DID", `{"id":"D","verificationMethod":[{"id":"did:web:other.example#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}],"assertionMethod":["did:web:other.example#key-1"]}`, notListed, ""},
		{"fragment without #", `{"id":"D","verificationMethod":[{"id":"key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}],"assertionMethod":["key-1"]}`, notListed, ""},

		{"document of another DID", `{"id":"did:web:other.example","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]}`, foreign, "is of"},
		{"document without id", `{"verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]}`, foreign, "is of"},
		{"controller is another DID", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"did:web:other.example","publicKeyJwk":K}],"assertionMethod":["D#key-1"]}`, refused, "controller"},
		{"two keys of one id", `{"id":"D","verificationMethod":[` + method + `,` + method + `],"assertionMethod":["D#key-1"]}`, refused, "two keys"},
		{"two keys of one id, one relative and embedded", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":[{"id":"#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}]}`, refused, "two keys"},
		{"type of another suite", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"Ed25519VerificationKey2018","controller":"D","publicKeyJwk":K}],"assertionMethod":["D#key-1"]}`, refused, "type"},
		{"no publicKeyJwk", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D"}],"assertionMethod":["D#key-1"]}`, refused, "publicKeyJwk"},

		{"name twice", `{"id":"did:web:other.example","id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]}`, refused, "duplicate"},
		{"name twice in an escaped form", `{"\u0069d":"did:web:other.example","id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]}`, refused, "duplicate"},
		{"name twice in a key", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":{"kty":"EC","kty":"OKP"}}],"assertionMethod":["D#key-1"]}`, refused, "duplicate"},
		{"trailing data", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]}{}`, refused, "trailing"},
		{"depth", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"],"x":` + strings.Repeat("[", 17) + strings.Repeat("]", 17) + `}`, refused, "too deep"},
		{"size", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"]` + strings.Repeat(" ", maxDocument) + `}`, foreign, "longer than"},
		{"many keys", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"` + strings.Repeat(`,"#x"`, maxMethods) + `]}`, refused, "more than 64 keys"},
		{"private key", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":P}],"assertionMethod":["D#key-1"]}`, refused, "private key"},
		{"private key elsewhere in the document", `{"id":"D","verificationMethod":[` + method + `],"assertionMethod":["D#key-1"],"keyAgreement":[{"publicKeyJwk":P}]}`, refused, "private key"},
		{"private key of another form", `{"id":"D","verificationMethod":[` + method + `,{"id":"#2","privateKeyBase58":"x"}],"assertionMethod":["D#key-1"]}`, refused, "private key"},
		{"symmetric key", `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":{"kty":"oct","k":"AAAA"}}],"assertionMethod":["D#key-1"]}`, refused, "private key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := net.organisation(t, provider)
			net.put(provider+"/.well-known/did.json", say(strings.NewReplacer(
				`"D`, `"`+o.did, `:K`, `:`+inJSON(t, o.key.Public()), `:P`, `:`+inJSON(t, o.key)).Replace(row.document)))
			_, err := net.resolver().Key(t.Context(), o.did+"#key-1")
			switch {
			case err == nil:
				t.Error("accepted")
			case row.want == notListed && !errors.As(err, new(*NotListedError)), row.want == refused && !errors.As(err, new(*InvalidError)),
				row.want == foreign && !errors.As(err, new(*UnreachableError)):
				t.Errorf("got %T: %v", err, err)
			case !strings.Contains(err.Error(), row.says):
				t.Errorf("got %v, want it to say %s", err, row.says)
			}
		})
	}
}

func TestDocumentsThatListTheKeyInOtherForms(t *testing.T) {
	net := newInternet(t)
	for name, document := range map[string]string{
		"relative ids":           `{"id":"D","verificationMethod":[{"id":"#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}],"assertionMethod":["#key-1"]}`,
		"relative reference":     `{"id":"D","verificationMethod":[{"id":"D#key-1","type":"JsonWebKey","controller":"D","publicKeyJwk":K}],"assertionMethod":["#key-1"]}`,
		"embedded":               `{"id":"D","assertionMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}]}`,
		"beside unknown keys":    `{"id":"D","verificationMethod":[{"id":"#a","type":"Multikey","controller":"D","publicKeyMultibase":"z6"},{"id":"#b","type":"JsonWebKey2020","controller":"D","publicKeyJwk":{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}},{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}],"assertionMethod":["#a","#b","#key-1"]}`,
		"beside unknown members": `{"@context":"https://www.w3.org/ns/did/v1","id":"D","k":"d","service":[{"id":"#s","type":"LinkedDomains","d":1}],"verificationMethod":[{"id":"D#key-1","type":"JsonWebKey2020","controller":"D","publicKeyJwk":K}],"assertionMethod":["D#key-1"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := net.organisation(t, provider)
			net.put(provider+"/.well-known/did.json", say(strings.NewReplacer(`"D`, `"`+o.did, `:K`, `:`+inJSON(t, o.key.Public())).Replace(document)))
			key, err := net.resolver().Key(t.Context(), o.did+"#key-1")
			fatal(t, err)
			if !equalKeys(key, o.key) {
				t.Errorf("got %+v", key)
			}
		})
	}
}
