package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourcesPlan is an amount of resources on one or more member clusters.
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.peering) || (self.peering.gives == 'Network' && self.peering.role == 'Transparent')",message="virtual nodes have no persistent storage: storage needs a peering that gives: Network with role: Transparent, or none"
// +kubebuilder:validation:XValidation:rule="!has(self.maxClusters) || self.maxClusters >= self.clusters",message="maxClusters must not be less than clusters"
type ResourcesPlan struct {
	// Limits on each chosen cluster: cpu, memory, ephemeral-storage, pods and any
	// extended resource (for instance nvidia.com/gpu). Needed unless the plan is of kind workload.
	// +kubebuilder:validation:MinProperties=1
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// LargestPod is the largest pod that an instance is meant to run: each chosen cluster has a node with
	// this much free, where that is known. It must not exceed Limits. Not together with components, and
	// not in a plan of kind workload, whose pods are known.
	// +kubebuilder:validation:MinProperties=1
	LargestPod corev1.ResourceList `json:"largestPod,omitempty"`
	// Storage is persistent storage on each chosen cluster, by storage class.
	Storage map[string]resource.Quantity `json:"storage,omitempty"`
	// Clusters is the number of distinct clusters; each delivers Limits in full.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	Clusters int32 `json:"clusters,omitempty"`
	// MaxClusters lets the consumer ask for more clusters, up to this number, with the parameter
	// "clusters".
	// +kubebuilder:validation:Maximum=64
	MaxClusters int32 `json:"maxClusters,omitempty"`
	// Selector that chosen clusters must match.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Selectable lists label keys that the consumer may add to the selector with the parameter
	// "selector".
	// +kubebuilder:validation:MaxItems=32
	Selectable []string `json:"selectable,omitempty"`
	// Tolerations of cluster taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Tier of the chosen clusters; empty means any.
	Tier Tier `json:"tier,omitempty"`
	// MaxPrice on each chosen cluster. Clusters without a price list in its currency are refused.
	MaxPrice *Price `json:"maxPrice,omitempty"`
	// Require lists the rules that chosen clusters must satisfy.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Requirable lists claims whose values the consumer may require with the parameter "require".
	// +kubebuilder:validation:MaxItems=32
	Requirable []string `json:"requirable,omitempty"`
	// Spread distributes the chosen clusters over groups of clusters, for instance regions.
	Spread *Spread `json:"spread,omitempty"`
	// Replicas are divided over the chosen clusters; Limits, Storage and MaxPrice then hold for one
	// replica. In a plan of kind workload each cluster runs its share, which expressions see as
	// cluster.replicas; Limits and MaxPrice are then those of a cluster with one.
	Replicas *Replicas `json:"replicas,omitempty"`
	// Components are parts of an application, each on a cluster that suits it. All of them are
	// placed, or none. Not together with clusters, spread or replicas. In a plan of kind workload they
	// are exactly the components of the workload, and their resources are computed.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Components []Component `json:"components,omitempty"`
	// Links limit the latency between the clusters of two components. In a plan of kind workload they
	// also connect the two: each reaches the other's ports by the same name and port wherever it runs,
	// and components on different clusters without a link do not reach each other.
	// +kubebuilder:validation:MaxItems=32
	Links []Link `json:"links,omitempty"`
	// Affinity places an instance by the clusters of the same consumer's other instances.
	// +kubebuilder:validation:MaxItems=8
	Affinity []Affinity `json:"affinity,omitempty"`
	// MaxLatency of chosen clusters.
	MaxLatency *LatencyBound `json:"maxLatency,omitempty"`
	// Near is the location of the plan's consumers, unless a consumer gives its own.
	Near *Location `json:"near,omitempty"`
	// MaxDistanceKilometers from the consumer to a chosen cluster. Clusters without a location are
	// refused.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20038
	MaxDistanceKilometers int32 `json:"maxDistanceKilometers,omitempty"`
	// Adjustable lists further parameters that the consumer may set.
	// +listType=set
	Adjustable []Adjustable `json:"adjustable,omitempty"`
	// OverlapSeconds is how long a moving instance stays on its old cluster after it is delivered
	// on the new one, provided that the old cluster still answers.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	OverlapSeconds int64 `json:"overlapSeconds,omitempty"`
	// Peering delivers to the consumer's own cluster, which Liqo peers with the chosen ones.
	Peering *PeeringPlan `json:"peering,omitempty"`
	// Exposure lets the consumer make public what it runs, with the parameter "expose". Such instances
	// are placed only on clusters that have a Gateway (MemberCluster spec.exposure). In a plan of kind workload,
	// the ports of components say what is public.
	Exposure *PlanExposure `json:"exposure,omitempty"`
	// Score weighs the preferences among the clusters that fit.
	// +kubebuilder:default={}
	Score ScoreWeights `json:"score,omitempty"`
	// PriorityClass of the instances, as a policy declares it (PlacementPolicy priorityClasses).
	// Instances of a class that no policy declares displace nothing and are not displaced.
	// +kubebuilder:validation:MaxLength=63
	PriorityClass string `json:"priorityClass,omitempty"`
}

