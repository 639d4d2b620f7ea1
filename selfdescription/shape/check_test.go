package shape_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// subjectsThatConform are complete subjects, by type.
var subjectsThatConform = map[string]string{
	"legal person": `{"id":"https://provider.example/lp","type":"LegalPerson","name":"Provider",
		"registrationNumber":{"id":"https://provider.example/lei"},
		"legalAddress":{"type":"Address","countryCode":"DE","streetAddress":"Weg 1","postalCode":"10115","locality":"Berlin","region":"DE30"},
		"headquartersAddress":{"type":"Address","countryCode":"276"}}`,
	"legal person with everything nested": `{"id":"https://provider.example/lp","type":["LegalPerson"],
		"registrationNumber":[{"type":"LeiCode","leiCode":"529900T8BM49AURSDO55","countryCode":"DE","subdivisionCountryCode":"DE-BE"},
			{"type":"VatID","vatID":"DE123456789"},{"type":"EORI","eori":"DE1"},{"type":"EUID","euid":"DEK1101R.HRB1"},
			{"type":"TaxID","taxId":"1"},{"type":"LocalRegistrationNumber","local":"HRB 1"}],
		"legalAddress":{"type":"Address","countryCode":"DEU","gps":{"type":"GPSLocation","crs":"CRS84",
			"latitude":{"type":"GPSUnit","degrees":52,"minutes":31,"decimals":0.5},"longitude":{"@value":"13.4"}}},
		"headquartersAddress":{"type":"Address","countryCode":"DE"}}`,
	"legal person with prefixes": `{"@id":"https://provider.example/lp","@type":"gx:LegalPerson","httpsschema:name":"Provider",
		"gx:registrationNumber":{"@id":"https://provider.example/lei"},
		"gx:legalAddress":{"@type":"gx:Address","gx:countryCode":"DE","vcard:postal-code":"10115"},
		"gx:headquartersAddress":{"@type":"gx:Address","gx:countryCode":"DE"}}`,
	"issuer": `{"id":"did:web:provider.example","type":"Issuer",
		"gaiaxTermsAndConditions":"4bd7554097444c960292b4726c2efa1373485e8a5565d94d41195214c5e0ceb3"}`,
	"compute service offering": `{"id":"https://provider.example/k8s","type":"ComputeServiceOffering",
		"providedBy":{"id":"https://provider.example/lp"},"hostedOn":"https://provider.example/dc",
		"tenantSeparation":"os-virtualized","dataProtectionRegime":["GDPR2016"],"keyword":["kubernetes","eu"],
		"serviceOfferingTermsAndConditions":{"type":"TermsAndConditions","url":"https://provider.example/tc.pdf","hash":"8acc"},
		"endpoint":{"type":"Endpoint","endpointURL":{"@value":"https://api.provider.example","@type":"xsd:anyURI"},
			"standardConformity":{"type":"StandardConformity","title":"OSB","standardReference":"https://osb.example"}}}`,
	"compute service offering, both types": `{"id":"https://provider.example/k8s","type":["ServiceOffering","ComputeServiceOffering"],
		"providedBy":"https://provider.example/lp","tenantSeparation":"physical",
		"serviceOfferingTermsAndConditions":"https://provider.example/tc"}`,
	"data centre": `{"id":"https://provider.example/dc","type":"Datacenter",
		"maintainedBy":{"id":"https://provider.example/lp"},
		"location":{"type":"Address","countryCode":"DE"},
		"aggregationOfResources":{"id":"https://provider.example/az","type":"AvailabilityZone","name":"a"},
		"energyMix":{"type":"EnergyMix","attainmentDate":"2026-01-01","renewableEnergy":97.5,"hourlyCarbonFreeEnergy":80},
		"waterUsageEffectiveness":{"type":"WaterUsageEffectiveness","waterUsageEffectiveness":{"@value":"0.2","@type":"http://www.w3.org/2001/XMLSchema#float"}}}`,
	"virtual resource, which is open": `{"id":"https://provider.example/image","type":"VirtualResource",
		"copyrightOwnedBy":{"@value":"Provider"},"license":["Apache-2.0",{"@value":"https://provider.example/l","@type":"xsd:anyURI"}],
		"resourcePolicy":"default: allow intent","cpuReq":{"type":"CPU","cores":[1,2]}}`,
	"label": `{"id":"https://provider.example/k8s","type":"LabelCredential","labelLevel":"L1","rulesVersion":"CD25.03",
		"engineVersion":"2.11.0","validatedCriteria":["https://w3id.org/gaia-x/specs/cd25.03/criterion/P1.1.1"],
		"compliantCredentials":[{"id":"https://provider.example/vc/k8s","type":"CompliantCredential","credentialType":"ComputeServiceOffering",
			"digestSRI":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}]}`,
	"cluster binding": `{"id":"https://provider.example/binding","type":"ClusterBinding","offering":{"id":"https://provider.example/k8s"},
		"clusterUID":"7e0e9c5c-0b1c-4e9c-a1ce-94b6a1d4a4d1","apiServerKeyHash":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}`,
	"certification": `{"id":"https://provider.example/dc","type":"Certification","standard":"ISO/IEC 27001",
		"certifiedCredentials":[{"id":"https://provider.example/vc/dc","digestSRI":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}]}`,
	"measurement": `{"id":"https://provider.example/k8s","type":"ClusterMeasurement",
		"window":{"start":"2026-11-19T00:00:00Z","end":"2026-11-20T00:00:00Z"},"uptime":{"ratio":0.9993,"probes":8640},
		"latency":{"p50Ms":11.2,"p95Ms":28.4,"p99Ms":41,"vantage":"broker-fra"},
		"dataPlane":{"uptime":{"ratio":0.9987,"probes":8600},"latency":{"p50Ms":14,"p95Ms":31,"p99Ms":55,"vantage":"broker-fra"},
			"throughput":{"mbitPerSecond":412.5,"transfers":144},"podStart":{"p50Ms":2100,"p95Ms":4850,"starts":24}},
		"evidenceDigest":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}`,
}

