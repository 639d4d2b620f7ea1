package v1alpha1

import (
	"encoding/hex"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SelfDescription is a verifiable credential as Sluice received or issued it, and
// the report of its verification. Its name is SelfDescriptionName(digest), so that
// the same credential is stored once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sd
// +kubebuilder:printcolumn:name=Type,type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name=Issuer,type=string,JSONPath=`.status.issuer`
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name=Until,type=string,JSONPath=`.status.validUntil`
type SelfDescription struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SelfDescriptionSpec   `json:"spec"`
	Status SelfDescriptionStatus `json:"status,omitempty"`
}

// SelfDescriptionList is a list of self-descriptions.
// +kubebuilder:object:root=true
type SelfDescriptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SelfDescription `json:"items"`
}

// SelfDescriptionSpec is the credential.
type SelfDescriptionSpec struct {
	// Credential is a VC-JWT in compact serialisation or, with Legacy, a JSON-LD document.
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a credential is immutable"
	Credential string `json:"credential"`
	// Legacy marks a credential with a JSON-LD proof that an operator imported.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="legacy is immutable"
	Legacy bool `json:"legacy,omitempty"`
	// KeyID is the DID URL of the key that signed a Legacy credential, if its proof names only the
	// issuer's DID. It must be a key of the issuer.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="keyID is immutable"
	KeyID string `json:"keyID,omitempty"`
	// Who presented the credential. What a consumer presents is not in the catalogue of self-descriptions.
	Presenter `json:",inline"`
	// Revoked withdraws the credential here, even if its issuer does not; RevokedBecause gives the
	// reason.
	Revoked bool `json:"revoked,omitempty"`
	// RevokedBecause is the reason given with the revocation.
	// +kubebuilder:validation:MaxLength=1024
	RevokedBecause string `json:"revokedBecause,omitempty"`
	// Evidence of a measurement that Sluice issued: the bytes that evidenceDigest is a digest of.
	// +kubebuilder:validation:MaxLength=262144
	Evidence string `json:"evidence,omitempty"`
}

// CredentialState is the state of a self-description.
// +kubebuilder:validation:Enum=pending;verified;rejected;expired;revoked;suspended
type CredentialState string

// Credential states.
const (
	CredentialPending   CredentialState = "pending" // not verified yet
	CredentialVerified  CredentialState = "verified"
	CredentialRejected  CredentialState = "rejected" // the report names the step
	CredentialExpired   CredentialState = "expired"
	CredentialRevoked   CredentialState = "revoked"
	CredentialSuspended CredentialState = "suspended" // by its status list; the credential may become valid again
)

// SelfDescriptionStatus is the result of the credential's verification. While the
// credential is verified again, the last result stays.
type SelfDescriptionStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready is True while the state is verified.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// State of the credential.
	State CredentialState `json:"state,omitempty"`
	// Type of the credential's subject without prefix, for instance ComputeServiceOffering.
	Type string `json:"type,omitempty"`
	// ID of the credential, if it has one.
	ID string `json:"id,omitempty"`
	// Subject is the id of the credential's subject.
	Subject string `json:"subject,omitempty"`
	// Issuer of the credential, a DID.
	Issuer string `json:"issuer,omitempty"`
	// ValidFrom and ValidUntil are the credential's validity.
	ValidFrom  *metav1.Time `json:"validFrom,omitempty"`
	ValidUntil *metav1.Time `json:"validUntil,omitempty"`
	// Countries that the credential names, as ISO 3166-1 alpha-2.
	Countries []string `json:"countries,omitempty"`
	// LabelLevel of a label credential: SC, L1, L2 or L3.
	LabelLevel string `json:"labelLevel,omitempty"`
	// Certification of a certification credential.
	Certification string `json:"certification,omitempty"`
	// VerifiedAt is the time of the last successful verification. A failed verification clears it,
	// unless the only failure is that the credential has expired.
	VerifiedAt *metav1.Time `json:"verifiedAt,omitempty"`
	// Report has one entry per step, in order.
	Report []VerificationStep `json:"report,omitempty"`
}

// StepResult is the result of one step of a verification.
// +kubebuilder:validation:Enum=passed;failed;skipped
type StepResult string

// Step results.
const (
	StepPassed  StepResult = "passed"
	StepFailed  StepResult = "failed"
	StepSkipped StepResult = "skipped" // does not apply, or an earlier step failed
)

// VerificationStep is one step of a verification.
type VerificationStep struct {
	// Step, for instance signature.
	Step string `json:"step"`
	// Result of the step.
	Result StepResult `json:"result"`
	// Message names what was checked, or what failed: path, rule and value.
	Message string `json:"message,omitempty"`
}

// presentedKept is how long a credential that was presented is kept after its end: the longest grace that a member
// cluster can give (TrustRequirements), and 30 days in which people can still read why something has changed.
const presentedKept = 2 * 30 * 24 * time.Hour

// IsPresented reports whether a provider or a consumer has presented the credential. The others are the broker's own, its
// measurements among them, and those that the operator has imported.
func (s *SelfDescription) IsPresented() bool {
	return s.Spec.Presenter != Presenter{} && !s.Spec.Legacy && s.Labels[LabelCluster] == ""
}

// IsMeasured reports whether the credential is the broker's measurement of a cluster. One that an earlier version stored does not
// say which cluster had the name.
func (s *SelfDescription) IsMeasured(cluster *MemberCluster) bool {
	uid, known := s.Labels[LabelClusterUID]
	return s.Labels[LabelCluster] == cluster.Name && (!known || uid == cluster.Status.UID)
}

// RemovedAt returns when the credential is to be removed from the hub; zero means never. That is so until its end is known,
// for one without an end, and for one that nobody has presented.
func (s *SelfDescription) RemovedAt() (at time.Time) {
	if s.IsPresented() && s.Status.ValidUntil != nil {
		at = s.Status.ValidUntil.Add(presentedKept)
	}
	return at
}

// SelfDescriptionName returns the name of the SelfDescription for a credential with the
// given SHA-256 digest.
func SelfDescriptionName(digest [32]byte) string { return "sd-" + hex.EncodeToString(digest[:]) }
