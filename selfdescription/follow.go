package selfdescription

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// location is a country that the chain leads to, with the credentials on the way to it, from
// the offering on. The credentials are nil if only the provider states one of the links.
type location struct {
	country string
	path    []*Credential
}

// maxPath is how many references may lead from an offering to a location.
const maxPath = 8

// follow walks offering → provider and offering → data centre.
func (a *admission) follow(offering string) error {
	if a.offering = a.find(offering, func(c *Credential) bool {
		return isOffering(c.Type) && c.Issuer == a.provider
	}); a.offering == nil {
		return fmt.Errorf("no service offering %s by %s", brief(offering), a.provider)
	}
	if err := a.followProvider(); err != nil {
		return err
	}
	w := &walk{admission: a, seen: make(map[visit]bool)}
	if err := w.node(a.offering.Claims, path{credentials: []*Credential{a.offering}, confirmed: true}, ""); err != nil {
		return err
	}
	if len(a.locations) == 0 {
		return errors.New("/hostedOn: leads to nothing that has a location")
	}
	return nil
}

// isOffering reports whether a type is a service offering. A type of another vocabulary is none, whatever its name is.
func isOffering(subjectType string) bool { return shape.Is(subjectType, TypeServiceOffering) }

// followProvider finds the LegalPerson. It must be signed by the provider itself, or by a
// trusted issuer for an id that only the provider can have. Otherwise a provider could refer to
// the LegalPerson of another company.
func (a *admission) followProvider() error {
	ids := references(a.offering.Claims["providedBy"])
	if len(ids) != 1 {
		return fmt.Errorf("/providedBy: want one reference, got %d", len(ids))
	}
	if a.person = a.find(ids[0], func(c *Credential) bool {
		return c.Type == TypeLegalPerson && a.mine(c)
	}); a.person == nil {
		return fmt.Errorf("/providedBy: no %s %s of %s", TypeLegalPerson, brief(ids[0]), a.provider)
	}
	return nil
}

// mine reports whether a credential is about the provider: the provider signed it, or the id of
// the subject belongs to the provider.
func (a *admission) mine(c *Credential) bool {
	return c.Issuer == a.provider || Owns(a.provider, c.Subject)
}

// confirms reports whether a resource confirms a link from the provider to it. It does if the
// provider signed it, if its id belongs to the provider, or if it names the provider's
// LegalPerson as its maintainer or owner, by an id that only the provider can have. Otherwise
// only the provider states the link: any provider can state that its service is hosted in
// another's data centre.
func (a *admission) confirms(resource *Credential) bool {
	if a.mine(resource) {
		return true
	}
	return Owns(a.provider, a.person.Subject) && slices.Contains(resource.keepers(), a.person.Subject)
}

// keepers returns the ids of the maintainers and the owners that a credential names.
func (c *Credential) keepers() []string {
	return append(references(c.Claims["maintainedBy"]), references(c.Claims["ownedBy"])...)
}

// IsKeptBy reports whether a credential is about a resource that has the owner of a DID as maintainer or owner, by an id that only
// that one can give.
func (c *Credential) IsKeptBy(did string) bool {
	return slices.Contains(resourceTypes, c.Type) && slices.ContainsFunc(c.keepers(), func(id string) bool { return Owns(did, id) })
}

// find returns the credential about a subject, as newest does.
func (a *admission) find(subject string, accept func(*Credential) bool) *Credential {
	return a.newest(func(c *Credential) bool { return c.Subject == subject && accept(c) })
}

// newest returns the credential that is accepted: one of a trusted issuer before the provider's own, and of several
// the newest. Nil means none.
func (a *admission) newest(accept func(*Credential) bool) (found *Credential) {
	for _, c := range a.set {
		if !accept(c) {
			continue
		}
		switch {
		case found == nil,
			a.trusted(c) && !a.trusted(found),
			a.trusted(c) == a.trusted(found) && newer(c, found):
			found = c
		}
	}
	return found
}

// resourceTypes are the types of resources that can host a service. Credentials of other types,
// such as a Certification, can be about the same subject.
var resourceTypes = []string{TypePhysicalResource, TypeDatacenter, TypeAvailabilityZone, TypeVirtualResource}

// walk collects the resources that an offering is hosted on.
type walk struct {
	*admission
	seen map[visit]bool
}

// visit is a resource, and whether every link on the path to it was confirmed.
type visit struct {
	resource  Digest
	confirmed bool
}

// path is the way from the offering to a node.
type path struct {
	// credentials on the way, from the offering on.
	credentials []*Credential
	// confirmed is true if both ends confirmed each link.
	confirmed bool
}

