package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that every member cluster carries for selectors, besides its own.
const (
	LabelRegion   = corev1.LabelTopologyRegion
	LabelZone     = corev1.LabelTopologyZone
	LabelTier     = "sluice.dev/tier"
	LabelProvider = "sluice.dev/provider"
	LabelCluster  = "sluice.dev/cluster"
)

// LabelPeer is on virtual nodes: PeerMark of the cluster that the node stands for.
const LabelPeer = "sluice.dev/peer"

// LabelClusterUID is on a measurement beside LabelCluster: the MemberCluster status.uid of the cluster that was measured. Another
// cluster may get the name later.
const LabelClusterUID = "sluice.dev/cluster-uid"

// Taints that Sluice itself puts on member clusters.
const (
	// TaintUnreachable (NoExecute) is on a cluster while its API server does not answer. Instances
	// stay there for UnreachableSeconds, unless their plan has a toleration with another duration.
	TaintUnreachable = "sluice.dev/unreachable"
	// TaintDrain (NoExecute) empties a cluster; `sluice cluster drain` sets it.
	TaintDrain = "sluice.dev/drain"
)

// TaintPool (NoSchedule), with the name of a pool as its value, is on a cluster that only this pool sells. The operator sets
// it, and the pool's own orders tolerate it.
const TaintPool = "sluice.dev/pool"

// IsDrain reports whether a taint empties its cluster.
func IsDrain(taint corev1.Taint) bool { return taint.Key == TaintDrain }

// IsDraining reports whether the cluster is to be emptied.
func (c *MemberCluster) IsDraining() bool { return slices.ContainsFunc(c.Spec.Taints, IsDrain) }

// UnreachableSeconds is how long instances stay on a cluster that does not answer, unless
// their plan tolerates TaintUnreachable for another duration. It equals Kubernetes'
// DefaultTolerationSeconds.
const UnreachableSeconds = 300

// Tier is a member cluster's distance from its users: cloud or edge.
// +kubebuilder:validation:Enum=cloud;edge
type Tier string

// Tiers.
const (
	TierCloud Tier = "cloud"
	TierEdge  Tier = "edge"
)

// Drivers.
const (
	// DriverKube delivers instances directly to a member cluster's API server.
	DriverKube = "kube"
	// DriverCAPI creates clusters with Cluster API; the member cluster is its management cluster.
	DriverCAPI = "capi"
	// DriverOSB orders instances from another broker, which the member cluster then stands for.
	DriverOSB = "osb"
	// DriverLiqo delivers like DriverKube. If a plan asks for it, it also delivers to the
	// consumer's own cluster, which Liqo peers with the member cluster.
	DriverLiqo = "liqo"
	// DriverPool places instances on several member clusters, for which the member cluster then stands.
	DriverPool = "pool"
)

// MemberCluster is a cluster in the inventory, however it got there, or what stands for one: with the driver osb another
// broker, with the driver pool several member clusters that are sold as one.
// Selectors match its labels.
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

