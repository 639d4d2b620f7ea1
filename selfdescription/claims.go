package selfdescription

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// standing is the assurance of a credential, and the credential that gives it: itself, or a
// label over it.
type standing struct {
	assurance Assurance
	by        *Credential
}

// standing returns the assurance of a credential, on the chain or outside it.
func (a *admission) standing(c *Credential) standing {
	assurance, _ := a.worth(c)
	if c.Issuer == a.provider {
		assurance = Self // even if the provider is a trusted issuer for other subjects
	}
	best := standing{assurance, c}
	for _, over := range a.set {
		assurance, ok := a.worth(over)
		if !ok || over.Issuer == a.provider || assurance.rank() <= best.assurance.rank() {
			continue
		}
		if slices.Contains(named(over), c.Digest) {
			best = standing{assurance, over}
		}
	}
	return best
}

// named lists the digests of the credentials that a label or a certification covers. Only
// digests count: an id does not fix the content.
func named(over *Credential) (digests []Digest) {
	var list any
	switch over.Type {
	case TypeLabelCredential:
		list = over.Claims["compliantCredentials"]
	case TypeCertification:
		list = over.Claims["certifiedCredentials"]
	}
	for _, element := range elements(list) {
		node, _ := element.(map[string]any)
		sri, _ := node["digestSRI"].(string)
		if d, err := ParseSRI(sri); err == nil {
			digests = append(digests, d)
		}
	}
	return digests
}

// claims returns everything that the credentials prove, and adds the credentials used to
// accepted.
func (a *admission) claims() []Claim {
	list := []Claim{}
	list = append(list, a.personClaims(ClaimProviderCountry, ClaimProviderRegistration)...)
	for _, l := range a.locations {
		list = append(list, a.country(l))
	}
	list = append(list, a.certifications()...)
	list = append(list, a.labels()...)
	list = append(list, a.measurements()...)
	return best(list)
}

// country returns the claim of a location. If a link to it is stated only by the provider, the
// claim has the assurance Self, whatever the offering's is.
func (a *admission) country(l location) Claim {
	if l.path != nil {
		return a.claim(ClaimDatacenterCountry, l.country, l.path...)
	}
	claim := a.claim(ClaimDatacenterCountry, l.country, a.offering)
	claim.Assurance, claim.Issuer, claim.Credential = Self, a.offering.Issuer, a.offering.Digest
	if end := firstEnd(a.others); compareEnds(end, claim.Expires) < 0 {
		claim.Expires = end
	}
	return claim
}

// claim returns a claim that rests on the credentials on. Like every claim about a cluster it also rests on
// the offering and the binding, and ends when they end. Its assurance is that of the weakest of on.
func (a *admission) claim(name, value string, on ...*Credential) Claim {
	weakest := a.standing(on[len(on)-1])
	var rests []*Credential
	if a.offering != nil {
		rests = append(rests, a.offering, a.binding)
	}
	for _, c := range on {
		s := a.standing(c)
		if s.assurance.rank() < weakest.assurance.rank() {
			weakest = s
		}
		rests = append(rests, c, s.by)
	}
	return Claim{
		Name: name, Value: value,
		Assurance: weakest.assurance, Issuer: weakest.by.Issuer, Credential: weakest.by.Digest,
		Expires: firstEnd(rests),
	}
}

// firstEnd returns the earliest end of validity; zero if none of them ends.
func firstEnd(credentials []*Credential) (end time.Time) {
	for _, c := range credentials {
		if !c.ValidUntil.IsZero() && (end.IsZero() || c.ValidUntil.Before(end)) {
			end = c.ValidUntil
		}
	}
	return end
}

// registrationNumbers are the types of registration numbers, with the names of the
// attribute that holds the number.
var registrationNumbers = map[string][]string{
	"VatID": {"vatID"}, "LeiCode": {"leiCode"}, "EORI": {"eori"}, "EUID": {"euid"},
	"TaxID": {"taxID", "taxId"}, "LocalRegistrationNumber": {"local"},
}

// personClaims returns the claims of the LegalPerson, by the names that they have for a provider or a consumer.
func (a *admission) personClaims(countryName, registrationName string) []Claim {
	var list []Claim
	for _, element := range elements(a.person.Claims["headquartersAddress"]) {
		address, _ := element.(map[string]any)
		code, _ := address["countryCode"].(string)
		if country, ok := shape.Country(code); ok {
			list = append(list, a.claim(countryName, country, a.person))
		}
	}
	for _, element := range elements(a.person.Claims["registrationNumber"]) {
		node, _ := element.(map[string]any)
		if value := registration(node); value != "" {
			list = append(list, a.claim(registrationName, value, a.person))
		}
		for _, id := range references(element) {
			number := a.find(id, func(c *Credential) bool { return registration(c.Claims) != "" && a.mine(c) })
			if number != nil {
				a.accepted = append(a.accepted, number)
				list = append(list, a.claim(registrationName, registration(number.Claims), number))
			}
		}
	}
	return list
}

