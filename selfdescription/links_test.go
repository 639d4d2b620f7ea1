package selfdescription

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAClaimTravelsOnlyOverLinksThatBothEndsConfirmed has one row for each cell of the table
// "Links" of docs/trust.md: the signer of the far end, and the result of a certification of it.
// A rival's own cluster refers to a data centre of the provider; a trusted auditor signs
// everything about that data centre.
func TestAClaimTravelsOnlyOverLinksThatBothEndsConfirmed(t *testing.T) {
	const (
		certified   = "certification=ISO/IEC 27001 certified"
		certifiedDE = "datacenter.country=DE certified"
		selfDE      = "datacenter.country=DE self"
		theirs      = "https://rival.example/dc"
	)
	for _, row := range []struct {
		link, name string
		change     func(*testing.T, *dossier)
		want       []string // claims that there are
		never      []string // names, or beginnings, of claims that there are not
	}{
		{"offering `hostedOn` data centre", "signed by the provider itself", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.offering.Subject, d.offering, d.datacenter))))
		}, []string{certified, certifiedDE}, nil},
		{"offering `hostedOn` data centre", "signed by the provider itself, maintained by another", func(t *testing.T, d *dossier) {
			d.datacenter = d.issue(t, provider, document(datacenterOf("https://provider.example/dc", "DE", "https://facilities.example/lp")))
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.offering.Subject, d.offering, d.datacenter))))
		}, []string{certified, certifiedDE}, nil},
		{"offering `hostedOn` data centre", "signed by a trusted issuer, with an id that only the provider can give", func(t *testing.T, d *dossier) {
			d.datacenter = d.by(t, auditor, datacenter("https://provider.example/dc", "DE"))
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.datacenter.Subject, d.datacenter))))
		}, []string{certified, selfDE}, nil},
		{"offering `hostedOn` data centre", "signed by a trusted issuer, maintained by the provider's LegalPerson", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			d.datacenter = d.by(t, auditor, datacenter(theirs, "DE"))
			d.more = append(d.more, d.issue(t, auditor, document(certification(theirs, d.datacenter))))
		}, []string{certified, selfDE}, nil},
		{"offering `hostedOn` data centre", "signed by a trusted issuer, owned by the provider's LegalPerson", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			dc := datacenter(theirs, "DE")
			dc["maintainedBy"], dc["ownedBy"] = object{"id": "https://facilities.example/lp"}, object{"id": "https://provider.example/lp"}
			d.datacenter = d.by(t, auditor, dc)
			d.more = append(d.more, d.issue(t, auditor, document(certification(theirs, d.datacenter))))
		}, []string{certified, selfDE}, nil},
		{"offering `hostedOn` data centre", "signed by a trusted issuer, of another", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			d.datacenter = d.by(t, auditor, datacenterOf(theirs, "DE", "https://rival.example/lp"))
			d.more = append(d.more, d.issue(t, auditor, document(certification(theirs, d.datacenter))))
		}, []string{selfDE}, []string{ClaimCertification}},
		{"offering `hostedOn` data centre", "signed by a trusted issuer, of another, whose LegalPerson's id the provider gave to its own", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			o := d.offered
			o["providedBy"] = object{"id": "https://rival.example/lp"}
			d.offering = d.issue(t, provider, document(o))
			d.person = d.issue(t, provider, document(person("https://rival.example/lp")))
			d.datacenter = d.by(t, auditor, datacenterOf(theirs, "DE", "https://rival.example/lp"))
			d.more = append(d.more, d.issue(t, auditor, document(certification(theirs, d.datacenter))))
		}, []string{selfDE}, []string{ClaimCertification}},
		{"offering `hostedOn` data centre", "of another, by an offering that is certified itself", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			d.datacenter = d.by(t, auditor, datacenterOf(theirs, "DE", "https://rival.example/lp"))
			d.more = append(d.more,
				d.issue(t, auditor, document(certification(d.offering.Subject, d.offering))),
				d.issue(t, complianceS, document(label(d.offering, d.datacenter))))
		}, []string{certified, selfDE, "label=L1 label"}, nil},
		{"offering `hostedOn` data centre", "of another, and a data centre of its own with the same id", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			d.datacenter = d.issue(t, provider, document(datacenter(theirs, "PL")))
			of := d.by(t, auditor, datacenterOf(theirs, "DE", "https://rival.example/lp"))
			d.more = append(d.more, of, d.issue(t, auditor, document(certification(theirs, of))))
		}, []string{"datacenter.country=PL self"}, []string{ClaimCertification, "datacenter.country=DE"}},
		{"data centre `aggregationOfResources` zone", "signed by a trusted issuer, of another", func(t *testing.T, d *dossier) {
			dc := datacenter("https://provider.example/dc", "DE")
			dc["aggregationOfResources"] = object{"id": "https://rival.example/pool"}
			d.datacenter = d.issue(t, provider, document(dc))
			d.trust(auditor, TypeVirtualResource, Certified, true)
			of := d.by(t, auditor, pool("https://rival.example/pool", theirs))
			far := d.by(t, auditor, datacenterOf(theirs, "FR", "https://rival.example/lp"))
			d.more = append(d.more, of, far,
				d.issue(t, auditor, document(certification("https://rival.example/pool", of))),
				d.issue(t, auditor, document(certification(theirs, far))))
		}, []string{selfDE, "datacenter.country=FR self"}, []string{ClaimCertification}},
		{"data centre `aggregationOfResources` zone", "that is the provider's, beyond one that is another's", func(t *testing.T, d *dossier) {
			d.hostedOn(t, "https://rival.example/pool")
			d.trust(auditor, TypeVirtualResource, Certified, true)
			d.more = append(d.more, d.by(t, auditor, pool("https://rival.example/pool", "https://provider.example/dc")),
				d.issue(t, auditor, document(certification(d.datacenter.Subject, d.datacenter))))
		}, []string{selfDE}, []string{ClaimCertification}},
		{"data centre `aggregationOfResources` zone", "that is the provider's, on which the offering is hosted as well", func(t *testing.T, d *dossier) {
			d.offered["hostedOn"] = []object{{"id": "https://rival.example/pool"}, {"id": "https://provider.example/dc"}}
			d.offering = d.issue(t, provider, document(d.offered))
			d.trust(auditor, TypeVirtualResource, Certified, true)
			d.more = append(d.more, d.by(t, auditor, pool("https://rival.example/pool", "https://provider.example/dc")),
				d.issue(t, auditor, document(certification(d.datacenter.Subject, d.datacenter))))
		}, []string{selfDE, certified}, nil},
		{"data centre `aggregationOfResources` zone", "of others, which refer to each other", func(t *testing.T, d *dossier) {
			d.offered["hostedOn"] = []object{{"id": "https://rival.example/pool"}, {"id": "https://provider.example/dc"}}
			d.offering = d.issue(t, provider, document(d.offered))
			d.trust(auditor, TypeVirtualResource, Certified, true)
			d.more = append(d.more, d.by(t, auditor, pool("https://rival.example/pool", "https://rival.example/pool2")),
				d.by(t, auditor, pool("https://rival.example/pool2", "https://rival.example/pool")))
		}, []string{selfDE}, nil},
		{"offering `providedBy` legal person", "signed by a trusted issuer, with an id that only the provider can give", func(t *testing.T, d *dossier) {
			d.person = d.issue(t, notary, document(person("https://provider.example/lp")))
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.person.Subject, d.person))))
		}, []string{certified, "provider.country=FR certified"}, nil},
		{"legal person `registrationNumber` number", "signed by a trusted issuer, with an id that only the provider can give", func(*testing.T, *dossier) {},
			[]string{"provider.registration=vatID:FR40303265045 notary"}, nil},
		{"legal person `registrationNumber` number", "signed by a trusted issuer, of another", func(t *testing.T, d *dossier) {
			p := person("https://provider.example/lp")
			p["registrationNumber"] = object{"id": "https://rival.example/vat"}
			number := vat()
			number["id"] = "https://rival.example/vat"
			d.person, d.vat = d.issue(t, provider, document(p)), d.issue(t, notary, document(number))
		}, nil, []string{ClaimProviderRegistration}},
		{"certification of a credential", "by its digest", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.datacenter.Subject, d.datacenter))))
		}, []string{certified, selfDE}, nil},
		{"certification of a credential", "by the digest of another's, of which the provider has a copy", func(t *testing.T, d *dossier) {
			of := d.issue(t, rival, document(datacenter("https://provider.example/dc", "DE")))
			d.more = append(d.more, of, d.issue(t, auditor, document(certification("https://provider.example/dc", of))))
		}, []string{selfDE}, []string{ClaimCertification}},
		{"certification of a credential", "by an id that only the provider can give", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(d.datacenter.Subject))))
		}, []string{certified}, nil},
		{"certification of a credential", "by an id that another can give", func(t *testing.T, d *dossier) {
			d.hostedOn(t, theirs)
			d.datacenter = d.issue(t, provider, document(datacenter(theirs, "DE")))
			d.more = append(d.more, d.issue(t, auditor, document(certification(theirs))))
		}, []string{selfDE}, []string{ClaimCertification}},
		{"label over a credential", "by its digest", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.offering))))
		}, []string{"label=L1 label", selfDE}, nil},
		{"label over a credential", "by the digest of another's", func(t *testing.T, d *dossier) {
			of := d.issue(t, rival, document(offering(offeringID)))
			d.more = append(d.more, of, d.issue(t, complianceS, document(label(of))))
		}, []string{selfDE}, []string{ClaimLabel}},
		{"`ClusterBinding` of an offering to a cluster", "signed by the provider", func(*testing.T, *dossier) {}, []string{selfDE}, nil},
		{"measurement of an offering", "signed by the broker", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, broker, document(measurement(offeringID))))
		}, []string{"uptime.ratio=0.9993 measured"}, nil},
		{"measurement of an offering", "signed by the provider", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, provider, document(measurement(offeringID))))
		}, nil, []string{ClaimUptime}},
	} {
		t.Run(row.link+" "+row.name, func(t *testing.T) {
			d := newDossier(t)
			row.change(t, d)
			claims, report := d.admit()
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			got := summary(claims)
			for _, want := range row.want {
				if !slices.Contains(got, want) {
					t.Errorf("no %s among %s", want, got)
				}
			}
			for _, never := range row.never {
				if slices.ContainsFunc(got, func(claim string) bool { return strings.HasPrefix(claim, never) }) {
					t.Errorf("there is a %s among %s", never, got)
				}
			}
			if !documented(t, row.link) {
				t.Errorf("the table in docs/trust.md has no row %q", row.link)
			}
		})
	}
}

