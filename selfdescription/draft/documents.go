package draft

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/selfdescription"
)

// Named is the document of a credential and a name for its file.
type Named struct {
	Name string
	selfdescription.Document
}

// registrations are the types of registration numbers by the attribute that holds the number.
var registrations = map[string]string{"vatID": "VatID", "leiCode": "LeiCode", "eori": "EORI", "euid": "EUID"}

func registrationKinds() []string { return slices.Sorted(maps.Keys(registrations)) }

// Documents returns the documents of everything in the draft, valid from now. They refer to
// each other by the ids of their subjects.
func (d *Draft) Documents(now time.Time) []Named {
	w := &writer{draft: d, from: now.UTC().Truncate(time.Second)}
	w.provider()
	for _, c := range d.Datacenters {
		w.datacenter(c)
	}
	for _, c := range d.Clusters {
		w.cluster(c)
	}
	return w.documents
}

// Offering returns the id of a cluster's offering. The member cluster must name it.
func (d *Draft) Offering(cluster string) string { return d.subject("offering-" + cluster) }

// subject returns the id of the subject of the credential with a name.
func (d *Draft) subject(name string) string { return d.Base + "/" + name + "#subject" }

func reference(id string) map[string]any { return map[string]any{"id": id} }

func address(country string) map[string]any {
	return map[string]any{"type": "Address", "countryCode": country}
}

// writer collects documents.
type writer struct {
	draft     *Draft
	from      time.Time
	documents []Named
}

// add adds the document of a subject. If the subject has no id, it gets the draft's.
func (w *writer) add(name, subjectType string, subject map[string]any) {
	subject["type"] = subjectType
	if subject["id"] == nil {
		subject["id"] = w.draft.subject(name)
	}
	w.documents = append(w.documents, Named{Name: name, Document: selfdescription.Document{
		ID: w.draft.Base + "/" + name, Subject: subject, ValidFrom: w.from, ValidUntil: w.from.AddDate(0, 0, w.draft.ValidDays),
	}})
}

func (w *writer) provider() {
	p := w.draft.Provider
	w.add("provider", selfdescription.TypeLegalPerson, map[string]any{
		"name":                p.Name,
		"registrationNumber":  reference(w.draft.subject("registration")),
		"legalAddress":        address(p.LegalCountry),
		"headquartersAddress": address(p.HeadquartersCountry),
	})
	for kind, number := range p.Registration { // exactly one
		w.add("registration", registrations[kind], map[string]any{kind: number})
	}
	if p.GaiaXTerms != "" {
		w.add("terms", selfdescription.TypeIssuer, map[string]any{"id": w.draft.DID, "gaiaxTermsAndConditions": p.GaiaXTerms})
	}
}

func (w *writer) datacenter(c Datacenter) {
	name := "datacenter-" + c.Name
	subject := map[string]any{
		"location":     address(c.Country),
		"maintainedBy": reference(w.draft.subject("provider")),
		"aggregationOfResources": map[string]any{
			"id": w.draft.Base + "/" + name + "#zone", "type": selfdescription.TypeAvailabilityZone, "address": address(c.Country),
		},
	}
	if c.Title != "" {
		subject["name"] = c.Title
	}
	w.add(name, selfdescription.TypeDatacenter, subject)
}

func (w *writer) cluster(c Cluster) {
	w.add("offering-"+c.Name, selfdescription.TypeComputeServiceOffering, map[string]any{
		"name":       c.Offering,
		"providedBy": reference(w.draft.subject("provider")),
		"hostedOn":   reference(w.draft.subject("datacenter-" + c.Datacenter)),
		"serviceOfferingTermsAndConditions": map[string]any{
			"type": "TermsAndConditions", "url": c.Terms.URL, "hash": c.Terms.SHA256,
		},
	})
	w.add("binding-"+c.Name, selfdescription.TypeClusterBinding, map[string]any{
		"offering":         reference(w.draft.Offering(c.Name)),
		"clusterUID":       c.UID,
		"apiServerKeyHash": c.KeyHash,
	})
}
