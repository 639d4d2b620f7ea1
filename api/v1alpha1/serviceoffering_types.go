package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceOffering is an OSB service offering with its plans.
//
// The catalog serves Status.Accepted, which follows Spec only while the whole
// catalog stays valid: ids and names unique across offerings, and no id that an
// instance uses removed or given another meaning.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=so
// +kubebuilder:printcolumn:name=Service,type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type ServiceOffering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceOfferingSpec   `json:"spec"`
	Status ServiceOfferingStatus `json:"status,omitempty"`
}

// ServiceOfferingList is a list of service offerings.
// +kubebuilder:object:root=true
type ServiceOfferingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceOffering `json:"items"`
}

// ServiceOfferingSpec follows the OSB 2.17 Service Offering Object.
type ServiceOfferingSpec struct {
	// ID is globally unique and never changes its meaning.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a service offering's id is immutable"
	ID string `json:"id"`
	// Name is CLI-friendly and unique in the catalog.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Description for the marketplace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description"`
	// Tags of the offering.
	Tags []string `json:"tags,omitempty"`
	// Requires lists permissions that the platform must grant.
	// +kubebuilder:validation:items:Enum=syslog_drain;route_forwarding;volume_mount
	Requires []string `json:"requires,omitempty"`
	// Bindable says whether instances can be bound; a plan may override it.
	// +kubebuilder:default=true
	Bindable bool `json:"bindable"`
	// PlanUpdateable says whether instances can change plan; a plan may override it.
	// +kubebuilder:default=true
	PlanUpdateable bool `json:"planUpdateable"`
	// AllowContextUpdates says whether platforms may send context-only updates.
	// +kubebuilder:default=true
	AllowContextUpdates bool `json:"allowContextUpdates"`
	// Metadata for the marketplace, as OSB's "Service Metadata" conventions name it
	// (displayName, imageUrl, longDescription, providerDisplayName, documentationUrl, supportUrl).
	// +kubebuilder:pruning:PreserveUnknownFields
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`
	// BindingRotatable says whether platforms may rotate bindings; a plan may override it.
	// +kubebuilder:default=true
	BindingRotatable bool `json:"bindingRotatable"`
	// DashboardClient is passed to platforms that create OAuth clients.
	DashboardClient *DashboardClient `json:"dashboardClient,omitempty"`
	// Platforms that see this offering; none means all.
	Platforms []string `json:"platforms,omitempty"`
	// Plans of the offering.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.name == p.name))",message="plan names must be unique within the offering"
	Plans []Plan `json:"plans"`
}

// DashboardClient is the OSB Dashboard Client Object.
type DashboardClient struct {
	ID          string `json:"id"`
	Secret      string `json:"secret"`
	RedirectURI string `json:"redirectURI,omitempty"`
}

// PlanKind says what a plan sells.
// +kubebuilder:validation:Enum=resources;cluster
type PlanKind string

const (
	// PlanKindResources sells raw resources: a namespace with a quota on each chosen cluster.
	PlanKindResources PlanKind = "resources"
	// PlanKindCluster sells whole clusters.
	PlanKindCluster PlanKind = "cluster"
)

// Plan follows the OSB 2.17 Service Plan Object.
// +kubebuilder:validation:XValidation:rule="self.kind != 'resources' || has(self.resources)",message="a plan of kind resources needs the section resources"
// +kubebuilder:validation:XValidation:rule="self.kind != 'cluster' || has(self.cluster)",message="a plan of kind cluster needs the section cluster"
type Plan struct {
	// ID is globally unique and never changes its meaning.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"id"`
	// Name is CLI-friendly and unique within the offering.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9.-]+$`
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Description for the marketplace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description"`
	// DisplayName for marketplaces with a user interface.
	DisplayName string `json:"displayName,omitempty"`
	// Bullets of the plan, as marketplaces list them.
	Bullets []string `json:"bullets,omitempty"`
	// Costs of the plan, as marketplaces show them.
	Costs []Cost `json:"costs,omitempty"`
	// Metadata beyond the fields above.
	// +kubebuilder:pruning:PreserveUnknownFields
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`
	// Free says whether the plan costs nothing.
	// +kubebuilder:default=true
	Free *bool `json:"free,omitempty"`
	// Bindable overrides the offering's.
	Bindable *bool `json:"bindable,omitempty"`
	// PlanUpdateable overrides the offering's.
	PlanUpdateable *bool `json:"planUpdateable,omitempty"`
	// BindingRotatable overrides the offering's.
	BindingRotatable *bool `json:"bindingRotatable,omitempty"`
	// MaximumPollingDurationSeconds is how long platforms poll an operation of this
	// plan; Sluice fails an operation shortly before.
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:default=3600
	MaximumPollingDurationSeconds int32 `json:"maximumPollingDurationSeconds,omitempty"`
	// WaitFor says which orders that fit nowhere wait: those that capacity becoming free, or a
	// cluster that comes back, could place; or all. Others fail at once, with the reasons.
	// +kubebuilder:default=Capacity
	WaitFor WaitFor `json:"waitFor,omitempty"`
	// MaintenanceInfo of instances created from now on.
	MaintenanceInfo *MaintenanceInfo `json:"maintenanceInfo,omitempty"`
	// DashboardURL of instances; {platform}, {instance_id} and {instance} (the resource's
	// name) are replaced, the first two percent-encoded.
	// +kubebuilder:validation:Pattern=`^https?://`
	DashboardURL string `json:"dashboardURL,omitempty"`
	// Platforms that see this plan; none means all that see the offering.
	Platforms []string `json:"platforms,omitempty"`
	// Schemas add constraints on parameters to those that the plan's kind brings.
	Schemas *PlanSchemas `json:"schemas,omitempty"`
	// Kind says what the plan sells.
	Kind PlanKind `json:"kind"`
	// Resources of a plan of that kind.
	Resources *ResourcesPlan `json:"resources,omitempty"`
	// Cluster of a plan of that kind.
	Cluster *ClusterPlan `json:"cluster,omitempty"`
	// Credentials that bindings of this plan return.
	// +kubebuilder:default={}
	Credentials CredentialsPolicy `json:"credentials,omitempty"`
}

