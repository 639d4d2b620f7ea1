package legacy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

func TestForgedDocumentsAreRefused(t *testing.T) {
	const parse, algorithm, key, signature = selfdescription.StepParse, selfdescription.StepAlgorithm, selfdescription.StepKey, selfdescription.StepSignature
	for _, row := range []struct {
		name  string
		forge func(*forgery)
		step  selfdescription.StepName
		want  string // in the message
	}{
		{"undefined term", func(f *forgery) { f.document["@context"] = ContextCredentialsV1 }, parse, "Dropping property"},
		{"undefined type", func(f *forgery) {
			f.document["@context"] = []any{ContextCredentialsV1, ContextJWS2020}
			f.document["credentialSubject"] = object{"id": "https://provider.example/dc", "type": "Datacenter"}
		}, parse, `undefined type "Datacenter"`},
		{"relative IRI as an object, which jsonld.js drops", func(f *forgery) { f.subject()["maintainedBy"] = "person" }, parse, `malformed IRI "person"`},
		{"relative IRI of the subject", func(f *forgery) { f.subject()["id"] = "dc" }, parse, `malformed IRI "dc"`},
		{"IRI that json-gold drops", func(f *forgery) { f.subject()["maintainedBy"] = "https://provider.example/a b" }, parse, "malformed IRI"},
		{"IRI that would end its quad", func(f *forgery) { f.subject()["maintainedBy"] = "https://a.example/> .\n<b:c" }, parse, "malformed IRI"},
		{"null, which is dropped", func(f *forgery) { f.subject()["name"] = nil }, parse, "/credentialSubject/name: null"},
		{"null in an array", func(f *forgery) { f.subject()["maintainedBy"] = []any{"https://provider.example/person", nil} }, parse, "null"},
		{"comment that looks like a keyword", func(f *forgery) { f.subject()["@note"] = "L3" }, parse, "/credentialSubject/@note"},
		{"keyword @graph", func(f *forgery) { f.document["@graph"] = []any{} }, parse, "/@graph"},
		{"keyword @reverse", func(f *forgery) { f.subject()["@reverse"] = object{} }, parse, "/@reverse"},
		{"keyword @included", func(f *forgery) { f.document["@included"] = []any{} }, parse, "/@included"},
		{"JSON literal", func(f *forgery) { f.subject()["name"] = object{"@value": object{}, "@type": "@json"} }, parse, ""},

		{"inline context redefines countryCode", func(f *forgery) {
			f.document["@context"] = []any{ContextCredentialsV1, selfdescription.ContextGaiaX, object{"countryCode": "https://schema.org/name"}}
		}, parse, "/@context/2: want a URL"},
		{"context in the subject", func(f *forgery) { f.subject()["@context"] = selfdescription.ContextGaiaX }, parse, "/credentialSubject/@context"},
		{"context in the proof", func(f *forgery) { f.proof["@context"] = ContextJWS2020 }, parse, "/proof/@context"},
		{"context that is not on the list", func(f *forgery) {
			f.document["@context"] = []any{ContextCredentialsV1, "https://rival.example/ns"}
		}, parse, "/@context/1"},
		{"context of Gaia-X without its fragment", func(f *forgery) {
			f.document["@context"] = []any{ContextCredentialsV1, "https://w3id.org/gaia-x/development"}
		}, parse, "/@context/1"},
		{"context of Gaia-X first", func(f *forgery) { f.document["@context"] = selfdescription.ContextGaiaX }, parse, "/@context/0"},
		{"no context", func(f *forgery) { f.document["@context"] = []any{} }, parse, "/@context"},

		{"more said of the subject where nobody looks", func(f *forgery) {
			f.subject()["maintainedBy"] = object{"id": "https://provider.example/person", "ownedBy": object{"id": "https://provider.example/dc", "name": "x"}}
		}, parse, "described in two places"},
		{"a second credential inside", func(f *forgery) {
			f.subject()["maintainedBy"] = object{"id": "https://provider.example/person", "type": []any{"VerifiableCredential"}}
		}, parse, "of no other node"},
		{"not a credential", func(f *forgery) { f.document["type"] = []any{"gx:Datacenter"} }, parse, "/type"},
		{"two issuers", func(f *forgery) { f.document["issuer"] = []any{issuer, "did:web:rival.example"} }, parse, "/issuer: want one"},
		{"two issuers under two names", func(f *forgery) {
			f.document["https://www.w3.org/2018/credentials#issuer"] = object{"@id": "did:web:rival.example"}
		}, parse, "/issuer: want one"},
		{"two subjects", func(f *forgery) {
			f.document["credentialSubject"] = []any{f.subject(), object{"id": "https://a.example"}}
		}, parse, "/credentialSubject: want one"},
		{"subject without an id", func(f *forgery) { delete(f.subject(), "id") }, parse, "/credentialSubject/id"},
		{"no date", func(f *forgery) { delete(f.document, "issuanceDate") }, parse, "/issuanceDate"},
		{"date without a time", func(f *forgery) { f.document["issuanceDate"] = "2026-11-01" }, parse, "/issuanceDate"},
		{"duplicate member", func(f *forgery) {
			f.after = func(s string) string {
				return strings.Replace(s, `"issuer":`, `"\u0069ssuer":"did:web:rival.example","issuer":`, 1)
			}
		}, parse, "duplicate member"},
		{"trailing data", func(f *forgery) { f.after = func(s string) string { return s + "{}" } }, parse, "trailing data"},
		{"too deep", func(f *forgery) {
			f.after = func(s string) string {
				return strings.Replace(s, `"id":`, `"x":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,"id":`, 1)
			}
		}, parse, "too deep"},
		{"too large", func(f *forgery) { f.subject()["name"] = strings.Repeat("x", selfdescription.MaxCredential) }, parse, "longer than"},
		{"too many statements", func(f *forgery) {
			many := make([]any, 20_000)
			for i := range many {
				many[i] = fmt.Sprint(i)
			}
			f.subject()["name"] = many
		}, parse, "more than 10000 statements"},

		{"two proofs", func(f *forgery) {
			f.after = func(s string) string { return strings.Replace(s, `"proof":{`, `"proof":[{}],"x":{`, 1) }
		}, parse, "/proof: want one"},
		{"proof of another type", func(f *forgery) { f.proof["type"] = "Ed25519Signature2020" }, parse, "/proof/type"},
		{"proof for authentication", func(f *forgery) { f.proof["proofPurpose"] = "authentication" }, parse, "/proof/proofPurpose"},
		{"proof for another domain", func(f *forgery) { f.proof["domain"] = "rival.example" }, parse, "/proof/domain"},
		{"proof without a date", func(f *forgery) { delete(f.proof, "created") }, parse, "/proof/created"},
		{"header jwk", func(f *forgery) { f.header["jwk"] = object{"kty": "EC"} }, parse, "/proof/jws: header"},
		{"header x5u", func(f *forgery) { f.header["x5u"] = "https://rival.example/chain.pem" }, parse, "/proof/jws: header"},
		{"encoded payload", func(f *forgery) { f.header["b64"] = true }, parse, `"b64":false`},
		{"b64 that need not be understood", func(f *forgery) { delete(f.header, "crit") }, parse, `"crit":["b64"]`},
		{"payload in the signature", func(f *forgery) {
			f.after = func(s string) string { return strings.Replace(s, "..", ".e30.", 1) }
		}, parse, "nothing between"},
		{"algorithm none", func(f *forgery) { f.header["alg"] = "none" }, algorithm, `"none"`},
		{"algorithm HS256 with the public key", func(f *forgery) { f.header["alg"] = "HS256" }, algorithm, `"HS256"`},
		{"algorithm that is not on the list", func(f *forgery) { f.header["alg"] = "ES512" }, algorithm, `"ES512"`},
		{"algorithm of another kind of key", func(f *forgery) { f.header["alg"] = "PS256" }, key, "does not fit algorithm PS256"},
		{"key for another algorithm", func(f *forgery) {
			id := issuer + "#key-1"
			f.importer.Keys = keys{id: {Key: f.key.Public(), KeyID: id, Algorithm: "ES384"}}
		}, key, "the key is for ES384"},
		{"key for encryption", func(f *forgery) {
			id := issuer + "#key-1"
			f.importer.Keys = keys{id: {Key: f.key.Public(), KeyID: id, Use: "enc"}}
		}, key, `"enc"`},
		{"key of another DID", func(f *forgery) { f.document["issuer"] = "did:web:rival.example" }, key, "want a key of the issuer"},
		{"key without a fragment", func(f *forgery) { f.proof["verificationMethod"] = issuer }, key, "want a key of the issuer"},
		{"key that the DID does not list", func(f *forgery) { f.proof["verificationMethod"] = issuer + "#key-2" }, key, "does not list"},
		{"signature by another key", func(f *forgery) { f.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }, signature, "not what"},

		{"not yet", func(f *forgery) { f.document["issuanceDate"] = "2026-12-01T00:00:00Z" }, selfdescription.StepWindow, "/issuanceDate"},
		{"not yet by one of two dates", func(f *forgery) {
			f.document["issuanceDate"] = "2026-12-01T00:00:00Z"
			f.document["https://www.w3.org/2018/credentials#validFrom"] = object{"@value": "2026-11-02T00:00:00Z"}
		}, selfdescription.StepWindow, "/issuanceDate"},
		{"proof from the future", func(f *forgery) { f.proof["created"] = "2026-12-01T00:00:00Z" }, selfdescription.StepWindow, "/proof/created"},
		{"expired", func(f *forgery) { f.document["expirationDate"] = "2026-11-02T00:00:00Z" }, selfdescription.StepWindow, "/expirationDate"},
		{"expired by another name", func(f *forgery) {
			f.document["https://www.w3.org/2018/credentials#validUntil"] = object{"@value": "2026-11-02T00:00:00Z"}
		}, selfdescription.StepWindow, "/expirationDate"},
		{"with a status", func(f *forgery) {
			f.document["credentialStatus"] = object{"id": "https://provider.example/status#1", "type": "gx:Status"}
		}, selfdescription.StepStatus, "/credentialStatus"},
		{"foreign claim", func(f *forgery) { f.subject()["labelLevel"] = "L3" }, selfdescription.StepShape, "/credentialSubject/labelLevel: closed"},
		{"foreign claim by its full name", func(f *forgery) { f.subject()[selfdescription.ContextGaiaX+"labelLevel"] = "L3" }, selfdescription.StepShape, "/credentialSubject/labelLevel: closed"},
		{"required attribute left out", func(f *forgery) { delete(f.subject(), "location") }, selfdescription.StepShape, "/credentialSubject/location: minCount"},
		{"two types", func(f *forgery) { f.subject()["type"] = []any{"Datacenter", "PhysicalResource"} }, selfdescription.StepShape, "want one type"},
		{"no type", func(f *forgery) { delete(f.subject(), "type") }, selfdescription.StepShape, "want one type"},
		{"issuer who may not", func(f *forgery) {
			f.importer.Issuers = func(string, string) (selfdescription.Assurance, bool) { return "", false }
		}, selfdescription.StepIssuer, "may not issue Datacenter"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := newForgery(t)
			row.forge(f)
			credential, report := f.importer.Import(t.Context(), f.sign(t, FormW3C))
			failed := report.Failed()
			if credential != nil || failed == nil || failed.Name != row.step || !strings.Contains(failed.Message, row.want) {
				t.Errorf("want %q at %s, got\n%s", row.want, row.step, &report.Report)
			}
			if len(report.Steps) != 8 {
				t.Errorf("%d steps", len(report.Steps))
			}
		})
	}
}

