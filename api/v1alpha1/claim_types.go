package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Assurance ranks a claim by its issuer: self < notary < label < certified. Measured is for facts
// that Sluice itself observed. It is outside this order: it satisfies only rules that ask for self
// or for measured.
// +kubebuilder:validation:Enum=self;notary;label;certified;measured
type Assurance string

// Assurances.
const (
	// AssuranceSelf is a claim of the provider itself.
	AssuranceSelf Assurance = "self"
	// AssuranceNotary is a claim that a notary checked against a register.
	AssuranceNotary Assurance = "notary"
	// AssuranceLabel is a claim in a credential for which a compliance service issued a label.
	AssuranceLabel Assurance = "label"
	// AssuranceCertified is a claim that a conformity assessment body certified.
	AssuranceCertified Assurance = "certified"
	// AssuranceMeasured is a claim that the broker measured.
	AssuranceMeasured Assurance = "measured"
)

// Names of claims.
const (
	// ClaimProviderCountry is the country of the provider's headquarters, as ISO 3166-1 alpha-2.
	ClaimProviderCountry = "provider.country"
	// ClaimProviderRegistration is a registration number, for instance "vatID:DE123456789".
	ClaimProviderRegistration = "provider.registration"
	// ClaimConsumerCountry is the country of the consumer's headquarters, as ISO 3166-1 alpha-2.
	ClaimConsumerCountry = "consumer.country"
	// ClaimConsumerRegistration is a registration number of the consumer, for instance "vatID:DE123456789".
	ClaimConsumerRegistration = "consumer.registration"
	// ClaimDatacenterCountry is the country of the cluster's hardware, as ISO 3166-1 alpha-2.
	ClaimDatacenterCountry = "datacenter.country"
	// ClaimCertification is a certification, for instance "ISO/IEC 27001".
	ClaimCertification = "certification"
	// ClaimLabel is a Gaia-X label level: SC, L1, L2 or L3.
	ClaimLabel = "label"
	// ClaimUptime is the share of answered probes in the last complete window, 0 to 1.
	ClaimUptime = "uptime.ratio"
	// ClaimLatency is the 95th percentile of the answer time in that window, in milliseconds.
	ClaimLatency = "latency.p95Ms"
	// ClaimDataPlaneUptime is the share of pings in that window that the probe on the cluster has answered, 0 to 1.
	ClaimDataPlaneUptime = "dataPlane.uptime.ratio"
	// ClaimDataPlaneLatency is the 95th percentile of its answer time, in milliseconds.
	ClaimDataPlaneLatency = "dataPlane.latency.p95Ms"
	// ClaimDataPlaneThroughput is the median rate of transfers to it, in Mbit/s.
	ClaimDataPlaneThroughput = "dataPlane.throughput.mbitPerSecond"
	// ClaimDataPlanePodStart is the 95th percentile of the time until a new pod of it has answered, in milliseconds.
	ClaimDataPlanePodStart = "dataPlane.podStart.p95Ms"
)

// MeasuredClaims are the names of the claims about facts that Sluice measures, repeatedly.
var MeasuredClaims = []string{ClaimUptime, ClaimLatency, ClaimDataPlaneUptime, ClaimDataPlaneLatency, ClaimDataPlaneThroughput, ClaimDataPlanePodStart}

// Claim is one verified statement about a member cluster or its provider, or about a consumer. A claim with
// several values (certifications, countries) is stored as several Claims.
type Claim struct {
	// Name of the claim, for instance datacenter.country.
	Name string `json:"name"`
	// Value of the claim, for instance DE.
	Value string `json:"value"`
	// Assurance of the claim.
	Assurance Assurance `json:"assurance"`
	// Issuer is the DID of the issuer of Credential.
	Issuer string `json:"issuer"`
	// Credential that gives the claim its assurance, named by its digest ("sha256-<base64>",
	// Subresource Integrity).
	Credential string `json:"credential"`
	// ExpiresAt is the earliest expiry of the credentials that the claim rests on.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}
