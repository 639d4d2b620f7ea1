package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event is one thing that happened to a service instance, a binding, a member cluster or a peering. It is written together with the
// change that it reports. The UID of the resource and Sequence identify it.
type Event struct {
	// Sequence numbers the events of a resource from 1, without gaps.
	// +kubebuilder:validation:Minimum=1
	Sequence int64 `json:"sequence"`
	// At is when it happened, by the clock of Sluice.
	At metav1.MicroTime `json:"at"`
	// Type of the event.
	Type EventType `json:"type"`
	// Operation of which it is a part; absent if none was under way.
	Operation OperationType `json:"operation,omitempty"`
	// PlanID of the instance's plan.
	PlanID string `json:"planID,omitempty"`
	// Clusters that it is about, at most 32 of them.
	// +kubebuilder:validation:MaxItems=32
	Clusters []string `json:"clusters,omitempty"`
	// Message for operators: the reason, and figures.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// By is the end user for whom the platform asked, if it said so.
	By *OriginatingIdentity `json:"by,omitempty"`
	// After is the time since the operation, or the move, began.
	After *metav1.Duration `json:"after,omitempty"`
}

// EventType is the type of an event.
// +kubebuilder:validation:Enum=Ordered;Placed;Refused;Delivered;Moved;Failed;NotReady;Ready;Bound;Reissued;Expiring;NearQuota;Removed;Lost;Admitted;NotAdmitted;Cordoned;Uncordoned;Drained
type EventType string

// Event types.
const (
	EventOrdered   EventType = "Ordered"   // the platform asked for an operation
	EventPlaced    EventType = "Placed"    // clusters were chosen, and their capacity is reserved
	EventRefused   EventType = "Refused"   // another broker did not carry out the order
	EventDelivered EventType = "Delivered" // the clusters have what was ordered
	EventMoved     EventType = "Moved"     // the instance is on other clusters
	EventFailed    EventType = "Failed"    // the operation, or the move, failed
	EventNotReady  EventType = "NotReady"  // a delivered instance stopped working
	EventReady     EventType = "Ready"     // it works again
	EventBound     EventType = "Bound"     // credentials were issued
	EventReissued  EventType = "Reissued"  // other credentials replace them
	EventExpiring  EventType = "Expiring"  // the credentials end, or have ended
	EventNearQuota EventType = "NearQuota" // with it, the consumer has as much of a quota as the policy warns at
	EventRemoved   EventType = "Removed"   // nothing of it is left on any cluster
)

// Event types of member clusters and peerings, beside Ready, NotReady and Removed.
const (
	EventLost        EventType = "Lost"        // the cluster does not answer
	EventAdmitted    EventType = "Admitted"    // its provider has proven what is required
	EventNotAdmitted EventType = "NotAdmitted" // that is no longer proven
	EventCordoned    EventType = "Cordoned"    // it takes no new placements
	EventUncordoned  EventType = "Uncordoned"  // it takes new placements again
	EventDrained     EventType = "Drained"     // it was to be drained, and no instance is left on it
)

// Ends returns the state in which the event leaves its operation; "" if it does not end one.
func (e *Event) Ends() OperationState {
	switch {
	case e.Operation == "":
		return ""
	case e.Type == EventFailed:
		return StateFailed
	case e.Type == EventDelivered, e.Type == EventBound, e.Type == EventRemoved:
		return StateSucceeded
	}
	return ""
}

// IsBad reports whether the event is one that somebody may have to do something about.
func (t EventType) IsBad() bool {
	switch t {
	case EventRefused, EventFailed, EventNotReady, EventExpiring, EventNearQuota, EventLost, EventNotAdmitted:
		return true
	}
	return false
}

// MostEvents is the number of events beyond which a resource's older ones move to its journal. One write adds
// at most half of them.
const MostEvents = 16

// LongestEventMessage is the length of the longest message of an event, in characters.
const LongestEventMessage = 1024

// AddEvent adds an event with the next sequence number, and returns it. Clusters beyond 32 are left out.
func AddEvent(events *[]Event, e Event) Event {
	const mostClusters = 32
	e.Sequence = LastSequence(*events) + 1
	e.Clusters = e.Clusters[:min(len(e.Clusters), mostClusters)]
	e.Message = Cut(e.Message, LongestEventMessage)
	*events = append(*events, e)
	return e
}

// LastSequence returns the sequence number of the last event; 0 if there is none.
func LastSequence(events []Event) int64 {
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Sequence
}

