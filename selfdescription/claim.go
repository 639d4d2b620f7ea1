package selfdescription

import "time"

// Assurance is how strongly a claim is backed.
type Assurance string

// Assurances: self < notary < label < certified. Measured is not compared with the others.
const (
	Self      Assurance = "self"      // the provider says so
	Notary    Assurance = "notary"    // a notary checked it against a register
	Label     Assurance = "label"     // a compliance service labelled the credential of the claim
	Certified Assurance = "certified" // a conformity assessment body certified it
	Measured  Assurance = "measured"  // the broker measured it
)

// rank orders assurances; measured and unknown ones are below self.
func (a Assurance) rank() int {
	switch a {
	case Self:
		return 1
	case Notary:
		return 2
	case Label:
		return 3
	case Certified:
		return 4
	}
	return 0
}

// Names of claims.
const (
	ClaimProviderCountry      = "provider.country"                   // headquarters, ISO 3166-1 alpha-2
	ClaimProviderRegistration = "provider.registration"              // for instance "vatID:DE123456789"
	ClaimConsumerCountry      = "consumer.country"                   // headquarters, as of a provider
	ClaimConsumerRegistration = "consumer.registration"              // as of a provider
	ClaimDatacenterCountry    = "datacenter.country"                 // of the hardware, ISO 3166-1 alpha-2
	ClaimCertification        = "certification"                      // for instance "ISO/IEC 27001"
	ClaimLabel                = "label"                              // SC, L1, L2 or L3
	ClaimUptime               = "uptime.ratio"                       // 0 to 1, of the API server
	ClaimLatency              = "latency.p95Ms"                      // milliseconds, of the API server
	ClaimDataPlaneUptime      = "dataPlane.uptime.ratio"             // 0 to 1, of a probe on the cluster
	ClaimDataPlaneLatency     = "dataPlane.latency.p95Ms"            // milliseconds, of the probe
	ClaimDataPlaneThroughput  = "dataPlane.throughput.mbitPerSecond" // median of transfers to the probe
	ClaimDataPlanePodStart    = "dataPlane.podStart.p95Ms"           // milliseconds, until a new pod of the probe answers
)

// Claim is a verified statement about a member cluster or its provider, or about a consumer.
// Several values of one name are several claims.
type Claim struct {
	Name, Value string
	Assurance   Assurance
	// Issuer and Credential are those of the credential that gives the claim its assurance, for
	// instance the label that raised it.
	Issuer     string
	Credential Digest
	// Expires is the earliest end of the credentials that the claim rests on; zero means never.
	Expires time.Time
}

// Issuers reports whether an issuer may issue credentials of a subject type (without prefix,
// for instance VatID), and their assurance. A provider's own statements have the assurance
// Self.
type Issuers func(issuer, subjectType string) (assurance Assurance, ok bool)
