package selfdescription

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription/did"
)

// The parties of the tests.
const (
	provider    = "did:web:provider.example"
	rival       = "did:web:rival.example"
	notary      = "did:web:notary.example"
	complianceS = "did:web:compliance.example"
	auditor     = "did:web:auditor.example"
	broker      = "did:web:broker.example"
)

// at is the time of the tests.
var at = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world holds all keys and the published status lists.
type world struct {
	keys  map[string]jose.JSONWebKey // by issuer
	lists map[string]string          // by URL
	asked []string                   // for keys
}

// newWorld makes Ed25519 keys.
func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{keys: make(map[string]jose.JSONWebKey), lists: make(map[string]string)}
	for _, issuer := range []string{provider, rival, notary, complianceS, auditor, broker} {
		w.keys[issuer] = newKey(tb, "EdDSA", issuer)
	}
	return w
}

func newKey(tb testing.TB, algorithm, issuer string) jose.JSONWebKey {
	tb.Helper()
	key, err := GenerateKey(algorithm, issuer+"#key-1")
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// Key implements KeySource.
func (w *world) Key(_ context.Context, id string) (*did.Key, error) {
	w.asked = append(w.asked, id)
	for _, key := range w.keys {
		if key.KeyID == id {
			return &did.Key{ID: id, JWK: key.Public()}, nil
		}
	}
	return nil, errors.New("not published")
}

// StatusList implements StatusSource.
func (w *world) StatusList(_ context.Context, _, url string) (string, error) {
	if compact, ok := w.lists[url]; ok {
		return compact, nil
	}
	return "", errors.New("connection refused")
}

// worth implements Issuers.
func worth(issuer, subjectType string) (Assurance, bool) {
	switch issuer {
	case provider, rival:
		return Self, true
	case notary:
		return Notary, registrationNumbers[subjectType] != nil || subjectType == TypeLegalPerson || subjectType == TypeStatusList
	case complianceS:
		return Label, subjectType == TypeLabelCredential
	case auditor:
		return Certified, subjectType == TypeCertification || subjectType == TypeDatacenter
	case broker:
		return Measured, subjectType == TypeClusterMeasurement
	}
	return "", false
}

func (w *world) verifier() *Verifier {
	return &Verifier{Keys: w, Statuses: w, Issuers: worth, Now: func() time.Time { return at }}
}

func (w *world) signer(tb testing.TB, issuer string) *Signer {
	tb.Helper()
	s, err := NewSigner(w.keys[issuer])
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// object is a short name for a decoded JSON object.
type object = map[string]any

// person, vat and so on are subjects of the provider, complete and in shape.
func person(id string) object {
	return object{
		"id": id, "type": "LegalPerson",
		"registrationNumber":  object{"id": "https://provider.example/vat"},
		"legalAddress":        object{"type": "Address", "countryCode": "FR"},
		"headquartersAddress": object{"type": "Address", "countryCode": "FRA"},
	}
}

func vat() object {
	return object{"id": "https://provider.example/vat", "type": "VatID", "vatID": "FR40303265045"}
}

func datacenter(id, country string) object {
	return object{
		"id": id, "type": "Datacenter",
		"maintainedBy":           object{"id": "https://provider.example/lp"},
		"location":               object{"type": "Address", "countryCode": country},
		"aggregationOfResources": object{"id": id + "-zone", "type": "AvailabilityZone", "address": object{"type": "Address", "countryCode": country}},
	}
}

// datacenterOf returns a data centre that another party maintains.
func datacenterOf(id, country, maintainer string) object {
	dc := datacenter(id, country)
	dc["maintainedBy"] = object{"id": maintainer}
	return dc
}

// pool is a resource made of another.
func pool(id, of string) object {
	return object{
		"id": id, "type": "VirtualResource", "aggregationOfResources": []object{{"id": of}},
		"copyrightOwnedBy": object{"id": "https://provider.example/lp"}, "license": "Apache-2.0", "resourcePolicy": "default: allow",
	}
}

func offering(id string) object {
	return object{
		"id": id, "type": "ComputeServiceOffering",
		"providedBy":                        object{"id": "https://provider.example/lp"},
		"hostedOn":                          object{"id": "https://provider.example/dc"},
		"serviceOfferingTermsAndConditions": object{"type": "TermsAndConditions", "url": "https://provider.example/tc.pdf", "hash": "8acc"},
	}
}

func binding(uid, keyHash string) object {
	return object{
		"id": "https://provider.example/binding", "type": "ClusterBinding",
		"offering": object{"id": "https://provider.example/k8s"}, "clusterUID": uid, "apiServerKeyHash": keyHash,
	}
}

func certification(of string, over ...*Credential) object {
	c := object{"id": of, "type": "Certification", "standard": "ISO/IEC 27001"}
	if over != nil {
		c["certifiedCredentials"] = certified(over)
	}
	return c
}

func label(over ...*Credential) object {
	return object{
		"id": "https://compliance.example/label/1", "type": "LabelCredential", "labelLevel": "L1",
		"engineVersion": "2.11.0", "rulesVersion": "CD25.10", "validatedCriteria": []string{"P1.1.1"},
		"compliantCredentials": compliant(over),
	}
}

func measurement(of string) object {
	return object{
		"id": of, "type": "ClusterMeasurement",
		"window":         object{"start": "2026-11-19T00:00:00Z", "end": "2026-11-20T00:00:00Z"},
		"uptime":         object{"ratio": 0.9993, "probes": 8640},
		"latency":        []object{{"p50Ms": 11.2, "p95Ms": 28.4, "p99Ms": 40, "vantage": "fra"}, {"p50Ms": 1, "p95Ms": 35.5, "p99Ms": 50, "vantage": "par"}},
		"evidenceDigest": DigestOf("evidence").SRI(),
	}
}

func compliant(over []*Credential) (list []object) {
	for _, c := range over {
		list = append(list, object{"type": "CompliantCredential", "credentialType": c.Type, "digestSRI": c.Digest.SRI()})
	}
	return list
}

func certified(over []*Credential) (list []object) {
	for _, c := range over {
		list = append(list, object{"digestSRI": c.Digest.SRI()})
	}
	return list
}

// document is valid for a month, since yesterday.
func document(subject object) Document {
	return Document{Subject: subject, ValidFrom: at.AddDate(0, 0, -1), ValidUntil: at.AddDate(0, 1, 0)}
}

// issue signs and, as a check, verifies.
func (w *world) issue(tb testing.TB, issuer string, doc Document) *Credential {
	tb.Helper()
	compact, err := w.signer(tb, issuer).Credential(doc)
	if err != nil {
		tb.Fatal(err)
	}
	c, report := w.verifier().Credential(context.Background(), compact)
	if !report.OK() {
		tb.Fatalf("%s by %s:\n%s", doc.Subject["type"], issuer, &report)
	}
	return c
}

// forgery is a token in parts, for tests to change before it is signed.
type forgery struct {
	header, payload object
	// rawHeader and rawPayload are signed instead of them.
	rawHeader, rawPayload string
	key                   jose.JSONWebKey
	after                 func(compact string) string
}

// forge takes apart a valid credential of the provider.
func (w *world) forge(tb testing.TB, compact string) *forgery {
	tb.Helper()
	t, err := parseToken(compact, MaxPresentation, append(credentialMedia, presentationMedia...))
	if err != nil {
		tb.Fatal(err)
	}
	return &forgery{header: maps.Clone(t.header), payload: maps.Clone(t.payload), key: w.keys[t.issuer]}
}

func (f *forgery) subject() object { return f.payload["credentialSubject"].(object) }

// compact signs the forgery's content, as an attacker with a key would.
func (f *forgery) compact(tb testing.TB) string {
	tb.Helper()
	encode := func(raw string, parts object) string {
		if raw == "" {
			b, err := json.Marshal(parts)
			if err != nil {
				tb.Fatal(err)
			}
			raw = string(b)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(raw))
	}
	input := encode(f.rawHeader, f.header) + "." + encode(f.rawPayload, f.payload)
	compact := input + "." + base64.RawURLEncoding.EncodeToString(rawSignature(tb, f.key, input))
	if f.after != nil {
		compact = f.after(compact)
	}
	return compact
}

func rawSignature(tb testing.TB, key jose.JSONWebKey, input string) []byte {
	tb.Helper()
	switch private := key.Key.(type) {
	case ed25519.PrivateKey:
		return ed25519.Sign(private, []byte(input))
	case *ecdsa.PrivateKey:
		hash := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, private, hash[:])
		if err != nil {
			tb.Fatal(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
	tb.Fatalf("no raw signature with %T", key.Key)
	return nil
}