// to returns the path extended by a resource.
func (p path) to(resource *Credential, confirmed bool) path {
	return path{append(slices.Clone(p.credentials), resource), p.confirmed && confirmed}
}

// location returns the location at the end of the path. If a link is not confirmed, it has no
// credentials except what the offering itself states.
func (w *walk) location(country string, p path) location {
	if !p.confirmed {
		return location{country, nil}
	}
	return location{country, p.credentials}
}

// node reads the locations of a node, and follows its references.
func (w *walk) node(node map[string]any, p path, pointer string) error {
	for _, name := range []string{"location", "address"} {
		for i, element := range elements(node[name]) {
			address, ok := element.(map[string]any)
			if !ok {
				continue
			}
			code, _ := address["countryCode"].(string)
			country, ok := shape.Country(code)
			if !ok {
				return fmt.Errorf("%s/%s/%d/countryCode: want a country of ISO 3166-1, got %s", pointer, name, i, brief(address["countryCode"]))
			}
			w.locations = append(w.locations, w.location(country, p))
		}
	}
	for _, name := range []string{"hostedOn", "aggregationOfResources"} {
		for i, element := range elements(node[name]) {
			at := pointer + "/" + name + "/" + strconv.Itoa(i)
			// Other parts of a service, such as software, need no location.
			optional := node["type"] == p.credentials[0].Type && name == "aggregationOfResources"
			if err := w.reference(element, p, at, optional); err != nil {
				return err
			}
		}
	}
	return nil
}

// reference follows a reference by id, an inline node, or both.
func (w *walk) reference(value any, p path, at string, optional bool) error {
	if len(p.credentials) > maxPath || len(w.locations) > maxPath*maxPath {
		return fmt.Errorf("%s: more than %d references one after the other, or too many places", at, maxPath)
	}
	inline, _ := value.(map[string]any)
	var found *Credential
	for _, id := range references(value) {
		found = w.resource(id)
	}
	if found == nil && !says(inline) && !optional {
		return fmt.Errorf("%s: %s is not among the credentials", at, brief(strings.Join(references(value), " ")))
	}
	if err := w.node(inline, p, at); err != nil {
		return err
	}
	if found == nil {
		return nil
	}
	p = p.to(found, w.confirms(found))
	if w.seen[visit{found.Digest, true}] || w.seen[visit{found.Digest, p.confirmed}] {
		return nil
	}
	w.seen[visit{found.Digest, p.confirmed}] = true
	if p.confirmed {
		w.resources = append(w.resources, found)
	} else {
		w.others = append(w.others, found)
	}
	return w.node(found.Claims, p, at)
}

// says reports whether a node has more than an id and a type.
func says(node map[string]any) bool {
	for name := range node {
		if name != "id" && name != "type" {
			return true
		}
	}
	return false
}

// resource returns the credential about a resource. One that confirms its link to the provider
// is preferred.
func (w *walk) resource(id string) *Credential {
	isResource := func(c *Credential) bool { return slices.Contains(resourceTypes, c.Type) }
	if found := w.find(id, func(c *Credential) bool { return isResource(c) && w.confirms(c) }); found != nil {
		return found
	}
	return w.find(id, isResource)
}

// places lists the countries for a message.
func (a *admission) places() string {
	var countries []string
	for _, l := range a.locations {
		countries = append(countries, l.country)
	}
	slices.Sort(countries)
	return "hardware in " + strings.Join(slices.Compact(countries), ", ")
}

// elements returns a list; a value that is not a list becomes its only element.
func elements(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}

// references returns the ids that a value refers to.
func references(value any) (ids []string) {
	for _, element := range elements(value) {
		if node, ok := element.(map[string]any); ok {
			element = node["id"]
		}
		if id, ok := element.(string); ok && id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// Owns reports whether only the owner of a DID can give an id: the id is the DID, begins with
// it, or is an https URL below the URL that the did:web means.
func Owns(owner, id string) bool {
	if rest, ok := strings.CutPrefix(id, owner); ok && (rest == "" || strings.ContainsAny(rest[:1], "#/?")) {
		return true
	}
	document, err := did.WebURL(owner)
	if err != nil {
		return false // other methods have no URL
	}
	below := strings.TrimSuffix(strings.TrimSuffix(document, "did.json"), ".well-known/")
	u, err := url.Parse(id)
	if err != nil || u.Scheme != "https" || u.User != nil || slices.Contains(strings.Split(u.Path, "/"), "..") {
		return false
	}
	return strings.HasPrefix("https://"+strings.ToLower(u.Host)+u.EscapedPath(), below)
}
