package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Provider is an organisation that runs member clusters. Member clusters name it
// in spec.provider.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=DID,type=string,JSONPath=`.spec.did`
type Provider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ProviderSpec   `json:"spec"`
	Status ProviderStatus `json:"status,omitempty"`
}

// ProviderList is a list of providers.
// +kubebuilder:object:root=true
type ProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Provider `json:"items"`
}

// ProviderSpec identifies the provider.
type ProviderSpec struct {
	Identified `json:",inline"`
	// TokensRevoked counts how often the provider's tokens for the market were revoked. A change of it, or of any
	// other field of the spec, ends all tokens that were issued before.
	// +kubebuilder:validation:Minimum=0
	TokensRevoked int64 `json:"tokensRevoked,omitempty"`
	// Joins lets the provider add clusters itself, by invitations of its own. Absent means that only operators
	// add clusters.
	Joins *ProviderJoins `json:"joins,omitempty"`
}

// ProviderJoins says which clusters a provider may add itself.
// +kubebuilder:validation:XValidation:rule="!has(self.types) || (has(self.proven) && self.proven)",message="types of credentials are required of clusters that have to be proven"
type ProviderJoins struct {
	// AtMost is the number of clusters that the provider may have, those that operators have added and open
	// invitations included.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	AtMost int32 `json:"atMost"`
	// Proven means that nothing is placed on a cluster that joins until the provider has proven which offering
	// it is.
	Proven bool `json:"proven,omitempty"`
	// Types of credentials that are then required in addition, for instance LabelCredential.
	// +kubebuilder:validation:MaxItems=32
	Types []string `json:"types,omitempty"`
}

// ProviderStatus is the state that Sluice stores about a provider.
type ProviderStatus struct {
	// UsedNonces are the nonces that the provider's presentations have used. Each nonce may be used
	// once; it is kept here until it expires.
	// +kubebuilder:validation:MaxItems=128
	UsedNonces []UsedNonce `json:"usedNonces,omitempty"`
	// Invitations of clusters that the provider has made. Each may be used once; it is kept here until it
	// expires or is withdrawn.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=cluster
	Invitations []ClusterInvitation `json:"invitations,omitempty"`
}

// MaxInvitations is the greatest number of invitations of one provider, used ones included, that are kept at once.
const MaxInvitations = 64

// ClusterInvitation lets the owner of a cluster make it a member cluster of a provider.
type ClusterInvitation struct {
	// Cluster is the name that the cluster gets.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`
	// ID of the invitation's token.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// ExpiresAt is its expiry.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// UID of the cluster that joins by it, once it has answered: no other cluster may.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
	// Used means that a cluster has joined by it.
	Used bool `json:"used,omitempty"`
	// Terms with which the cluster joins.
	Terms ClusterTerms `json:"terms,omitempty"`
}

// ClusterTerms describe a cluster that joins.
type ClusterTerms struct {
	// Region the cluster is in.
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Zone within the region.
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Tier of the cluster; absent means cloud.
	Tier Tier `json:"tier,omitempty"`
	// Offering is the subject id of the credential that describes the cluster as a service offering, which the
	// provider has to prove before anything is placed there.
	// +kubebuilder:validation:MaxLength=2048
	Offering string `json:"offering,omitempty"`
	// Sell limits how much of the cluster is sold; absent means all of it.
	Sell *Sale `json:"sell,omitempty"`
	// Prices of reservations on the cluster.
	Prices *PriceList `json:"prices,omitempty"`
}

// MaxUsedNonces is the greatest number of presentations that one provider may make within
// the lifetime of a nonce, ten minutes.
const MaxUsedNonces = 128

// UsedNonce is a nonce that a presentation has used, or a ticket that was used.
type UsedNonce struct {
	// ID of the nonce or the ticket.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// ExpiresAt is its expiry.
	ExpiresAt metav1.Time `json:"expiresAt"`
}

