package selfdescription

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// dossier is the credentials of one cluster, from its provider and from others about it.
type dossier struct {
	*world
	person, vat, offering, datacenter, binding *Credential
	more                                       []*Credential
	offered                                    object // what the offering says
	want                                       Requirements
	cluster                                    ClusterFacts
	issuers                                    Issuers
}

const offeringID = "https://provider.example/k8s"

// newDossier is complete. Everything in it has the assurance Self, except the registration
// number that the notary checked.
func newDossier(tb testing.TB) *dossier {
	tb.Helper()
	w := newWorld(tb)
	hash := DigestOf("the key of the API server").SRI()
	return &dossier{
		world:      w,
		person:     w.issue(tb, provider, document(person("https://provider.example/lp"))),
		vat:        w.issue(tb, notary, document(vat())),
		offering:   w.issue(tb, provider, document(offering(offeringID))),
		datacenter: w.issue(tb, provider, document(datacenter("https://provider.example/dc", "DE"))),
		binding:    w.issue(tb, provider, document(binding("uid-1", hash))),
		offered:    offering(offeringID),
		want:       Requirements{Provider: provider},
		cluster:    ClusterFacts{UID: "uid-1", KeyHash: hash},
		issuers:    worth,
	}
}

// hostedOn makes the provider state that its offering is hosted elsewhere.
func (d *dossier) hostedOn(tb testing.TB, id string) {
	tb.Helper()
	d.offered["hostedOn"] = object{"id": id}
	d.offering = d.issue(tb, provider, document(d.offered))
}

func (d *dossier) set() []*Credential {
	set := []*Credential{d.person, d.vat, d.offering, d.datacenter, d.binding}
	set = append(set, d.more...)
	return slices.DeleteFunc(set, func(c *Credential) bool { return c == nil })
}

func (d *dossier) admit() ([]Claim, Report) {
	return Admit(d.set(), offeringID, d.cluster, d.want, d.issuers, at)
}

// trust changes the assurance of an issuer.
func (d *dossier) trust(issuer, subjectType string, assurance Assurance, ok bool) {
	before := d.issuers
	d.issuers = func(i, t string) (Assurance, bool) {
		if i == issuer && t == subjectType {
			return assurance, ok
		}
		return before(i, t)
	}
}

// by issues credentials that only the issuers of the dossier may issue.
func (d *dossier) by(tb testing.TB, issuer string, subject object) *Credential {
	tb.Helper()
	compact, err := d.signer(tb, issuer).Credential(document(subject))
	if err != nil {
		tb.Fatal(err)
	}
	v := d.verifier()
	v.Issuers = d.issuers
	c, report := v.Credential(context.Background(), compact)
	if !report.OK() {
		tb.Fatalf("\n%s", &report)
	}
	return c
}

// summary returns claims without issuers and ends.
func summary(claims []Claim) (list []string) {
	for _, c := range claims {
		list = append(list, c.Name+"="+c.Value+" "+string(c.Assurance))
	}
	return list
}

