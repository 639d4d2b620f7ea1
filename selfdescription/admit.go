package selfdescription

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ClusterFacts is what the broker itself sees of a member cluster.
type ClusterFacts struct {
	// UID of the namespace kube-system.
	UID string
	// KeyHash of the API server's public key: "sha256-<base64>" of its SubjectPublicKeyInfo.
	KeyHash string
}

// Requirements is what an operator wants to see before a member cluster is admitted.
type Requirements struct {
	// Provider is the DID of the organisation that runs the cluster.
	Provider string
	// Types of credentials, without prefix, that must be there beside the offering,
	// its provider and data centre, and the binding.
	Types []string
}

// Admit looks at the credentials of a member cluster together and says what they
// prove. set holds verified credentials; those that do not hold at now are left out,
// as are those of others than the provider and the issuers that are trusted. It need
// not be the whole catalogue: what the provider presented, what trusted issuers say of
// that, and the broker's measurements of this very cluster.
// offering is the id of the subject that describes the cluster.
//
// It refuses unless the offering is the provider's, names a LegalPerson who is the
// provider and leads to at least one located resource, everything on this chain was
// issued by who may, a ClusterBinding of the provider names the very cluster, and
// the required types are there. The claims are sorted, and nil where the report is not OK.
//
// The assurance of a claim is that of who issued the credential it is from, or of a
// label or certification that names the digest of that very credential. A claim that
// rests on several credentials, as a country does that the offering only refers to,
// has the assurance of the weakest. It travels only over links that both ends confirmed
// (docs/trust.md, "Links"): beyond one that the provider alone speaks of, certifications
// do not count, and a country is the provider's own word.
func Admit(set []*Credential, offering string, cluster ClusterFacts, want Requirements, issuers Issuers, now time.Time) ([]Claim, Report) {
	checks := newChecks(StepReferences, StepIssuer, StepBinding, StepAdmit)
	a := newAdmission(set, want.Provider, issuers, now)
	if err := a.follow(offering); err != nil {
		return nil, checks.fail(Rejected, err)
	}
	checks.pass("%s by %s with %s", a.offering.Type, a.person.Subject, a.places())
	if err := a.checkIssuers(); err != nil {
		return nil, checks.fail(Rejected, err)
	}
	checks.pass("%d credentials, each by who may issue it", len(a.chain()))
	if err := a.bind(cluster); err != nil {
		return nil, checks.fail(Rejected, err)
	}
	checks.pass("%s binds the offering to cluster %s", a.binding.Subject, cluster.UID)
	claims := a.claims()
	if err := a.require(want.Types); err != nil {
		return nil, checks.fail(Rejected, err)
	}
	checks.pass("%d claims", len(claims))
	return claims, checks.report
}

// admission is the work of one Admit.
type admission struct {
	provider string
	issuers  Issuers
	set      []*Credential

	offering, person, binding *Credential
	// resources that the offering is hosted on, by links that both ends confirmed; and
	// others, to which the provider's word alone leads.
	resources, others []*Credential
	locations         []location
	// accepted are credentials beside the chain that claims come from.
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

// worth is what the issuer's word counts for.
func (a *admission) worth(c *Credential) (Assurance, bool) {
	if a.issuers == nil {
		return Self, true
	}
	return a.issuers(c.Issuer, c.Type)
}

// trusted reports whether the issuer counts for more than a provider.
func (a *admission) trusted(c *Credential) bool {
	assurance, ok := a.worth(c)
	return ok && assurance != Self
}

// chain is what the admission rests on: offering, provider, resources.
func (a *admission) chain() []*Credential {
	return append([]*Credential{a.offering, a.person}, a.resources...)
}

// checkIssuers asks of everything on the chain whether its issuer may issue it.
func (a *admission) checkIssuers() error {
	for _, c := range append(a.chain(), a.others...) {
		if _, ok := a.worth(c); !ok {
			return fmt.Errorf("/issuer: %s may not issue %s (%s)", c.Issuer, c.Type, c.Subject)
		}
	}
	return nil
}

// bind finds the ClusterBinding of the provider that names offering and cluster, so
// that nobody hangs his paper on the cluster of another.
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

// require looks for types among what was accepted or is the provider's own.
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

// newer reports whether x replaces y, of the same subject.
func newer(x, y *Credential) bool {
	if !x.ValidFrom.Equal(y.ValidFrom) {
		return x.ValidFrom.After(y.ValidFrom)
	}
	return x.Digest.String() > y.Digest.String()
}
