package legacy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/selfdescription"
)

const hash = "3280866b1b8509ce287850fb113dc76d1334959c759f82a57415164d7a3a4026"

func complianceCredential(t *testing.T) *forgery {
	f := newForgery(t)
	f.document["@context"] = []any{ContextCredentialsV1}
	f.document["type"] = []any{"VerifiableCredential", "ParticipantCredential"}
	f.document["credentialSubject"] = object{"id": "did:web:participant.example", "hash": hash}
	f.importer.Compliance = func(did string) bool { return did == issuer }
	return f
}

func TestAComplianceCredentialSignsItsHashAndSaysSo(t *testing.T) {
	f := complianceCredential(t)
	text := f.sign(t, FormCompliance)
	text = strings.Replace(text, "participant.example", "rival.example", 1)
	text = strings.Replace(text, "2027-02-01", "2037-02-01", 1)
	credential, report := f.importer.Import(t.Context(), text)
	if credential == nil || report.Form != FormCompliance {
		t.Fatalf("a document with unsigned members changed is refused, so that the report would be wrong:\n%s", &report.Report)
	}
	for _, pointer := range []string{"/issuer", "/issuanceDate", "/expirationDate", "/credentialSubject/id", "/type", "/id", "/proof/created"} {
		if !slices.Contains(report.Unsigned, pointer) {
			t.Errorf("%s is not among the unsigned: %v", pointer, report.Unsigned)
		}
	}
	if credential.Subject != "" || credential.Type != "" || len(credential.Claims) != 1 || credential.Claims["hash"] != hash {
		t.Errorf("the credential says what was not signed: %+v", credential)
	}
}

// Content beside the hash would be regarded as signed.
func TestAComplianceCredentialHasNothingButItsHash(t *testing.T) {
	f := complianceCredential(t)
	f.document["@context"] = []any{ContextCredentialsV1, selfdescription.ContextGaiaX}
	f.document["type"] = []any{"VerifiableCredential"}
	text := strings.Replace(f.sign(t, FormCompliance), `"hash":`, `"labelLevel":"L3","hash":`, 1)
	if credential, report := f.importer.Import(t.Context(), text); credential != nil || report.Failed().Name != selfdescription.StepSignature {
		t.Errorf("report\n%s", &report.Report)
	}
}

func TestOnlyComplianceServicesIssueComplianceCredentials(t *testing.T) {
	f := complianceCredential(t)
	text := f.sign(t, FormCompliance)
	f.importer.Compliance = nil
	if credential, report := f.importer.Import(t.Context(), text); credential != nil {
		t.Errorf("accepted:\n%s", &report.Report)
	}
}

// A provider's signature in the Gaia-X form is a signature over a hash, too.
func TestAGaiaXCredentialIsNoComplianceCredential(t *testing.T) {
	f := newForgery(t)
	signed := f.sign(t, FormGaiaX)
	var document struct{ Proof object }
	if err := json.Unmarshal([]byte(signed), &document); err != nil {
		t.Fatal(err)
	}
	d, err := loader(Contexts()).read(signed)
	if err != nil {
		t.Fatal(err)
	}
	payloads, err := d.payloads(loader(Contexts()))
	if err != nil {
		t.Fatal(err)
	}
	forged := complianceCredential(t)
	forged.document["credentialSubject"].(object)["hash"] = string(payloads[1].bytes)
	f.importer.Compliance = func(did string) bool { return did == "did:web:compliance.example" }
	text := forged.text(t, document.Proof["jws"].(string))
	if credential, report := f.importer.Import(t.Context(), text); credential != nil {
		t.Errorf("accepted:\n%s", &report.Report)
	}
}