func TestACompleteDossierIsAdmitted(t *testing.T) {
	d := newDossier(t)
	claims, report := d.admit()
	if !report.OK() {
		t.Fatalf("\n%s", &report)
	}
	end := d.offering.ValidUntil
	want := []Claim{
		{ClaimDatacenterCountry, "DE", Self, provider, d.datacenter.Digest, end},
		{ClaimProviderCountry, "FR", Self, provider, d.person.Digest, end},
		{ClaimProviderRegistration, "vatID:FR40303265045", Notary, notary, d.vat.Digest, end},
	}
	if diff := cmp.Diff(want, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	steps := []StepName{StepReferences, StepIssuer, StepBinding, StepAdmit}
	if got := names(report); !slices.Equal(got, steps) {
		t.Errorf("steps %s, want %s", got, steps)
	}
}

func TestADossierWithAGapIsNotAdmitted(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*testing.T, *dossier)
		step   StepName
		want   string
	}{
		{"no offering", func(_ *testing.T, d *dossier) { d.offering = nil }, StepReferences, "no service offering"},
		{"the offering of a rival", func(t *testing.T, d *dossier) {
			d.offering = d.issue(t, rival, document(offering(offeringID)))
		}, StepReferences, "no service offering"},
		{"something else in place of the offering", func(t *testing.T, d *dossier) {
			d.offering = d.issue(t, provider, document(datacenter(offeringID, "DE")))
		}, StepReferences, "no service offering"},
		{"an offering that ended", func(_ *testing.T, d *dossier) {
			o := *d.offering
			o.ValidUntil = at
			d.offering = &o
		}, StepReferences, "no service offering"},
		{"an offering of two providers", func(_ *testing.T, d *dossier) {
			d.offering.Claims["providedBy"] = []any{"https://provider.example/lp", "https://provider.example/other"}
		}, StepReferences, "/providedBy: want one reference, got 2"},
		{"an offering of no provider", func(_ *testing.T, d *dossier) {
			delete(d.offering.Claims, "providedBy")
		}, StepReferences, "/providedBy: want one reference, got 0"},
		{"no provider", func(_ *testing.T, d *dossier) { d.person = nil }, StepReferences, "/providedBy"},
		{"the paper of another company", func(t *testing.T, d *dossier) {
			d.person = d.issue(t, rival, document(person("https://provider.example/lp")))
		}, StepReferences, "/providedBy"},
		{"the notary's paper on another company", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			o["providedBy"] = object{"id": "https://rival.example/lp"}
			d.offering = d.issue(t, provider, document(o))
			d.more = append(d.more, d.issue(t, notary, document(person("https://rival.example/lp"))))
		}, StepReferences, "/providedBy"},
		{"no data centre", func(_ *testing.T, d *dossier) { d.datacenter = nil }, StepReferences, `/hostedOn/0: "https://provider.example/dc"`},
		{"an offering that is nowhere", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			delete(o, "hostedOn")
			d.offering = d.issue(t, provider, document(o))
		}, StepReferences, "/hostedOn: leads to nothing"},
		{"a certification in place of the data centre", func(t *testing.T, d *dossier) {
			d.datacenter = d.issue(t, auditor, document(certification("https://provider.example/dc")))
		}, StepReferences, "/hostedOn/0"},
		{"a zone that is kept back", func(t *testing.T, d *dossier) {
			dc := datacenter("https://provider.example/dc", "DE")
			dc["aggregationOfResources"] = object{"id": "https://provider.example/zone-us"}
			d.datacenter = d.issue(t, provider, document(dc))
		}, StepReferences, "/hostedOn/0/aggregationOfResources/0"},
		{"a data centre that is only named, with its type", func(_ *testing.T, d *dossier) {
			d.offering.Claims["hostedOn"] = object{"id": "https://provider.example/elsewhere", "type": "Datacenter"}
		}, StepReferences, `/hostedOn/0: "https://provider.example/elsewhere"`},
		{"a data centre in no country", func(_ *testing.T, d *dossier) {
			d.datacenter.Claims["location"] = object{"countryCode": "XX"}
		}, StepReferences, `/hostedOn/0/location/0/countryCode: want a country of ISO 3166-1, got "XX"`},
		{"a data centre in no country, within the offering", func(_ *testing.T, d *dossier) {
			d.offering.Claims["hostedOn"] = object{"id": "https://provider.example/dc", "type": "Datacenter", "location": object{}}
		}, StepReferences, "/hostedOn/0/location/0/countryCode"},
		{"a LegalPerson that is none", func(t *testing.T, d *dossier) {
			d.person = d.issue(t, provider, document(datacenter("https://provider.example/lp", "DE")))
		}, StepReferences, "/providedBy"},
		{"an offering that another is trusted with", func(t *testing.T, d *dossier) {
			d.trust(auditor, TypeComputeServiceOffering, Certified, true)
			d.offering = d.by(t, auditor, offering(offeringID))
		}, StepReferences, "no service offering"},
		{"references without end", func(t *testing.T, d *dossier) {
			d.datacenter = nil
			for i := range maxPath + 2 {
				id := "https://provider.example/dc" + strings.Repeat("x", i)
				d.more = append(d.more, d.issue(t, provider, document(pool(id, id+"x"))))
			}
		}, StepReferences, "one after the other"},
		{"a provider that may not issue offerings", func(_ *testing.T, d *dossier) {
			d.trust(provider, TypeComputeServiceOffering, "", false)
		}, StepIssuer, "may not issue ComputeServiceOffering"},
		{"a provider that may not issue bindings", func(_ *testing.T, d *dossier) {
			d.trust(provider, TypeClusterBinding, "", false)
		}, StepBinding, "may not issue ClusterBinding"},
		{"a binding that another is trusted with", func(t *testing.T, d *dossier) {
			d.trust(auditor, TypeClusterBinding, Certified, true)
			d.binding = d.by(t, auditor, binding(d.cluster.UID, d.cluster.KeyHash))
		}, StepBinding, "no ClusterBinding"},
		{"no binding", func(_ *testing.T, d *dossier) { d.binding = nil }, StepBinding, "no ClusterBinding"},
		{"the binding of a rival", func(t *testing.T, d *dossier) {
			d.binding = d.issue(t, rival, document(binding(d.cluster.UID, d.cluster.KeyHash)))
		}, StepBinding, "no ClusterBinding"},
		{"the binding of another offering", func(t *testing.T, d *dossier) {
			b := binding(d.cluster.UID, d.cluster.KeyHash)
			b["offering"] = object{"id": "https://provider.example/other"}
			d.binding = d.issue(t, provider, document(b))
		}, StepBinding, "no ClusterBinding"},
		{"a binding to another cluster", func(_ *testing.T, d *dossier) { d.cluster.UID = "uid-2" }, StepBinding, "/clusterUID"},
		{"a binding to another API server", func(_ *testing.T, d *dossier) { d.cluster.KeyHash = DigestOf("x").SRI() }, StepBinding, "/apiServerKeyHash"},
		{"a cluster that nobody has seen", func(t *testing.T, d *dossier) { d.cluster = ClusterFacts{} }, StepBinding, "not been reached"},
		{"a cluster whose uid nobody has seen", func(t *testing.T, d *dossier) { d.cluster.UID = "" }, StepBinding, "not been reached"},
		{"a cluster whose key nobody has seen", func(t *testing.T, d *dossier) { d.cluster.KeyHash = "" }, StepBinding, "not been reached"},
		{"no label although one is wanted", func(_ *testing.T, d *dossier) { d.want.Types = []string{"VatID", "LabelCredential"} }, StepAdmit, "no LabelCredential"},
		{"a label of another offering although one is wanted", func(t *testing.T, d *dossier) {
			d.want.Types = []string{"LabelCredential"}
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.person))))
		}, StepAdmit, "no LabelCredential"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDossier(t)
			row.change(t, d)
			claims, report := d.admit()
			refused(t, report, row.step, row.want)
			if claims != nil {
				t.Errorf("claims %v", claims)
			}
		})
	}
}