// Identified is an organisation that signs credentials.
type Identified struct {
	// DID of the organisation. The DID document of a did:web is fetched only from the host that the
	// DID names, and not at all if Keys are given.
	// +kubebuilder:validation:Pattern=`^did:(web|key):[A-Za-z0-9._:%-]+$`
	// +kubebuilder:validation:MaxLength=512
	DID string `json:"did"`
	// Keys is a JSON Web Key Set (RFC 7517) of public keys whose "kid" are DID URLs. If it is
	// given, nothing is fetched and no other key counts.
	// +kubebuilder:pruning:PreserveUnknownFields
	Keys *runtime.RawExtension `json:"keys,omitempty"`
}

// TrustedIssuer is an organisation that Sluice's operator trusts to issue certain types of
// credentials: a notary, a compliance service, a certification body.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name=DID,type=string,JSONPath=`.spec.did`
// +kubebuilder:printcolumn:name=Assurance,type=string,JSONPath=`.spec.assurance`
type TrustedIssuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TrustedIssuerSpec `json:"spec"`
}

// TrustedIssuerList is a list of trusted issuers.
// +kubebuilder:object:root=true
type TrustedIssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TrustedIssuer `json:"items"`
}

// TrustedIssuerSpec states what the issuer is trusted with.
type TrustedIssuerSpec struct {
	Identified `json:",inline"`
	// Types of credentials that it may issue, without prefix, for instance VatID.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Types []string `json:"types"`
	// Assurance of the claims in its credentials.
	// +kubebuilder:validation:XValidation:rule="self in ['notary', 'label', 'certified']",message="an issuer is trusted as notary, label or certified"
	Assurance Assurance `json:"assurance"`
}

// Identity holds the keys with which the broker signs. There is one, named IdentityName.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=DID,type=string,JSONPath=`.spec.did`
type Identity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IdentitySpec   `json:"spec"`
	Status IdentityStatus `json:"status,omitempty"`
}

// IdentityName is the name of the one Identity.
const IdentityName = "broker"

// IdentityList is a list of identities.
// +kubebuilder:object:root=true
type IdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Identity `json:"items"`
}

// IdentitySpec holds the broker's DID and keys.
type IdentitySpec struct {
	// DID of the broker: did:web of its public name. Empty if it has none; its keys then sign tokens only.
	DID string `json:"did"`
	// Rotated is the value that the annotation had at the last requested rotation.
	Rotated string `json:"rotated,omitempty"`
	// Keys, newest first. The first one signs; the others stay published until PublishedUntil.
	// +kubebuilder:validation:MaxItems=16
	Keys []IdentityKey `json:"keys,omitempty"`
	// TokensRevoked counts how often the operators' tokens were revoked. A change of it ends all tokens of
	// operators, and all tickets, that were issued before.
	// +kubebuilder:validation:Minimum=0
	TokensRevoked int64 `json:"tokensRevoked,omitempty"`
}

// IdentityStatus is the state that Sluice stores about what its keys signed.
type IdentityStatus struct {
	// UsedTickets are the tickets for sessions that were exchanged. Each ticket may be used once; it is kept here
	// until it expires.
	// +kubebuilder:validation:MaxItems=128
	UsedTickets []UsedNonce `json:"usedTickets,omitempty"`
}

// IdentityKey is one key of the broker.
type IdentityKey struct {
	// ID is the fragment of the key's DID URL.
	ID string `json:"id"`
	// Public is the public JSON Web Key.
	// +kubebuilder:pruning:PreserveUnknownFields
	Public runtime.RawExtension `json:"public"`
	// SealedPrivate is the private JSON Web Key, sealed with the hub's keyset.
	SealedPrivate []byte `json:"sealedPrivate,omitempty"`
	// CreatedAt is the time at which the key was made.
	CreatedAt metav1.Time `json:"createdAt"`
	// PublishedUntil is the expiry of the last credential or token signed with the key; absent while the
	// key signs.
	PublishedUntil *metav1.Time `json:"publishedUntil,omitempty"`
}
