package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that every member cluster carries for selectors, beside its own.
const (
	LabelRegion   = corev1.LabelTopologyRegion
	LabelZone     = corev1.LabelTopologyZone
	LabelTier     = "sluice.dev/tier"
	LabelProvider = "sluice.dev/provider"
	LabelCluster  = "sluice.dev/cluster"
)

// Taints that Sluice itself puts on member clusters.
const (
	// TaintUnreachable (NoExecute) is on a cluster from when its API server no longer
	// answers until it does again. Instances stay for UnreachableSeconds unless their plan
	// tolerates it otherwise.
	TaintUnreachable = "sluice.dev/unreachable"
	// TaintDrain (NoExecute) empties a cluster: `sluice cluster drain` puts it there.
	TaintDrain = "sluice.dev/drain"
)

// UnreachableSeconds is how long instances stay on a cluster that does not answer,
// unless their plan tolerates TaintUnreachable otherwise; the same as Kubernetes'
// DefaultTolerationSeconds.
const UnreachableSeconds = 300

// Tier says how far a member cluster is from its users.
// +kubebuilder:validation:Enum=cloud;edge
type Tier string

// Tiers.
const (
	TierCloud Tier = "cloud"
	TierEdge  Tier = "edge"
)

// Drivers.
const (
	// DriverKube delivers instances straight to a member cluster's API server.
	DriverKube = "kube"
	// DriverCAPI makes clusters by Cluster API, whose management cluster the cluster is.
	DriverCAPI = "capi"
	// DriverLiqo delivers as DriverKube does and, where a plan asks for it, to the consumer's own
	// cluster, with which Liqo peers the cluster.
	DriverLiqo = "liqo"
)

// MemberCluster is a cluster in the inventory, however it got there. Its labels
// are what selectors match.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mc
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Region,type=string,JSONPath=`.spec.region`
// +kubebuilder:printcolumn:name=Tier,type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name=Nodes,type=integer,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name=CPU,type=string,JSONPath=`.status.allocatable.cpu`
// +kubebuilder:printcolumn:name=Memory,type=string,JSONPath=`.status.allocatable.memory`
type MemberCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MemberClusterSpec   `json:"spec"`
	Status MemberClusterStatus `json:"status,omitempty"`
}

// MemberClusterList is a list of member clusters.
// +kubebuilder:object:root=true
type MemberClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MemberCluster `json:"items"`
}

