package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceOffering is an OSB service offering with its plans.
//
// The catalog serves Status.Accepted. It follows Spec only while the whole catalog stays
// valid: ids and names are unique across offerings, and no id that an instance uses is
// removed or changes its meaning.
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
// +kubebuilder:validation:XValidation:rule="has(self.provider) == has(oldSelf.provider) && (!has(self.provider) || self.provider == oldSelf.provider)",message="a service offering's provider is immutable"
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
	// Bindable reports whether instances can be bound; a plan may override it.
	// +kubebuilder:default=true
	Bindable bool `json:"bindable"`
	// PlanUpdateable reports whether instances can change their plan; a plan may override it.
	// +kubebuilder:default=true
	PlanUpdateable bool `json:"planUpdateable"`
	// AllowContextUpdates reports whether platforms may send updates of the context alone.
	// +kubebuilder:default=true
	AllowContextUpdates bool `json:"allowContextUpdates"`
	// Metadata for the marketplace, with the names of OSB's "Service Metadata" conventions
	// (displayName, imageUrl, longDescription, providerDisplayName, documentationUrl, supportUrl).
	// +kubebuilder:pruning:PreserveUnknownFields
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`
	// BindingRotatable reports whether platforms may rotate bindings; a plan may override it.
	// +kubebuilder:default=true
	BindingRotatable bool `json:"bindingRotatable"`
	// Provider that sells the offering itself: its plans are sold on the clusters of that provider only, whatever their
	// selectors say. Empty is an offering of the operator.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`
	// DashboardClient is passed to platforms that create OAuth clients.
	DashboardClient *DashboardClient `json:"dashboardClient,omitempty"`
	// Platforms that see this offering; empty means all.
	Platforms []string `json:"platforms,omitempty"`
	// Plans of the offering.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:XValidation:rule="[self.map(p, p.name)].all(names, names.all(n, names.exists_one(m, m == n)))",message="plan names must be unique within the offering"
	Plans []Plan `json:"plans"`
}

// DashboardClient is the OSB Dashboard Client Object.
type DashboardClient struct {
	ID          string `json:"id"`
	Secret      string `json:"secret"`
	RedirectURI string `json:"redirectURI,omitempty"`
}

// PlanKind is the kind of product that a plan sells.
// +kubebuilder:validation:Enum=resources;cluster;workload;upstream
type PlanKind string

const (
	// PlanKindResources sells raw resources: a namespace with a quota on each chosen cluster.
	PlanKindResources PlanKind = "resources"
	// PlanKindCluster sells whole clusters.
	PlanKindCluster PlanKind = "cluster"
	// PlanKindWorkload sells running software: components in a namespace on each chosen cluster.
	PlanKindWorkload PlanKind = "workload"
	// PlanKindUpstream sells services of other brokers.
	PlanKindUpstream PlanKind = "upstream"
)

// Plan follows the OSB 2.17 Service Plan Object.
// +kubebuilder:validation:XValidation:rule="self.kind != 'resources' || has(self.resources)",message="a plan of kind resources needs the section resources"
// +kubebuilder:validation:XValidation:rule="self.kind != 'cluster' || has(self.cluster)",message="a plan of kind cluster needs the section cluster"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'workload') == has(self.workload)",message="the section workload goes with kind: workload"
// +kubebuilder:validation:XValidation:rule="(self.kind == 'upstream') == has(self.upstream)",message="the section upstream goes with kind: upstream"
// +kubebuilder:validation:XValidation:rule="self.kind != 'upstream' || !has(self.resources)",message="a plan of kind upstream has no section resources"
// +kubebuilder:validation:XValidation:rule="self.kind != 'resources' || !has(self.resources) || has(self.resources.limits)",message="a plan of kind resources needs resources.limits"
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
	// Free reports whether the plan costs nothing.
	// +kubebuilder:default=true
	Free *bool `json:"free,omitempty"`
	// Bindable overrides the offering's.
	Bindable *bool `json:"bindable,omitempty"`
	// PlanUpdateable overrides the offering's.
	PlanUpdateable *bool `json:"planUpdateable,omitempty"`
	// BindingRotatable overrides the offering's.
	BindingRotatable *bool `json:"bindingRotatable,omitempty"`
	// MaximumPollingDurationSeconds is how long platforms poll an operation of this plan. Sluice
	// fails an operation shortly before.
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:default=3600
	MaximumPollingDurationSeconds int32 `json:"maximumPollingDurationSeconds,omitempty"`
	// WaitFor selects the orders that wait when they fit nowhere: those that could be placed once
	// capacity becomes free or a cluster returns (Capacity), or all (Anything). Other orders fail
	// at once, with the reasons.
	// +kubebuilder:default=Capacity
	WaitFor WaitFor `json:"waitFor,omitempty"`
	// MaintenanceInfo of new instances.
	MaintenanceInfo *MaintenanceInfo `json:"maintenanceInfo,omitempty"`
	// DashboardURL of instances. {platform}, {instance_id} and {instance} (the resource's name) are
	// replaced, the first two percent-encoded.
	// +kubebuilder:validation:Pattern=`^https?://`
	DashboardURL string `json:"dashboardURL,omitempty"`
	// Platforms that see this plan; empty means all that see the offering.
	Platforms []string `json:"platforms,omitempty"`
	// Schemas add constraints to the parameters that the plan's kind defines.
	Schemas *PlanSchemas `json:"schemas,omitempty"`
	// Kind of product that the plan sells.
	Kind PlanKind `json:"kind"`
	// Resources of a plan with kind resources. With kind workload, it says where the workload may run
	// and, with limits and storage, how much it may take at most on each cluster.
	Resources *ResourcesPlan `json:"resources,omitempty"`
	// Cluster of a plan with kind cluster.
	Cluster *ClusterPlan `json:"cluster,omitempty"`
	// Workload of a plan with kind workload.
	Workload *WorkloadPlan `json:"workload,omitempty"`
	// Upstream of a plan with kind upstream.
	Upstream *UpstreamPlan `json:"upstream,omitempty"`
	// Credentials that bindings of this plan return.
	// +kubebuilder:default={}
	Credentials CredentialsPolicy `json:"credentials,omitempty"`
}

