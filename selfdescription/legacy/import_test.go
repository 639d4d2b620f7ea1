package legacy

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

const issuer = "did:web:provider.example"

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// vector is a document that jsonld.js and Node signed.
type vector struct {
	Name     string
	Form     Form
	Document json.RawMessage
}

// vectors are the documents of testdata, and an importer that knows their keys.
func vectors(t testing.TB) ([]vector, *Importer) {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Keys    []jose.JSONWebKey
		Vectors []vector
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	published := keys{}
	for _, key := range file.Keys {
		published[key.KeyID] = key
	}
	return file.Vectors, &Importer{Keys: published, Now: func() time.Time { return now }}
}

// keys is a KeySource.
type keys map[string]jose.JSONWebKey

func (k keys) Key(_ context.Context, id string) (*did.Key, error) {
	key, ok := k[id]
	if !ok {
		return nil, errors.New("the DID does not list this key")
	}
	return &did.Key{ID: id, JWK: key}, nil
}

func TestWhatJSONLDJSSignedIsImported(t *testing.T) {
	all, importer := vectors(t)
	if len(all) != 15 {
		t.Fatalf("%d vectors, want 3 documents with 5 algorithms each", len(all))
	}
	for _, vector := range all {
		t.Run(vector.Name, func(t *testing.T) {
			credential, report := importer.Import(t.Context(), string(vector.Document))
			if credential == nil || !report.OK() || report.Form != vector.Form {
				t.Fatalf("form %s\n%s", report.Form, &report.Report)
			}
			if credential.Issuer != issuer || !strings.HasSuffix(vector.Name, credential.Algorithm) || credential.ValidFrom.IsZero() {
				t.Errorf("credential %+v", credential)
			}
		})
	}
}

func TestClaimsAreInTheTermsOfTheCurrentContext(t *testing.T) {
	all, importer := vectors(t)
	credential, report := importer.Import(t.Context(), string(all[0].Document))
	if credential == nil {
		t.Fatalf("\n%s", &report.Report)
	}
	want := `{"headquartersAddress":{"countryCode":"AT","type":"Address"},"id":"https://provider.example/person",` +
		`"legalAddress":{"countryCode":"DE","locality":"Köln \"am\" Rhein\n","type":"Address"},"name":"Provider",` +
		`"registrationNumber":"https://provider.example/lei","type":"LegalPerson"}`
	got, err := json.Marshal(credential.Claims)
	if err != nil || string(got) != want {
		t.Errorf("%v claims\n%s, want\n%s", err, got, want)
	}
	if credential.Type != selfdescription.TypeLegalPerson || credential.Subject != "https://provider.example/person" ||
		credential.ID != "https://provider.example/vc/person" || !credential.ValidUntil.Equal(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("credential %+v", credential)
	}
}

func TestContextsArePinned(t *testing.T) {
	want := map[string]string{
		ContextCredentialsV1:               "ab4ddd9a531758807a79a5b450510d61ae8d147eab966cc9a200c07095b0cdcc",
		selfdescription.ContextCredentials: "8a9f494a89ecc51db093e90e84713e07e84d6d9204364a9b3c7868b21751236f",
		ContextJWS2020:                     "ab9f42151c8b0bde025beeb44cf2ecff1fa8c9e2fb42eb751feaf9730ca9b741",
		ContextGaiaX2210:                   "6f59f0b2093aae8d13bf9cd4992e93b6de9e66441102b0cda50bcb65243574c2",
	}
	for _, context := range selfdescription.Contexts() {
		if context.URL == selfdescription.ContextGaiaX {
			want[context.URL] = context.Digest.String()
		}
	}
	for _, context := range known {
		if context.Digest.String() != want[context.URL] {
			t.Errorf("%s has digest %s, want %s", context.URL, context.Digest, want[context.URL])
		}
		delete(want, context.URL)
	}
	if len(want) > 0 {
		t.Errorf("no contexts for %v", want)
	}
}

// A signature of the compliance service of 2022 covers the hash alone: whatever else the document says may be forged.
func TestADocumentThatSignsAHashAloneIsRefused(t *testing.T) {
	f := newForgery(t)
	f.document["@context"] = []any{ContextCredentialsV1}
	f.document["type"] = []any{"VerifiableCredential", "ParticipantCredential"}
	f.document["credentialSubject"] = object{"id": "did:web:participant.example", "hash": strings.Repeat("0a", 32)}
	credential, report := f.importer.Import(t.Context(), f.sign(t, FormW3C))
	if failed := report.Failed(); credential != nil || failed == nil || failed.Name != selfdescription.StepParse || !strings.Contains(failed.Message, "over a hash alone") {
		t.Errorf("report\n%s", &report.Report)
	}
}