// TestAnothersDataCentreIsNoneThatTheOperatorAsksFor: only the provider states that the data
// centre has to do with the cluster.
func TestAnothersDataCentreIsNoneThatTheOperatorAsksFor(t *testing.T) {
	d := newDossier(t)
	d.hostedOn(t, "https://rival.example/dc")
	d.datacenter = d.by(t, auditor, datacenterOf("https://rival.example/dc", "DE", "https://rival.example/lp"))
	d.want.Types = []string{TypeDatacenter}
	_, report := d.admit()
	refused(t, report, StepAdmit, "no Datacenter")
}

// documented reports whether docs/trust.md has a row for a link.
func documented(t *testing.T, link string) bool {
	t.Helper()
	text, err := os.ReadFile("../docs/trust.md")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "\n| "+link+" |")
}

// TestACountryBeyondALinkThatOnlyTheProviderStates ends with the first of the offering and what it leads to.
func TestACountryBeyondALinkThatOnlyTheProviderStates(t *testing.T) {
	for name, row := range map[string]struct{ offering, datacenter, want time.Time }{
		"the data centre ends first": {at.Add(2 * time.Hour), at.Add(time.Hour), at.Add(time.Hour)},
		"the offering ends first":    {at.Add(time.Hour), at.Add(2 * time.Hour), at.Add(time.Hour)},
		"the data centre never ends": {at.Add(time.Hour), time.Time{}, at.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDossier(t)
			d.hostedOn(t, "https://rival.example/dc")
			d.datacenter = d.by(t, auditor, datacenterOf("https://rival.example/dc", "DE", "https://rival.example/lp"))
			d.offering.ValidUntil, d.datacenter.ValidUntil = row.offering, row.datacenter
			claims, report := d.admit()
			if !report.OK() || claims[0].Name != ClaimDatacenterCountry || claims[0].Assurance != Self || !claims[0].Expires.Equal(row.want) {
				t.Errorf("%+v, want an end at %s\n%s", claims, row.want, &report)
			}
		})
	}
}

