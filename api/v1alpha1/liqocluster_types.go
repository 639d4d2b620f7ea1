package v1alpha1

import corev1 "k8s.io/api/core/v1"

// LiqoCluster configures a cluster's part in Liqo's peerings.
type LiqoCluster struct {
	// Namespace that Liqo is installed in.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=liqo
	Namespace string `json:"namespace,omitempty"`
	// Modules that peerings with this cluster may use. Both clusters of a peering must have every
	// module that the peering needs.
	// +kubebuilder:default={networking,authentication,offloading}
	// +listType=set
	Modules []LiqoModule `json:"modules,omitempty"`
	// GatewayService is the type of Service by which gateways of other clusters reach this
	// cluster's gateways.
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort
	// +kubebuilder:default=LoadBalancer
	GatewayService corev1.ServiceType `json:"gatewayService,omitempty"`
	// Hub lets consumers reach other clusters through this one, if their plan asks for it.
	Hub bool `json:"hub,omitempty"`
	// Joined is the answer of the cluster's owner to an invitation; the owner made this side of the
	// peering. On such a cluster Sluice may only accept or deny a provider's resource slices, or
	// request slices for a consumer.
	Joined *JoinedPeering `json:"joined,omitempty"`
}

// LiqoModule is a part of Liqo.
// +kubebuilder:validation:Enum=networking;authentication;offloading
type LiqoModule string

// Modules of Liqo.
const (
	ModuleNetworking     LiqoModule = "networking"
	ModuleAuthentication LiqoModule = "authentication"
	ModuleOffloading     LiqoModule = "offloading"
)

// JoinedPeering is the answer of a cluster's owner to an invitation.
type JoinedPeering struct {
	// With is the name of the member cluster that sent the invitation.
	With string `json:"with"`
	// PublicKey of the joined cluster's gateway.
	PublicKey []byte `json:"publicKey"`
	// Network of the cluster.
	Network LiqoNetwork `json:"network"`
	// Identity is the kubeconfig with which the inviting cluster asks a joined provider for
	// resources.
	Identity *ClusterAccess `json:"identity,omitempty"`
	// Handshake is the proof of a joined consumer that may ask for resources.
	Handshake *LiqoHandshake `json:"handshake,omitempty"`
}

// LiqoHandshake proves to a provider's Liqo which key belongs to the consumer. Only the
// consumer's Liqo has the private key.
type LiqoHandshake struct {
	// PublicKey of the consumer, PEM.
	PublicKey []byte `json:"publicKey"`
	// Signature of the provider's nonce with the consumer's key.
	Signature []byte `json:"signature"`
	// CSR is the certificate signing request of the consumer's control plane, PEM.
	CSR []byte `json:"csr"`
}

// LiqoNetwork is a cluster's identity in Liqo, and its address ranges.
type LiqoNetwork struct {
	// ClusterID of the cluster in Liqo.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// PodCIDRs of the cluster; empty without the module networking.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ExternalCIDR of the cluster. Liqo takes addresses from it for endpoints that have no address
	// that the cluster's peers can reach.
	ExternalCIDR string `json:"externalCIDR,omitempty"`
}
