package legacy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/selfdescription"
)

type object = map[string]any

// forgery is a document made by the owner of a published key; sign signs its current content.
type forgery struct {
	key      *ecdsa.PrivateKey
	document object
	proof    object
	header   object
	importer *Importer
	// after changes the signed text.
	after func(string) string
}

func newForgery(t *testing.T) *forgery {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id := issuer + "#key-1"
	return &forgery{
		key: key,
		document: object{
			"@context": []any{ContextCredentialsV1, ContextJWS2020, selfdescription.ContextGaiaX},
			"type":     []any{"VerifiableCredential"}, "id": "https://provider.example/vc/dc", "issuer": issuer,
			"issuanceDate": "2026-11-01T00:00:00Z", "expirationDate": "2027-02-01T00:00:00Z",
			"credentialSubject": object{
				"id": "https://provider.example/dc", "type": "Datacenter",
				"maintainedBy": "https://provider.example/person", "aggregationOfResources": "https://provider.example/az",
				"location": object{"type": "Address", "countryCode": "DE"},
			},
		},
		proof:    object{"type": proofType, "created": "2026-11-01T00:00:00Z", "proofPurpose": "assertionMethod", "verificationMethod": id},
		header:   object{"alg": "ES256", "b64": false, "crit": []any{"b64"}},
		importer: &Importer{Keys: keys{id: {Key: key.Public(), KeyID: id}}, Now: func() time.Time { return now }},
	}
}

func (f *forgery) subject() object { return f.document["credentialSubject"].(object) }

// sign signs the document in a form. It uses this package's payload if possible, and nonsense
// otherwise.
func (f *forgery) sign(t *testing.T, form Form) string {
	t.Helper()
	signed := []byte("what cannot be read cannot be signed")
	if d, err := read(f.text(t, "e30..")); err == nil {
		t.Fatalf("a signature without an algorithm is read: %+v", d)
	}
	if d, err := read(f.text(t, f.jws(t, signed))); err == nil {
		payloads, err := d.signable()
		if err == nil {
			if i := slices.IndexFunc(payloads, func(p payload) bool { return p.form == form }); i >= 0 {
				signed = payloads[i].bytes
			}
		}
	}
	text := f.text(t, f.jws(t, signed))
	if f.after != nil {
		text = f.after(text)
	}
	return text
}

// signable returns the payload of each form that a document can have.
func (d *document) signable() ([]payload, error) {
	sum, err := d.sum()
	if err != nil {
		return nil, err
	}
	return d.payloads(sum)
}

// knowing adds a context to those that documents may use, for one test.
func knowing(t *testing.T, url, document string) {
	t.Helper()
	before := known
	known = append(slices.Clip(known), selfdescription.Context{URL: url, Document: []byte(document)})
	t.Cleanup(func() { known = before })
}

func (f *forgery) jws(t *testing.T, payload []byte) string {
	t.Helper()
	raw, err := json.Marshal(f.header)
	if err != nil {
		t.Fatal(err)
	}
	header := base64.RawURLEncoding.EncodeToString(raw)
	sum := sha256.Sum256(append([]byte(header+"."), payload...))
	r, s, err := ecdsa.Sign(rand.Reader, f.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return header + ".." + base64.RawURLEncoding.EncodeToString(signature)
}

func (f *forgery) text(t *testing.T, jws string) string {
	t.Helper()
	document, proof := maps.Clone(f.document), maps.Clone(f.proof)
	proof["jws"] = jws
	document["proof"] = proof
	raw, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