// MemberClusterSpec says how to reach a member cluster and what the operator and
// its provider declare about it.
// +kubebuilder:validation:XValidation:rule="(has(self.driver) && self.driver == 'capi') == has(self.capacity)",message="a cluster with the driver capi, and no other, has a capacity"
// +kubebuilder:validation:XValidation:rule="!has(self.capacity) || !has(self.sell)",message="a cluster with the driver capi says in capacity what it sells"
// +kubebuilder:validation:XValidation:rule="(has(self.driver) && self.driver == 'liqo') || !(has(self.liqo) || has(self.consumers))",message="only a cluster with the driver liqo has the sections liqo and consumers"
type MemberClusterSpec struct {
	// Driver that delivers instances to this cluster.
	// +kubebuilder:validation:Enum=kube;capi;liqo
	// +kubebuilder:default=kube
	Driver string `json:"driver,omitempty"`
	// Capacity is what a management cluster (driver capi) may make: clusters
	// (sluice.dev/clusters) and whatever their machines take. Other clusters' nodes say it.
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Liqo says how the cluster takes part in peerings, with the driver liqo.
	Liqo *LiqoCluster `json:"liqo,omitempty"`
	// Consumers whose own cluster this is, with the driver liqo: nothing is placed there, and
	// only they may have what they buy delivered to it.
	// +kubebuilder:validation:MaxItems=64
	Consumers []ConsumerReference `json:"consumers,omitempty"`
	// Access to the cluster's API server.
	Access ClusterAccess `json:"access"`
	// ConsumerServer is the URL at which consumers reach the API server, where it
	// differs from the one in Access (for instance a public name).
	// +kubebuilder:validation:Pattern=`^https://`
	ConsumerServer string `json:"consumerServer,omitempty"`
	// Provider is the organisation that runs the cluster.
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`
	// Region the cluster is in.
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Zone within the region.
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Tier of the cluster.
	// +kubebuilder:default=cloud
	Tier Tier `json:"tier,omitempty"`
	// Unschedulable cordons the cluster: it takes no new placements; instances on it stay.
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Taints repel requests that do not tolerate them. NoSchedule and NoExecute
	// refuse new placements; PreferNoSchedule only lowers the score. NoExecute also drives
	// instances away, after the tolerationSeconds of their plan from timeAdded on.
	// +kubebuilder:validation:MaxItems=32
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Location of the cluster.
	Location *Location `json:"location,omitempty"`
	// Latencies from elsewhere, as whoever measures there reports them.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=from
	Latencies []MeasuredLatency `json:"latencies,omitempty"`
	// Oversubscription is by how much the provider sells more of a resource than there is,
	// for instance cpu: "1.5"; at least 1.
	Oversubscription map[corev1.ResourceName]resource.Quantity `json:"oversubscription,omitempty"`
	// Sell bounds what is sold of the cluster; the rest is held back. None means all of it.
	Sell *Sale `json:"sell,omitempty"`
	// Prices of what is reserved on this cluster.
	Prices *PriceList `json:"prices,omitempty"`
	// Trust, where it is set, keeps the cluster out of new placements until its provider
	// has proven what it is.
	Trust *TrustRequirements `json:"trust,omitempty"`
}

// Sale bounds what is reserved on a cluster for instances, all together. What others use there
// takes of what is held back first.
// +kubebuilder:validation:XValidation:rule="has(self.share) || has(self.atMost)",message="a sale has a share or atMost"
type Sale struct {
	// Share of what the cluster has of each resource, in percent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Share int32 `json:"share,omitempty"`
	// AtMost of a resource, for instance cpu: "10"; zero sells none of it.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	AtMost corev1.ResourceList `json:"atMost,omitempty"`
}

// LiqoCluster says how a cluster takes part in Liqo's peerings.
type LiqoCluster struct {
	// Namespace that Liqo is installed in.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=liqo
	Namespace string `json:"namespace,omitempty"`
	// Modules that peerings with this cluster may use; what a peering needs, both sides must have.
	// +kubebuilder:default={networking,authentication,offloading}
	// +listType=set
	Modules []LiqoModule `json:"modules,omitempty"`
	// GatewayService is how gateways of other clusters reach those of this one.
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort
	// +kubebuilder:default=LoadBalancer
	GatewayService corev1.ServiceType `json:"gatewayService,omitempty"`
	// Hub lets consumers reach other clusters through this one, where their plan asks for it.
	Hub bool `json:"hub,omitempty"`
	// Joined is what the cluster's owner has answered to an invitation, who has made that side of
	// the peering. There Sluice may only judge what is asked of a provider, or ask for a consumer.
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
	// With is the member cluster that has invited.
	With string `json:"with"`
	// PublicKey of the gateway there.
	PublicKey []byte `json:"publicKey"`
	// Network of the cluster.
	Network LiqoNetwork `json:"network"`
	// Identity is the kubeconfig by which the inviting cluster asks a provider for resources.
	Identity *ClusterAccess `json:"identity,omitempty"`
	// Handshake is a consumer's, where it may ask for resources.
	Handshake *LiqoHandshake `json:"handshake,omitempty"`
}

// LiqoHandshake is how a consumer proves to the Liqo of a provider which key is its own. Only
// Liqo has that key.
type LiqoHandshake struct {
	// PublicKey, PEM.
	PublicKey []byte `json:"publicKey"`
	// Signature of the provider's nonce.
	Signature []byte `json:"signature"`
	// CSR is the certificate signing request of the consumer's control plane, PEM.
	CSR []byte `json:"csr"`
}

// LiqoNetwork is who a cluster is to Liqo, and its address ranges.
type LiqoNetwork struct {
	// ClusterID of the cluster in Liqo.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID"`
	// PodCIDRs of the cluster, none without the module networking.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ExternalCIDR of the cluster, from which addresses are taken for what has none that its
	// peers could reach.
	ExternalCIDR string `json:"externalCIDR,omitempty"`
}