// PlanExposure bounds what a consumer may make public of what it runs in its namespace.
type PlanExposure struct {
	// Hosts is the greatest number of ports that are public at the same time, each at a host of its own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Hosts int32 `json:"hosts"`
}

// ExposedPort is a port of the consumer's own pods that everyone reaches through the Gateway of their
// cluster.
type ExposedPort struct {
	// Name of the port: its pods are those with the label sluice.dev/component: NAME.
	Name string `json:"name"`
	// Port of the pods.
	Port int32 `json:"port"`
	// Host is the first label of its host, or a whole host in a domain of the consumer's own; empty means one that
	// is generated.
	Host string `json:"host,omitempty"`
	// AppProtocol of the port; absent means http.
	AppProtocol AppProtocol `json:"appProtocol,omitempty"`
}

// Component is a part of an application.
type Component struct {
	// Name of the component.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Limits of the component; empty means those of the plan.
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Selector that its cluster must match, besides the plan's.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Tier of its cluster; empty means the plan's.
	Tier Tier `json:"tier,omitempty"`
}

// Link connects two components.
type Link struct {
	// Between names the two components.
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	Between []string `json:"between"`
	// MaxMilliseconds is the longest round-trip time between their clusters, as one of them reports
	// it from the other (MemberCluster spec.latencies). If neither does, Liqo's measurement between
	// peered clusters is used (status.latencies). A missing measurement counts as too long. On the
	// same cluster the time is 0. Absent, which only plans of kind workload may leave it, means any time.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	MaxMilliseconds *int32 `json:"maxMilliseconds,omitempty"`
}

// Adjustable is a parameter that a plan may leave to its consumers: location (latitude and
// longitude), application (a name that affinity refers to), excludeProviders,
// maxPricePerHour (at most the plan's), maxLatencyMilliseconds (at most the plan's).
// +kubebuilder:validation:Enum=location;application;excludeProviders;maxPricePerHour;maxLatencyMilliseconds
type Adjustable string

// Values of Adjustable.
const (
	AdjustLocation         Adjustable = "location"
	AdjustApplication      Adjustable = "application"
	AdjustExcludeProviders Adjustable = "excludeProviders"
	AdjustMaxPrice         Adjustable = "maxPricePerHour"
	AdjustMaxLatency       Adjustable = "maxLatencyMilliseconds"
)