// WaitFor says for what an order waits that fits nowhere.
// +kubebuilder:validation:Enum=Capacity;Anything
type WaitFor string

// For what an order waits; empty means capacity.
const (
	// WaitForCapacity waits for capacity that becomes free, and for clusters that answer, take
	// new placements again or have more proven about them.
	WaitForCapacity WaitFor = "Capacity"
	// WaitForAnything waits for changes of clusters, too.
	WaitForAnything WaitFor = "Anything"
)

// Cost is one line of a plan's price, for instance 29.5 EUR MONTHLY.
type Cost struct {
	// Amount per currency (lower-case ISO 4217), in units of that currency, for instance eur: "29.50".
	// +kubebuilder:validation:MinProperties=1
	Amount map[string]resource.Quantity `json:"amount"`
	// Unit, for instance MONTHLY.
	// +kubebuilder:validation:MinLength=1
	Unit string `json:"unit"`
}

// MaintenanceInfo follows the OSB 2.17 Maintenance Info Object.
type MaintenanceInfo struct {
	// Version is a semantic version 2.0.
	// +kubebuilder:validation:Pattern=`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	Version string `json:"version"`
	// Description of what the maintenance changes.
	Description string `json:"description,omitempty"`
}

// PlanSchemas are JSON Schemas (draft-04 or later) of the parameters that a platform may send.
type PlanSchemas struct {
	// InstanceCreate constrains the parameters of provision.
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceCreate *runtime.RawExtension `json:"instanceCreate,omitempty"`
	// InstanceUpdate constrains the parameters of update.
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceUpdate *runtime.RawExtension `json:"instanceUpdate,omitempty"`
	// BindingCreate constrains the parameters of bind.
	// +kubebuilder:pruning:PreserveUnknownFields
	BindingCreate *runtime.RawExtension `json:"bindingCreate,omitempty"`
}