// The rows above are made of a document that is accepted.
func TestWhatForgeriesAreMadeOfIsAccepted(t *testing.T) {
	for _, form := range []Form{FormW3C, FormGaiaX} {
		f := newForgery(t)
		credential, report := f.importer.Import(t.Context(), f.sign(t, form))
		if credential == nil || report.Form != form {
			t.Errorf("%s:\n%s", form, &report.Report)
		}
	}
}

func TestTheGaiaXFormLeavesTheProofUnsignedAndSaysSo(t *testing.T) {
	f := newForgery(t)
	other := issuer + "#key-2"
	f.importer.Keys.(keys)[other] = jose.JSONWebKey{Key: f.key.Public(), KeyID: other}
	text := f.sign(t, FormGaiaX)
	text = strings.Replace(text, `"created":"2026-11-01T00:00:00Z"`, `"created":"2020-01-01T00:00:00Z"`, 1)
	text = strings.Replace(text, `"verificationMethod":"`+issuer+"#key-1", `"verificationMethod":"`+other, 1)
	credential, report := f.importer.Import(t.Context(), text)
	if credential == nil || credential.KeyID != other {
		t.Fatalf("a document with a changed proof is refused, so that the report would be wrong:\n%s", &report.Report)
	}
	if want := []string{"/proof/created", "/proof/proofPurpose", "/proof/verificationMethod"}; !slices.Equal(report.Unsigned, want) {
		t.Errorf("unsigned %v, want %v", report.Unsigned, want)
	}
	if step := report.Steps[3]; !strings.Contains(step.Message, "not signed: /proof/created") {
		t.Errorf("step %+v", step)
	}
}