// Spread distributes chosen clusters over groups. Clusters with the same values of all
// labels in By are one group. The numbers of clusters in the chosen groups are as even as
// the groups allow, and differ by at most MaxSkew.
// +kubebuilder:validation:XValidation:rule="[has(self.groups), has(self.minGroups), has(self.each) && self.each].filter(x, x).size() <= 1",message="a spread has groups, minGroups or each, and only one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.minPerGroup) && !has(self.maxPerGroup) || has(self.groups) || has(self.minGroups)",message="minPerGroup and maxPerGroup need groups or minGroups; otherwise each cluster has a group of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.minPerGroup) || !has(self.maxPerGroup) || self.minPerGroup <= self.maxPerGroup",message="minPerGroup must not be greater than maxPerGroup"
// +kubebuilder:validation:XValidation:rule="!has(self.weight) || !has(self.groups) && !has(self.minGroups) && !(has(self.each) && self.each) && (!has(self.maxSkew) || self.maxSkew == 1)",message="a spread with a weight is a preference and has no groups, minGroups, each or maxSkew, which are requirements"
type Spread struct {
	// By are label keys, for instance topology.kubernetes.io/region. A cluster that lacks one of
	// them is refused, unless the spread is a preference; such clusters count as one group then.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	By []string `json:"by"`
	// Groups is the number of groups; without it and minGroups, each cluster has a group of its own.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Groups int32 `json:"groups,omitempty"`
	// MinGroups is the least number of groups; there are more if that is more even. Where Kubernetes'
	// minDomains counts the domains that there are, these are the groups chosen.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MinGroups int32 `json:"minGroups,omitempty"`
	// MinPerGroup is the least number of clusters in a chosen group.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MinPerGroup int32 `json:"minPerGroup,omitempty"`
	// MaxPerGroup is the greatest number of clusters in a group.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MaxPerGroup int32 `json:"maxPerGroup,omitempty"`
	// Each asks for one cluster in every group that selector and tier leave (at most 64 groups).
	// The plan's number of clusters is then ignored. With replicas, each group gets at least one;
	// fewer replicas than groups are refused.
	Each bool `json:"each,omitempty"`
	// MaxSkew is the greatest difference between the numbers of clusters in two chosen groups. Groups that are not
	// chosen do not count, unlike in Kubernetes.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	MaxSkew int32 `json:"maxSkew,omitempty"`
	// Weight makes the spread a preference, which refuses nothing, as whenUnsatisfiable: ScheduleAnyway of
	// Kubernetes does: clusters in different groups are preferred, on the same scale as the scorers' weights. Absent
	// makes it a requirement (DoNotSchedule).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// Division is the way in which replicas are divided over the chosen clusters. Each cluster
// gets at least one and at most as many as fit.
// +kubebuilder:validation:Enum=even;weight;capacity;price
type Division string

// Divisions.
const (
	// DivideEvenly gives every cluster the same number.
	DivideEvenly Division = "even"
	// DivideByWeight follows the plan's weights of clusters.
	DivideByWeight Division = "weight"
	// DivideByCapacity follows the number of replicas that fit.
	DivideByCapacity Division = "capacity"
	// DivideByPrice fills the cheapest cluster first.
	DivideByPrice Division = "price"
)

// Replicas is a number of equal parts of an instance.
// +kubebuilder:validation:XValidation:rule="!has(self.max) || self.max >= self.count",message="max must not be less than count"
type Replicas struct {
	// Count of replicas on all clusters together.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Count int32 `json:"count"`
	// Max lets the consumer ask for more, up to this number, by the parameter "replicas".
	// +kubebuilder:validation:Maximum=10000
	Max int32 `json:"max,omitempty"`
	// Divide is the way in which they are divided.
	// +kubebuilder:default=even
	Divide Division `json:"divide,omitempty"`
	// Weights of clusters, if Divide is weight. The first selector that matches a cluster counts;
	// the default weight is 1.
	// +kubebuilder:validation:MaxItems=32
	Weights []ReplicaWeight `json:"weights,omitempty"`
}

// ReplicaWeight is the weight of the clusters that a selector matches.
type ReplicaWeight struct {
	// Selector of clusters.
	Selector metav1.LabelSelector `json:"selector"`
	// Weight in relation to the other clusters' weights.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}

// Scope selects the instances that count: those of the same platform, organization, space
// or application. An application is named by the parameter of that name, within a space.
// +kubebuilder:validation:Enum=platform;organization;space;application
type Scope string

// Scopes.
const (
	ScopePlatform     Scope = "platform"
	ScopeOrganization Scope = "organization"
	ScopeSpace        Scope = "space"
	ScopeApplication  Scope = "application"
)

// Affinity places an instance by the clusters of other instances of a scope. Without Apart,
// it has no effect on the first instance.
type Affinity struct {
	// With selects the other instances that count.
	With Scope `json:"with"`
	// Apart keeps the instance away from them; otherwise it goes to their clusters.
	Apart bool `json:"apart,omitempty"`
	// By is a label key; clusters with the same value count as one place.
	// +kubebuilder:default="sluice.dev/cluster"
	By string `json:"by,omitempty"`
	// Weight makes it a preference, on the same scale as the scorers' weights; 0 makes it a
	// requirement.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// LatencyBound limits the round-trip time to a cluster's API server.
type LatencyBound struct {
	// From is the place of the measurement (MemberCluster spec.latencies and status.latencies);
	// empty means Sluice itself.
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from,omitempty"`
	// Milliseconds is the greatest latency; clusters without a measurement are refused.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	Milliseconds int32 `json:"milliseconds"`
	// MaxAgeSeconds of a measurement made elsewhere than by Sluice; 0 means any age.
	// +kubebuilder:validation:Minimum=1
	MaxAgeSeconds int64 `json:"maxAgeSeconds,omitempty"`
}

// Location is a place on earth in decimal degrees (WGS 84), for instance "52.52" and "13.40".
type Location struct {
	// Latitude, north positive.
	// +kubebuilder:validation:Pattern=`^-?([0-9]|[1-8][0-9]|90)(\.[0-9]{1,6})?$`
	Latitude string `json:"latitude"`
	// Longitude, east positive.
	// +kubebuilder:validation:Pattern=`^-?([0-9]|[1-9][0-9]|1[0-7][0-9]|180)(\.[0-9]{1,6})?$`
	Longitude string `json:"longitude"`
}

// HoursPerMonth is a twelfth of a year, as in the price lists of public clouds.
const HoursPerMonth = 730

// Price is an amount of money for time: per hour or per month of 730 hours.
// +kubebuilder:validation:XValidation:rule="has(self.perHour) != has(self.perMonth)",message="a price is per hour or per month"
type Price struct {
	// Currency as an ISO 4217 code.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// PerHour in units of the currency.
	PerHour *resource.Quantity `json:"perHour,omitempty"`
	// PerMonth in units of the currency.
	PerMonth *resource.Quantity `json:"perMonth,omitempty"`
}

// ScoreWeights weigh the scorers against each other; if all are zero, only fit counts.
type ScoreWeights struct {
	// Fit prefers clusters where the order wastes least: where it leaves no scarce resource (an extended
	// one, for instance nvidia.com/gpu) without cores and memory beside it, and takes none that it does not
	// need; where cores and memory stay in proportion; and where the least room for larger orders is lost.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Fit int32 `json:"fit,omitempty"`
	// Balance prefers clusters with more free capacity left afterwards.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Balance int32 `json:"balance,omitempty"`
	// Pack prefers clusters with less free capacity left afterwards.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Pack int32 `json:"pack,omitempty"`
	// Price prefers cheaper clusters.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Price int32 `json:"price,omitempty"`
	// Latency prefers clusters that answer faster: by Sluice's probes or, if the plan limits the
	// latency from another place, by the measurements from there.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Latency int32 `json:"latency,omitempty"`
	// Locality prefers clusters near the consumer.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Locality int32 `json:"locality,omitempty"`
	// Freshness prefers clusters whose claims are valid for longer.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Freshness int32 `json:"freshness,omitempty"`
	// Diversity prefers regions with fewer instances of the same application or, if no application
	// is named, of the same space.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Diversity int32 `json:"diversity,omitempty"`
	// External prefers the clusters that the external scorer prefers.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	External int32 `json:"external,omitempty"`
}