// ResourcesPlan is an amount of resources on one or more member clusters.
// +kubebuilder:validation:XValidation:rule="!has(self.storage) || !has(self.peering) || (self.peering.gives == 'Network' && self.peering.role == 'Transparent')",message="virtual nodes have no persistent storage: storage needs a peering that gives: Network with role: Transparent, or none"
// +kubebuilder:validation:XValidation:rule="!has(self.maxClusters) || self.maxClusters >= self.clusters",message="maxClusters must not be less than clusters"
type ResourcesPlan struct {
	// Limits on each chosen cluster: cpu, memory, ephemeral-storage, pods and any
	// extended resource (for instance nvidia.com/gpu).
	// +kubebuilder:validation:MinProperties=1
	Limits corev1.ResourceList `json:"limits"`
	// Storage is persistent storage on each chosen cluster, by storage class.
	Storage map[string]resource.Quantity `json:"storage,omitempty"`
	// Clusters is the number of distinct clusters; each delivers Limits in full.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	Clusters int32 `json:"clusters,omitempty"`
	// MaxClusters lets the consumer ask for more clusters, up to this number, by the parameter "clusters".
	// +kubebuilder:validation:Maximum=64
	MaxClusters int32 `json:"maxClusters,omitempty"`
	// Selector that chosen clusters match.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Selectable lists label keys that the consumer may add to the selector by the parameter "selector".
	// +kubebuilder:validation:MaxItems=32
	Selectable []string `json:"selectable,omitempty"`
	// Tolerations of cluster taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Tier that chosen clusters have; none means any.
	Tier Tier `json:"tier,omitempty"`
	// MaxPrice on each chosen cluster; clusters without a price list in its currency are refused.
	MaxPrice *Price `json:"maxPrice,omitempty"`
	// Require says what chosen clusters have proven, or are otherwise.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Requirable lists claims of which the consumer may require values by the parameter "require".
	// +kubebuilder:validation:MaxItems=32
	Requirable []string `json:"requirable,omitempty"`
	// Spread says how the chosen clusters lie over groups of clusters, for instance regions.
	Spread *Spread `json:"spread,omitempty"`
	// Replicas are divided over the chosen clusters; Limits, Storage and MaxPrice are then those of one replica.
	Replicas *Replicas `json:"replicas,omitempty"`
	// Components are parts of an application that are placed together, each on a cluster
	// that suits it: all of them or none. Not together with clusters, spread or replicas.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Components []Component `json:"components,omitempty"`
	// Links bound the latency between the clusters of two components.
	// +kubebuilder:validation:MaxItems=32
	Links []Link `json:"links,omitempty"`
	// Affinity places instances by where others of the same consumer are.
	// +kubebuilder:validation:MaxItems=8
	Affinity []Affinity `json:"affinity,omitempty"`
	// MaxLatency of chosen clusters.
	MaxLatency *LatencyBound `json:"maxLatency,omitempty"`
	// Near says where the consumers of the plan are, unless they say so themselves.
	Near *Location `json:"near,omitempty"`
	// MaxDistanceKilometers of chosen clusters from the consumer; clusters without a location are refused.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20038
	MaxDistanceKilometers int32 `json:"maxDistanceKilometers,omitempty"`
	// Adjustable lists what else the consumer may say by parameters.
	// +listType=set
	Adjustable []Adjustable `json:"adjustable,omitempty"`
	// OverlapSeconds is how long an instance that moves stays on the cluster that it leaves
	// after it is delivered elsewhere, as far as that cluster still answers.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	OverlapSeconds int64 `json:"overlapSeconds,omitempty"`
	// Peering delivers to the consumer's own cluster, with which Liqo peers the chosen ones.
	Peering *PeeringPlan `json:"peering,omitempty"`
	// Score says what to prefer among the clusters that fit.
	// +kubebuilder:default={}
	Score ScoreWeights `json:"score,omitempty"`
	// PriorityClass of the instances, as a policy declares it (PlacementPolicy
	// priorityClasses). One that no policy declares displaces nothing and is not displaced.
	// +kubebuilder:validation:MaxLength=63
	PriorityClass string `json:"priorityClass,omitempty"`
}

// PeeringPlan is what the consumer's own cluster gets: the member cluster that the parameter
// "cluster" names or, without, the only one that is the consumer's.
// +kubebuilder:validation:XValidation:rule="!has(self.offloading) || (self.gives == 'Node' && self.role == 'Transparent')",message="offloading extends a namespace on the consumer's cluster to its nodes, and so needs gives: Node and role: Transparent"
// +kubebuilder:validation:XValidation:rule="!(self.gives == 'Node' && self.role == 'HubAndSpoke')",message="a node of the consumer's cluster is peered directly: gives: Node needs role: Transparent"
type PeeringPlan struct {
	// Gives says what the consumer gets: Node, a virtual node of its own cluster for each chosen
	// cluster; or Network, a namespace as without peering, whose pods and services its own
	// cluster reaches.
	// +kubebuilder:validation:Enum=Node;Network
	Gives PeeringGives `json:"gives"`
	// Role of the broker: Transparent, with a data plane between the consumer's cluster and the
	// chosen ones; or HubAndSpoke, where both are peered with a hub only (MemberCluster
	// spec.liqo.hub), which holds the namespace, and neither sees the other.
	// +kubebuilder:validation:Enum=Transparent;HubAndSpoke
	// +kubebuilder:default=Transparent
	Role BrokerRole `json:"role,omitempty"`
	// Offloading gives the consumer a namespace on its own cluster too, which is extended to the
	// chosen clusters and to no others.
	Offloading *Offloading `json:"offloading,omitempty"`
}