// A reference is an id, a node that is written out there, or both.
func TestNodesThatAreWrittenOut(t *testing.T) {
	address := func(country string) object { return object{"type": "Address", "countryCode": country} }
	for name, row := range map[string]struct {
		change func(*testing.T, *dossier)
		want   []string
	}{
		"and referred to": {func(_ *testing.T, d *dossier) {
			d.offering.Claims["hostedOn"] = object{"id": "https://provider.example/dc", "type": "Datacenter", "location": address("FR")}
		}, []string{"datacenter.country=DE self", "datacenter.country=FR self"}},
		"without an id": {func(t *testing.T, d *dossier) {
			dc := datacenter("https://provider.example/dc", "DE")
			dc["aggregationOfResources"] = object{"type": "AvailabilityZone", "address": address("FR")}
			d.datacenter = d.issue(t, provider, document(dc))
		}, []string{"datacenter.country=DE self", "datacenter.country=FR self"}},
		"beside a name": {func(_ *testing.T, d *dossier) {
			d.datacenter.Claims["location"] = []any{"Paris", address("FR")}
			delete(d.datacenter.Claims, "aggregationOfResources")
		}, []string{"datacenter.country=FR self"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDossier(t)
			row.change(t, d)
			claims, report := d.admit()
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			if got := summary(claims); !slices.Equal(got[:len(got)-2], row.want) {
				t.Errorf("claims %s, want %s", got, row.want)
			}
		})
	}
}

// An offering may be up to eight references away from a location.
func TestReferencesOneAfterTheOther(t *testing.T) {
	for pools, want := range map[int]bool{maxPath - 1: true, maxPath: false} {
		d := newDossier(t)
		id := func(i int) string { return "https://provider.example/pool" + strconv.Itoa(i) }
		d.hostedOn(t, id(1))
		for i := 1; i < pools; i++ {
			d.more = append(d.more, d.issue(t, provider, document(pool(id(i), id(i+1)))))
		}
		d.more = append(d.more, d.issue(t, provider, document(pool(id(pools), "https://provider.example/dc"))))
		delete(d.datacenter.Claims, "aggregationOfResources")
		if _, report := d.admit(); report.OK() != want {
			t.Errorf("over %d pools:\n%s", pools, &report)
		}
	}
}
