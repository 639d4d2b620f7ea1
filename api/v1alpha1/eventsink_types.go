package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventSink receives the events of service instances and bindings as CloudEvents 1.0, over HTTP, by NATS
// JetStream, by Kafka or as Kubernetes Events: each at least once, those of one instance or binding in their order. It gets those since it
// was created.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=URL,type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name=Subject,type=string,JSONPath=`.spec.nats.subject`
// +kubebuilder:printcolumn:name=Topic,type=string,JSONPath=`.spec.kafka.topic`
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
// +kubebuilder:validation:XValidation:rule="[has(self.url), has(self.nats), has(self.kafka), has(self.kubernetesEvents) && self.kubernetesEvents].exists_one(is, is)",message="exactly one of url, nats, kafka and kubernetesEvents says where events are sent"
// +kubebuilder:validation:XValidation:rule="!has(self.url) || has(self.key)",message="a url needs a key, which signs its requests"
// +kubebuilder:validation:XValidation:rule="!has(self.url) || self.url.startsWith('https://') || has(self.addresses)",message="a url with http is only for private networks, which addresses lists"
// +kubebuilder:validation:XValidation:rule="!has(self.nats) || has(self.addresses) || self.nats.servers.all(s, s.startsWith('tls://'))",message="servers without tls:// are only for private networks, which addresses lists"
// +kubebuilder:validation:XValidation:rule="!has(self.kafka) || has(self.addresses) || !has(self.kafka.plaintext) || !self.kafka.plaintext",message="brokers without TLS are only for private networks, which addresses lists"
// +kubebuilder:validation:XValidation:rule="(!has(self.nats) || !has(self.nats.user)) && (!has(self.kafka) || !has(self.kafka.user)) || has(self.key)",message="a user needs a key, which is the password"
type EventSinkSpec struct {
	// URL to which each event is posted, as JSON in the structured mode of CloudEvents. An answer with a status
	// of 2xx accepts it; after any other one it is posted again.
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@]+(/[^#]*)?$`
	// +kubebuilder:validation:MaxLength=1024
	URL string `json:"url,omitempty"`
	// NATS is a stream of NATS JetStream in which each event is stored.
	NATS *EventSinkNATS `json:"nats,omitempty"`
	// Kafka is a topic of Kafka to which each event is written.
	Kafka *EventSinkKafka `json:"kafka,omitempty"`
	// KubernetesEvents writes each event as an Event (events.k8s.io/v1) beside its resource, on hubs that are a cluster.
	// The cluster removes it after its --event-ttl, an hour by default.
	KubernetesEvents bool `json:"kubernetesEvents,omitempty"`
	// CABundle is PEM that the sink's certificate is checked against; empty means the system's roots.
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// Addresses, as CIDRs, at which the sink may be reached though they are not public.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(a, isCIDR(a))",message="addresses are CIDRs, such as 10.0.0.0/8"
	Addresses []string `json:"addresses,omitempty"`
	// Key signs each request to a url, as Standard Webhooks 1.0 describes it. Servers of NATS are shown it: as the
	// password of the user; without a user, it is a file of credentials (JWT and NKey), the seed of an NKey ("SU…"),
	// or a token. Brokers of Kafka get it as the password of the user. Servers that ask for nothing need none.
	// +optional
	Key EventSinkKey `json:"key,omitzero"`
	// Platform whose events are sent; empty means all.
	// +kubebuilder:validation:MaxLength=63
	Platform string `json:"platform,omitempty"`
	// Filter is a CEL expression over event, with kind, type, operation, platform, instanceID, bindingID,
	// serviceID, planID, organizationGUID, spaceGUID, clusters and message. Events for which it is false are not
	// sent; those for which it fails are.
	// +kubebuilder:validation:MaxLength=4096
	Filter string `json:"filter,omitempty"`
}

// EventSinkNATS describes a subject of NATS whose messages a stream stores. Each event is a message in the structured
// mode of CloudEvents, published until the stream has acknowledged it. Its Nats-Msg-Id is the event's id, so that an
// event that is sent again within the stream's window for duplicates is stored once.
type EventSinkNATS struct {
	// Servers of one NATS cluster, of which one that answers is used: tls://HOST:PORT, or nats://HOST:PORT without
	// TLS.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^(tls|nats)://[^/?#@,]+$`
	// +kubebuilder:validation:items:MaxLength=262
	Servers []string `json:"servers"`
	// Subject to which events are published. A stream has to store it.
	// +kubebuilder:validation:Pattern=`^[^\s.*>]+(\.[^\s.*>]+)*$`
	// +kubebuilder:validation:MaxLength=255
	Subject string `json:"subject"`
	// User whose password the sink's key is.
	// +kubebuilder:validation:MaxLength=255
	User string `json:"user,omitempty"`
}

// EventSinkKafka describes a topic of Kafka. Each event is a message in the structured mode of CloudEvents, written until
// all replicas that are in sync have it. Its key is the UID of the instance or binding, so that the events of one are
// in one partition.
type EventSinkKafka struct {
	// Brokers of one Kafka cluster, HOST:PORT, from which the others are learnt.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[^/?#@,\s]+:[0-9]+$`
	// +kubebuilder:validation:items:MaxLength=262
	Brokers []string `json:"brokers"`
	// Topic to which events are written. It has to exist.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9._-]+$`
	// +kubebuilder:validation:MaxLength=249
	Topic string `json:"topic"`
	// User whose password the sink's key is.
	// +kubebuilder:validation:MaxLength=255
	User string `json:"user,omitempty"`
	// Mechanism of SASL by which the password is shown; empty means SCRAM-SHA-512.
	// +kubebuilder:validation:Enum=PLAIN;SCRAM-SHA-256;SCRAM-SHA-512
	Mechanism string `json:"mechanism,omitempty"`
	// Plaintext: the brokers have no TLS.
	Plaintext bool `json:"plaintext,omitempty"`
}

// EventSinkKey is a key of Standard Webhooks ("whsec_" and base64), or what proves who Sluice is, either sealed by
// Sluice or held in a Secret: exactly one of these.
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
