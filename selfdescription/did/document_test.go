package did

import (
	"crypto/rsa"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

func TestWebDocumentPublishesNoPrivateKey(t *testing.T) {
	const did = "did:web:broker.example"
	var keys []jose.JSONWebKey
	for name, key := range testKeys(t) {
		key.KeyID = did + "#" + name
		keys = append(keys, key)
	}
	text := inJSON(t, WebDocument(did, keys))
	for _, member := range privateMembers {
		if strings.Contains(text, `"`+member+`":`) {
			t.Errorf("it has a member %s", member)
		}
	}
	found, err := decodeDocument(did, []byte(text))
	fatal(t, err)
	for _, key := range keys {
		if a, ok := found[key.KeyID]; !ok || a.err != nil || a.jwk.KeyID != key.KeyID {
			t.Errorf("%s: got %+v", key.KeyID, a)
		}
	}
	if text := inJSON(t, WebDocument(did, nil)); !strings.Contains(text, `"verificationMethod":[],"assertionMethod":[]`) {
		t.Errorf("without keys: %s", text)
	}
}

func TestWebDocumentNamesKeysByTheirDIDURL(t *testing.T) {
	key := testKeys(t)["Ed25519"]
	for _, id := range []string{"key-1", "#key-1", "did:web:broker.example#key-1"} {
		key.KeyID = id
		document := WebDocument("did:web:broker.example", []jose.JSONWebKey{key})
		method := document.VerificationMethod[0]
		if want := "did:web:broker.example#key-1"; method.ID != want || document.AssertionMethod[0] != want || method.PublicKeyJWK.KeyID != want {
			t.Errorf("%s: got %+v", id, document)
		}
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	const p256 = `"kty":"EC","crv":"P-256","x":"fyNYMN0976ci7xqiSdag3buk-ZCwgXU4kz9XNkBlNUI","y":"hW2ojTNfH7Jbi8--CJUo3OCbH3y5n91g-IMA9MLMbTU"`
	_, err := readJWK([]byte(`{` + p256 + `,"alg":"ES256","use":"sig","key_ops":["verify"]}`))
	fatal(t, err)
	rsaKey := func(bits uint, e int) string {
		n := new(big.Int).SetBit(big.NewInt(1), int(bits-1), 1)
		return inJSON(t, jose.JSONWebKey{Key: &rsa.PublicKey{N: n, E: e}})
	}
	_, err = readJWK([]byte(rsaKey(2048, 65537)))
	fatal(t, err)
	for _, row := range []struct{ name, jwk, says string }{
		{"alg of another kind of key", `{` + p256 + `,"alg":"EdDSA"}`, "alg"},
		{"alg of another curve", `{` + p256 + `,"alg":"ES384"}`, "alg"},
		{"alg of a shared secret", `{` + p256 + `,"alg":"HS256"}`, "alg"},
		{"alg none", `{` + p256 + `,"alg":"none"}`, "alg"},
		{"use for encryption", `{` + p256 + `,"use":"enc"}`, "use"},
		{"key_ops for encryption", `{` + p256 + `,"key_ops":["deriveKey"]}`, "key_ops"},
		{"key_ops for nothing", `{` + p256 + `,"key_ops":[]}`, "key_ops"},
		{"point that is not on the curve", strings.Replace(`{`+p256+`}`, "fyNY", "fyNZ", 1), "publicKeyJwk"},
		{"P-521", `{"kty":"EC","crv":"P-521","x":"AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk","y":"ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2"}`, "curve"},
		{"secp256k1", `{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}`, "publicKeyJwk"},
		{"X25519", `{"kty":"OKP","crv":"X25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`, "publicKeyJwk"},
		{"Ed25519 of 31 bytes", `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHUQ"}`, ""},
		{"RSA of 2047 bits", rsaKey(2047, 65537), "2047 bits"},
		{"RSA of 1024 bits", rsaKey(1024, 65537), "1024 bits"},
		{"RSA of 8193 bits", rsaKey(8193, 65537), "RSA key"},
		{"RSA with exponent 1", rsaKey(2048, 1), "RSA key"},
		{"RSA with an even exponent", rsaKey(2048, 65536), "exponent"},
		{"shared secret", `{"kty":"oct","k":"AAAA"}`, "not valid"},
		{"no kind", `{"crv":"P-256"}`, "publicKeyJwk"},
		{"not an object", `"key"`, "publicKeyJwk"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := readJWK([]byte(row.jwk)); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v, want it to say %q", err, row.says)
			}
		})
	}
}

// FuzzDecodeDocument looks for documents that yield a key which is not theirs, or not
// public, and for panics.
func FuzzDecodeDocument(f *testing.F) {
	const did = "did:web:provider.example"
	const key = `{"kty":"EC","crv":"P-256","x":"fyNYMN0976ci7xqiSdag3buk-ZCwgXU4kz9XNkBlNUI","y":"hW2ojTNfH7Jbi8--CJUo3OCbH3y5n91g-IMA9MLMbTU"}`
	const method = `{"id":"#k","type":"JsonWebKey2020","controller":"` + did + `","publicKeyJwk":` + key + `}`
	for _, seed := range []string{
		`{"id":"` + did + `","verificationMethod":[` + method + `],"assertionMethod":["#k"]}`,
		`{"id":"` + did + `","assertionMethod":[` + method + `]}`,
		`{"id":"` + did + `","assertionMethod":["` + did + `#k",null,{}]}`, `{}`, `[]`, `{"id":"did:web:other.example"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := decodeDocument(did, data)
		if err != nil {
			return
		}
		var document struct{ ID string }
		if json.Unmarshal(data, &document) != nil {
			t.Fatalf("%q: accepted, but not JSON to encoding/json", data)
		}
		for id, a := range found {
			if a.err == nil && !strings.HasPrefix(id, did+"#") {
				t.Fatalf("%q: key %q of another DID", data, id)
			}
			if a.err == nil && (!a.jwk.IsPublic() || a.jwk.KeyID != id || checkJWK(&a.jwk) != nil || a.jwk.Certificates != nil) {
				t.Fatalf("%q: key %+v", data, a)
			}
		}
	})
}

// FuzzDecodeChain looks for panics, and for chains beyond their bounds.
func FuzzDecodeChain(f *testing.F) {
	f.Add([]byte(inPEM(newAuthority(f, "Root", nil).certificate)))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		chain, err := decodeChain(data)
		if err == nil && (len(chain) == 0 || len(chain) > maxCertificates) {
			t.Fatalf("%d certificates", len(chain))
		}
	})
}