// TestEmptyArraysAreNotSigned: they state nothing in RDF. Anybody can add them to a document,
// so none is in the claims, and the report names them.
func TestEmptyArraysAreNotSigned(t *testing.T) {
	for _, form := range []Form{FormW3C, FormGaiaX} {
		f := newForgery(t)
		signed, _ := f.importer.Import(t.Context(), f.sign(t, form))
		if signed == nil {
			t.Fatal("the document is refused as it was signed")
		}
		for _, empty := range []string{`[]`, `[[]]`, `[[],[[]]]`} {
			text := strings.Replace(f.sign(t, form), `"credentialSubject":{`, `"credentialSubject":{"gx:countryCode":`+empty+`,`, 1)
			got, report := f.importer.Import(t.Context(), text)
			if got == nil {
				t.Fatalf("%s:\n%s", empty, &report.Report)
			}
			if diff := cmp.Diff(signed.Claims, got.Claims); diff != "" {
				t.Errorf("%s changed the claims:\n%s", empty, diff)
			}
			if !slices.Contains(report.Unsigned, "/credentialSubject/gx:countryCode") {
				t.Errorf("%s is not among the unsigned: %v", empty, report.Unsigned)
			}
		}
	}
}

func TestTheW3CFormSignsTheProof(t *testing.T) {
	f := newForgery(t)
	text := strings.Replace(f.sign(t, FormW3C), `"created":"2026-11-01T00:00:00Z"`, `"created":"2020-01-01T00:00:00Z"`, 1)
	if credential, report := f.importer.Import(t.Context(), text); credential != nil {
		t.Errorf("accepted:\n%s", &report.Report)
	}
	f = newForgery(t)
	if _, report := f.importer.Import(t.Context(), f.sign(t, FormW3C)); len(report.Unsigned) > 0 {
		t.Errorf("unsigned %v, want none", report.Unsigned)
	}
}