// MemberClusterSpec holds the access to a member cluster, and what the operator and the
// provider declare about it.
// +kubebuilder:validation:XValidation:rule="!has(self.driver) || self.driver != 'capi' || has(self.capacity)",message="a cluster with the driver capi has a capacity"
// +kubebuilder:validation:XValidation:rule="!has(self.reader) || !(has(self.capacity) || has(self.consumers) || (has(self.driver) && self.driver in ['capi', 'osb', 'pool']))",message="a reader is for clusters that run instances and declare no capacity"
// +kubebuilder:validation:XValidation:rule="!has(self.capacity) || !has(self.consumers)",message="a consumer's own cluster sells nothing, and has no capacity to declare"
// +kubebuilder:validation:XValidation:rule="(has(self.driver) && self.driver == 'osb') == has(self.broker)",message="the section broker goes with the driver osb"
// +kubebuilder:validation:XValidation:rule="(has(self.driver) && self.driver == 'pool') == has(self.pool)",message="the section pool goes with the driver pool"
// +kubebuilder:validation:XValidation:rule="has(self.pool) != has(self.access)",message="a member cluster has an access, unless it is a pool"
// +kubebuilder:validation:XValidation:rule="!has(self.pool) || !(has(self.capacity) || has(self.trust))",message="a pool has what its members have, and they prove it: it declares no capacity, and has no trust"
// +kubebuilder:validation:XValidation:rule="!has(self.exposure) || !has(self.driver) || !(self.driver in ['capi', 'pool'])",message="a cluster with the driver capi or pool runs no workloads, and exposes none"
// +kubebuilder:validation:XValidation:rule="(has(self.driver) && self.driver == 'liqo') || !(has(self.liqo) || has(self.consumers))",message="only a cluster with the driver liqo has the sections liqo and consumers"
type MemberClusterSpec struct {
	// Driver that delivers instances to this cluster.
	// +kubebuilder:validation:Enum=kube;capi;liqo;osb;pool
	// +kubebuilder:default=kube
	Driver string `json:"driver,omitempty"`
	// Capacity declares by hand what the cluster has for instances of this hub. Its nodes are then not
	// read, and Sluice needs no right to them; resources that are not listed count as absent, and storage
	// classes are listed by the name of their quota (CLASS.storageclass.storage.k8s.io/requests.storage).
	// Absent means that it is read from the nodes. Of a management cluster (driver capi), it lists the
	// clusters (sluice.dev/clusters) that may be created, and the resources of their machines, and is
	// required; of a broker (driver osb), the instances (sluice.dev/instances) that may be ordered there,
	// as many as are wanted if it is absent.
	// +kubebuilder:validation:MaxProperties=64
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Reader is a server outside Sluice that reports what the cluster has, instead of its nodes. Sluice then
	// needs no right to them.
	Reader *ExternalReader `json:"reader,omitempty"`
	// Liqo configures the cluster's part in peerings, with the driver liqo.
	Liqo *LiqoCluster `json:"liqo,omitempty"`
	// Consumers that own this cluster, with the driver liqo. Nothing is placed on it, and only the
	// peered capacity that these consumers buy is delivered to it.
	// +kubebuilder:validation:MaxItems=64
	Consumers []ConsumerReference `json:"consumers,omitempty"`
	// Broker describes the broker that the member cluster stands for, with the driver osb.
	Broker *UpstreamBroker `json:"broker,omitempty"`
	// Pool describes the member clusters that the member cluster stands for, with the driver pool.
	Pool *ClusterPool `json:"pool,omitempty"`
	// Access to the cluster's API server, or to the broker; absent for a pool.
	// +optional
	Access ClusterAccess `json:"access,omitzero"`
	// Guarded means that the provider has added the cluster itself, and with it the address in Access. Sluice
	// reaches it at public addresses only, and in the ranges of the operator (sluice serve
	// --join-allow-addresses).
	Guarded bool `json:"guarded,omitempty"`
	// ConsumerServer is the URL at which consumers reach the API server, if it differs from the one
	// in Access (for instance a public name).
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
	// Unschedulable cordons the cluster: it takes no new placements; its instances stay.
	Unschedulable bool `json:"unschedulable,omitempty"`
	// Taints repel requests that do not tolerate them. NoSchedule and NoExecute refuse new
	// placements; PreferNoSchedule only lowers the score. NoExecute also drives instances away,
	// once the tolerationSeconds of their plan have passed since timeAdded.
	// +kubebuilder:validation:MaxItems=32
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Location of the cluster.
	Location *Location `json:"location,omitempty"`
	// Latencies to this cluster, measured and reported from other places.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=from
	Latencies []MeasuredLatency `json:"latencies,omitempty"`
	// Oversubscription is the factor by which the provider sells more of a resource than exists,
	// for instance cpu: "1.5"; at least 1.
	Oversubscription map[corev1.ResourceName]resource.Quantity `json:"oversubscription,omitempty"`
	// Sell limits how much of the cluster is sold; the rest is held back. Absent means all of it.
	Sell *Sale `json:"sell,omitempty"`
	// Prices of reservations on this cluster.
	// +kubebuilder:validation:XValidation:rule="self.perHour.all(name, type(self.perHour[name]) == string ? !self.perHour[name].startsWith('-') : self.perHour[name] >= 0)",message="no price is negative"
	Prices *PriceList `json:"prices,omitempty"`
	// Trust lists proofs without which the cluster gets no new placements. Absent means that no proof
	// is required.
	Trust *TrustRequirements `json:"trust,omitempty"`
	// Exposure is the way in for public ports of workloads. Instances that have any are placed only on
	// clusters with it.
	Exposure *ClusterExposure `json:"exposure,omitempty"`
}

