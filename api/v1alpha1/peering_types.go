package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Peering keeps two member clusters peered by Liqo, one of which consumes what the other
// provides. Its name is PeeringName(consumer, provider). It is made when an instance needs
// it, or by an operator, and what it has made on both sides goes with it.
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

// PeeringSpec says who is peered, and for what.
// +kubebuilder:validation:XValidation:rule="self.consumer != self.provider",message="a cluster is not peered with itself"
type PeeringSpec struct {
	// Consumer is the member cluster that uses what the other one provides.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="consumer is immutable"
	Consumer string `json:"consumer"`
	// Provider is the member cluster that provides.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="provider is immutable"
	Provider string `json:"provider"`
	// Modules of Liqo that are used. Offloading needs authentication.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:XValidation:rule="!('offloading' in self) || 'authentication' in self",message="the module offloading needs the module authentication"
	// +listType=set
	Modules []LiqoModule `json:"modules"`
	// Kept peerings stay when no instance needs them: those of operators.
	Kept bool `json:"kept,omitempty"`
	// Invited is the one of the two whose owner is invited to make that side of the peering: until
	// it has answered, there is no such member cluster.
	Invited *InvitedCluster `json:"invited,omitempty"`
}

// InvitedCluster is one that joins by invitation.
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

// IsInvited tells whether the cluster on a side is one that joins by invitation.
func (p *Peering) IsInvited(side PeeringSide) bool {
	return p.Spec.Invited != nil && p.Spec.Invited.Role == side
}

// GatewayAddress is where a gateway of Liqo is called, and the key that it proves itself by.
type GatewayAddress struct {
	// Addresses and Port of the gateway (UDP).
	Addresses []string `json:"addresses"`
	Port      int32    `json:"port"`
	// PublicKey of the gateway.
	PublicKey []byte `json:"publicKey"`
}

// PeeringStatus says how far the peering has come.
type PeeringStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Networked, Authenticated, Ready. Their messages name the cluster and the
	// object that something waits for, and the remedy where there is one.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Consumer and Provider are what Liqo said of the two; the objects on each side are named
	// after the other's ClusterID.
	Consumer *LiqoNetwork `json:"consumer,omitempty"`
	Provider *LiqoNetwork `json:"provider,omitempty"`
	// HubID is the ID of Sluice's hub, which labels what is made on both sides.
	HubID string `json:"hubID,omitempty"`
	// Gateway is where the invited cluster calls the gateway of the one that invites.
	Gateway *GatewayAddress `json:"gateway,omitempty"`
	// Nonce of the provider's Liqo, which an invited consumer signs.
	Nonce []byte `json:"nonce,omitempty"`
	// IdentityExpiresAt is when the identity ends by which the consumer asks the provider for
	// resources; it is renewed long before. None where a joined provider has given one that lasts.
	IdentityExpiresAt *metav1.Time `json:"identityExpiresAt,omitempty"`
}
