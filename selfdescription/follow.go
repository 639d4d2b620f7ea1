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

// location is a country that the chain leads to, and the credentials that say so
// one after the other, from the offering on.
type location struct {
	country string
	path    []*Credential
}

// maxPath is how many references lead from an offering to a place, at most.
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
	w := &walk{admission: a, seen: make(map[Digest]bool)}
	if err := w.node(a.offering.Claims, []*Credential{a.offering}, ""); err != nil {
		return err
	}
	if len(a.locations) == 0 {
		return errors.New("/hostedOn: leads to nothing that has a location")
	}
	return nil
}

// isOffering tells whether a type is a service offering: its subclasses end like it.
func isOffering(subjectType string) bool { return strings.HasSuffix(subjectType, TypeServiceOffering) }

// followProvider finds the LegalPerson. It is signed by the provider itself, or by
// somebody trusted for an id that only the provider can have: else a provider could
// refer to the paper of a company that it is not.
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

// mine reports whether a credential is about the provider: it signed it, or the id of
// the subject is its own.
func (a *admission) mine(c *Credential) bool {
	return c.Issuer == a.provider || owns(a.provider, c.Subject)
}

// find returns the credential about a subject: of a trusted issuer before the
// provider's own, and of several the newest. Nil means none.
func (a *admission) find(subject string, accept func(*Credential) bool) (found *Credential) {
	for _, c := range a.set {
		if c.Subject != subject || !accept(c) {
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

// resourceTypes are the types of what a service can be hosted on. Others, such as a
// Certification, can be about the same subject.
var resourceTypes = []string{TypePhysicalResource, TypeDatacenter, TypeAvailabilityZone, TypeVirtualResource}

// walk collects what an offering is hosted on.
type walk struct {
	*admission
	seen map[Digest]bool
}

// node reads the places of a node, and follows its references.
func (w *walk) node(node map[string]any, path []*Credential, pointer string) error {
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
			w.locations = append(w.locations, location{country, path})
		}
	}
	for _, name := range []string{"hostedOn", "aggregationOfResources"} {
		for i, element := range elements(node[name]) {
			at := pointer + "/" + name + "/" + strconv.Itoa(i)
			// What else a service is made of, software say, is not asked for.
			optional := node["type"] == path[0].Type && name == "aggregationOfResources"
			if err := w.reference(element, path, at, optional); err != nil {
				return err
			}
		}
	}
	return nil
}

// reference follows a reference by id, an inline node, or both.
func (w *walk) reference(value any, path []*Credential, at string, optional bool) error {
	if len(path) > maxPath || len(w.locations) > maxPath*maxPath {
		return fmt.Errorf("%s: more than %d references one after the other, or too many places", at, maxPath)
	}
	inline, _ := value.(map[string]any)
	embedded := len(inline) > 2 // more than id and type
	var found *Credential
	for _, id := range references(value) {
		found = w.find(id, func(c *Credential) bool { return slices.Contains(resourceTypes, c.Type) })
	}
	if found == nil && !embedded && !optional {
		return fmt.Errorf("%s: %s is not among the credentials", at, brief(strings.Join(references(value), " ")))
	}
	if embedded {
		if err := w.node(inline, path, at); err != nil {
			return err
		}
	}
	if found == nil || w.seen[found.Digest] {
		return nil
	}
	w.seen[found.Digest] = true
	w.resources = append(w.resources, found)
	return w.node(found.Claims, append(slices.Clone(path), found), at)
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

// elements is a list, of one where the value is none itself.
func elements(value any) []any {
	switch value := value.(type) {
	case nil:
		return nil
	case []any:
		return value
	}
	return []any{value}
}

// references lists the ids that a value refers to.
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

// owns reports whether only the owner of a DID can give an id: it is the DID, begins
// with it, or is an https URL below what the did:web stands for.
func owns(owner, id string) bool {
	if rest, ok := strings.CutPrefix(id, owner); ok && (rest == "" || strings.ContainsAny(rest[:1], "#/?")) {
		return true
	}
	document, err := did.WebURL(owner)
	if err != nil {
		return false // another method, which stands for no URL
	}
	below := strings.TrimSuffix(strings.TrimSuffix(document, "did.json"), ".well-known/")
	u, err := url.Parse(id)
	if err != nil || u.Scheme != "https" || u.User != nil || slices.Contains(strings.Split(u.Path, "/"), "..") {
		return false
	}
	return strings.HasPrefix("https://"+strings.ToLower(u.Host)+u.EscapedPath(), below)
}
