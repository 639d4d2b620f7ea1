package draft_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/draft"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

const (
	provider = "did:web:provider.example"
	body     = "did:web:certifier.example"
	uid      = "4fb5f5b1-6a4c-4a39-8e2a-9a4f9f6a0e10"
	keyHash  = "sha256-n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg="
)

var now = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func filledIn() *draft.Draft {
	return &draft.Draft{
		DID: provider, Base: "https://provider.example/selfdescription", ValidDays: 90,
		Provider: draft.Organisation{
			Name: `Provider "Eins": GmbH # & Co <Köln>, ` + strings.Repeat("a", 60) + " und Töchter\u007f", LegalCountry: "DE", HeadquartersCountry: "FR",
			Registration: map[string]string{"vatID": "DE123456789"}, GaiaXTerms: draft.GaiaXTerms,
		},
		Datacenters: []draft.Datacenter{{Name: "main", Title: "Frankfurt 1\nGallus", Country: "DE"}},
		Clusters: []draft.Cluster{{
			Name: "eu", Offering: "Kubernetes in Frankfurt", Datacenter: "main", UID: uid, KeyHash: keyHash,
			Terms: draft.Terms{URL: "https://provider.example/terms.pdf", SHA256: strings.Repeat("8a", 32)},
		}},
	}
}

func TestWhatIsWrittenIsParsedAgain(t *testing.T) {
	text, err := draft.Write(filledIn())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := draft.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(filledIn(), parsed); diff != "" {
		t.Errorf("-written +parsed:\n%s", diff)
	}
}

