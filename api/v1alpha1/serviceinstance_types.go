package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceInstance is an instance that a platform asked for, and its progress. Its name is
// InstanceName(platform, instance id). Creating it commits a provision, changing its spec
// commits an update, deleting it commits a deprovision.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=si
// +kubebuilder:printcolumn:name=Platform,type=string,JSONPath=`.spec.platform`
// +kubebuilder:printcolumn:name=Instance,type=string,JSONPath=`.spec.instanceID`
// +kubebuilder:printcolumn:name=Operation,type=string,JSONPath=`.status.operation.type`
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.status.operation.state`
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.status.decision.placements[*].cluster`
// +kubebuilder:selectablefield:JSONPath=`.spec.platform`
type ServiceInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceInstanceSpec   `json:"spec"`
	Status ServiceInstanceStatus `json:"status,omitempty"`
}

// ServiceInstanceList is a list of service instances.
// +kubebuilder:object:root=true
type ServiceInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceInstance `json:"items"`
}

// ServiceInstanceSpec is the instance as the platform last asked for it.
type ServiceInstanceSpec struct {
	// Platform that owns the instance.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="platform is immutable"
	Platform string `json:"platform"`
	// InstanceID as the platform chose it; any characters.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="instanceID is immutable"
	InstanceID string `json:"instanceID"`
	// ServiceID of the offering.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="serviceID is immutable"
	ServiceID string `json:"serviceID"`
	// OrganizationGUID of the provision request.
	OrganizationGUID string `json:"organizationGUID,omitempty"`
	// SpaceGUID of the provision request.
	SpaceGUID string `json:"spaceGUID,omitempty"`
	// Desired state of the instance.
	Desired InstanceState `json:"desired"`
	// OriginatingIdentity of the last request that changed the instance.
	OriginatingIdentity *OriginatingIdentity `json:"originatingIdentity,omitempty"`
	// Via lists the ids of the hubs of other Sluices that the order has come through, the first
	// one first.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	Via []string `json:"via,omitempty"`
	// Pool is set if a pool has ordered the instance, to carry out an order of a consumer.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool is immutable"
	Pool *PoolOrder `json:"pool,omitempty"`
	// Attempt counts the provision requests for the instance. A platform that repeats a failed
	// provision starts a new attempt.
	Attempt int64 `json:"attempt,omitempty"`
}

// InstanceState is the part of an instance that an update can change.
type InstanceState struct {
	// PlanID of the instance's plan.
	PlanID string `json:"planID"`
	// Parameters of the consumer, valid against the plan's schema.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Context of the platform.
	// +kubebuilder:pruning:PreserveUnknownFields
	Context *runtime.RawExtension `json:"context,omitempty"`
	// MaintenanceVersion of the instance, from the plan's maintenance_info.
	MaintenanceVersion string `json:"maintenanceVersion,omitempty"`
}

// OriginatingIdentity is the end user for whom the platform acts, from the header
// X-Broker-API-Originating-Identity.
type OriginatingIdentity struct {
	// Platform name in the header, for instance cloudfoundry.
	Platform string `json:"platform"`
	// Value is the decoded JSON object.
	// +kubebuilder:pruning:PreserveUnknownFields
	Value runtime.RawExtension `json:"value"`
}

