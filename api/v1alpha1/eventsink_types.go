package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventSink receives the events of service instances and bindings over HTTP, as CloudEvents 1.0: each at least
// once, those of one instance or binding in their order. It gets those since it was created.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Delivered,type=date,JSONPath=`.status.deliveredUntil`
type EventSink struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EventSinkSpec   `json:"spec"`
	Status EventSinkStatus `json:"status,omitempty"`
}

// EventSinkList is a list of event sinks.
// +kubebuilder:object:root=true
type EventSinkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EventSink `json:"items"`
}

// EventSinkSpec describes a sink, and which events it gets.
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('https://') || has(self.addresses)",message="a url with http is only for private networks, which addresses lists"
type EventSinkSpec struct {
	// URL to which each event is posted, as JSON in the structured mode of CloudEvents. An answer with a status
	// of 2xx accepts it; after any other one it is posted again.
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url"`
	// CABundle is PEM that the sink's certificate is checked against; empty means the system's roots.
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// Addresses, as CIDRs, at which the sink may be reached though they are not public.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, isCIDR(a))",message="addresses are CIDRs, such as 10.0.0.0/8"
	Addresses []string `json:"addresses,omitempty"`
	// Key signs each request, as Standard Webhooks 1.0 describes it.
	Key EventSinkKey `json:"key"`
	// Platform whose events are sent; empty means all.
	// +kubebuilder:validation:MaxLength=63
	Platform string `json:"platform,omitempty"`
	// Filter is a CEL expression over event, with kind, type, operation, platform, instanceID, bindingID,
	// serviceID, planID, organizationGUID, spaceGUID, clusters and message. Events for which it is false are not
	// sent; those for which it fails are.
	// +kubebuilder:validation:MaxLength=4096
	Filter string `json:"filter,omitempty"`
}

// EventSinkKey is a key of Standard Webhooks ("whsec_" and base64), either sealed by Sluice or held in a Secret:
// exactly one of these.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=1
type EventSinkKey struct {
	// Sealed is the key, sealed with the hub's keyset; `sluice sink add` writes it.
	Sealed []byte `json:"sealed,omitempty"`
	// SecretName names a Secret in the same namespace that has it as key, on hubs that have Secrets.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName,omitempty"`
}

// EventSinkStatus is how far the delivery is.
type EventSinkStatus struct {
	// DeliveredUntil: all events before it are delivered. After a restart, Sluice sends those since then, and once
	// more those of the five minutes before it.
	DeliveredUntil *metav1.MicroTime `json:"deliveredUntil,omitempty"`
	// Conditions: Ready is false while the sink does not accept events, and if it cannot be used as described.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
