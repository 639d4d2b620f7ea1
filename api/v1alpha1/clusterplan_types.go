package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceClusters counts clusters: what a management cluster may make, and what an
// instance of a cluster plan takes of it.
const ResourceClusters corev1.ResourceName = "sluice.dev/clusters"

// ClusterPlan is a Kubernetes cluster of its own for each instance, which Cluster API
// makes from a ClusterClass on a management cluster: a member cluster with the driver capi.
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
	// Versions of Kubernetes that are sold, as semantic versions with a leading v. New
	// clusters get the first, unless the consumer asks for another by the parameter
	// "version"; those that exist get it with the plan's next maintenanceInfo.version.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=set
	Versions []string `json:"versions"`
	// ControlPlane has the machines of the control plane; none where the class's control plane
	// is not made of machines.
	ControlPlane *Machines `json:"controlPlane,omitempty"`
	// Workers are the pools of machines that run workloads.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Workers []WorkerPool `json:"workers,omitempty"`
	// PodCIDRs are the address ranges of pods in the cluster; they are the cluster's own, and
	// may be the same in all.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:default={"10.244.0.0/16"}
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ServiceCIDRs are those of services.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:default={"10.96.0.0/12"}
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
	// Variables of the class, by name.
	// +kubebuilder:pruning:PreserveUnknownFields
	Variables *runtime.RawExtension `json:"variables,omitempty"`
	// Settable lists variables of the class that the consumer may set by the parameter
	// "variables"; the class itself checks their values.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	Settable []string `json:"settable,omitempty"`
	// AddOns are installed in this order as soon as the cluster's API server answers, each
	// when the one before is ready. Clusters that exist get new ones with the plan's next
	// maintenanceInfo.version.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	AddOns []AddOn `json:"addOns,omitempty"`
	// Roles that bindings may ask for by the parameter "role", the first being what they get
	// without: cluster roles of Kubernetes, bound in the whole cluster.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:Enum=cluster-admin;admin;edit;view
	// +kubebuilder:default={"cluster-admin"}
	// +listType=set
	Roles []string `json:"roles,omitempty"`
	// Selector that the management cluster matches.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Tolerations of the management cluster's taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Tier of the management cluster; none means any.
	Tier Tier `json:"tier,omitempty"`
	// MaxPrice of what is reserved on the management cluster.
	MaxPrice *Price `json:"maxPrice,omitempty"`
	// Require says what the management cluster has proven, or is otherwise.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Score says what to prefer among the management clusters that fit.
	// +kubebuilder:default={}
	Score ScoreWeights `json:"score,omitempty"`
}

// Machines are some machines of the same kind.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.max >= self.replicas",message="max must not be less than replicas"
type Machines struct {
	// Replicas of the machine.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas int32 `json:"replicas"`
	// Max lets the consumer ask for more or fewer, up to this number, by the parameter
	// "controlPlane" (odd numbers only) or "workers" (by the name of the pool).
	// +kubebuilder:validation:Maximum=1000
	Max int32 `json:"max,omitempty"`
	// Machine is what one machine takes of what the management cluster may make
	// (MemberCluster spec.capacity) and, for workers, what it has for workloads.
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

// AddOn is a Helm release in the cluster.
type AddOn struct {
	// Name of the release.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=53
	Name string `json:"name"`
	// Chart is a file or folder below the folder that Sluice is given with --charts, for
	// instance cilium-1.18.2.tgz, or a chart in a registry, by version or digest:
	// oci://HOST/PATH:VERSION or oci://HOST/PATH@sha256:DIGEST. The operator says which
	// registries may be asked (--chart-registry).
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._+-]*|oci://[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:v?[0-9][A-Za-z0-9._+-]*|@sha256:[0-9a-f]{64}))$`
	// +kubebuilder:validation:MaxLength=512
	Chart string `json:"chart"`
	// Namespace of the release, which is made where it is not there.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Values for the chart.
	// +kubebuilder:pruning:PreserveUnknownFields
	Values *runtime.RawExtension `json:"values,omitempty"`
}

// ClusterShape is a cluster as it is to be made.
type ClusterShape struct {
	// Class and ClassNamespace of the ClusterClass.
	Class          string `json:"class"`
	ClassNamespace string `json:"classNamespace"`
	// Version of Kubernetes.
	Version string `json:"version"`
	// ControlPlane is the number of control plane machines, where it has any.
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
	// AddOns in the order in which they are installed.
	// +listType=map
	// +listMapKey=name
	AddOns []AddOn `json:"addOns,omitempty"`
}

// WorkerReplicas is the size of one worker pool.
type WorkerReplicas struct {
	// Name of the pool.
	Name string `json:"name"`
	// Class of the pool in the ClusterClass.
	Class string `json:"class"`
	// Replicas of its machine.
	Replicas int32 `json:"replicas"`
}