func TestContextsAreNeverFetched(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	for _, context := range []any{server.URL, object{"@import": server.URL}, object{"x": object{"@id": "https://a.example/x", "@context": server.URL}}} {
		f := newForgery(t)
		f.document["@context"] = []any{ContextCredentialsV1, selfdescription.ContextGaiaX, context}
		if credential, _ := f.importer.Import(t.Context(), f.sign(t, FormGaiaX)); credential != nil {
			t.Errorf("%v: accepted", context)
		}
	}
	// Contexts to which one of the list refers are not fetched either.
	f := newForgery(t)
	knowing(t, "https://former.example/ns", fmt.Sprintf(`{"@context":%q}`, server.URL))
	f.document["@context"] = []any{ContextCredentialsV1, selfdescription.ContextGaiaX, "https://former.example/ns"}
	if credential, _ := f.importer.Import(t.Context(), f.sign(t, FormGaiaX)); credential != nil {
		t.Error("accepted")
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests", n)
	}
}

func TestAnAlgorithmIsCheckedBeforeAKeyIsLookedFor(t *testing.T) {
	f := newForgery(t)
	f.header["alg"] = "none"
	f.importer.Keys = keySource(func(string) (*did.Key, error) {
		t.Error("a key is looked for")
		return nil, errors.New("none")
	})
	f.importer.Import(t.Context(), f.sign(t, FormW3C))
}

type keySource func(id string) (*did.Key, error)

func (k keySource) Key(_ context.Context, id string) (*did.Key, error) { return k(id) }

type unreachable struct{ error }

func (unreachable) Temporary() bool { return true }

func TestAKeyThatCannotBeHadNowIsATemporaryFailure(t *testing.T) {
	f := newForgery(t)
	text := f.sign(t, FormW3C)
	f.importer.Keys = keySource(func(string) (*did.Key, error) { return nil, unreachable{errors.New("no route to host")} })
	if _, report := f.importer.Import(t.Context(), text); !report.Temporary {
		t.Errorf("report\n%s", &report.Report)
	}
}

// A document of a few hundred bytes whose blank nodes take json-gold seconds to distinguish, or
// for ever.
func TestACanonicalizationBombIsRefusedInMilliseconds(t *testing.T) {
	for _, nodes := range []int{7, 10, 16} {
		t.Run(fmt.Sprintf("clique of %d", nodes), func(t *testing.T) {
			f := newForgery(t)
			f.subject()["x"] = clique(nodes)
			text := f.sign(t, FormGaiaX)
			start := time.Now()
			credential, report := f.importer.Import(t.Context(), text)
			if took := time.Since(start); took > time.Second { // some twenty milliseconds on an idle machine
				t.Errorf("took %s", took)
			}
			if failed := report.Failed(); credential != nil || failed == nil || failed.Name != selfdescription.StepSignature || !strings.Contains(failed.Message, "too much work") {
				t.Errorf("report\n%s", &report.Report)
			}
		})
	}
}

