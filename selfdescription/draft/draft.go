package draft

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"text/template"

	_ "embed" // the commented file

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Draft is a provider's description of itself.
type Draft struct {
	// DID of the provider, which issues the credentials.
	DID string `json:"did"`
	// Base is a URL that is the prefix of all ids. Nothing needs to be served there.
	Base string `json:"base"`
	// ValidDays is how long the credentials are valid, in days.
	ValidDays int `json:"validDays"`
	// Provider is the organisation.
	Provider Organisation `json:"provider"`
	// Datacenters in which the clusters run.
	Datacenters []Datacenter `json:"datacenters"`
	// Clusters that the provider offers.
	Clusters []Cluster `json:"clusters"`
}

// Organisation is a legal person.
type Organisation struct {
	Name string `json:"name"`
	// LegalCountry and HeadquartersCountry are ISO 3166-1 codes.
	LegalCountry        string `json:"legalCountry"`
	HeadquartersCountry string `json:"headquartersCountry"`
	// Registration is one number, by its kind: vatID, leiCode, eori or euid.
	Registration map[string]string `json:"registration"`
	// GaiaXTerms is the digest of the terms and conditions of Gaia-X that the organisation
	// accepts; empty if it accepts none.
	GaiaXTerms string `json:"gaiaXTerms,omitempty"`
}

// Datacenter is a place with hardware.
type Datacenter struct {
	// Name in ids: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// Title for people; empty leaves it out.
	Title string `json:"title,omitempty"`
	// Country is an ISO 3166-1 code.
	Country string `json:"country"`
}

// Cluster is a cluster offered as a service.
type Cluster struct {
	// Name in ids: lower-case letters, digits and dashes.
	Name string `json:"name"`
	// Offering is the title of the service; Datacenter is the name of its data centre.
	Offering   string `json:"offering"`
	Datacenter string `json:"datacenter"`
	// Terms and conditions of the service.
	Terms Terms `json:"terms"`
	// UID of the cluster's namespace kube-system, and KeyHash ("sha256-<base64>") of its API
	// server's public key. They bind the credentials to this very cluster.
	UID     string `json:"uid"`
	KeyHash string `json:"keyHash"`
}

// Terms are a document and its SHA-256 digest in hexadecimal.
type Terms struct {
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
}

// Defaults of a new draft.
const (
	DefaultValidDays = 90
	// GaiaXTerms is the digest of the terms and conditions of Gaia-X in use in release 25.11.
	GaiaXTerms = "4bd7554097444c960292b4726c2efa1373485e8a5565d94d41195214c5e0ceb3"
)

// Parse reads a draft. Unknown and missing fields are errors; all of them are reported
// together. An organisation that offers no clusters, such as a consumer or one that runs a broker, may
// leave out datacenters and clusters.
func Parse(data []byte) (*Draft, error) {
	d := &Draft{}
	if err := strictjson.DecodeYAML(data, d); err != nil {
		return nil, err
	}
	return d, d.check()
}

var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// check reports fields that are missing or refer to nothing. Whether a value fits its attribute
// is checked by the shapes.
func (d *Draft) check() error {
	var missing []error
	want := func(holds bool, format string, args ...any) {
		if !holds {
			missing = append(missing, fmt.Errorf(format, args...))
		}
	}
	want(strings.HasPrefix(d.DID, "did:"), "did: want a DID, for instance did:web:provider.example")
	want(d.Base != "", "base: want a URL, for instance https://provider.example/selfdescription")
	want(d.ValidDays > 0, "validDays: want a number of days")
	want(d.Provider.Name != "", "provider.name: missing")
	want(len(d.Provider.Registration) == 1, "provider.registration: want one number of %s", strings.Join(registrationKinds(), ", "))
	for kind := range d.Provider.Registration {
		want(registrations[kind] != "", "provider.registration.%s: want one of %s", kind, strings.Join(registrationKinds(), ", "))
	}
	datacenters := map[string]bool{}
	for i, c := range d.Datacenters {
		want(name.MatchString(c.Name), "datacenters[%d].name %q: want lower-case letters, digits and dashes", i, c.Name)
		want(!datacenters[c.Name], "datacenters[%d].name: %s is there twice", i, c.Name)
		datacenters[c.Name] = true
	}
	clusters := map[string]bool{}
	for i, c := range d.Clusters {
		want(name.MatchString(c.Name), "clusters[%d].name %q: want lower-case letters, digits and dashes", i, c.Name)
		want(!clusters[c.Name], "clusters[%d].name: %s is there twice", i, c.Name)
		clusters[c.Name] = true
		want(c.Offering != "", "clusters[%d].offering: missing", i)
		want(datacenters[c.Datacenter], "clusters[%d].datacenter: %q is none of datacenters", i, c.Datacenter)
		want(c.Terms.URL != "" && c.Terms.SHA256 != "", "clusters[%d].terms: want url and sha256", i)
		want(c.UID != "", "clusters[%d].uid: missing; kubectl get namespace kube-system -o jsonpath={.metadata.uid}", i)
		want(strings.HasPrefix(c.KeyHash, "sha256-"), "clusters[%d].keyHash: missing; digest of the API server's public key, sha256-<base64>", i)
	}
	return errors.Join(missing...)
}

//go:embed draft.yaml.tmpl
var commented string

// A quoted string of Go is a double-quoted scalar of YAML 1.2, with the same escapes.
var file = template.Must(template.New("draft").Funcs(template.FuncMap{
	"quote": strconv.Quote, "gaiaXTerms": func() string { return GaiaXTerms },
}).Parse(commented))

// Write returns the file of a draft, with comments on the fields that remain to be filled in.
func Write(d *Draft) ([]byte, error) {
	var out bytes.Buffer
	if err := file.Execute(&out, d); err != nil {
		return nil, fmt.Errorf("write the draft: %w", err)
	}
	return out.Bytes(), nil
}