// ServiceInstanceStatus is the state of an instance, as the controller reports it.
type ServiceInstanceStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Placed, Delivered, Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Operation in progress, or the last one.
	Operation *Operation `json:"operation,omitempty"`
	// Decision that is being delivered. Writing it reserves the capacity that it names.
	Decision *Decision `json:"decision,omitempty"`
	// Delivered is the last state and decision that every chosen cluster carried out. It stays in
	// force, and its capacity reserved, while an update is in progress or has failed.
	Delivered *DeliveredState `json:"delivered,omitempty"`
	// Left lists placements on clusters that the instance has left, and former ones on clusters where it no longer has all
	// of its volumes. Their capacity stays reserved until what is left of them is removed.
	// +listType=map
	// +listMapKey=cluster
	Left []LeftPlacement `json:"left,omitempty"`
	// Moved is the last move of the instance to other clusters.
	Moved *Move `json:"moved,omitempty"`
	// Copies of an instance that its plan spreads over groups of clusters: where there is one of each
	// group, and whether it works. They follow the labels of the clusters.
	// +listType=map
	// +listMapKey=cluster
	Copies []Copy `json:"copies,omitempty"`
	// Preemption makes room for an instance that fits nowhere otherwise. Once it is written, its
	// victims leave.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Backups of the workload's volumes that can be restored, the oldest first; the last one may have failed.
	// +listType=map
	// +listMapKey=id
	Backups []Backup `json:"backups,omitempty"`
	// Copying of the content of the volumes where they are, if it is under way. See Decision.Data for moves.
	Copying *DataCopy `json:"copying,omitempty"`
	// Restored is the last restore that an operator asked for (AnnotationRestore), once it has ended.
	Restored *Restored `json:"restored,omitempty"`
	// SealedSecrets are the secrets of the instance's workload, sealed with the hub's keyset and
	// bound to this resource.
	SealedSecrets []byte `json:"sealedSecrets,omitempty"`
	// Events of the instance, the oldest first. Of more than 16, the older ones are in its Journal.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=sequence
	Events []Event `json:"events,omitempty"`
	// Usage of clusters by the instance, as it was delivered: the last periods, with those that go on at the
	// end. Of more than 8 that have ended, the older ones are in its Journal.
	// +listType=atomic
	Usage []UsagePeriod `json:"usage,omitempty"`
	// Contracts of the instance: the last ones, and the one in force at the end. Of more than 2 that have ended, the
	// older ones are in its Journal.
	// +listType=atomic
	Contracts []Contract `json:"contracts,omitempty"`
}

// Backup is a copy of what the volumes of an instance contain, at the target that the operator gives.
type Backup struct {
	// ID of the backup, in expressions backup.id.
	ID string `json:"id"`
	// Cluster whose volumes were copied.
	Cluster string `json:"cluster"`
	// Target is the URL of the place to which they were copied.
	Target string `json:"target,omitempty"`
	// At is when it was complete; absent if it never was.
	At *metav1.Time `json:"at,omitempty"`
	// FailedAt is when it, or the move that it was made for, failed, and Failure why; absent if it did not.
	FailedAt *metav1.Time `json:"failedAt,omitempty"`
	Failure  string       `json:"failure,omitempty"`
}