// PeeringGives says what a consumer gets of a peering.
type PeeringGives string

// BrokerRole says where data goes that the broker has brought together.
type BrokerRole string

// What a peering gives, and the roles of the broker.
const (
	GivesNode    PeeringGives = "Node"
	GivesNetwork PeeringGives = "Network"

	RoleTransparent BrokerRole = "Transparent"
	RoleHubAndSpoke BrokerRole = "HubAndSpoke"
)

// Offloading says how a namespace is extended to virtual nodes, as Liqo's NamespaceOffloading.
// +kubebuilder:validation:XValidation:rule="(has(self.mapping) && self.mapping == 'SelectedName') == has(self.name)",message="name goes with mapping: SelectedName"
type Offloading struct {
	// Mapping of the namespace's name on the chosen clusters.
	// +kubebuilder:validation:Enum=DefaultName;EnforceSameName;SelectedName
	// +kubebuilder:default=DefaultName
	Mapping string `json:"mapping,omitempty"`
	// Name there, with the mapping SelectedName.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Pods run on the consumer's own nodes, on the virtual ones, or on both.
	// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
	// +kubebuilder:default=Remote
	Pods string `json:"pods,omitempty"`
}

// Component is a part of an application.
type Component struct {
	// Name of the component.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Limits of the component; none means those of the plan.
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Selector that its cluster matches besides the plan's.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Tier of its cluster; none means the plan's.
	Tier Tier `json:"tier,omitempty"`
}

// Link is between two components.
type Link struct {
	// Between names the two components.
	// +kubebuilder:validation:MinItems=2
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	Between []string `json:"between"`
	// MaxMilliseconds is the longest round-trip time between their clusters, as one of them
	// reports it from the other (MemberCluster spec.latencies); what nobody has measured is
	// too long. On the same cluster it is none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60000
	MaxMilliseconds int32 `json:"maxMilliseconds"`
}

// Adjustable is a parameter that a plan may leave to its consumers: location
// (latitude and longitude), application (a name that affinity refers to),
// excludeProviders, maxPricePerHour (at most the plan's), maxLatencyMilliseconds (at
// most the plan's).
// +kubebuilder:validation:Enum=location;application;excludeProviders;maxPricePerHour;maxLatencyMilliseconds
type Adjustable string

// What a plan may leave to its consumers.
const (
	AdjustLocation         Adjustable = "location"
	AdjustApplication      Adjustable = "application"
	AdjustExcludeProviders Adjustable = "excludeProviders"
	AdjustMaxPrice         Adjustable = "maxPricePerHour"
	AdjustMaxLatency       Adjustable = "maxLatencyMilliseconds"
)

// Spread says how chosen clusters lie over groups. Clusters that have the same
// values of all labels in By are one group. The numbers of clusters in the chosen
// groups are as even as the groups allow, and differ by at most MaxSkew.
// +kubebuilder:validation:XValidation:rule="!(has(self.groups) && has(self.each) && self.each)",message="a spread has groups or each, not both"
type Spread struct {
	// By are label keys, for instance topology.kubernetes.io/region; a cluster that lacks
	// one of them is refused.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	By []string `json:"by"`
	// Groups is the number of groups; none means a group of its own for each cluster.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Groups int32 `json:"groups,omitempty"`
	// Each asks for one cluster in every group that selector and tier leave, however many
	// those are (at most 64); the number of clusters then counts for nothing. Each has at least
	// one of the replicas, where there are some: fewer replicas than groups are refused.
	Each bool `json:"each,omitempty"`
	// MaxSkew is by how many the numbers of clusters in two chosen groups may differ.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	// +kubebuilder:default=1
	MaxSkew int32 `json:"maxSkew,omitempty"`
}

// Division says how replicas are divided over the chosen clusters, each of which
// gets at least one and at most what fits.
// +kubebuilder:validation:Enum=even;weight;capacity;price
type Division string

// Divisions.
const (
	// DivideEvenly gives every cluster the same.
	DivideEvenly Division = "even"
	// DivideByWeight follows the weights that the plan gives to clusters.
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
	// Divide says how.
	// +kubebuilder:default=even
	Divide Division `json:"divide,omitempty"`
	// Weights of clusters, where Divide is weight; the first selector that matches a cluster
	// counts, and 1 where none does.
	// +kubebuilder:validation:MaxItems=32
	Weights []ReplicaWeight `json:"weights,omitempty"`
}

