package selfdescription

import (
	"fmt"
	"time"
)

// Prove checks the credentials of a consumer together and returns the claims that they prove: its
// country, its registration numbers, and certifications of its LegalPerson. set holds verified
// credentials; as by [Admit], those that are not valid at now are ignored, and those whose issuer is
// neither the consumer nor trusted. consumer is its DID.
//
// Prove refuses unless there is a LegalPerson that is the consumer: signed by the consumer itself, or
// by a trusted issuer about an id that only the consumer can give. Of several, one of a trusted issuer
// counts before the consumer's own, and then the newest.
//
// The claims are sorted, and nil if the report is not OK. Their assurance is as for Admit.
func Prove(set []*Credential, consumer string, issuers Issuers, now time.Time) ([]Claim, Report) {
	checks := NewChecks(StepReferences, StepIssuer, StepAdmit)
	a := newAdmission(set, consumer, issuers, now)
	if a.person = a.newest(func(c *Credential) bool { return c.Type == TypeLegalPerson && a.mine(c) }); a.person == nil {
		return nil, checks.Fail(Rejected, fmt.Errorf("no %s of %s", TypeLegalPerson, consumer))
	}
	checks.Pass("%s", a.person.Subject)
	if err := a.checkIssuers(); err != nil {
		return nil, checks.Fail(Rejected, err)
	}
	checks.Pass("%d credentials, each by who may issue it", len(a.chain()))
	claims := best(append(a.personClaims(ClaimConsumerCountry, ClaimConsumerRegistration), a.certifications()...))
	checks.Pass("%d claims", len(claims))
	return claims, checks.report
}
