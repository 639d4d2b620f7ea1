package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceBinding is a binding that a platform asked for. Its name is
// BindingName(platform, instance id, binding id). Its spec never changes. A rotation
// creates another binding, which names this one as its predecessor.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=sb
// +kubebuilder:printcolumn:name=Platform,type=string,JSONPath=`.spec.platform`
// +kubebuilder:printcolumn:name=Instance,type=string,JSONPath=`.spec.instanceID`
// +kubebuilder:printcolumn:name=Binding,type=string,JSONPath=`.spec.bindingID`
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.status.operation.state`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:selectablefield:JSONPath=`.spec.instanceName`
type ServiceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceBindingSpec   `json:"spec"`
	Status ServiceBindingStatus `json:"status,omitempty"`
}

// FieldInstanceName is the field by which bindings of an instance are selected: on the hub, and in a cache that has an index
// of it.
const FieldInstanceName = "spec.instanceName"

// ServiceBindingList is a list of service bindings.
// +kubebuilder:object:root=true
type ServiceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceBinding `json:"items"`
}

// ServiceBindingSpec is the binding as the platform asked for it.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a binding is immutable; rotate it with predecessor_binding_id"
type ServiceBindingSpec struct {
	// Platform that owns the binding.
	Platform string `json:"platform"`
	// InstanceName is the name of the ServiceInstance.
	InstanceName string `json:"instanceName"`
	// InstanceID as the platform chose it.
	InstanceID string `json:"instanceID"`
	// BindingID as the platform chose it.
	BindingID string `json:"bindingID"`
	// ServiceID of the offering.
	ServiceID string `json:"serviceID"`
	// PlanID of the instance's plan at the time of the request.
	PlanID string `json:"planID"`
	// PredecessorBindingID is the binding that this one replaces by rotation.
	PredecessorBindingID string `json:"predecessorBindingID,omitempty"`
	// AppGUID is OSB's deprecated app_guid.
	AppGUID string `json:"appGUID,omitempty"`
	// BindResource is OSB's bind_resource.
	// +kubebuilder:pruning:PreserveUnknownFields
	BindResource *runtime.RawExtension `json:"bindResource,omitempty"`
	// Parameters of the consumer, valid against the plan's schema. Those that the schema calls writeOnly are sealed.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Context of the platform.
	// +kubebuilder:pruning:PreserveUnknownFields
	Context *runtime.RawExtension `json:"context,omitempty"`
	// OriginatingIdentity of the request.
	OriginatingIdentity *OriginatingIdentity `json:"originatingIdentity,omitempty"`
	// Credentials policy of the plan at the time of the request.
	Credentials CredentialsPolicy `json:"credentials"`
}

// ServiceBindingStatus is the state of a binding, as the controller reports it.
type ServiceBindingStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Operation in progress, or the last one.
	Operation *Operation `json:"operation,omitempty"`
	// SealedCredentials is the OSB credentials object, sealed with the hub's keyset
	// and bound to this resource.
	SealedCredentials []byte `json:"sealedCredentials,omitempty"`
	// SealedSecrets are the secrets that the plan's workload has for this binding, and what its bind hook
	// returned, sealed with the hub's keyset and bound to this resource.
	SealedSecrets []byte `json:"sealedSecrets,omitempty"`
	// Endpoints at which the consumer reaches what it bought; Sluice has seen each of them exist.
	// They are Services and pods, by their addresses in the consumer's own cluster if it is peered;
	// public ports, by their hosts; and API servers. They are updated when the workload changes.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// EndpointsAbsent names what is missing from Endpoints although a peering should lead there,
	// and why.
	EndpointsAbsent string `json:"endpointsAbsent,omitempty"`
	// Services maps the name of each Service to its addresses among Endpoints, for instance web:
	// ["tcp://10.2.0.9:80"]. A name stays the same when the instance moves.
	Services map[string][]string `json:"services,omitempty"`
	// IssuedAt is the time at which the credentials were issued.
	IssuedAt *metav1.Time `json:"issuedAt,omitempty"`
	// ExpiresAt is when the credentials stop working.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// RenewBefore is the time before which the platform should fetch the binding again, or rotate
	// it.
	RenewBefore *metav1.Time `json:"renewBefore,omitempty"`
	// Clusters on which the binding has, or may have, a ServiceAccount; written before it is created.
	Clusters []string `json:"clusters,omitempty"`
	// Issued are the clusters whose credentials are in SealedCredentials. When the instance moves,
	// credentials for its new clusters are issued and replace these.
	Issued []string `json:"issued,omitempty"`
	// Accounts are the UIDs of the binding's ServiceAccounts, by cluster. Credentials end with their account: for one that was
	// deleted, and is made anew, others are issued.
	Accounts map[string]string `json:"accounts,omitempty"`
	// Nodes of the consumer's own cluster that are named in SealedCredentials.
	Nodes []string `json:"nodes,omitempty"`
	// Upstream is the binding at another broker, if the instance is one of another broker; written before
	// it is ordered there.
	Upstream *BindingUpstream `json:"upstream,omitempty"`
	// Pool is the binding of the instance that a pool has ordered for itself, if the instance is on a pool; written before
	// that binding is created.
	Pool *BindingPool `json:"pool,omitempty"`
	// AddressClusters are the clusters on which the binding has, or may have, IP resources of Liqo;
	// written before those are created.
	AddressClusters []string `json:"addressClusters,omitempty"`
	// Events of the binding, the oldest first. Of more than 16, the older ones are in its Journal.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=sequence
	Events []Event `json:"events,omitempty"`
}

// BindingUpstream is a binding at another broker.
type BindingUpstream struct {
	// Broker is the name of the member cluster with the driver osb.
	Broker string `json:"broker"`
	// InstanceID and BindingID at the broker, ServiceID and PlanID of the instance there.
	InstanceID string `json:"instanceID"`
	BindingID  string `json:"bindingID"`
	ServiceID  string `json:"serviceID"`
	PlanID     string `json:"planID"`
	// Operation of the bind, once the broker has accepted it and not carried it out yet.
	Operation *string `json:"operation,omitempty"`
	// Unbind is the operation of the unbind, once the broker has accepted it.
	Unbind *string `json:"unbind,omitempty"`
	// Failure is the reason for which the bind fails, while what may be left of it at the broker is deleted.
	Failure string `json:"failure,omitempty"`
}

// BindingPool is the binding of the instance that a pool has ordered for itself.
type BindingPool struct {
	// Binding is the name of the ServiceBinding.
	Binding string `json:"binding"`
	// Credentials is a digest of its sealed credentials, as they were taken from there; empty until then.
	Credentials string `json:"credentials,omitempty"`
}

// Endpoint follows the OSB 2.17 Endpoint Object.
type Endpoint struct {
	// Host name or address.
	Host string `json:"host"`
	// Ports, or ranges such as "8000-8010".
	// +kubebuilder:validation:MinItems=1
	Ports []string `json:"ports"`
	// Protocol of the ports.
	// +kubebuilder:validation:Enum=tcp;udp;all
	// +kubebuilder:default=tcp
	Protocol string `json:"protocol,omitempty"`
}

// AnnotationNearQuota on a binding names the quotas that warn because of it. It is the message of its event NearQuota.
const AnnotationNearQuota = "sluice.dev/near-quota"

// AnnotationRenew on a binding asks for new credentials. Its value is the expiry of the
// present ones, so that the request ends once new ones are issued. The platform sees them
// when it fetches the binding; the old ones work until they expire.
const AnnotationRenew = "sluice.dev/renew"

// Raw returns the parameters as JSON; nil if there are none.
func (s *ServiceBindingSpec) Raw() []byte {
	if s.Parameters == nil {
		return nil
	}
	return s.Parameters.Raw
}

// WantsRenewal reports whether more than half of the credentials' lifetime has passed. A
// platform that fetches the binding should then get new ones.
func (b *ServiceBinding) WantsRenewal(now time.Time) bool {
	if b.Status.Upstream != nil {
		return false // only a rotation gives others
	}
	expires, issued := b.Status.ExpiresAt, b.Status.IssuedAt
	if issued == nil && b.Status.Operation != nil {
		issued = b.Status.Operation.FinishedAt // issued before IssuedAt was kept
	}
	return expires != nil && issued != nil && now.After(issued.Add(expires.Sub(issued.Time)/2))
}

// AskRenewal asks for new credentials in place of the present ones.
func (b *ServiceBinding) AskRenewal() {
	metav1.SetMetaDataAnnotation(&b.ObjectMeta, AnnotationRenew, b.renewal())
}

// RenewalAsked reports whether new credentials are requested in place of the present ones.
func (b *ServiceBinding) RenewalAsked() bool {
	return b.Status.ExpiresAt != nil && b.Annotations[AnnotationRenew] == b.renewal()
}

func (b *ServiceBinding) renewal() string { return b.Status.ExpiresAt.UTC().Format(time.RFC3339) }
