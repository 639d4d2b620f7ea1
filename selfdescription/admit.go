package selfdescription

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClusterFacts are facts that Sluice itself observes of a member cluster.
type ClusterFacts struct {
	// UID of the namespace kube-system.
	UID string
	// KeyHash of the API server's public key: "sha256-<base64>" of its SubjectPublicKeyInfo.
	KeyHash string
}

// Requirements of an operator, without which a member cluster is not admitted.
type Requirements struct {
	// Provider is the DID of the organisation that runs the cluster.
	Provider string
	// Types of credentials, without prefix, that are required beside the offering, its provider
	// and data centre, and the binding.
	Types []string
}

// Admit checks the credentials of a member cluster together and returns the claims that they
// prove. set holds verified credentials. Admit ignores credentials that are not valid at now, and
// those whose issuer is neither the provider nor trusted. The set need not be the whole catalogue:
// it needs the provider's own credentials, those of trusted issuers about them, and Sluice's
// measurements of this cluster. offering is the id of the subject that describes the cluster. If issuers is nil, no
// issuer is trusted, and the provider may issue everything.
//
// Admit refuses unless
//
//   - the offering is the provider's, names a LegalPerson that is the provider, and leads to
//     at least one resource with a location;
//   - every credential on this chain was issued by an issuer that may issue it;
//   - a ClusterBinding of the provider names this very cluster;
//   - the required types are there.
//
// The claims are sorted, and nil if the report is not OK.
//
// The assurance of a claim is that of the issuer of its credential, or of a label or
// certification that names the digest of that very credential. A claim that rests on several
// credentials has the assurance of the weakest; the country of a resource that the offering
// only refers to is an example. Assurance passes only over links that both ends confirmed
// (docs/trust.md, "Links"). Beyond a link that only the provider states, certifications do not
// count, and a country has the assurance Self.
func Admit(set []*Credential, offering string, cluster ClusterFacts, want Requirements, issuers Issuers, now time.Time) ([]Claim, Report) {
	checks := NewChecks(StepReferences, StepIssuer, StepBinding, StepAdmit)
	a := newAdmission(set, want.Provider, issuers, now)
	if err := a.follow(offering); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%s by %s with %s", a.offering.Type, a.person.Subject, a.places())
	if err := a.checkIssuers(); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%d credentials, each by who may issue it", len(a.chain()))
	if err := a.bind(cluster); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%s binds the offering to cluster %s", a.binding.Subject, cluster.UID)
	claims := a.claims()
	if err := a.require(want.Types); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%d claims", len(claims))
	return claims, checks.report
}

// admission is the work of one Admit.
type admission struct {
	provider string
	issuers  Issuers
	set      []*Credential

	offering, person, binding *Credential
	// resources host the offering, by links that both ends confirmed. others are reached by links
	// that only the provider states.
	resources, others []*Credential
	locations         []location
	// accepted are the credentials outside the chain that claims are read from.
	accepted []*Credential
}

func newAdmission(set []*Credential, provider string, issuers Issuers, now time.Time) *admission {
	a := &admission{provider: provider, issuers: issuers}
	seen := make(map[Digest]bool)
	for _, c := range set {
		ended := !c.ValidUntil.IsZero() && !now.Before(c.ValidUntil)
		if ended || seen[c.Signed] {
			continue
		}
		seen[c.Signed] = true
		if c.Issuer == provider || a.trusted(c) {
			a.set = append(a.set, c)
		}
	}
	return a
}

// worth returns the assurance of the issuer's statements.
func (a *admission) worth(c *Credential) (Assurance, bool) {
	if a.issuers == nil {
		return Self, true
	}
	return a.issuers(c.Issuer, c.Type)
}

// trusted reports whether the issuer's assurance is higher than a provider's.
func (a *admission) trusted(c *Credential) bool {
	assurance, ok := a.worth(c)
	return ok && assurance != Self
}

// chain returns the credentials that the admission rests on: offering, provider, resources; of a consumer its
// LegalPerson alone.
func (a *admission) chain() []*Credential {
	if a.offering == nil {
		return []*Credential{a.person}
	}
	return append([]*Credential{a.offering, a.person}, a.resources...)
}

// checkIssuers checks that each credential on the chain has an issuer that may issue it.
func (a *admission) checkIssuers() error {
	for _, c := range append(a.chain(), a.others...) {
		if _, ok := a.worth(c); !ok {
			return fmt.Errorf("/issuer: %s may not issue %s (%s)", c.Issuer, c.Type, c.Subject)
		}
	}
	return nil
}

// bind finds the ClusterBinding of the provider that names offering and cluster. It keeps
// providers from presenting their credentials for another's cluster.
func (a *admission) bind(cluster ClusterFacts) error {
	if cluster.UID == "" || cluster.KeyHash == "" {
		return errors.New("the cluster has not been reached yet: its UID or its key is not known")
	}
	err := fmt.Errorf("no %s by %s for %s", TypeClusterBinding, a.provider, a.offering.Subject)
	for _, c := range a.set {
		if c.Type != TypeClusterBinding || c.Issuer != a.provider || !slices.Contains(references(c.Claims["offering"]), a.offering.Subject) {
			continue
		}
		_, allowed := a.worth(c)
		switch uid, hash := c.Claims["clusterUID"], c.Claims["apiServerKeyHash"]; {
		case !allowed:
			err = fmt.Errorf("/issuer: %s may not issue %s (%s)", c.Issuer, c.Type, c.Subject)
		case uid != cluster.UID:
			err = fmt.Errorf("%s: /clusterUID: want %q, got %s", c.Subject, cluster.UID, brief(uid))
		case hash != cluster.KeyHash:
			err = fmt.Errorf("%s: /apiServerKeyHash: want %q, got %s", c.Subject, cluster.KeyHash, brief(hash))
		case a.binding == nil || newer(c, a.binding):
			a.binding = c
		}
	}
	if a.binding == nil {
		return err
	}
	return nil
}

// require checks that each type is among the accepted credentials or the provider's own.
func (a *admission) require(types []string) error {
	there := append(a.chain(), a.binding)
	there = append(there, a.accepted...)
	for _, c := range a.set {
		if _, ok := a.worth(c); ok && c.Issuer == a.provider {
			there = append(there, c)
		}
	}
	var missing []string
	for _, t := range types {
		if !slices.ContainsFunc(there, func(c *Credential) bool { return c.Type == t }) {
			missing = append(missing, t)
		}
	}
	if missing != nil {
		return fmt.Errorf("no %s that applies to %s", strings.Join(missing, ", no "), a.offering.Subject)
	}
	return nil
}

// newer reports whether x replaces y, a credential about the same subject.
func newer(x, y *Credential) bool {
	if !x.ValidFrom.Equal(y.ValidFrom) {
		return x.ValidFrom.After(y.ValidFrom)
	}
	return x.Digest.String() > y.Digest.String()
}