// clique is a dataset in which every blank node refers to every other.
func clique(nodes int) []any {
	var all []any
	for i := range nodes {
		var others []any
		for j := range nodes {
			if i != j {
				others = append(others, object{"id": fmt.Sprintf("_:%d", j)})
			}
		}
		all = append(all, object{"id": fmt.Sprintf("_:%d", i), "p": others})
	}
	return all
}

func TestADocumentOf2022MayNeedItsKeyNamed(t *testing.T) {
	f := newForgery(t)
	f.proof["verificationMethod"] = issuer
	text := f.sign(t, FormGaiaX)
	f.importer.KeyID = issuer + "#key-1"
	credential, report := f.importer.Import(t.Context(), text)
	if credential == nil || credential.KeyID != f.importer.KeyID {
		t.Errorf("report\n%s", &report.Report)
	}
	f.importer.KeyID = "did:web:rival.example#key-1"
	if credential, report := f.importer.Import(t.Context(), text); credential != nil {
		t.Errorf("accepted with a key of another:\n%s", &report.Report)
	}
}

// TestADocumentOf2023IsImported: documents in the form that the wizard of Gaia-X made for
// release 22.10, with its context again in the subject, and a proof that names no key.
func TestADocumentOf2023IsImported(t *testing.T) {
	for _, row := range []struct{ proofType string }{{proofType}, {formerProofType}} {
		f := newForgery(t)
		f.document["@context"] = []any{ContextCredentialsV1, ContextJWS2020, ContextGaiaX2210}
		f.document["type"] = "VerifiableCredential"
		f.document["credentialSubject"] = object{
			"@context": ContextGaiaX2210, "id": "https://provider.example/.well-known/participant.json#0", "type": "gx:LegalParticipant",
			"gx:legalName": "Provider GmbH", "gx:legalRegistrationNumber": object{"id": "https://provider.example/.well-known/lrn.json"},
			"gx:headquarterAddress": object{"gx:countrySubdivisionCode": "DE-HH"}, "gx:legalAddress": object{"gx:countrySubdivisionCode": "DE-HH"},
		}
		f.proof["type"], f.proof["verificationMethod"] = row.proofType, issuer
		f.importer.KeyID = issuer + "#key-1"
		credential, report := f.importer.Import(t.Context(), f.sign(t, FormGaiaX))
		if credential == nil {
			t.Fatalf("%s:\n%s", row.proofType, &report.Report)
		}
		if credential.Type != ContextGaiaX2210+"LegalParticipant" || credential.Claims[ContextGaiaX2210+"legalName"] != "Provider GmbH" {
			t.Errorf("credential %+v", credential)
		}
		f.subject()["@context"] = "https://rival.example/context"
		if credential, _ := f.importer.Import(t.Context(), f.sign(t, FormGaiaX)); credential != nil {
			t.Error("a subject with a context of its own is accepted")
		}
	}
}

// Types of earlier releases, and of other vocabularies, are never taken for current ones.
func TestTypesOfOtherVocabulariesStayIRIs(t *testing.T) {
	const former = "https://registry.example/shapes/trustframework#"
	f := newForgery(t)
	knowing(t, former, fmt.Sprintf(`{"@context":{"gx2022":%q}}`, former))
	f.document["@context"] = []any{ContextCredentialsV1, former}
	f.document["credentialSubject"] = object{"id": "https://provider.example/label", "type": "gx2022:LabelCredential", "gx2022:labelLevel": "L3"}
	credential, report := f.importer.Import(t.Context(), f.sign(t, FormGaiaX))
	if credential == nil {
		t.Fatalf("report\n%s", &report.Report)
	}
	if credential.Type != former+"LabelCredential" || credential.Claims[former+"labelLevel"] != "L3" || credential.Claims["labelLevel"] != nil {
		t.Errorf("credential %+v", credential)
	}
	if step := report.Steps[6]; step.Result != selfdescription.Skipped {
		t.Errorf("step %+v", step)
	}
}

func TestAliasesOfKeywordsAreRefused(t *testing.T) {
	for _, keyword := range []string{"@graph", "@reverse", "@included"} {
		const url = "https://former.example/ns"
		f := newForgery(t)
		knowing(t, url, fmt.Sprintf(`{"@context":{"alias":%q}}`, keyword))
		f.document["@context"] = []any{ContextCredentialsV1, selfdescription.ContextGaiaX, url}
		f.subject()["alias"] = object{"owns": object{"id": "https://a.example"}}
		if credential, report := f.importer.Import(t.Context(), f.sign(t, FormGaiaX)); credential != nil || report.Failed().Name != selfdescription.StepParse {
			t.Errorf("%s:\n%s", keyword, &report.Report)
		}
	}
}