func TestIDsThatOnlyTheOwnerOfADIDCanGive(t *testing.T) {
	for _, row := range []struct {
		did, id string
		want    bool
	}{
		{provider, provider, true},
		{provider, provider + "#cs", true},
		{provider, "https://provider.example/vc/k8s#cs", true},
		{provider, "https://PROVIDER.example/vc", true},
		{provider, "https://rival.example/vc", false},
		{provider, "https://provider.example.rival.example/vc", false},
		{provider, "https://provider.example@rival.example/vc", false},
		{provider, "https://rival.example@provider.example/vc", false},
		{provider, "http://provider.example/vc", false},
		{provider, provider + "evil#cs", false},
		{provider, "urn:uuid:9b1deb4d", false},
		{"did:web:host.example%3A8443:a", "https://host.example:8443/a/vc", true},
		{"did:web:host.example%3A8443:a", "https://host.example/a/vc", false},
		{"did:web:host.example:a", "https://host.example/b/vc", false},
		{"did:web:host.example:a", "https://host.example/a/../b/vc", false},
		{"did:web:host.example:a", "https://host.example/a/%2e%2e/b/vc", false},
		{"did:web:host.example:a", "https://host.example/ab/vc", false},
		{"did:key:z6Mk", "did:key:z6Mk#cs", true},
		{"did:key:z6Mk", "https://host.example/vc", false},
	} {
		if got := Owns(row.did, row.id); got != row.want {
			t.Errorf("Owns(%s, %s) = %t", row.did, row.id, got)
		}
	}
}

// terms is the provider's signature under the terms of Gaia-X, which nothing refers to.
func terms() object {
	return object{
		"id": "https://provider.example/terms", "type": TypeIssuer,
		"gaiaxTermsAndConditions": "4bd7554097444c960292b4726c2efa1373485e8a5565d94d41195214c5e0ceb3",
	}
}

