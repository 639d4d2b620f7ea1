package selfdescription

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClaimsHaveTheAssuranceOfWhoStandsBehindThem(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*testing.T, *dossier)
		want   []string // beside those of a complete dossier, or in place of them
	}{
		{"a label over offering and data centre raises the country", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.offering, d.datacenter))))
		}, []string{"datacenter.country=DE label", "label=L1 label"}},
		{"a label over the data centre alone does not: who says that the cluster is there?", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.datacenter))))
		}, nil},
		{"a label over the offering alone does not raise the country", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.offering))))
		}, []string{"label=L1 label"}},
		{"a label over an earlier version of the data centre does not", func(t *testing.T, d *dossier) {
			earlier := d.issue(t, provider, document(datacenter("https://provider.example/dc", "FR")))
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.offering, earlier))))
		}, []string{"label=L1 label"}},
		{"a label raises headquarters apart from the data centre", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, complianceS, document(label(d.person))))
		}, []string{"provider.country=FR label"}},
		{"nobody labels himself", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, provider, document(label(d.offering, d.datacenter))))
		}, nil},
		{"a rival's label is none", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, rival, document(label(d.offering, d.datacenter))))
		}, nil},
		{"an expired label is none", func(t *testing.T, d *dossier) {
			l := *d.issue(t, complianceS, document(label(d.offering, d.datacenter)))
			l.ValidUntil = at
			d.more = append(d.more, &l)
		}, nil},
		{"a certification of the offering by an auditor", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(offeringID))))
		}, []string{"certification=ISO/IEC 27001 certified"}},
		{"a certification by the provider itself", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, provider, document(certification(offeringID))))
		}, []string{"certification=ISO/IEC 27001 self"}},
		{"the better of two that say the same", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, provider, document(certification(offeringID))), d.issue(t, auditor, document(certification("https://provider.example/dc"))))
		}, []string{"certification=ISO/IEC 27001 certified"}},
		{"a certification that names other credentials is of those", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(offeringID, d.person))))
		}, []string{"provider.country=FR certified"}},
		{"a certification that names offering and data centre certifies the country", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification(offeringID, d.offering, d.datacenter))))
		}, []string{"certification=ISO/IEC 27001 certified", "datacenter.country=DE certified"}},
		{"a certification of the provider by itself, although it is trusted to certify others", func(t *testing.T, d *dossier) {
			d.trust(provider, TypeCertification, Certified, true)
			d.more = append(d.more, d.by(t, provider, certification(offeringID, d.offering, d.datacenter)))
		}, []string{"certification=ISO/IEC 27001 self"}},
		{"a label on itself by who is trusted to label others", func(t *testing.T, d *dossier) {
			d.trust(provider, TypeLabelCredential, Label, true)
			d.more = append(d.more, d.by(t, provider, label(d.offering, d.datacenter)))
		}, nil},
		{"a certification of another's data centre, whose id the provider gave to its own", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			o["hostedOn"] = object{"id": "https://rival.example/dc"}
			d.offering = d.issue(t, provider, document(o))
			d.datacenter = d.issue(t, provider, document(datacenter("https://rival.example/dc", "DE")))
			d.more = append(d.more, d.issue(t, auditor, document(certification("https://rival.example/dc"))))
		}, nil},
		{"a certification of nothing", func(t *testing.T, d *dossier) {
			c := d.issue(t, auditor, document(certification(offeringID)))
			c.Claims["standard"] = ""
			d.more = append(d.more, c)
		}, nil},
		{"a standard that a data centre states, and no certification", func(_ *testing.T, d *dossier) {
			d.datacenter.Claims["standard"] = "ISO/IEC 27001"
		}, nil},
		{"headquarters in no country", func(_ *testing.T, d *dossier) {
			d.person.Claims["headquartersAddress"] = object{"countryCode": "XX"}
		}, []string{"no provider.country"}},
		{"a LegalPerson that ended, before one that holds", func(_ *testing.T, d *dossier) {
			ended := *d.person
			ended.ValidUntil = at
			d.person, d.more = &ended, append(d.more, d.person)
		}, nil},
		{"a certification of something else", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(certification("https://provider.example/other"))))
		}, nil},
		{"a data centre that an auditor describes, in an offering that the provider describes", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, auditor, document(datacenter("https://provider.example/dc", "PL"))))
		}, []string{"datacenter.country=PL self"}},
		{"a rival's word on the data centre", func(t *testing.T, d *dossier) {
			doc := document(datacenter("https://provider.example/dc", "US"))
			doc.ValidFrom = at.Add(-time.Minute)
			d.more = append(d.more, d.issue(t, rival, doc))
		}, nil},
		{"the newer of two of the provider's own", func(t *testing.T, d *dossier) {
			doc := document(datacenter("https://provider.example/dc", "US"))
			doc.ValidFrom = at.Add(-time.Minute)
			d.more = append(d.more, d.issue(t, provider, doc))
		}, []string{"datacenter.country=US self"}},
		{"the newer of two of the provider's own, presented first", func(t *testing.T, d *dossier) {
			doc := document(datacenter("https://provider.example/dc", "US"))
			doc.ValidFrom = at.AddDate(0, 0, -2)
			d.more = append(d.more, d.issue(t, provider, doc))
		}, nil},
		{"the newer of two of an auditor, presented first", func(t *testing.T, d *dossier) {
			doc := document(datacenter("https://provider.example/dc", "US"))
			doc.ValidFrom = at.AddDate(0, 0, -2)
			d.more = append(d.more, d.issue(t, auditor, document(datacenter("https://provider.example/dc", "PL"))), d.issue(t, auditor, doc))
		}, []string{"datacenter.country=PL self"}},
		{"a measurement that is older than other statements about the offering", func(t *testing.T, d *dossier) {
			doc := document(measurement(offeringID))
			doc.ValidFrom = at.AddDate(0, 0, -2)
			d.more = append(d.more, d.issue(t, broker, doc), d.issue(t, auditor, document(certification(offeringID))))
			d.trust(broker, TypeCertification, Measured, true)
			d.more = append(d.more, d.by(t, broker, certification(offeringID)))
		}, []string{"certification=ISO/IEC 27001 certified", "latency.p95Ms=35.5 measured", "uptime.ratio=0.9993 measured"}},
		{"a measurement of nothing", func(t *testing.T, d *dossier) {
			m := d.issue(t, broker, document(measurement(offeringID)))
			m.Claims["uptime"], m.Claims["latency"] = object{}, []any{object{"vantage": "fra"}}
			d.more = append(d.more, m)
		}, nil},
		{"a measurement from no vantage", func(t *testing.T, d *dossier) {
			m := d.issue(t, broker, document(measurement(offeringID)))
			delete(m.Claims, "latency")
			d.more = append(d.more, m)
		}, []string{"uptime.ratio=0.9993 measured"}},
		{"a measurement by the broker, at its worst vantage", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, broker, document(measurement(offeringID))))
		}, []string{"latency.p95Ms=35.5 measured", "uptime.ratio=0.9993 measured"}},
		{"a measurement of a probe on it, too", func(t *testing.T, d *dossier) {
			m := measurement(offeringID)
			m["dataPlane"] = object{
				"uptime": object{"ratio": 0.98, "probes": 8600}, "latency": object{"p50Ms": 12, "p95Ms": 31.5, "p99Ms": 44, "vantage": "fra"},
				"throughput": object{"mbitPerSecond": 412.5, "transfers": 144}, "podStart": object{"p50Ms": 2100, "p95Ms": 4850, "starts": 24},
			}
			d.more = append(d.more, d.issue(t, broker, document(m)))
		}, []string{"dataPlane.latency.p95Ms=31.5 measured", "dataPlane.podStart.p95Ms=4850 measured", "dataPlane.throughput.mbitPerSecond=412.5 measured", "dataPlane.uptime.ratio=0.98 measured",
			"latency.p95Ms=35.5 measured", "uptime.ratio=0.9993 measured"}},
		{"a measurement of a probe to which nothing was transferred", func(t *testing.T, d *dossier) {
			m := measurement(offeringID)
			m["dataPlane"] = object{"uptime": object{"ratio": 1, "probes": 8600}, "latency": object{"p50Ms": 12, "p95Ms": 31.5, "p99Ms": 44, "vantage": "fra"}}
			d.more = append(d.more, d.issue(t, broker, document(m)))
		}, []string{"dataPlane.latency.p95Ms=31.5 measured", "dataPlane.uptime.ratio=1 measured", "latency.p95Ms=35.5 measured", "uptime.ratio=0.9993 measured"}},
		{"a label by a notary is worth a notary's word, and is no label", func(t *testing.T, d *dossier) {
			d.trust(notary, TypeLabelCredential, Notary, true)
			d.more = append(d.more, d.by(t, notary, label(d.offering, d.datacenter)))
		}, []string{"datacenter.country=DE notary"}},
		{"a measurement by an auditor", func(t *testing.T, d *dossier) {
			d.trust(auditor, TypeClusterMeasurement, Certified, true)
			d.more = append(d.more, d.by(t, auditor, measurement(offeringID)))
		}, nil},
		{"a measurement by the provider", func(t *testing.T, d *dossier) {
			d.more = append(d.more, d.issue(t, provider, document(measurement(offeringID))))
		}, nil},
		{"a registration number of a company that it is not", func(t *testing.T, d *dossier) {
			p := person("https://provider.example/lp")
			p["registrationNumber"] = object{"id": "https://rival.example/vat"}
			d.person = d.issue(t, provider, document(p))
			number := vat()
			number["id"] = "https://rival.example/vat"
			d.more = append(d.more, d.issue(t, notary, document(number)))
		}, []string{"no provider.registration"}},
		{"a registration number that nobody checked", func(t *testing.T, d *dossier) {
			d.vat = d.issue(t, provider, document(vat()))
		}, []string{"provider.registration=vatID:FR40303265045 self"}},
		{"a registration number within the LegalPerson", func(t *testing.T, d *dossier) {
			p := person("https://provider.example/lp")
			p["registrationNumber"] = object{"type": "LeiCode", "leiCode": "9695007586GCAKPYJ703"}
			d.person, d.vat = d.issue(t, provider, document(p)), nil
		}, []string{"provider.registration=leiCode:9695007586GCAKPYJ703 self"}},
		{"two data centres", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			o["hostedOn"] = []object{{"id": "https://provider.example/dc"}, {"id": "https://provider.example/dc2"}}
			d.offering = d.issue(t, provider, document(o))
			d.more = append(d.more, d.issue(t, provider, document(datacenter("https://provider.example/dc2", "276")))) // Germany
			d.more = append(d.more, d.issue(t, provider, document(datacenter("https://provider.example/dc3", "US"))))  // not referred to
		}, nil},
		{"a data centre by way of a resource", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			o["hostedOn"] = object{"id": "https://provider.example/pool"}
			d.offering = d.issue(t, provider, document(o))
			d.more = append(d.more, d.issue(t, provider, document(pool("https://provider.example/pool", "https://provider.example/dc"))))
		}, nil},
		{"resources that refer to each other", func(t *testing.T, d *dossier) {
			o := offering(offeringID)
			o["hostedOn"] = []object{{"id": "https://provider.example/pool"}, {"id": "https://provider.example/dc"}}
			d.offering = d.issue(t, provider, document(o))
			d.more = append(d.more,
				d.issue(t, provider, document(pool("https://provider.example/pool", "https://provider.example/pool2"))),
				d.issue(t, provider, document(pool("https://provider.example/pool2", "https://provider.example/pool"))))
		}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := newDossier(t)
			row.change(t, d)
			claims, report := d.admit()
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			want := []string{"datacenter.country=DE self", "provider.country=FR self", "provider.registration=vatID:FR40303265045 notary"}
			for _, line := range row.want {
				name, _, _ := strings.Cut(line, "=")
				without, no := strings.CutPrefix(name, "no ")
				want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, without+"=") })
				if !no {
					want = append(want, line)
				}
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, summary(claims)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAClaimEndsWithTheFirstOfWhatItRestsOn(t *testing.T) {
	early := at.Add(time.Hour)
	all := []string{ClaimCertification, ClaimDatacenterCountry, ClaimLabel, ClaimProviderCountry, ClaimProviderRegistration}
	for name, row := range map[string]struct {
		ends func(*dossier) *Credential
		want []string // claims that end early
	}{
		"the label":         {func(d *dossier) *Credential { return d.more[0] }, []string{ClaimDatacenterCountry, ClaimLabel}},
		"the certification": {func(d *dossier) *Credential { return d.more[1] }, []string{ClaimCertification}},
		"the data centre":   {func(d *dossier) *Credential { return d.datacenter }, []string{ClaimCertification, ClaimDatacenterCountry}},
		"the LegalPerson":   {func(d *dossier) *Credential { return d.person }, []string{ClaimProviderCountry}},
		"the number":        {func(d *dossier) *Credential { return d.vat }, []string{ClaimProviderRegistration}},
		"the offering":      {func(d *dossier) *Credential { return d.offering }, all},
		"the binding":       {func(d *dossier) *Credential { return d.binding }, all},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDossier(t)
			d.more = append(d.more,
				d.issue(t, complianceS, document(label(d.offering, d.datacenter))),
				d.issue(t, auditor, document(certification("https://provider.example/dc"))))
			row.ends(d).ValidUntil = early
			claims, report := d.admit()
			if !report.OK() {
				t.Fatalf("\n%s", &report)
			}
			var got []string
			for _, c := range claims {
				if c.Expires.Equal(early) {
					got = append(got, c.Name)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("ends %s, want %s", got, row.want)
			}
		})
	}
}