func TestParseNamesEverythingThatIsMissing(t *testing.T) {
	text, err := draft.Write(&draft.Draft{Clusters: []draft.Cluster{{Name: "EU"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = draft.Parse(text)
	if err == nil {
		t.Fatal("an empty draft is accepted")
	}
	for _, field := range []string{"did", "base", "validDays", "provider.name", "provider.registration",
		"clusters[0].name", "clusters[0].offering", "clusters[0].datacenter", "clusters[0].terms", "clusters[0].uid", "clusters[0].keyHash"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, change := range map[string]func(*draft.Draft){
		"a cluster in no data centre":   func(d *draft.Draft) { d.Clusters[0].Datacenter = "other" },
		"one name for two clusters":     func(d *draft.Draft) { d.Clusters = append(d.Clusters, d.Clusters[0]) },
		"one name for two sites":        func(d *draft.Draft) { d.Datacenters = append(d.Datacenters, d.Datacenters[0]) },
		"an unknown kind of number":     func(d *draft.Draft) { d.Provider.Registration = map[string]string{"passport": "1"} },
		"a name that is no path":        func(d *draft.Draft) { d.Clusters[0].Name = "../eu" },
		"a validity that has no length": func(d *draft.Draft) { d.ValidDays = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			d := filledIn()
			change(d)
			text, err := draft.Write(d)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := draft.Parse(text); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := draft.Parse([]byte("did: did:web:a.example\nlabel: L3\n")); err == nil || !strings.Contains(err.Error(), "label") {
		t.Errorf("an unknown field: %v", err)
	}
}

// sign makes verified credentials of documents, without using a verifier.
func sign(t *testing.T, issuer string, documents ...selfdescription.Document) []*selfdescription.Credential {
	t.Helper()
	key, err := selfdescription.GenerateKey("EdDSA", issuer+"#key-1")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	var credentials []*selfdescription.Credential
	for _, document := range documents {
		compact, err := signer.Credential(document)
		if err != nil {
			t.Fatal(err)
		}
		credential, err := selfdescription.Parse(compact)
		if err != nil {
			t.Fatal(err)
		}
		credentials = append(credentials, credential)
	}
	return credentials
}

func documents(d *draft.Draft) []selfdescription.Document {
	var list []selfdescription.Document
	for _, named := range d.Documents(now) {
		list = append(list, named.Document)
	}
	return list
}

func TestEveryDocumentHasTheShapeOfItsType(t *testing.T) {
	for _, registration := range []map[string]string{{"vatID": "DE123456789"}, {"leiCode": "00000000000000000098"}, {"eori": "DE1234567"}, {"euid": "DEK1101R.HRB12345"}} {
		d := filledIn()
		d.Provider.Registration = registration
		for _, named := range d.Documents(now) {
			for _, violation := range shape.Check(asJSON(t, named.Subject)) {
				t.Errorf("%s: %+v", named.Name, violation)
			}
		}
	}
}

func asJSON(t *testing.T, subject map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(subject)
	if err != nil {
		t.Fatal(err)
	}
	var plain map[string]any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	return plain
}

// TestTheSetAdmitsItsCluster: the documents of a draft are enough for admission, and a
// certification over them makes the country certified.
func TestTheSetAdmitsItsCluster(t *testing.T) {
	d := filledIn()
	set := sign(t, provider, documents(d)...)
	of := map[string]*selfdescription.Credential{}
	for _, c := range set {
		of[c.Type] = c
	}
	certification, err := draft.Attestation{
		Type: selfdescription.TypeCertification, ID: "https://certifier.example/1", Standard: "ISO/IEC 27001",
		About:     []*selfdescription.Credential{of["ComputeServiceOffering"], of["Datacenter"]},
		ValidFrom: now, ValidUntil: now.AddDate(1, 0, 0),
	}.Document()
	if err != nil {
		t.Fatal(err)
	}
	issuers := func(issuer, subjectType string) (selfdescription.Assurance, bool) {
		if issuer == body && subjectType == selfdescription.TypeCertification {
			return selfdescription.Certified, true
		}
		return selfdescription.Self, issuer == provider
	}
	facts, want := selfdescription.ClusterFacts{UID: uid, KeyHash: keyHash}, selfdescription.Requirements{Provider: provider}
	for name, row := range map[string]struct {
		set     []*selfdescription.Credential
		country selfdescription.Assurance
	}{
		"by itself":            {set, selfdescription.Self},
		"with a certification": {append(sign(t, body, certification), set...), selfdescription.Certified},
	} {
		t.Run(name, func(t *testing.T) {
			claims, report := selfdescription.Admit(row.set, d.Offering("eu"), facts, want, issuers, now)
			if !report.OK() {
				t.Fatalf("refused:\n%s", report.String())
			}
			got := map[string]selfdescription.Claim{}
			for _, c := range claims {
				got[c.Name] = c
			}
			if c := got[selfdescription.ClaimDatacenterCountry]; c.Value != "DE" || c.Assurance != row.country {
				t.Errorf("data centre: %+v, want DE, %s", c, row.country)
			}
			if c := got[selfdescription.ClaimProviderCountry]; c.Value != "FR" || c.Assurance != selfdescription.Self {
				t.Errorf("headquarters: %+v, want FR, self", c)
			}
			if c := got[selfdescription.ClaimProviderRegistration]; c.Value != "vatID:DE123456789" {
				t.Errorf("registration: %+v", c)
			}
		})
	}
	facts.UID = "another"
	if _, report := selfdescription.Admit(set, d.Offering("eu"), facts, want, issuers, now); report.OK() {
		t.Error("the set admits another cluster")
	}
}

func TestAttestationsHaveTheShapeOfTheirType(t *testing.T) {
	about := sign(t, provider, documents(filledIn())...)
	number := about[1]
	for name, row := range map[string]struct {
		attestation draft.Attestation
		subject     string
	}{
		"notary":        {draft.Attestation{Type: "VatID", About: about[1:2]}, number.Subject},
		"certification": {draft.Attestation{Type: "Certification", Standard: "ISO/IEC 27001", About: about}, about[0].Subject},
		"label":         {draft.Attestation{Type: "LabelCredential", Level: "L1", Rules: "CD25.10", Engine: "1", Criteria: []string{"https://criteria.example/P1"}, About: about}, "https://body.example/1#subject"},
	} {
		t.Run(name, func(t *testing.T) {
			row.attestation.ID = "https://body.example/1"
			document, err := row.attestation.Document()
			if err != nil {
				t.Fatal(err)
			}
			if document.Subject["id"] != row.subject {
				t.Errorf("about %v, want %s", document.Subject["id"], row.subject)
			}
			for _, violation := range shape.Check(asJSON(t, document.Subject)) {
				t.Errorf("%+v", violation)
			}
		})
	}
}

func TestAttestationRefuses(t *testing.T) {
	about := sign(t, provider, documents(filledIn())...)
	for name, attestation := range map[string]draft.Attestation{
		"about nothing":                 {Type: "Certification", Standard: "ISO/IEC 27001"},
		"a certification to nothing":    {Type: "Certification", About: about},
		"a label without level":         {Type: "LabelCredential", Rules: "1", Engine: "1", Criteria: []string{"x"}, About: about},
		"a label without criteria":      {Type: "LabelCredential", Level: "L1", Rules: "1", Engine: "1", About: about},
		"a number made of an offering":  {Type: "VatID", About: about[:1]},
		"two numbers in one credential": {Type: "VatID", About: append(about[1:2:2], about[1])},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := attestation.Document(); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// TestWhatHasNoIDCanBeAttested: credentials need no id (VCDM 2.0, 4.4). The attestation names
// such a credential by its digest.
func TestWhatHasNoIDCanBeAttested(t *testing.T) {
	about := &selfdescription.Credential{Type: "Datacenter", Subject: "https://provider.example/dc", Digest: selfdescription.DigestOf("it")}
	for _, attestation := range []draft.Attestation{
		{Type: "Certification", Standard: "ISO/IEC 27001"},
		{Type: "LabelCredential", Level: "L1", Rules: "CD25.10", Engine: "1", Criteria: []string{"https://criteria.example/P1"}},
	} {
		attestation.ID, attestation.About = "https://body.example/1", []*selfdescription.Credential{about}
		document, err := attestation.Document()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(document.Subject)
		if err != nil {
			t.Fatal(err)
		}
		var subject map[string]any
		if err := json.Unmarshal(text, &subject); err != nil {
			t.Fatal(err)
		}
		if violations := shape.Check(subject); len(violations) > 0 {
			t.Errorf("%s: %v", attestation.Type, violations)
		}
	}
}
