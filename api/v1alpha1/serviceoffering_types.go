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
// +kubebuilder:validation:Enum=resources
type PlanKind string

// PlanKindResources sells raw resources: a namespace with a quota on each chosen cluster.
const PlanKindResources PlanKind = "resources"

// Plan follows the OSB 2.17 Service Plan Object.
// +kubebuilder:validation:XValidation:rule="self.kind != 'resources' || has(self.resources)",message="a plan of kind resources needs the section resources"
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
	// Credentials that bindings of this plan return.
	// +kubebuilder:default={}
	Credentials CredentialsPolicy `json:"credentials,omitempty"`
}

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
	// Score says what to prefer among the clusters that fit.
	// +kubebuilder:default={}
	Score ScoreWeights `json:"score,omitempty"`
}

// Price is an amount of money per hour.
type Price struct {
	// Currency as an ISO 4217 code.
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// PerHour in units of the currency.
	PerHour resource.Quantity `json:"perHour"`
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
	// Latency prefers clusters that answer Sluice's probes faster.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Latency int32 `json:"latency,omitempty"`
}

// CredentialsPolicy says what credentials bindings of a plan return.
// +kubebuilder:validation:XValidation:rule="!has(self.lifetimeSeconds) || !has(self.renewBeforeSeconds) || self.renewBeforeSeconds < self.lifetimeSeconds",message="renewBeforeSeconds must be less than lifetimeSeconds"
type CredentialsPolicy struct {
	// LifetimeSeconds of a binding's token; the member cluster may shorten it.
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=86400
	LifetimeSeconds int64 `json:"lifetimeSeconds,omitempty"`
	// RenewBeforeSeconds before its expiry a platform should rotate the binding.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:default=300
	RenewBeforeSeconds int64 `json:"renewBeforeSeconds,omitempty"`
	// Role of the binding within the instance's namespace: edit, or view.
	// +kubebuilder:validation:Enum=edit;view
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