func TestSubjectsThatConform(t *testing.T) {
	for name, subject := range subjectsThatConform {
		t.Run(name, func(t *testing.T) {
			for _, violation := range shape.Check(decode(t, subject)) {
				t.Error(violation)
			}
		})
	}
}

// TestOneChangeIsOneViolation edits a conforming subject: members set to null are removed.
func TestOneChangeIsOneViolation(t *testing.T) {
	const offering, person, dc = "compute service offering", "legal person", "data centre"
	tests := []struct {
		name, subject, edit string
		want                string
	}{
		{"no type", person, `{"type":null}`, `/type: type`},
		{"unknown type", person, `{"type":"Person"}`, `/type: type: "Person"`},
		{"a type among others that is unknown", person, `{"type":["LegalPerson","Person"]}`, `/type: type: "Person"`},
		{"type of the credential", person, `{"type":["VerifiableCredential","LegalPerson"]}`, `/type: type: "VerifiableCredential"`},
		{"own type with the prefix of Gaia-X", "cluster binding", `{"type":"gx:ClusterBinding"}`, `/type: type: "gx:ClusterBinding"`},
		{"type that is part of another", "measurement", `{"type":"Window"}`, `/type: type: "Window"`},
		{"legal address missing", person, `{"legalAddress":null}`, `/legalAddress: minCount`},
		{"legal address empty", person, `{"legalAddress":[]}`, `/legalAddress: minCount`},
		{"two legal addresses", person, `{"legalAddress":["https://a.example","https://b.example"]}`, `/legalAddress: maxCount: 2`},
		{"an attribute under both of its names", person, `{"httpsschema:name":"Other"}`, `/name: maxCount: 2`},
		{"foreign claim", person, `{"labelLevel":"L3"}`, `/labelLevel: closed: "L3"`},
		{"foreign claim on an offering, closed by its parent", offering, `{"certifications":"https://a.example"}`, `/certifications: closed: "https://a.example"`},
		{"foreign claim by its full name", offering, `{"https://w3id.org/gaia-x/development#labelLevel":"L3"}`,
			`/https:~1~1w3id.org~1gaia-x~1development#labelLevel: closed: "L3"`},
		{"foreign claim in a nested node", dc, `{"location":{"type":"Address","countryCode":"DE","labelLevel":"L3"}}`, `/location/labelLevel: closed: "L3"`},
		{"a parent's type beside the type does not open it", offering, `{"type":["ServiceOffering","ComputeServiceOffering"],"codeArtifact":"x"}`,
			`/codeArtifact: closed: "x"`},
		{"country that does not exist", dc, `{"location":{"type":"Address","countryCode":"XX"}}`, `/location/countryCode: in: "XX"`},
		{"country in lower case", dc, `{"location":{"type":"Address","countryCode":"de"}}`, `/location/countryCode: in: "de"`},
		{"country as a number", dc, `{"location":{"type":"Address","countryCode":276}}`, `/location/countryCode: datatype: 276`},
		{"country as an array in an array", dc, `{"location":{"type":"Address","countryCode":[["DE"]]}}`, `/location/countryCode/0: datatype: […]`},
		{"country with a language", dc, `{"location":{"type":"Address","countryCode":{"@value":"DE","@language":"de"}}}`, `/location/countryCode: datatype: {…}`},
		{"country with a type and a direction", dc, `{"location":{"type":"Address","countryCode":{"@value":"DE","@type":"xsd:string","@direction":"rtl"}}}`,
			`/location/countryCode: datatype: {…}`},
		{"location in another class", dc, `{"location":{"type":"TermsAndConditions","url":"https://a.example","hash":"1"}}`, `/location/type: class: "TermsAndConditions"`},
		{"location without a type", dc, `{"location":{"countryCode":"DE"}}`, `/location/type: type`},
		{"location as text", dc, `{"location":{"@value":"Frankfurt"}}`, `/location: nodeKind: {…}`},
		{"reference that is relative", offering, `{"hostedOn":"dc1"}`, `/hostedOn: id: "dc1"`},
		{"reference by a prefixed name is a text", offering, `{"hostedOn":null,"gx:hostedOn":"https://provider.example/dc"}`,
			`/gx:hostedOn: nodeKind: "https://provider.example/dc"`},
		{"text that is a node", offering, `{"serviceScope":{"id":"https://a.example"}}`, `/serviceScope: nodeKind: {…}`},
		{"URL with a space", offering, `{"serviceOfferingTermsAndConditions":{"type":"TermsAndConditions","url":"a b","hash":"1"}}`,
			`/serviceOfferingTermsAndConditions/url: datatype: "a b"`},
		{"identifier that is relative", person, `{"id":"lp"}`, `/id: id: "lp"`},
		{"identifier twice", person, `{"@id":"https://other.example/lp"}`, `/id: id: "https://provider.example/lp"`},
		{"nested node that says more about the subject", dc,
			`{"aggregationOfResources":{"id":"https://provider.example/dc","type":"AvailabilityZone"}}`, `/aggregationOfResources/id: id: "https://provider.example/dc"`},
		{"context of its own", offering, `{"@context":{"labelLevel":"name"}}`, `/@context: keyword: {…}`},
		{"reverse attribute", offering, `{"@reverse":{"providedBy":"https://a.example"}}`, `/@reverse: keyword: {…}`},
		{"graph", offering, `{"@graph":[]}`, `/@graph: keyword: […]`},
		{"terms and conditions of another release", "issuer", `{"gaiaxTermsAndConditions":"70c1d713215f95191a11d38fe2341faed27d19e083917bc8732ca4fea4976700"}`,
			`/gaiaxTermsAndConditions: in: "70c1d713215f95191a11d38fe2341faed27d19e083917bc8732ca4fea4976700"`},
		{"label level that does not exist", "label", `{"labelLevel":"L4"}`, `/labelLevel: in: "L4"`},
		{"hash of another length", "cluster binding", `{"apiServerKeyHash":"sha256-AAAA"}`, `/apiServerKeyHash: datatype: "sha256-AAAA"`},
		{"ratio above one", "measurement", `{"uptime":{"ratio":1.1,"probes":1}}`, `/uptime/ratio: range: 1.1`},
		{"half a probe", "measurement", `{"uptime":{"ratio":1,"probes":1.5}}`, `/uptime/probes: datatype: 1.5`},
		{"data plane without an uptime", "measurement", `{"dataPlane":{"latency":{"p50Ms":1,"p95Ms":1,"p99Ms":1,"vantage":"a"}}}`, `/dataPlane/uptime: minCount`},
		{"throughput below zero", "measurement", `{"dataPlane":{"uptime":{"ratio":1,"probes":1},"latency":{"p50Ms":1,"p95Ms":1,"p99Ms":1,"vantage":"a"},"throughput":{"mbitPerSecond":-1,"transfers":1}}}`, `/dataPlane/throughput/mbitPerSecond: range: -1`},
		{"start of pods without a number", "measurement", `{"dataPlane":{"uptime":{"ratio":1,"probes":1},"latency":{"p50Ms":1,"p95Ms":1,"p99Ms":1,"vantage":"a"},"podStart":{"p50Ms":1,"p95Ms":1}}}`, `/dataPlane/podStart/starts: minCount`},
		{"window without an end", "measurement", `{"window":{"start":"2026-11-19T00:00:00Z"}}`, `/window/end: minCount`},
		{"licence that is neither an identifier nor a URL", "virtual resource, which is open", `{"license":"see below"}`, `/license: in: "see below"`},
		{"known node below a foreign attribute", "virtual resource, which is open", `{"cpuReq":{"type":"Address"}}`, `/cpuReq/countryCode: minCount`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			subject := decode(t, subjectsThatConform[tt.subject])
			for key, value := range decode(t, tt.edit) {
				if subject[key] = value; value == nil {
					delete(subject, key)
				}
			}
			violations := shape.Check(subject)
			if len(violations) != 1 || violations[0].String() != tt.want {
				t.Errorf("violations %v, want %s", violations, tt.want)
			}
		})
	}
}