// Restored is the end of a restore that an operator asked for.
type Restored struct {
	// Request is the value of AnnotationRestore.
	Request string `json:"request"`
	// Backup is the ID of the backup, and Cluster the one whose volumes got its content; empty if it was
	// not decided.
	Backup  string `json:"backup,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// At is when the workload worked with it. FailedAt is when it failed instead, and Failure why.
	At       *metav1.Time `json:"at,omitempty"`
	FailedAt *metav1.Time `json:"failedAt,omitempty"`
	Failure  string       `json:"failure,omitempty"`
}

// Copy is the part on one cluster of an instance that is spread over groups of clusters.
type Copy struct {
	// Group is the combination of values of the labels by which the plan spreads, by label.
	Group map[string]string `json:"group,omitempty"`
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Ready reports whether the copy works.
	Ready bool `json:"ready"`
	// Since is the time from which on it has been in its group, and ready or not.
	Since metav1.Time `json:"since"`
}

// DeliveredState is a state of the instance that the chosen clusters have carried out.
type DeliveredState struct {
	// State of the instance.
	State InstanceState `json:"state"`
	// Decision that was delivered.
	Decision Decision `json:"decision"`
}

// Decision is the result of a placement: the chosen clusters, the amounts, and the reasons
// against the others.
type Decision struct {
	// Generation of the spec that was placed.
	Generation int64 `json:"generation"`
	// Term of the leader that made the decision: the holder of the hub's Lease and the number of
	// its transitions. Empty with an embedded hub, which has one writer. A later leader repeats the
	// decision of another term before it delivers it.
	Term string `json:"term,omitempty"`
	// Placements, one for each chosen cluster.
	// +listType=map
	// +listMapKey=cluster
	Placements []Placement `json:"placements,omitempty"`
	// Considered is the number of clusters in the inventory.
	Considered int32 `json:"considered"`
	// Rejections, one for each reason; clusters beyond the named ones are counted.
	Rejections []Rejection `json:"rejections,omitempty"`
	// RunnerUp is the cluster that would have been chosen next.
	RunnerUp *RunnerUp `json:"runnerUp,omitempty"`
	// Leaving are the clusters that the instance leaves by this decision, until the decision is
	// delivered.
	// +listType=map
	// +listMapKey=cluster
	Leaving []Departure `json:"leaving,omitempty"`
	// Joining lists the clusters that a delivered instance gets in addition, until the decision is
	// delivered: those of new groups, if the plan has one cluster in each group (Spread.Each).
	// +listType=map
	// +listMapKey=cluster
	Joining []Arrival `json:"joining,omitempty"`
	// PriorityClass of the instance when it was decided.
	PriorityClass string `json:"priorityClass,omitempty"`
	// Workload that runs on each chosen cluster, if the plan sells one. It stays as it is until the
	// consumer asks for another plan or for the plan's next maintenance.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Workload *WorkloadPlan `json:"workload,omitempty"`
	// Replacement is the current step in which components or replicas of the workload change their clusters
	// without a gap; empty after the last one, and if there may be no room for them on both clusters.
	Replacement ReplacementStep `json:"replacement,omitempty"`
	// Data is the current step of moving the content of the volumes, until the decision is delivered; nil
	// if the instance does not move with its data.
	Data *DataCopy `json:"data,omitempty"`
	// Exposed are the ports of its own pods that the consumer makes public, if the plan allows any.
	// +listType=map
	// +listMapKey=name
	Exposed []ExposedPort `json:"exposed,omitempty"`
	// Hosts that are asked for public ports, which no other instance has: their first labels, or whole hosts in
	// domains of consumers.
	// +listType=set
	Hosts []string `json:"hosts,omitempty"`
	// Preemption that made room for the decision.
	Preemption *Preemption `json:"preemption,omitempty"`
	// Displaced are clusters that the instance has left and for which there is no replacement yet.
	// +listType=map
	// +listMapKey=cluster
	Displaced []Departure `json:"displaced,omitempty"`
	// Terms by which the decision was made.
	Terms *Terms `json:"terms,omitempty"`
}

// RunnerUp is the cluster that would have been chosen next.
type RunnerUp struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Score of the cluster, 0 to 100.
	Score int32 `json:"score"`
}

// Placement is one chosen cluster and what is reserved on it.
type Placement struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Replicas on that cluster, if the plan divides replicas.
	Replicas int32 `json:"replicas,omitempty"`
	// Components on that cluster, if the plan has components.
	Components []string `json:"components,omitempty"`
	// Linked are the clusters with components of the same workload to which those here are linked.
	Linked []LinkedCluster `json:"linked,omitempty"`
	// Reserved on that cluster. Persistent storage is counted per class under
	// "<class>.storageclass.storage.k8s.io/requests.storage", as in a ResourceQuota.
	Reserved corev1.ResourceList `json:"reserved"`
	// Replaced is the resources that earlier decisions reserved there, if they were replaced before they were
	// delivered: until this one is delivered, the cluster may carry those.
	Replaced corev1.ResourceList `json:"replaced,omitempty"`
	// Grown is the storage, by class, that volumes have there beyond Reserved: they had grown for an update that was
	// rolled back, and volumes cannot shrink. It is reserved too, and costs nothing.
	Grown corev1.ResourceList `json:"grown,omitempty"`
	// LargestPods that the instance is meant to run there, each on one node; none if they are not known.
	// +listType=atomic
	LargestPods []corev1.ResourceList `json:"largestPods,omitempty"`
	// Score of the cluster, 0 to 100.
	Score int32 `json:"score"`
	// PricePerHour of the reservation, if the cluster has a price list.
	PricePerHour *resource.Quantity `json:"pricePerHour,omitempty"`
	// Currency of PricePerHour.
	Currency string `json:"currency,omitempty"`
	// Shape is the cluster that is created there, if the plan sells clusters.
	Shape *ClusterShape `json:"shape,omitempty"`
	// Peering with the consumer's own cluster, if the plan asks for one.
	Peering *PlacementPeering `json:"peering,omitempty"`
	// PublicPorts are the ports of the Gateway, by component, for public ports with appProtocol tcp. No other
	// instance has them on the cluster.
	PublicPorts map[string]int32 `json:"publicPorts,omitempty"`
	// Workloads has the rules of policies for the pods there, which the cluster enforces; all hold.
	// +listType=atomic
	Workloads []WorkloadRules `json:"workloads,omitempty"`
	// Upstream describes the order at the broker, if the plan sells services of brokers.
	Upstream *PlacementUpstream `json:"upstream,omitempty"`
	// Pool describes the order by which a pool carries out the placement, if it is on one.
	Pool *PlacementPool `json:"pool,omitempty"`
}

// LinkedCluster is another cluster of an instance whose components are linked to those of a placement.
type LinkedCluster struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Links, each with the component here and the one there.
	Links []ComponentLink `json:"links"`
}

// ComponentLink connects two components on different clusters.
type ComponentLink struct {
	// Here is the component of the placement.
	Here string `json:"here"`
	// There is the component on the other cluster.
	There string `json:"there"`
}

// Link adds that a component of the placement is linked to one on another cluster. It is idempotent.
func (p *Placement) Link(here, cluster, there string) {
	at := slices.IndexFunc(p.Linked, func(l LinkedCluster) bool { return l.Cluster == cluster })
	if at < 0 {
		at, p.Linked = len(p.Linked), append(p.Linked, LinkedCluster{Cluster: cluster})
	}
	if link := (ComponentLink{Here: here, There: there}); !slices.Contains(p.Linked[at].Links, link) {
		p.Linked[at].Links = append(p.Linked[at].Links, link)
	}
}

// GivePort adds the public port of a component; 0 is none.
func (p *Placement) GivePort(component string, port int32) {
	if port == 0 {
		return
	}
	if p.PublicPorts == nil {
		p.PublicPorts = map[string]int32{}
	}
	p.PublicPorts[component] = port
}

// Runs reports whether a component of the instance's workload runs on the cluster.
func (p *Placement) Runs(component string) bool {
	return len(p.Components) == 0 || slices.Contains(p.Components, component)
}

// PlacementPeering describes how the consumer's own cluster reaches a placement.
type PlacementPeering struct {
	// Consumer is the consumer's own cluster, by the name of its MemberCluster.
	Consumer string `json:"consumer"`
	// Hub is the member cluster through which they reach each other; empty if they are peered
	// directly.
	Hub string `json:"hub,omitempty"`
	// Node is the name of the virtual node that stands for the placement: on the hub if there is
	// one, otherwise on the consumer's cluster. Empty if the plan gives no node.
	Node string `json:"node,omitempty"`
	// Offloading describes how namespaces are extended to the nodes.
	Offloading *Offloading `json:"offloading,omitempty"`
}

// Rejection is one reason why clusters were not chosen.
type Rejection struct {
	// Reason is a CamelCase word, for instance InsufficientCPU.
	Reason string `json:"reason"`
	// Count of the clusters rejected for this reason.
	Count int32 `json:"count"`
	// Examples are a few of those clusters, with the numbers.
	Examples []RejectionExample `json:"examples,omitempty"`
}

// RejectionExample is one rejected cluster.
type RejectionExample struct {
	// Cluster is the name of the member cluster.
	Cluster string `json:"cluster"`
	// Message with the numbers, for instance "needs 4 cpu, 3.2 free of 16 after 1.8 reserved".
	Message string `json:"message"`
}
