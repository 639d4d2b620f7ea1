package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Consumer is an organisation that orders, and proves by credentials who it is. Policies have rules about what it
// has proven. Whoever has no Consumer has proven nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=DID,type=string,JSONPath=`.spec.did`
// +kubebuilder:printcolumn:name=Proven,type=string,JSONPath=`.status.conditions[?(@.type=="Proven")].status`
type Consumer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ConsumerSpec   `json:"spec"`
	Status ConsumerStatus `json:"status,omitempty"`
}

// ConsumerList is a list of consumers.
// +kubebuilder:object:root=true
type ConsumerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Consumer `json:"items"`
}

// ConsumerSpec identifies the consumer and its orders.
type ConsumerSpec struct {
	Identified `json:",inline"`
	// Orders are the orders that the consumer makes: all of a platform, of one of its organizations, or of one
	// space. If several Consumers select an order, the one that names the space counts, else the one that names the
	// organization; of equal ones the first by name.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Orders []ConsumerReference `json:"orders"`
}

// ConsumerStatus has the proof of a consumer.
type ConsumerStatus struct {
	// Conditions: Proven is True while the consumer's credentials prove who it is.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Claims that the consumer's credentials prove, sorted.
	Claims []Claim `json:"claims,omitempty"`
	// Report has one entry per step by which the credentials were checked together, in order.
	Report []VerificationStep `json:"report,omitempty"`
	// UsedNonces are the nonces that the consumer's presentations have used. Each nonce may be used once; it is kept
	// here until it expires.
	// +kubebuilder:validation:MaxItems=128
	UsedNonces []UsedNonce `json:"usedNonces,omitempty"`
}

// Presenter identifies who presented a credential, by the name of its resource: a Provider or a Consumer.
type Presenter struct {
	// Provider that presented the credential: the name of its Provider resource.
	Provider string `json:"provider,omitempty"`
	// Consumer that presented the credential: the name of its Consumer resource.
	Consumer string `json:"consumer,omitempty"`
}

// String describes the presenter.
func (p Presenter) String() string {
	if p.Consumer != "" {
		return "consumer " + p.Consumer
	}
	return "provider " + p.Provider
}
