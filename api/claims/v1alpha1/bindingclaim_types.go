package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// BindingClaim asks for credentials of an instance, in a Secret beside it that is renewed before they end. It is a
// Provisioned Service of the Service Binding specification for Kubernetes 1.1. Deleting it revokes the credentials and
// deletes the Secret.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=claims
// +kubebuilder:printcolumn:name=Service-Claim,type=string,JSONPath=`.spec.serviceClaim`
// +kubebuilder:printcolumn:name=Secret,type=string,JSONPath=`.status.binding.name`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.status.expiresAt`
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type BindingClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BindingClaimSpec   `json:"spec"`
	Status BindingClaimStatus `json:"status,omitempty"`
}

// BindingClaimList is a list of binding claims.
// +kubebuilder:object:root=true
type BindingClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []BindingClaim `json:"items"`
}

// BindingClaimSpec is the order of a binding. A change of its parameters, or of renewal, orders another binding in place
// of the present one.
// +kubebuilder:validation:XValidation:rule="has(self.secretName) == has(oldSelf.secretName) && (!has(self.secretName) || self.secretName == oldSelf.secretName)",message="the name of the Secret does not change; claim another binding"
type BindingClaimSpec struct {
	// ServiceClaim is the name of the claim of the instance, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a binding does not change its instance; claim another binding"
	ServiceClaim string `json:"serviceClaim"`
	// SecretName is the name of the Secret for the credentials; empty means the claim's own. A Secret that belongs to
	// somebody else is not touched.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	SecretName string `json:"secretName,omitempty"`
	// Parameters of the binding, an object.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// ParametersFrom are further parameters.
	// +kubebuilder:validation:MaxItems=16
	ParametersFrom []ParametersSource `json:"parametersFrom,omitempty"`
	// Renewal is any text. A change of it renews the credentials at once.
	// +kubebuilder:validation:MaxLength=256
	Renewal string `json:"renewal,omitempty"`
}

// BindingClaimStatus is the state of a claim, as the controller reports it.
type BindingClaimStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, which is true while the Secret has credentials that work.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Broker of the service claim at which bindings were asked for.
	Broker string `json:"broker,omitempty"`
	// Binding names the Secret, as the Service Binding specification asks of Provisioned Services; absent until it is
	// there.
	Binding *SecretReference `json:"binding,omitempty"`
	// ExpiresAt is when the credentials in the Secret end; absent if the broker says nothing.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// Bindings is the number of bindings that were asked for, from which the id of each follows.
	Bindings int64 `json:"bindings,omitempty"`
	// Current binding, whose credentials are in the Secret.
	Current *BrokerBinding `json:"current,omitempty"`
	// Next binding, written before it is asked for.
	Next *BrokerBinding `json:"next,omitempty"`
	// Revoking are bindings that are to be unbound.
	Revoking []BrokerBinding `json:"revoking,omitempty"`
	// Failure of the last bind, if it failed.
	Failure *Failure `json:"failure,omitempty"`
}

// SecretReference names a Secret in the claim's namespace.
type SecretReference struct {
	Name string `json:"name"`
}

// BrokerBinding is a binding at the broker.
type BrokerBinding struct {
	// ID of the binding, InstanceID of its instance, ServiceID and PlanID of that in the broker's catalog.
	ID         string `json:"id"`
	InstanceID string `json:"instanceID"`
	ServiceID  string `json:"serviceID"`
	PlanID     string `json:"planID"`
	// Digest of all that was ordered.
	Digest string `json:"digest"`
	// Predecessor is the id of the binding that this one replaces by rotation.
	Predecessor string `json:"predecessor,omitempty"`
	// Token of the broker with which its operation is polled; absent until the broker has accepted one.
	Token *string `json:"token,omitempty"`
	// RenewAt is when another binding is ordered in place of this one; absent if its credentials do not end.
	RenewAt *metav1.Time `json:"renewAt,omitempty"`
	// ExpiresAt is when the credentials end; absent if the broker says nothing.
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
	// RevokeAt is when the binding is unbound, if it is to be.
	RevokeAt *metav1.Time `json:"revokeAt,omitempty"`
	// Attempts at unbinding it that have failed.
	Attempts int32 `json:"attempts,omitempty"`
}

// SecretName returns the name of the Secret for the credentials.
func (b *BindingClaim) SecretName() string {
	if b.Spec.SecretName != "" {
		return b.Spec.SecretName
	}
	return b.Name
}