func TestRequiredTypes(t *testing.T) {
	all := []string{TypeLegalPerson, TypeComputeServiceOffering, TypeDatacenter, TypeClusterBinding, "VatID",
		TypeLabelCredential, TypeCertification, TypeClusterMeasurement, TypeIssuer}
	newComplete := func(t *testing.T) *dossier {
		d := newDossier(t)
		d.more = append(d.more,
			d.issue(t, complianceS, document(label(d.offering))), d.issue(t, auditor, document(certification(offeringID))),
			d.issue(t, broker, document(measurement(offeringID))), d.issue(t, provider, document(terms())))
		d.want.Types = all
		return d
	}
	if _, report := newComplete(t).admit(); !report.OK() {
		t.Errorf("all are there:\n%s", &report)
	}
	d := newComplete(t)
	d.vat, d.more = nil, nil
	_, report := d.admit()
	refused(t, report, StepAdmit, "no VatID, no LabelCredential, no Certification, no ClusterMeasurement, no Issuer that applies to "+offeringID)

	d = newComplete(t)
	d.trust(provider, TypeIssuer, "", false)
	_, report = d.admit()
	refused(t, report, StepAdmit, "no Issuer that")
}

// The shape of an imported document of another vocabulary is not checked. So it is no offering, whatever its type is called.
func TestAnOfferingOfAnotherVocabularyIsNone(t *testing.T) {
	const gaiaX2210 = "https://registry.lab.gaia-x.eu/development/api/trusted-shape-registry/v1/shapes/jsonld/trustframework#"
	for _, row := range []struct {
		name, kind string
		says       object
	}{
		{"with the terms of the current one", "https://vocabulary.example/ns#ServiceOffering", offering(offeringID)},
		{"an earlier one", gaiaX2210 + "ServiceOffering", object{"id": offeringID, gaiaX2210 + "providedBy": object{"id": "https://provider.example/lp"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDossier(t)
			want, _ := d.admit()
			foreign := *d.offering
			foreign.Type, foreign.Claims, foreign.Signed = row.kind, row.says, DigestOf(row.kind)
			foreign.ValidFrom = d.offering.ValidFrom.Add(time.Hour)
			d.more = append(d.more, &foreign)
			claims, report := d.admit()
			if diff := cmp.Diff(want, claims); !report.OK() || diff != "" {
				t.Errorf("it replaces the provider's offering: claims (-want +got):\n%s\n%s", diff, &report)
			}
			d.offering = nil
			_, report = d.admit()
			refused(t, report, StepReferences, "no service offering")
		})
	}
}

// Whoever trusts no issuer sees what the provider says of itself, and nothing that others say.
func TestAdmissionWithoutIssuers(t *testing.T) {
	d := newDossier(t)
	d.more = append(d.more, d.issue(t, auditor, document(certification(offeringID, d.offering, d.datacenter))))
	d.issuers = nil
	claims, report := d.admit()
	if !report.OK() {
		t.Fatalf("\n%s", &report)
	}
	if diff := cmp.Diff([]string{"datacenter.country=DE self", "provider.country=FR self"}, summary(claims)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

// A store of credentials finds by their concerns those that the admission of an offering needs.
func TestConcerns(t *testing.T) {
	d := newDossier(t)
	for name, row := range map[string]struct {
		credential *Credential
		want       []string
	}{
		"an offering":                        {d.offering, []string{offeringID}},
		"a measurement":                      {d.issue(t, broker, document(measurement(offeringID))), []string{offeringID}},
		"a binding":                          {d.binding, []string{"https://provider.example/binding", offeringID}},
		"a label":                            {d.issue(t, complianceS, document(label(d.offering))), []string{"https://compliance.example/label/1", d.offering.Digest.SRI()}},
		"a certification":                    {d.issue(t, auditor, document(certification(offeringID, d.person))), []string{offeringID, d.person.Digest.SRI()}},
		"a LegalPerson, of every offering":   {d.person, nil},
		"a data centre, of every offering":   {d.datacenter, nil},
		"the terms, agreed to for all of it": {d.issue(t, provider, document(terms())), nil},
	} {
		if got := row.credential.Concerns(); !slices.Equal(got, row.want) {
			t.Errorf("%s concerns %q, want %q", name, got, row.want)
		}
	}
}
