package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ServiceClaim orders an instance of a service from a broker. Deleting it deletes the instance and its data, once its
// binding claims are gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=claims
// +kubebuilder:printcolumn:name=Service,type=string,JSONPath=`.spec.service`
// +kubebuilder:printcolumn:name=Plan,type=string,JSONPath=`.spec.plan`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ServiceClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ServiceClaimSpec   `json:"spec"`
	Status ServiceClaimStatus `json:"status,omitempty"`
}

// ServiceClaimList is a list of service claims.
// +kubebuilder:object:root=true
type ServiceClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ServiceClaim `json:"items"`
}

// ServiceClaimSpec is the order.
type ServiceClaimSpec struct {
	// Broker is the name that a controller has given to its broker. Claims of other brokers are left to their controllers.
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an instance does not move to another broker; order another one"
	Broker string `json:"broker,omitempty"`
	// Service is the name of a service offering in the broker's catalog.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an instance does not change its service; order another one"
	Service string `json:"service"`
	// Plan is the name of a plan of the service. Another plan updates the instance, if the broker allows that.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Plan string `json:"plan"`
	// MaintenanceVersion of the plan that the instance is to have: a change upgrades it. Empty orders the version of the
	// day, and keeps it until the plan changes.
	// +kubebuilder:validation:MaxLength=256
	MaintenanceVersion string `json:"maintenanceVersion,omitempty"`
	// Parameters of the order, an object. A change updates the instance; what brokers do with parameters that are left out
	// differs.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// ParametersFrom are further parameters. A change of a Secret updates the instance, within five minutes.
	// +kubebuilder:validation:MaxItems=16
	ParametersFrom []ParametersSource `json:"parametersFrom,omitempty"`
}

// ServiceClaimStatus is the state of a claim, as the controller reports it.
type ServiceClaimStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// InstanceID at the broker: the claim's UID.
	InstanceID string `json:"instanceID,omitempty"`
	// Instance that the broker has made; absent until then.
	Instance *Ordered `json:"instance,omitempty"`
	// Operation that is asked for, written before it is sent; absent if none is under way.
	Operation *ServiceOperation `json:"operation,omitempty"`
	// LastOperation is the broker's last description of an operation.
	LastOperation string `json:"lastOperation,omitempty"`
	// Failure of the last operation, if it failed.
	Failure *Failure `json:"failure,omitempty"`
	// DashboardURL of the instance.
	DashboardURL string `json:"dashboardURL,omitempty"`
}

// Ordered describes an instance at a broker.
type Ordered struct {
	// ServiceID and PlanID in the broker's catalog.
	ServiceID string `json:"serviceID"`
	PlanID    string `json:"planID"`
	// Plan is the plan's name.
	Plan string `json:"plan"`
	// MaintenanceVersion of the plan.
	MaintenanceVersion string `json:"maintenanceVersion,omitempty"`
	// Digest of all that was ordered; empty if the broker's last answer left that open. Secrets are in it by their
	// versions, not by their contents.
	Digest string `json:"digest,omitempty"`
	// NoParameters reports that it was ordered without parameters. Otherwise the broker may have some.
	NoParameters bool `json:"noParameters,omitempty"`
	// BindingsRetrievable reports that bindings can be fetched, and so be made asynchronously, by the broker's catalog when
	// it had the plan last, and false if that was before Sluice noted it.
	BindingsRetrievable bool `json:"bindingsRetrievable,omitempty"`
}

// OperationType is a request that changes an instance.
// +kubebuilder:validation:Enum=provision;update;deprovision
type OperationType string

// Types of operations.
const (
	OperationProvision   OperationType = "provision"
	OperationUpdate      OperationType = "update"
	OperationDeprovision OperationType = "deprovision" // also of what a failed provision may have left
)

// ServiceOperation is an operation of an instance.
type ServiceOperation struct {
	Type OperationType `json:"type"`
	// To is the instance as it is after the operation; of a deprovision, as it is before.
	To Ordered `json:"to"`
	// Token of the broker with which the operation is polled; absent until the broker has accepted it.
	Token *string `json:"token,omitempty"`
	// StartedAt is the time at which the operation was asked for first.
	StartedAt metav1.Time `json:"startedAt"`
	// PollingSeconds is how long the plan allows to poll; 0 means that it says nothing.
	PollingSeconds int64 `json:"pollingSeconds,omitempty"`
}