// registration returns "<attribute>:<number>", or empty if the node is not a registration
// number.
func registration(node map[string]any) string {
	kind, _ := node["type"].(string)
	attributes := registrationNumbers[kind]
	for _, name := range attributes {
		if number, _ := node[name].(string); number != "" {
			return attributes[0] + ":" + number
		}
	}
	return ""
}

// certifications returns the certifications of the offering, of its provider, or of its
// resources.
func (a *admission) certifications() []Claim {
	var list []Claim
	for _, c := range a.set {
		standard, _ := c.Claims["standard"].(string)
		if c.Type != TypeCertification || standard == "" {
			continue
		}
		if of := a.certified(c); of != nil {
			a.accepted = append(a.accepted, c)
			claim := a.claim(ClaimCertification, standard, c)
			if end := firstEnd([]*Credential{of}); compareEnds(end, claim.Expires) < 0 {
				claim.Expires = end // its assurance does not come from the certified credential
			}
			list = append(list, claim)
		}
	}
	return list
}

// certified returns the credential of the chain that a certification is about. The
// certification names it by digest. The id of the subject is enough only if it is the
// provider's id: any provider can give its offering the id of another's.
func (a *admission) certified(c *Credential) *Credential {
	digests := named(c)
	for _, of := range a.chain() {
		switch {
		case of.Subject != c.Subject:
		case slices.Contains(digests, of.Digest):
			return of
		case c.Claims["certifiedCredentials"] == nil && a.mine(c):
			return of
		}
	}
	return nil
}

// labels returns the labels over the credential of the offering itself. A label issued by the
// provider does not count.
func (a *admission) labels() []Claim {
	var list []Claim
	for _, c := range a.set {
		assurance, _ := a.worth(c)
		level, _ := c.Claims["labelLevel"].(string)
		if c.Type != TypeLabelCredential || c.Issuer == a.provider || assurance.rank() < Label.rank() || level == "" {
			continue
		}
		if slices.Contains(named(c), a.offering.Digest) {
			a.accepted = append(a.accepted, c)
			list = append(list, a.claim(ClaimLabel, level, c))
		}
	}
	return list
}

// measurements returns those of the last complete window. Of several vantages the worst counts.
func (a *admission) measurements() []Claim {
	last := a.find(a.offering.Subject, func(c *Credential) bool {
		assurance, ok := a.worth(c)
		return c.Type == TypeClusterMeasurement && ok && assurance == Measured && c.Issuer != a.provider
	})
	if last == nil {
		return nil
	}
	a.accepted = append(a.accepted, last)
	list := a.answers(ClaimUptime, ClaimLatency, last.Claims, last)
	there, _ := last.Claims["dataPlane"].(map[string]any)
	list = append(list, a.answers(ClaimDataPlaneUptime, ClaimDataPlaneLatency, there, last)...)
	if rate, ok := member(there["throughput"], "mbitPerSecond"); ok {
		list = append(list, a.claim(ClaimDataPlaneThroughput, formatNumber(rate), last))
	}
	if p95, ok := member(there["podStart"], "p95Ms"); ok {
		list = append(list, a.claim(ClaimDataPlanePodStart, formatNumber(p95), last))
	}
	return list
}

// answers returns the claims about the answers of an API server or a probe, by their names.
func (a *admission) answers(uptime, latency string, measured map[string]any, by *Credential) (list []Claim) {
	if ratio, ok := member(measured["uptime"], "ratio"); ok {
		list = append(list, a.claim(uptime, formatNumber(ratio), by))
	}
	worst, there := 0.0, false
	for _, vantage := range elements(measured["latency"]) {
		if p95, ok := member(vantage, "p95Ms"); ok {
			worst, there = max(worst, p95), true
		}
	}
	if there {
		list = append(list, a.claim(latency, formatNumber(worst), by))
	}
	return list
}

func member(object any, name string) (float64, bool) {
	node, _ := object.(map[string]any)
	n, _ := node[name].(json.Number)
	value, err := n.Float64()
	return value, err == nil
}

func formatNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// best sorts claims. Of claims with the same name and value it keeps the one with the highest
// assurance, and of these the one that ends last.
func best(list []Claim) []Claim {
	slices.SortFunc(list, func(x, y Claim) int {
		return cmp.Or(
			strings.Compare(x.Name, y.Name), strings.Compare(x.Value, y.Value),
			cmp.Compare(y.Assurance.rank(), x.Assurance.rank()),
			compareEnds(y.Expires, x.Expires), strings.Compare(x.Credential.String(), y.Credential.String()),
		)
	})
	return slices.CompactFunc(list, func(x, y Claim) bool { return x.Name == y.Name && x.Value == y.Value })
}

// compareEnds orders ends of validity; the zero time is the last.
func compareEnds(x, y time.Time) int {
	switch {
	case x.IsZero() && y.IsZero():
		return 0
	case x.IsZero():
		return 1
	case y.IsZero():
		return -1
	}
	return x.Compare(y)
}