// Of two credentials about the same subject the later one counts; of the same time, always the same one.
func TestNewer(t *testing.T) {
	credential := func(after time.Duration, digest byte) *Credential {
		return &Credential{ValidFrom: at.Add(after), Digest: Digest{digest}}
	}
	for name, row := range map[string]struct {
		x, y *Credential
		want bool
	}{
		"later":                  {credential(1, 1), credential(0, 2), true},
		"earlier":                {credential(0, 2), credential(1, 1), false},
		"at the same time":       {credential(0, 2), credential(0, 1), true},
		"the other way round":    {credential(0, 1), credential(0, 2), false},
		"the very same instance": {credential(0, 1), credential(0, 1), false},
	} {
		if got := newer(row.x, row.y); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestPlacesAreSorted(t *testing.T) {
	a := &admission{locations: []location{{country: "FR"}, {country: "DE"}, {country: "FR"}}}
	if got := a.places(); got != "hardware in DE, FR" {
		t.Error(got)
	}
}

func TestRegistration(t *testing.T) {
	for _, row := range []struct {
		node object
		want string
	}{
		{vat(), "vatID:FR40303265045"},
		{object{"type": "TaxID", "taxID": "1"}, "taxID:1"},
		{object{"type": "TaxID", "taxId": "1"}, "taxID:1"},
		{object{"type": "TaxID"}, ""},
		{object{"type": "VatID", "taxID": "1"}, ""},
		{object{"type": "LegalPerson", "vatID": "FR40303265045"}, ""},
		{nil, ""},
	} {
		if got := registration(row.node); got != row.want {
			t.Errorf("%v is %q, want %q", row.node, got, row.want)
		}
	}
}

// A claim names the credential that gives it its assurance: its own, unless another gives it more.
func TestAClaimNamesItsOwnCredentialUnlessAnotherRaisesIt(t *testing.T) {
	d := newDossier(t)
	d.trust(notary, TypeLabelCredential, Notary, true)
	d.more = append(d.more, d.by(t, notary, label(d.vat)))
	for _, raised := range []bool{false, true} {
		want := d.vat
		if raised {
			want = d.issue(t, complianceS, document(label(d.vat)))
			d.more = append(d.more, want)
		}
		claims, report := d.admit()
		i := slices.IndexFunc(claims, func(c Claim) bool { return c.Name == ClaimProviderRegistration })
		if i < 0 || claims[i].Credential != want.Digest || claims[i].Issuer != want.Issuer {
			t.Errorf("%+v, want %s by %s\n%s", claims, want.Digest, want.Issuer, &report)
		}
	}
}

// The zero time means that a credential never ends.
func TestEndsAreOrdered(t *testing.T) {
	never := time.Time{}
	for _, row := range []struct {
		x, y time.Time
		want int
	}{
		{never, never, 0}, {never, at, 1}, {at, never, -1}, {at, at, 0}, {at, at.Add(1), -1}, {at.Add(1), at, 1},
	} {
		if got := compareEnds(row.x, row.y); got != row.want {
			t.Errorf("%s and %s: %d", row.x, row.y, got)
		}
	}
}
