package v1alpha1

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MemberClusterStatus is the observed state of a member cluster.
type MemberClusterStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Reachable, AccessVerified, CapacityKnown, RulesEnforced (with the drivers kube and liqo), Admitted (only
	// with spec.trust), Ready; Measured while it has a probe; Cordoned and Drained once the cluster was cordoned.
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
	// Nodes that are ready and schedulable; 0 if the nodes are not read.
	Nodes int32 `json:"nodes,omitempty"`
	// Architectures (GOARCH) of those nodes, sorted. If there is one, it is the cluster's label
	// kubernetes.io/arch, unless the operator has set another.
	Architectures []string `json:"architectures,omitempty"`
	// OperatingSystems (GOOS) of those nodes, sorted. If there is one, it is the cluster's label
	// kubernetes.io/os, unless the operator has set another.
	OperatingSystems []string `json:"operatingSystems,omitempty"`
	// Capacity is the sum over those nodes, or what was declared.
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Allocatable is the sum over those nodes, or what was declared.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// ForeignUse is the sum of the requests of pods that belong to no instance of this hub.
	ForeignUse corev1.ResourceList `json:"foreignUse,omitempty"`
	// Holes lists the free resources of those nodes, node by node; nil if unknown.
	Holes *Holes `json:"holes,omitempty"`
	// StorageClasses of the cluster.
	StorageClasses []string `json:"storageClasses,omitempty"`
	// DeviceClasses of the cluster (resource.k8s.io), sorted by name; absent if its nodes are not read.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	DeviceClasses []DeviceClass `json:"deviceClasses,omitempty"`
	// Latency of the API server: the median of Sluice's recent probes.
	Latency *metav1.Duration `json:"latency,omitempty"`
	// Latencies from peered member clusters, measured by this cluster's Liqo. A latency of the same
	// two clusters in spec.latencies takes precedence. Measurements older than an hour are not used.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=from
	Latencies []MeasuredLatency `json:"latencies,omitempty"`
	// Broker is the catalog of the broker, with the driver osb.
	Broker *UpstreamBrokerStatus `json:"broker,omitempty"`
	// Classes are the ClusterClasses of a management cluster whose variables consumers may set.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	Classes []ClusterClass `json:"classes,omitempty"`
	// Claims about the cluster and its provider, from verified credentials only; sorted by name,
	// value and assurance.
	// +kubebuilder:validation:MaxItems=256
	Claims []Claim `json:"claims,omitempty"`
	// Admission is the report of the last check of the cluster's credentials; only with spec.trust.
	Admission []VerificationStep `json:"admission,omitempty"`
	// Events of the cluster, the latest ones; the cluster's Journal has those before them.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Events []Event `json:"events,omitempty"`
}

// Holes is the room for single pods: what nodes have free after the requests of all pods on them. Only
// nodes that take one more pod count. At most eight resources are counted: cpu, memory and
// ephemeral-storage, then the others by name.
type Holes struct {
	// Free is the sum over all nodes, of each resource that is counted.
	Free corev1.ResourceList `json:"free"`
	// Nodes with the same amounts free, the largest first. If there are more than eight different
	// amounts, those that no other exceeds are kept; of the rest, nodes with similar amounts count as
	// several with the least of them.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Nodes []NodesFree `json:"nodes,omitempty"`
}

// NodesFree lists the free resources of each of some nodes.
type NodesFree struct {
	// Count of the nodes.
	Count int32 `json:"count"`
	// Free on each of them; absent means nothing.
	Free corev1.ResourceList `json:"free"`
}

// DeviceClass is a class of devices. Those that count are in allocatable, under the name of their quota
// (CLASS.deviceclass.resource.k8s.io/devices).
type DeviceClass struct {
	// Name of the class.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// ExtendedResource by which pods may take its devices, too, beside deviceclass.resource.kubernetes.io/CLASS.
	// +kubebuilder:validation:MaxLength=253
	ExtendedResource string `json:"extendedResource,omitempty"`
	// Uncounted is the reason why all or some of its devices do not count, for instance that another class selects them,
	// too.
	// +kubebuilder:validation:MaxLength=256
	Uncounted string `json:"uncounted,omitempty"`
}

// ClusterClass has the schemas of those variables of a ClusterClass that consumers may set.
type ClusterClass struct {
	// Namespace of the ClusterClass.
	Namespace string `json:"namespace"`
	// Name of the ClusterClass.
	Name string `json:"name"`
	// Variables with a schema.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Variables []ClassVariable `json:"variables,omitempty"`
	// LeftOut names variables without a schema here, with the reason for each.
	LeftOut string `json:"leftOut,omitempty"`
}

// ClassVariable is a variable of a ClusterClass.
type ClassVariable struct {
	// Name of the variable.
	Name string `json:"name"`
	// Schema of the values (JSON Schema, draft-04). It accepts every value that the ClusterClass
	// accepts.
	// +kubebuilder:pruning:PreserveUnknownFields
	Schema runtime.RawExtension `json:"schema"`
}

// DriverName returns the name of the driver that delivers to the cluster.
func (c *MemberCluster) DriverName() string { return cmp.Or(c.Spec.Driver, DriverKube) }

// HasServer reports whether the member cluster is one, with an API server: it does not stand for a broker or a pool.
func (c *MemberCluster) HasServer() bool { return c.Spec.Broker == nil && c.Spec.Pool == nil }

// RunsPods reports whether instances are delivered to the cluster as pods, or as room for them: with the drivers kube and
// liqo.
func (c *MemberCluster) RunsPods() bool {
	return c.DriverName() == DriverKube || c.DriverName() == DriverLiqo
}

// Sells reports whether instances of consumers can be placed on the cluster: it runs pods, and is not a consumer's own.
func (c *MemberCluster) Sells() bool { return c.RunsPods() && len(c.Spec.Consumers) == 0 }

// IsJoined reports whether the cluster has joined by invitation, so that its owner has granted the access to
// it, and Sluice may only read there.
func (c *MemberCluster) IsJoined() bool { return c.Spec.Liqo != nil && c.Spec.Liqo.Joined != nil }

// HasForeignAddress reports whether the address of the cluster is not the operator's, but that of its provider or of the owner
// who accepted an invitation. Such an address may lead anywhere, also into the operator's own network.
func (c *MemberCluster) HasForeignAddress() bool { return c.Spec.Guarded || c.IsJoined() }

// IsForsaken reports whether the operator removes the cluster from the inventory while it does not answer. Then nothing on it
// can be removed any more, and nothing waits for it.
func (c *MemberCluster) IsForsaken() bool {
	answers, _ := c.Holds(ConditionReachable)
	return IsForsaken(!c.DeletionTimestamp.IsZero(), answers)
}

// IsForsaken is MemberCluster.IsForsaken, of a cluster that is removed from the inventory or not, and answers or not.
func IsForsaken(removed, answers bool) bool { return removed && !answers }

// Holds reports whether a condition is true, and otherwise its message.
func (c *MemberCluster) Holds(condition string) (ok bool, otherwise string) {
	found := meta.FindStatusCondition(c.Status.Conditions, condition)
	switch {
	case found == nil:
		return false, "not probed yet"
	case found.Status == metav1.ConditionTrue:
		return true, ""
	default:
		return false, found.Message
	}
}