// Sale limits the sum of all reservations for instances on a cluster, in this order: the share, the
// limits by resource, and what is hidden. Pods of others count first against the part that is held back.
// +kubebuilder:validation:XValidation:rule="has(self.share) || has(self.atMost) || has(self.hide)",message="a sale has a share, atMost or hide"
type Sale struct {
	// Share of the cluster's amount of each resource (oversubscription included), in percent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Share int32 `json:"share,omitempty"`
	// AtMost is the limit by resource, for instance cpu: "10"; zero sells none of it.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	AtMost corev1.ResourceList `json:"atMost,omitempty"`
	// Hide names resources, for instance nvidia.com/gpu, that placement treats as absent: none of them is
	// sold, and no score, explanation or external scorer counts them. Quotas keep consumers from using
	// them. A storage class is hidden by the name of its quota.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Hide []corev1.ResourceName `json:"hide,omitempty"`
}

// ConsumerReference selects consumers: all of a platform, of one of its organizations, or
// of one space.
type ConsumerReference struct {
	// Platform of the consumer.
	// +kubebuilder:validation:MinLength=1
	Platform string `json:"platform"`
	// Organization of the consumer; empty means all of the platform.
	Organization string `json:"organization,omitempty"`
	// Space of the consumer; empty means all of the organization.
	Space string `json:"space,omitempty"`
}

// MeasuredLatency is a round-trip time to the cluster's API server or, if Liqo measured it, to the
// cluster's gateway.
type MeasuredLatency struct {
	// From is the place of the measurement, for instance the name of a consumer's cluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from"`
	// Median of the measurements.
	Median metav1.Duration `json:"median"`
	// MeasuredAt is the time of the last measurement.
	MeasuredAt metav1.Time `json:"measuredAt"`
}

// TrustRequirements are the facts that a provider must prove about a member cluster.
type TrustRequirements struct {
	// Offering is the subject id of the credential that describes the cluster as a service
	// offering (ComputeServiceOffering).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Offering string `json:"offering"`
	// Types of credentials that are required in addition to LegalPerson, the offering and its
	// ClusterBinding, for instance LabelCredential.
	// +kubebuilder:validation:MaxItems=32
	Types []string `json:"types,omitempty"`
	// GraceSeconds for which claims stay valid after their credentials end.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
}

// ClusterAccess is a kubeconfig, or the credentials for a broker, either sealed by Sluice or held in a
// Secret: exactly one of these. (No CEL rule enforces this: API servers would read the sealed bytes as
// URL-safe base64, which JSON does not use.)
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type ClusterAccess struct {
	// SealedKubeconfig is a kubeconfig sealed with the hub's keyset; `sluice cluster add` writes it.
	SealedKubeconfig []byte `json:"sealedKubeconfig,omitempty"`
	// SealedCredentials are the credentials for a broker, sealed likewise: JSON with username and password,
	// or token, or oauth (tokenURL, clientID, clientSecret, scopes). `sluice broker add` writes them.
	SealedCredentials []byte `json:"sealedCredentials,omitempty"`
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

// PriceList is the price per hour of one unit of each resource on a cluster.
type PriceList struct {
	// Currency as an ISO 4217 code; placement compares prices of one currency only.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// PerHour is the price of one unit for one hour: a core for cpu, a GiB for memory,
	// ephemeral-storage and storage classes, one piece for anything else. It is from 0 to 12634756.
	// +kubebuilder:validation:MaxProperties=64
	PerHour map[corev1.ResourceName]resource.Quantity `json:"perHour"`
}
