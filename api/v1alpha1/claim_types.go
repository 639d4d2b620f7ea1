package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Assurance says how much a claim is worth, by who stands behind it:
// self < notary < label < certified. Measured is separate: what Sluice itself
// observed satisfies only those who ask for nothing more than self, or for measured.
// +kubebuilder:validation:Enum=self;notary;label;certified;measured
type Assurance string

// Assurances.
const (
	// AssuranceSelf: the provider says so.
	AssuranceSelf Assurance = "self"
	// AssuranceNotary: a notary checked it against a register.
	AssuranceNotary Assurance = "notary"
	// AssuranceLabel: a compliance service issued a label over the very credential that says so.
	AssuranceLabel Assurance = "label"
	// AssuranceCertified: a conformity assessment body certified it.
	AssuranceCertified Assurance = "certified"
	// AssuranceMeasured: the broker measured it.
	AssuranceMeasured Assurance = "measured"
)

// Names of claims.
const (
	// ClaimProviderCountry is where the provider has its headquarters, as ISO 3166-1 alpha-2.
	ClaimProviderCountry = "provider.country"
	// ClaimProviderRegistration is a registration number, for instance "vatID:DE123456789".
	ClaimProviderRegistration = "provider.registration"
	// ClaimDatacenterCountry is where the cluster's hardware stands, as ISO 3166-1 alpha-2.
	ClaimDatacenterCountry = "datacenter.country"
	// ClaimCertification is a certification, for instance "ISO/IEC 27001".
	ClaimCertification = "certification"
	// ClaimLabel is a Gaia-X label level: SC, L1, L2 or L3.
	ClaimLabel = "label"
	// ClaimUptime is the share of probes that were answered in the last complete window, 0 to 1.
	ClaimUptime = "uptime.ratio"
	// ClaimLatency is the 95th percentile of the answer time in that window, in milliseconds.
	ClaimLatency = "latency.p95Ms"
)

// Claim is one verified statement about a member cluster or its provider. A claim
// with several values (certifications, countries) stands once for each.
type Claim struct {
	// Name of what is claimed, for instance datacenter.country.
	Name string `json:"name"`
	// Value that is claimed, for instance DE.
	Value string `json:"value"`
	// Assurance of the claim.
	Assurance Assurance `json:"assurance"`
	// Issuer of the credential that gives the claim its assurance (a DID).
	Issuer string `json:"issuer"`
	// Credential that gives the claim its assurance, by its digest ("sha256-<base64>",
	// Subresource Integrity).
	Credential string `json:"credential"`
	// ExpiresAt is when the claim stops holding: when the first of the credentials it rests on ends.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
