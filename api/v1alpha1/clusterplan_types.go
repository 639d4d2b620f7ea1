package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceClusters counts clusters: as capacity, the clusters that a management cluster may
// create; as a reservation, the clusters that an instance of a cluster plan takes.
const ResourceClusters corev1.ResourceName = "sluice.dev/clusters"

// ClusterPlan sells a separate Kubernetes cluster for each instance. Cluster API creates it
// from a ClusterClass on a management cluster, which is a member cluster with the driver
// capi.
type ClusterPlan struct {
	// Class is the name of the ClusterClass.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class"`
	// ClassNamespace is the namespace of the ClusterClass.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:default=default
	ClassNamespace string `json:"classNamespace,omitempty"`
	// Versions of Kubernetes that are sold, as semantic versions with a leading v. A new cluster
	// gets the first one, unless the consumer asks for another with the parameter "version".
	// Existing clusters get the first one with the plan's next maintenanceInfo.version.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	Versions []string `json:"versions"`
	// ControlPlane describes the machines of the control plane. Absent if the class's control plane
	// does not run on machines.
	ControlPlane *Machines `json:"controlPlane,omitempty"`
	// Workers are the pools of machines that run workloads.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Workers []WorkerPool `json:"workers,omitempty"`
	// PodCIDRs are the address ranges of pods in the cluster. Several clusters may use the same
	// ranges.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:default={"10.244.0.0/16"}
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ServiceCIDRs are the address ranges of Services in the cluster.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:default={"10.96.0.0/12"}
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Variables of the class, by name.
	// +kubebuilder:pruning:PreserveUnknownFields
	Variables *runtime.RawExtension `json:"variables,omitempty"`
	// Settable lists variables of the class that the consumer may set with the parameter
	// "variables". Their values must match the schemas of the ClusterClass, except for variables
	// that the plan's own schemas describe. A schema is used if it is the same on all management
	// clusters that match the selector and have the class. The ClusterClass checks all values again.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	Settable []string `json:"settable,omitempty"`
	// AddOns are installed in this order, except that each comes after what it requires, once the
	// cluster's API server answers; each waits until the one before it is ready. Existing clusters get
	// new add-ons with the plan's next maintenanceInfo.version.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	AddOns []AddOn `json:"addOns,omitempty"`
	// Join makes clusters member clusters before they are delivered. Absent means that they are only
	// their owner's.
	Join *ClusterJoin `json:"join,omitempty"`
	// Roles that bindings may ask for with the parameter "role"; the first is the default. They are
	// ClusterRoles of Kubernetes, bound in the whole cluster.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Enum=cluster-admin;admin;edit;view
	// +kubebuilder:default={"cluster-admin"}
	// +listType=set
	Roles []string `json:"roles,omitempty"`
	// MemberChoice says which management cluster creates it.
	MemberChoice `json:",inline"`
}

// MemberChoice says how the member cluster of an instance is chosen: a management cluster, or a broker.
type MemberChoice struct {
	// Selector that the member cluster must match.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Tolerations of the member cluster's taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Tier of the member cluster; empty means any.
	Tier Tier `json:"tier,omitempty"`
	// MaxPrice of an instance on the member cluster.
	MaxPrice *Price `json:"maxPrice,omitempty"`
	// Require lists the rules that the member cluster must satisfy.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Score weighs the preferences among the member clusters that fit.
	// +kubebuilder:default={}
	Score ScoreWeights `json:"score,omitempty"`
}