// ReplicaWeight is the weight of the clusters that a selector matches.
type ReplicaWeight struct {
	// Selector of clusters.
	Selector metav1.LabelSelector `json:"selector"`
	// Weight in relation to the others'.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Weight int32 `json:"weight"`
}

// Scope says whose instances count: those of the same platform, organization, space
// or application. An application is what the parameter of that name says, within a space.
// +kubebuilder:validation:Enum=platform;organization;space;application
type Scope string

// Scopes.
const (
	ScopePlatform     Scope = "platform"
	ScopeOrganization Scope = "organization"
	ScopeSpace        Scope = "space"
	ScopeApplication  Scope = "application"
)

// Affinity places an instance by where other instances of a scope are. Together
// binds only once there is another one.
type Affinity struct {
	// With says which other instances count.
	With Scope `json:"with"`
	// Apart keeps away from them; otherwise the instance goes where they are.
	Apart bool `json:"apart,omitempty"`
	// By is a label: clusters that have the same value of it are one place.
	// +kubebuilder:default="sluice.dev/cluster"
	By string `json:"by,omitempty"`
	// Weight makes it a preference beside the scorers' weights; none makes it a requirement.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
}

// LatencyBound bounds the round-trip time to a cluster's API server.
type LatencyBound struct {
	// From is the vantage from which it is measured (MemberCluster spec.latencies); none
	// means Sluice itself.
	// +kubebuilder:validation:MaxLength=63
	From string `json:"from,omitempty"`
	// Milliseconds at most; clusters without a measurement are refused.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	Milliseconds int32 `json:"milliseconds"`
	// MaxAgeSeconds of a measurement from another vantage; none means any age.
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

// ScoreWeights weigh the scorers against each other; all zero means balance alone.
type ScoreWeights struct {
	// Balance prefers clusters with more left over.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Balance int32 `json:"balance,omitempty"`
	// Pack prefers clusters with less left over.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Pack int32 `json:"pack,omitempty"`
	// Price prefers cheaper clusters.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Price int32 `json:"price,omitempty"`
	// Latency prefers clusters that answer faster: Sluice's probes or, where the plan bounds
	// the latency from another vantage, that one's.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Latency int32 `json:"latency,omitempty"`
	// Locality prefers clusters near the consumer.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Locality int32 `json:"locality,omitempty"`
	// Freshness prefers clusters whose claims hold longer.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Freshness int32 `json:"freshness,omitempty"`
	// Diversity prefers regions with fewer instances of the same application, or of the same
	// space where no application is named.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Diversity int32 `json:"diversity,omitempty"`
	// External prefers what the external scorer prefers.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	External int32 `json:"external,omitempty"`
}

// CredentialsPolicy says what credentials bindings of a plan return.
// +kubebuilder:validation:XValidation:rule="!has(self.lifetimeSeconds) || !has(self.renewBeforeSeconds) || self.renewBeforeSeconds < self.lifetimeSeconds",message="renewBeforeSeconds must be less than lifetimeSeconds"
type CredentialsPolicy struct {
	// LifetimeSeconds of a binding's token; the member cluster may shorten it. Unbinding ends
	// it at once, however long it has. The default is a year, as most platforms read
	// credentials once, when they bind.
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=31536000
	LifetimeSeconds int64 `json:"lifetimeSeconds,omitempty"`
	// RenewBeforeSeconds before its expiry a platform should fetch the binding again, which
	// renews its credentials, or rotate it. Absent means when a fifth of the lifetime is left.
	// +kubebuilder:validation:Minimum=60
	RenewBeforeSeconds int64 `json:"renewBeforeSeconds,omitempty"`
	// Role of the binding within the instance's namespace: edit, or view. Cluster plans say
	// in cluster.roles what there is.
	// +kubebuilder:validation:Enum=cluster-admin;admin;edit;view
	// +kubebuilder:default=edit
	Role string `json:"role,omitempty"`
	// RequiresApp refuses bindings that name no application (OSB error RequiresApp).
	RequiresApp bool `json:"requiresApp,omitempty"`
}

// ServiceOfferingStatus holds what the catalog serves of an offering.
type ServiceOfferingStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready is True when Spec is what the catalog serves, otherwise it says why not.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Accepted is the last valid Spec.
	Accepted *ServiceOfferingSpec `json:"accepted,omitempty"`
}