// WaitFor selects the orders that wait when they fit nowhere.
// +kubebuilder:validation:Enum=Capacity;Anything
type WaitFor string

// Values of WaitFor; empty means Capacity.
const (
	// WaitForCapacity waits for capacity to become free, and for clusters to answer, to take new
	// placements again, or to have more proven about them.
	WaitForCapacity WaitFor = "Capacity"
	// WaitForAnything also waits for changes of the clusters themselves.
	WaitForAnything WaitFor = "Anything"
)

// Cost is one line of a plan's price, for instance 29.5 EUR MONTHLY.
type Cost struct {
	// Amount per currency (lower-case ISO 4217), in units of that currency, for instance eur: "29.50". It is
	// from 0 to 9223372036.
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
	// Description of the changes.
	Description string `json:"description,omitempty"`
}

// PlanSchemas are JSON Schemas (draft-04 or later) of the parameters that a platform may
// send.
type PlanSchemas struct {
	// InstanceCreate constrains the parameters of provision.
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceCreate *runtime.RawExtension `json:"instanceCreate,omitempty"`
	// InstanceUpdate constrains the parameters of update. If an offering has none, InstanceCreate does.
	// +kubebuilder:pruning:PreserveUnknownFields
	InstanceUpdate *runtime.RawExtension `json:"instanceUpdate,omitempty"`
	// BindingCreate constrains the parameters of bind.
	// +kubebuilder:pruning:PreserveUnknownFields
	BindingCreate *runtime.RawExtension `json:"bindingCreate,omitempty"`
}

// CredentialsPolicy describes the credentials that bindings of a plan return.
// +kubebuilder:validation:XValidation:rule="!has(self.lifetimeSeconds) || !has(self.renewBeforeSeconds) || self.renewBeforeSeconds < self.lifetimeSeconds",message="renewBeforeSeconds must be less than lifetimeSeconds"
type CredentialsPolicy struct {
	// LifetimeSeconds of a binding's token; the member cluster may shorten it. Unbinding ends the
	// token at once, whatever its lifetime. The default is a year, because most platforms read
	// credentials only once, when they bind.
	// +kubebuilder:validation:Minimum=600
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=31536000
	LifetimeSeconds int64 `json:"lifetimeSeconds,omitempty"`
	// RenewBeforeSeconds before the expiry, a platform should fetch the binding again, which renews
	// its credentials, or rotate it. Absent means a fifth of the lifetime.
	// +kubebuilder:validation:Minimum=60
	RenewBeforeSeconds int64 `json:"renewBeforeSeconds,omitempty"`
	// Role of the binding within the instance's namespace: edit or view. The default is edit; for
	// workload plans it is none, and then bindings have no account there. For cluster plans,
	// cluster.roles lists the roles instead.
	// +kubebuilder:validation:Enum=cluster-admin;admin;edit;view
	Role string `json:"role,omitempty"`
	// RequiresApp refuses bindings that name no application (OSB error RequiresApp).
	RequiresApp bool `json:"requiresApp,omitempty"`
}

// HasPlan reports whether an offering has a plan with an id; nil has none.
func (s *ServiceOfferingSpec) HasPlan(id string) bool {
	return s != nil && slices.ContainsFunc(s.Plans, func(p Plan) bool { return p.ID == id })
}

// ServiceOfferingStatus holds the part of an offering that the catalog serves.
type ServiceOfferingStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready is True if the catalog serves Spec; otherwise its message gives the reason.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Accepted is the last valid Spec.
	Accepted *ServiceOfferingSpec `json:"accepted,omitempty"`
}