// Journal keeps the events of a service instance, a binding, a member cluster or a peering, and the usage and the
// contracts of an instance: the older ones while it exists, all of them once it is gone. Its name is the UID of the
// resource. Of an instance with very many periods of usage, or contracts, further journals keep the older ones; their
// names begin with the UID.
//
// +kubebuilder:object:root=true
// +kubebuilder:printcolumn:name=Platform,type=string,JSONPath=`.spec.platform`
// +kubebuilder:printcolumn:name=Instance,type=string,JSONPath=`.spec.instanceID`
// +kubebuilder:printcolumn:name=Binding,type=string,JSONPath=`.spec.bindingID`
// +kubebuilder:printcolumn:name=Ended,type=date,JSONPath=`.spec.endedAt`
// +kubebuilder:selectablefield:JSONPath=`.spec.name`
type Journal struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec JournalSpec `json:"spec"`
}

// JournalList is a list of journals.
// +kubebuilder:object:root=true
type JournalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Journal `json:"items"`
}

// JournalSpec names a resource, and holds its events, its usage and its contracts.
type JournalSpec struct {
	EventSubject `json:",inline"`
	// EndedAt is when the resource was removed; absent while it exists. Of a journal with nothing but older usage or
	// contracts, it is the end of the last of them.
	EndedAt *metav1.MicroTime `json:"endedAt,omitempty"`
	// Events, the oldest first. Of more than 400, the oldest are dropped.
	// +kubebuilder:validation:MaxItems=400
	Events []Event `json:"events"`
	// Usage of an instance, the periods that ended first come first.
	// +listType=atomic
	Usage []UsagePeriod `json:"usage,omitempty"`
	// Contracts of an instance, by number.
	// +listType=atomic
	Contracts []Contract `json:"contracts,omitempty"`
}

// EventSubject is the resource to which events happened.
type EventSubject struct {
	// Kind is ServiceInstance, ServiceBinding, MemberCluster or Peering.
	// +kubebuilder:validation:Enum=ServiceInstance;ServiceBinding;MemberCluster;Peering
	Kind string `json:"kind"`
	// Name of the resource.
	Name string `json:"name"`
	// Platform that owns it; absent for clusters and peerings, as are all of the following.
	Platform string `json:"platform,omitempty"`
	// InstanceID and BindingID as the platform chose them; an instance has no BindingID.
	InstanceID string `json:"instanceID,omitempty"`
	BindingID  string `json:"bindingID,omitempty"`
	// ServiceID of the instance's offering.
	ServiceID string `json:"serviceID,omitempty"`
	// OrganizationGUID and SpaceGUID of the instance, if the platform gave them.
	OrganizationGUID string `json:"organizationGUID,omitempty"`
	SpaceGUID        string `json:"spaceGUID,omitempty"`
}

// Kinds of resources with events.
const (
	KindServiceInstance = "ServiceInstance"
	KindServiceBinding  = "ServiceBinding"
	KindMemberCluster   = "MemberCluster"
	KindPeering         = "Peering"
)

// MostJournalEvents is the number of events that a journal keeps.
const MostJournalEvents = 400

// Subject returns the instance as the subject of its events.
func (i *ServiceInstance) Subject() EventSubject {
	return EventSubject{
		Kind: KindServiceInstance, Name: i.Name, Platform: i.Spec.Platform, InstanceID: i.Spec.InstanceID, ServiceID: i.Spec.ServiceID,
		OrganizationGUID: i.Spec.OrganizationGUID, SpaceGUID: i.Spec.SpaceGUID,
	}
}

// Subject returns the binding as the subject of its events.
func (b *ServiceBinding) Subject() EventSubject {
	return EventSubject{Kind: KindServiceBinding, Name: b.Name, Platform: b.Spec.Platform, InstanceID: b.Spec.InstanceID, BindingID: b.Spec.BindingID, ServiceID: b.Spec.ServiceID}
}

// History returns the instance's events that its journal need not hold, the oldest first.
func (i *ServiceInstance) History() *[]Event { return &i.Status.Events }

// Metered returns the instance's usage that its journal need not hold.
func (i *ServiceInstance) Metered() *[]UsagePeriod { return &i.Status.Usage }

// History returns the binding's events that its journal need not hold, the oldest first.
func (b *ServiceBinding) History() *[]Event { return &b.Status.Events }

// Subject returns the cluster as the subject of its events.
func (c *MemberCluster) Subject() EventSubject {
	return EventSubject{Kind: KindMemberCluster, Name: c.Name}
}

// History returns the cluster's events that its journal need not hold, the oldest first.
func (c *MemberCluster) History() *[]Event { return &c.Status.Events }

// Subject returns the peering as the subject of its events.
func (p *Peering) Subject() EventSubject { return EventSubject{Kind: KindPeering, Name: p.Name} }

// History returns the peering's events that its journal need not hold, the oldest first.
func (p *Peering) History() *[]Event { return &p.Status.Events }