func TestWhatIsToldIsBounded(t *testing.T) {
	subject := decode(t, subjectsThatConform["legal person"])
	for i := range 1000 {
		subject[fmt.Sprintf("%0500d/~ü", i)] = strings.Repeat("ü", 1000)
	}
	violations := shape.Check(subject)
	if len(violations) != 100 {
		t.Errorf("%d violations, want 100", len(violations))
	}
	for _, violation := range violations {
		if text := violation.String(); len(text) > 300 || !utf8.ValidString(text) {
			t.Fatalf("violation %q", text)
		}
	}
}

func TestNodesAreNestedToADepth(t *testing.T) {
	person := decode(t, subjectsThatConform["legal person"])
	for i := range 100 {
		parent := decode(t, subjectsThatConform["legal person"])
		parent["id"] = fmt.Sprintf("https://provider.example/%d", i)
		parent["subOrganisationOf"] = person
		person = parent
	}
	violations := shape.Check(person)
	if len(violations) == 0 {
		t.Error("a hundred nodes within each other are accepted")
	}
	for _, violation := range violations {
		if violation.Rule != shape.RuleDepth {
			t.Errorf("violation %s, want one of depth", violation)
		}
	}
}

func decode(t testing.TB, document string) map[string]any {
	t.Helper()
	var subject map[string]any
	if err := json.Unmarshal([]byte(document), &subject); err != nil {
		t.Fatal(err)
	}
	return subject
}
