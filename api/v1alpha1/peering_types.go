package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Peering keeps two member clusters peered by Liqo: the consumer uses what the provider
// offers. Its name is PeeringName(consumer, provider). Sluice creates it when an instance
// needs it, or an operator does. Deleting it removes the objects that it created on both sides.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Consumer,type=string,JSONPath=`.spec.consumer`
// +kubebuilder:printcolumn:name=Provider,type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type Peering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PeeringSpec   `json:"spec"`
	Status PeeringStatus `json:"status,omitempty"`
}

// PeeringList is a list of peerings.
// +kubebuilder:object:root=true
type PeeringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Peering `json:"items"`
}

// PeeringSpec names the two clusters and what the peering is for.
// +kubebuilder:validation:XValidation:rule="self.consumer != self.provider",message="a cluster is not peered with itself"
type PeeringSpec struct {
	// Consumer is the member cluster that uses what the provider offers.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="consumer is immutable"
	Consumer string `json:"consumer"`
	// Provider is the member cluster that offers capacity or a network.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="provider is immutable"
	Provider string `json:"provider"`
	// Modules of Liqo that the peering uses. Offloading needs authentication.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:XValidation:rule="!('offloading' in self) || 'authentication' in self",message="the module offloading needs the module authentication"
	// +listType=set
	Modules []LiqoModule `json:"modules"`
	// Kept peerings, which operators create, stay when no instance needs them.
	Kept bool `json:"kept,omitempty"`
	// Invited is the cluster that joins by invitation; its owner makes its side of the peering. It
	// becomes a member cluster only when its owner has answered.
	Invited *InvitedCluster `json:"invited,omitempty"`
}

// InvitedCluster is a cluster that joins by invitation.
type InvitedCluster struct {
	// Role of the cluster in the peering.
	Role PeeringSide `json:"role"`
	// ClusterID of the cluster in Liqo.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
}

// PeeringSide is one of the two clusters of a peering.
// +kubebuilder:validation:Enum=Consumer;Provider
type PeeringSide string

// Sides of a peering.
const (
	SideConsumer PeeringSide = "Consumer"
	SideProvider PeeringSide = "Provider"
)

// IsInvited reports whether the cluster on a side joins by invitation.
func (p *Peering) IsInvited(side PeeringSide) bool {
	return p.Spec.Invited != nil && p.Spec.Invited.Role == side
}

// GatewayAddress is the address of a Liqo gateway, and the key with which it proves its
// identity.
type GatewayAddress struct {
	// Addresses and Port of the gateway (UDP).
	Addresses []string `json:"addresses"`
	Port      int32    `json:"port"`
	// PublicKey of the gateway.
	PublicKey []byte `json:"publicKey"`
}

// PeeringStatus is the progress of a peering.
type PeeringStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Networked, Authenticated, Ready. A message names the cluster and the object that
	// the peering waits for, and a remedy if there is one.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Consumer and Provider are the two clusters as their Liqo reports them. Objects on each side
	// are named after the ClusterID of the other side.
	Consumer *LiqoNetwork `json:"consumer,omitempty"`
	Provider *LiqoNetwork `json:"provider,omitempty"`
	// HubID is the ID of Sluice's hub, the label of all objects that the peering creates on both
	// sides.
	HubID string `json:"hubID,omitempty"`
	// Gateway is the gateway of the inviting cluster, to which the invited cluster connects.
	Gateway *GatewayAddress `json:"gateway,omitempty"`
	// Nonce of the provider's Liqo that an invited consumer signs.
	Nonce []byte `json:"nonce,omitempty"`
	// IdentityExpiresAt is the expiry of the identity with which the consumer asks the provider for
	// resources. Sluice renews it long before. Absent if a joined provider gave an identity without
	// expiry.
	IdentityExpiresAt *metav1.Time `json:"identityExpiresAt,omitempty"`
	// Events of the peering, the latest ones; the peering's Journal has those before them.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Events []Event `json:"events,omitempty"`
}
