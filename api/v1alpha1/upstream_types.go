package v1alpha1

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ResourceInstances counts service instances: as capacity, those that a broker may be asked for; as a
// reservation, the one that an instance of an upstream plan takes.
const ResourceInstances corev1.ResourceName = "sluice.dev/instances"

// UpstreamBroker is an OSB broker behind this one, from which instances of upstream plans are ordered.
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://') || has(self.addresses)",message="a url with http is only for private networks, which addresses lists"
type UpstreamBroker struct {
	// URL of the broker, without /v2.
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^?#]*)?$`
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url"`
	// CABundle is PEM that the broker's certificate is checked against; empty means the system's roots.
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// Addresses, as CIDRs, at which the broker and its token server may be reached though they are not
	// public.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, isCIDR(a))",message="addresses are CIDRs, such as 10.0.0.0/8"
	Addresses []string `json:"addresses,omitempty"`
	// RefreshSeconds is the time between two reads of the catalog.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=60
	RefreshSeconds int32 `json:"refreshSeconds,omitempty"`
	// Allow lists what may be ordered, as SERVICE or SERVICE/PLAN; absent means everything.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=520
	// +listType=set
	Allow []string `json:"allow,omitempty"`
	// Deny lists what may not be ordered, in the same form; it comes before Allow.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=520
	// +listType=set
	Deny []string `json:"deny,omitempty"`
	// PassIdentity sends the context of the platform and the originating identity of its user. Without it,
	// the broker learns only the GUIDs of organization and space.
	PassIdentity bool `json:"passIdentity,omitempty"`
}

// Admits reports whether a plan of the broker may be ordered.
func (b *UpstreamBroker) Admits(service, plan string) bool {
	listed := func(list []string) bool {
		return slices.Contains(list, service) || slices.Contains(list, service+"/"+plan)
	}
	return !listed(b.Deny) && (len(b.Allow) == 0 || listed(b.Allow))
}

// UpstreamBrokerStatus is the catalog of a broker, as it was last read.
type UpstreamBrokerStatus struct {
	// Digest of the catalog.
	Digest string `json:"digest"`
	// ChangedAt is when this catalog was first read.
	ChangedAt metav1.Time `json:"changedAt"`
	// Plans that may be ordered, sorted by service and name.
	// +kubebuilder:validation:MaxItems=2000
	Plans []OfferedPlan `json:"plans,omitempty"`
	// Schemas of the parameters of those plans that offerings order here, as far as the broker gives them, sorted
	// by plan. Of what is no JSON Schema, or too long, there is only which parameters are writeOnly. Of plans that
	// are not here, all parameters are stored sealed.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Schemas []OfferedSchemas `json:"schemas,omitempty"`
	// LeftOut is the number of plans of the catalog that may not be ordered.
	LeftOut int32 `json:"leftOut,omitempty"`
	// Vanished lists plans, as SERVICE/PLAN, that an earlier catalog had and this one has not. New
	// instances of them are refused; those that exist go on.
	// +kubebuilder:validation:MaxItems=100
	Vanished []string `json:"vanished,omitempty"`
	// Sluice has what the broker says beyond OSB, if it is a Sluice; absent if it is not.
	Sluice *UpstreamSluice `json:"sluice,omitempty"`
	// Failures are orders that the broker refused or did not carry out within the last hour, the latest last:
	// one for each plan and organization. They count against new orders there.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Failures []OrderFailure `json:"failures,omitempty"`
}

// OrderFailure is an order that a broker refused or did not carry out.
type OrderFailure struct {
	// Plan that was ordered, as SERVICE/PLAN.
	Plan string `json:"plan"`
	// Platform and OrganizationGUID of the consumer.
	Platform         string `json:"platform"`
	OrganizationGUID string `json:"organizationGUID,omitempty"`
	// Reason of the broker.
	// +kubebuilder:validation:MaxLength=1000
	Reason string `json:"reason"`
	// At is the time of the failure.
	At metav1.Time `json:"at"`
}

// sameOrder reports whether two failures are of the same plan and organization.
func (f *OrderFailure) sameOrder(other *OrderFailure) bool {
	return f.Plan == other.Plan && f.Platform == other.Platform && f.OrganizationGUID == other.OrganizationGUID
}

// Limits of what is remembered of orders that failed.
const (
	// RememberFailures is how long a failed order counts.
	RememberFailures = time.Hour
	maxFailures      = 64
)