// ClusterJoin describes the member clusters that the clusters of a plan become.
// +kubebuilder:validation:XValidation:rule="has(self.as) || has(self.settable)",message="join has as or settable"
type ClusterJoin struct {
	// As is the side on which clusters take part. A Consumer's cluster belongs to who ordered it: nothing
	// is placed on it, and what its owner buys of plans with peering can be delivered to it; it needs
	// Liqo among its add-ons. A Provider's cluster adds its capacity to the inventory. Absent means that
	// a cluster joins only if its consumer asks for it.
	As PeeringSide `json:"as,omitempty"`
	// Settable lists the sides that the consumer may choose with the parameter "join", in lower case;
	// "nothing" is always among the choices then.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	Settable []PeeringSide `json:"settable,omitempty"`
	// Owner selects the consumers that may deliver to a Consumer's cluster: the space, organization or platform
	// that it was ordered in.
	// +kubebuilder:validation:Enum=platform;organization;space
	// +kubebuilder:default=space
	Owner Scope `json:"owner,omitempty"`
	// GatewayService is the type of Service of Liqo's gateways on the cluster. NodePort is for clusters
	// without load balancers.
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort
	// +kubebuilder:default=LoadBalancer
	GatewayService corev1.ServiceType `json:"gatewayService,omitempty"`
	// Member holds labels and properties of the member cluster, and the prices of a Provider's.
	Member MemberTemplate `json:"member,omitempty"`
}

// Machines are a number of equal machines.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.max >= self.replicas",message="max must not be less than replicas"
type Machines struct {
	// Replicas is the number of machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas"`
	// Max lets the consumer ask for more or fewer machines, up to this number, with the parameter
	// "controlPlane" (odd numbers only) or "workers" (by pool name).
	// +kubebuilder:validation:Maximum=1000
	Max int32 `json:"max,omitempty"`
	// Machine is the amount of resources that one machine takes from the management cluster's
	// capacity (MemberCluster spec.capacity). For workers it is also the amount offered to
	// workloads.
	Machine corev1.ResourceList `json:"machine,omitempty"`
}

// WorkerPool is a MachineDeployment of the cluster's topology.
type WorkerPool struct {
	// Name of the pool.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=30
	Name string `json:"name"`
	// Class of the pool in the ClusterClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Class    string `json:"class"`
	Machines `json:",inline"`
}

// ClusterShape describes the cluster to create.
type ClusterShape struct {
	// Class and ClassNamespace of the ClusterClass.
	Class          string `json:"class"`
	ClassNamespace string `json:"classNamespace"`
	// Version of Kubernetes.
	Version string `json:"version"`
	// ControlPlane is the number of control plane machines; nil if the control plane does not run
	// on machines.
	ControlPlane *int32 `json:"controlPlane,omitempty"`
	// PodCIDRs and ServiceCIDRs of the cluster.
	PodCIDRs     []string `json:"podCIDRs,omitempty"`
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Workers by pool.
	// +listType=map
	// +listMapKey=name
	Workers []WorkerReplicas `json:"workers,omitempty"`
	// Variables of the class, by name.
	// +kubebuilder:pruning:PreserveUnknownFields
	Variables *runtime.RawExtension `json:"variables,omitempty"`
	// AddOns in the order in which they are installed, with their values.
	// +listType=map
	// +listMapKey=name
	AddOns []AddOn `json:"addOns,omitempty"`
	// AddOnsSold are the add-ons that the consumer can choose from, until the next maintenance.
	// +listType=map
	// +listMapKey=name
	AddOnsSold []AddOn `json:"addOnsSold,omitempty"`
	// Member is the member cluster that the cluster becomes; nil if it becomes none.
	Member *ShapeMember `json:"member,omitempty"`
}

// ShapeMember describes the member cluster that a created cluster becomes.
type ShapeMember struct {
	MemberTemplate `json:",inline"`
	// Consumers that own it, on the side of a Consumer; empty for a Provider's.
	Consumers []ConsumerReference `json:"consumers,omitempty"`
	// GatewayService is the type of Service of Liqo's gateways on it.
	GatewayService corev1.ServiceType `json:"gatewayService,omitempty"`
}

// WorkerReplicas is the size of one worker pool.
type WorkerReplicas struct {
	// Name of the pool.
	Name string `json:"name"`
	// Class of the pool in the ClusterClass.
	Class string `json:"class"`
	// Replicas is the number of machines in the pool.
	Replicas int32 `json:"replicas"`
}