// ConsumerReference are consumers: all of a platform, of an organization or of a space of it.
type ConsumerReference struct {
	// Platform of the consumer.
	// +kubebuilder:validation:MinLength=1
	Platform string `json:"platform"`
	// Organization of the consumer; none means all of the platform.
	Organization string `json:"organization,omitempty"`
	// Space of the consumer; none means all of the organization.
	Space string `json:"space,omitempty"`
}

// MeasuredLatency is a round-trip time to the cluster's API server.
type MeasuredLatency struct {
	// From is the vantage, for instance the name of a consumer's cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	From string `json:"from"`
	// Median of the measurements.
	Median metav1.Duration `json:"median"`
	// MeasuredAt is when the last of them was made.
	MeasuredAt metav1.Time `json:"measuredAt"`
}

// TrustRequirements say what a provider must prove of a member cluster.
type TrustRequirements struct {
	// Offering is the subject id of the credential that describes the cluster as a service
	// offering (ComputeServiceOffering).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Offering string `json:"offering"`
	// Types of credentials that must be there beside LegalPerson, the offering and its
	// ClusterBinding, for instance LabelCredential.
	// +kubebuilder:validation:MaxItems=32
	Types []string `json:"types,omitempty"`
	// GraceSeconds during which claims count on after their credentials end.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
}

// ClusterAccess is a kubeconfig, sealed by Sluice or held in a Secret: exactly one
// of the two. (A CEL rule cannot say so: API servers read the bytes that it looks
// at as URL-safe base64, which JSON does not use.)
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type ClusterAccess struct {
	// SealedKubeconfig is a kubeconfig sealed with the hub's keyset; `sluice cluster add` writes it.
	SealedKubeconfig []byte `json:"sealedKubeconfig,omitempty"`
	// SecretRef names a Secret in the same namespace, on hubs that have Secrets.
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
}

// SecretKeyReference selects one key of a Secret in the same namespace.
type SecretKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Key within the Secret.
	// +kubebuilder:default=kubeconfig
	Key string `json:"key,omitempty"`
}

// PriceList says what one unit of each resource costs per hour on a cluster.
type PriceList struct {
	// Currency as an ISO 4217 code; placement compares prices of one currency only.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// PerHour is the price of one unit for one hour: a core for cpu, a GiB for memory,
	// ephemeral-storage and storage classes, one piece for anything else.
	PerHour map[corev1.ResourceName]resource.Quantity `json:"perHour"`
}

// MemberClusterStatus is what Sluice observes of a member cluster.
type MemberClusterStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Reachable, AccessVerified, Admitted (where spec.trust is set), Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Server is the URL of the API server as Sluice reaches it.
	Server string `json:"server,omitempty"`
	// UID identifies the cluster: the UID of its kube-system namespace.
	UID string `json:"uid,omitempty"`
	// KeyHash identifies the API server: "sha256-<base64>" of its certificate's
	// SubjectPublicKeyInfo (RFC 7469).
	KeyHash string `json:"keyHash,omitempty"`
	// KubernetesVersion of the API server.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Nodes that are ready and schedulable.
	Nodes int32 `json:"nodes,omitempty"`
	// Capacity is the sum over those nodes.
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is the sum over those nodes.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// ForeignUse is what pods request that belong to no instance of this hub.
	ForeignUse corev1.ResourceList `json:"foreignUse,omitempty"`
	// StorageClasses of the cluster.
	StorageClasses []string `json:"storageClasses,omitempty"`
	// Latency of the API server as probed by Sluice: median of the recent probes.
	Latency *metav1.Duration `json:"latency,omitempty"`
	// Claims about the cluster and its provider, of verified credentials only; sorted by
	// name, value and assurance.
	// +kubebuilder:validation:MaxItems=256
	Claims []Claim `json:"claims,omitempty"`
	// Admission is the report of the last look at the cluster's credentials, where spec.trust is set.
	Admission []VerificationStep `json:"admission,omitempty"`
}