// AddFailures adds failed orders, and forgets those that are too old at a time. Of several orders of a plan
// for the same organization the latest counts, so that no consumer alone decides what is thought of a broker.
func (s *UpstreamBrokerStatus) AddFailures(now time.Time, more ...OrderFailure) {
	for i := range more {
		s.Failures = slices.DeleteFunc(s.Failures, func(f OrderFailure) bool { return f.sameOrder(&more[i]) })
		s.Failures = append(s.Failures, more[i])
	}
	s.Failures = slices.DeleteFunc(s.Failures, func(f OrderFailure) bool { return now.Sub(f.At.Time) >= RememberFailures })
	s.Failures = s.Failures[max(len(s.Failures)-maxFailures, 0):]
}

// OfferedPlan is a plan in the catalog of a broker.
type OfferedPlan struct {
	// Service is the name of the service offering, Plan the name of the plan.
	Service string `json:"service"`
	Plan    string `json:"plan"`
	// ServiceID and PlanID of them.
	ServiceID string `json:"serviceID"`
	PlanID    string `json:"planID"`
	// MaintenanceVersion of new instances, from the plan's maintenance_info; empty if it has none.
	MaintenanceVersion string `json:"maintenanceVersion,omitempty"`
	// PollingSeconds is the plan's maximum_polling_duration; 0 if it has none.
	PollingSeconds int64 `json:"pollingSeconds,omitempty"`
	// InstancesRetrievable and BindingsRetrievable report whether they can be fetched.
	InstancesRetrievable bool `json:"instancesRetrievable,omitempty"`
	BindingsRetrievable  bool `json:"bindingsRetrievable,omitempty"`
	// BindingRotatable reports whether bindings can be rotated.
	BindingRotatable bool `json:"bindingRotatable,omitempty"`
	// NotBindable reports that instances cannot be bound.
	NotBindable bool `json:"notBindable,omitempty"`
	// NotUpdateable reports that instances cannot change to another plan of the broker.
	NotUpdateable bool `json:"notUpdateable,omitempty"`
}

// OfferedSchemas are the schemas of a plan in the catalog of a broker.
type OfferedSchemas struct {
	// Plan as SERVICE/PLAN.
	Plan        string `json:"plan"`
	PlanSchemas `json:",inline"`
}

// Name returns SERVICE/PLAN.
func (p *OfferedPlan) Name() string { return p.Service + "/" + p.Plan }

// UpstreamPlan sells services of other brokers, which are member clusters with the driver osb. Placement
// chooses among them for each instance, which stays where it was ordered.
type UpstreamPlan struct {
	// Candidates are the plans of other brokers from which instances are ordered.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=broker
	Candidates []UpstreamCandidate `json:"candidates"`
	// MemberChoice says which of their brokers are chosen.
	MemberChoice `json:",inline"`
}

// UpstreamCandidate is a plan of another broker.
type UpstreamCandidate struct {
	// Broker is the name of the member cluster with the driver osb.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Broker string `json:"broker"`
	// Service and Plan by the names in the broker's catalog.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Service string `json:"service"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Plan string `json:"plan"`
	// Parameters that the broker gets. Strings may contain CEL in ${…}, over parameters (the consumer's) and
	// instance (id, platform, organization, space, plan), for instance size: ${parameters.size}. Absent means
	// the consumer's own parameters.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Price of an instance. Absent means that of sluice.dev/instances in the broker's price list.
	Price *Price `json:"price,omitempty"`
	// PassDashboard shows consumers the dashboard_url that the broker gives. Set it for brokers whose web pages
	// your consumers may trust; without it, no dashboard is shown. It holds for existing instances too.
	PassDashboard bool `json:"passDashboard,omitempty"`
}

// Name identifies the plan in the broker's catalog, as OfferedPlan.Name does.
func (c *UpstreamCandidate) Name() string { return c.Service + "/" + c.Plan }

// PlacementUpstream describes an instance at another broker. It does not change with the broker's catalog.
type PlacementUpstream struct {
	OfferedPlan `json:",inline"`
	// Parameters of the plan's candidate.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Dashboard of the instance, as its broker has given it; absent if it has given none.
	Dashboard *UpstreamDashboard `json:"dashboard,omitempty"`
}

// UpstreamDashboard is a dashboard_url of a broker. Whether consumers see it is up to the plan's candidate.
type UpstreamDashboard struct {
	// URL of the dashboard; empty if the broker gave none that can be passed on.
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url,omitempty"`
	// Ignored is the reason why the one that the broker gave last is not used.
	// +kubebuilder:validation:MaxLength=256
	Ignored string `json:"ignored,omitempty"`
}

// UpstreamOn returns what the instance is at a broker, by the delivered decision before the current one, or
// was if it has left; nil if it is nothing there.
func (s *ServiceInstanceStatus) UpstreamOn(broker string) *PlacementUpstream {
	found := (*PlacementUpstream)(nil)
	for _, p := range s.Everywhere() { // the current decision, then the delivered one
		if p.Cluster == broker && p.Upstream != nil {
			found = p.Upstream
		}
	}
	return found
}
