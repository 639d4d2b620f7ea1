package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PlacementPolicy says where instances may be placed and what is preferred. All
// policies that match a request apply: requirements of all of them hold, weights
// of preferences add up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pp
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type PlacementPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PlacementPolicySpec   `json:"spec"`
	Status PlacementPolicyStatus `json:"status,omitempty"`
}

// PlacementPolicyList is a list of placement policies.
// +kubebuilder:object:root=true
type PlacementPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PlacementPolicy `json:"items"`
}

// PlacementPolicySpec says whom the policy concerns and what it asks.
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || !has(self.priorityClasses)",message="priority classes are the operator's: the policy of a provider declares none"
type PlacementPolicySpec struct {
	// Match says which requests the policy concerns; empty means all.
	Match PolicyMatch `json:"match,omitempty"`
	// Provider whose policy this is: it then concerns that provider's clusters only, and
	// says who may consume them.
	Provider string `json:"provider,omitempty"`
	// Require says what a cluster must satisfy; the first rule that refuses a cluster is named.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Prefer raises the score of clusters that satisfy a rule.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Prefer []PolicyPreference `json:"prefer,omitempty"`
	// Score adds to the weights that the plan gives to the scorers.
	Score ScoreWeights `json:"score,omitempty"`
	// Quota bounds what consumers that the policy concerns hold at the same time.
	Quota *Quota `json:"quota,omitempty"`
	// Rebalance has instances moved that would be placed better today.
	Rebalance *Rebalance `json:"rebalance,omitempty"`
	// Elastic makes member clusters for instances that the policy concerns and that fit
	// nowhere, and gives them back.
	Elastic *Elastic `json:"elastic,omitempty"`
	// PriorityClasses that plans may name. They hold for all requests, whatever match says;
	// of two policies that declare the same one, the first by name counts.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	PriorityClasses []PriorityClass `json:"priorityClasses,omitempty"`
}

// PriorityClass lets instances of one plan displace those of another. Only instances of
// declared classes displace, and only such are displaced.
type PriorityClass struct {
	// Name of the class, by which plans refer to it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Value of the class; only instances of a lower one are displaced.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Value int32 `json:"value"`
	// Preempts says whose instances of lower classes are displaced for one of this class that
	// fits nowhere.
	// +kubebuilder:default=sameConsumer
	Preempts Preempts `json:"preempts,omitempty"`
}

// Preempts says whose instances are displaced: nobody's, those of the same consumer
// (platform, organization and space), or anybody's.
// +kubebuilder:validation:Enum=never;sameConsumer;anyConsumer
type Preempts string

// Whose instances are displaced.
const (
	PreemptsNever        Preempts = "never"
	PreemptsSameConsumer Preempts = "sameConsumer"
	PreemptsAnyConsumer  Preempts = "anyConsumer"
)

// Elastic says which clusters are made when instances fit nowhere for want of capacity.
// Each is an instance of a cluster plan that Sluice holds itself, and becomes a member
// cluster when it is ready. One that nothing has been placed on for a while is given back.
type Elastic struct {
	// ServiceID and PlanID of the cluster plan.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ServiceID string `json:"serviceID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	PlanID string `json:"planID"`
	// Parameters of the plan.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Member is what each of them is as a member cluster.
	Member MemberTemplate `json:"member,omitempty"`
	// AtMost is how many there may be at the same time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	AtMost int32 `json:"atMost"`
	// Budget is what all of them together may cost, by the price lists of the management
	// clusters; none bounds nothing.
	Budget *Price `json:"budget,omitempty"`
	// CoolDownSeconds after one was begun before the next is.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=60
	CoolDownSeconds int64 `json:"coolDownSeconds,omitempty"`
	// IdleSeconds without anything placed on it after which a cluster is given back.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	// +kubebuilder:default=900
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
}

// MemberTemplate is what a member cluster's labels and spec say of it.
type MemberTemplate struct {
	// Labels that selectors match.
	Labels map[string]string `json:"labels,omitempty"`
	// Provider is the organisation that runs the cluster.
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider,omitempty"`
	// Region the cluster is in.
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Zone within the region.
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Tier of the cluster.
	// +kubebuilder:default=cloud
	Tier Tier `json:"tier,omitempty"`
	// Taints repel requests that do not tolerate them.
	// +kubebuilder:validation:MaxItems=32
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Location of the cluster.
	Location *Location `json:"location,omitempty"`
	// Prices of what is reserved on the cluster.
	Prices *PriceList `json:"prices,omitempty"`
}

// Quota bounds what each platform, organization or space holds: of everything that is
// reserved for its instances, on all clusters together.
type Quota struct {
	// Per says what has the quota, each of them for itself.
	// +kubebuilder:validation:Enum=platform;organization;space
	Per Scope `json:"per"`
	// Limits by resource.
	// +kubebuilder:validation:MinProperties=1
	Limits corev1.ResourceList `json:"limits"`
}

// Rebalance says when instances that the policy concerns are moved to a better place.
type Rebalance struct {
	// Schedule is when a window opens, as a cron expression in UTC, for instance "0 2 * * 6".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// WindowSeconds is how long a window is open.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=3600
	WindowSeconds int64 `json:"windowSeconds,omitempty"`
	// LeastGain in points of score for which an instance is moved.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=20
	LeastGain int32 `json:"leastGain,omitempty"`
	// AtMost is how many instances are moved in one window.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=10
	AtMost int32 `json:"atMost,omitempty"`
}

// PolicyMatch selects requests; every list that is not empty must contain the request's value.
type PolicyMatch struct {
	// Platforms of the instance.
	Platforms []string `json:"platforms,omitempty"`
	// Organizations are OSB organization_guid.
	Organizations []string `json:"organizations,omitempty"`
	// Spaces are OSB space_guid.
	Spaces []string `json:"spaces,omitempty"`
	// Plans by id.
	Plans []string `json:"plans,omitempty"`
}

// PolicyRule is one rule about a cluster: exactly one of Claim and Expression.
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="a rule has either a claim or an expression"
type PolicyRule struct {
	// Name of the rule in explanations.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Claim that must hold.
	Claim *ClaimRule `json:"claim,omitempty"`
	// Expression is a CEL expression of type bool over request, consumer, cluster and claims.
	// An expression that fails to evaluate refuses the cluster.
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
	// AppliesTo says of which clusters the rule must hold: of the whole path, which is the
	// chosen clusters and the hub through which they are reached, where there is one; or of
	// either alone.
	// +kubebuilder:default=Path
	AppliesTo RuleScope `json:"appliesTo,omitempty"`
}

// RuleScope says of which clusters a rule must hold.
// +kubebuilder:validation:Enum=Path;Clusters;Hubs
type RuleScope string

// Of which clusters a rule must hold; empty means all of the path.
const (
	RulePath     RuleScope = "Path"
	RuleClusters RuleScope = "Clusters"
	RuleHubs     RuleScope = "Hubs"
)

// PolicyPreference is a rule with a weight.
type PolicyPreference struct {
	PolicyRule `json:",inline"`
	// Weight of the rule beside the scorers' weights.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
}

// ClaimRule asks for a claim with a minimum assurance. It holds when one claim of
// that name has a value asked for and at least the assurance asked for.
// +kubebuilder:validation:XValidation:rule="!has(self.values) || !(has(self.atLeast) || has(self.atMost))",message="a claim rule has values or bounds (atLeast, atMost), not both"
type ClaimRule struct {
	// Name of the claim, for instance datacenter.country.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Values that satisfy the rule; "EU" and "EEA" stand for their member states where the
	// claim is a country. Empty means any value.
	// +kubebuilder:validation:MaxItems=64
	Values []string `json:"values,omitempty"`
	// AtLeast orders the value: label levels as SC < L1 < L2 < L3, anything else as a number.
	// +kubebuilder:validation:MaxLength=63
	AtLeast string `json:"atLeast,omitempty"`
	// AtMost orders the value as AtLeast does, for instance latency.p95Ms of at most 50.
	// +kubebuilder:validation:MaxLength=63
	AtMost string `json:"atMost,omitempty"`
	// Assurance is the least that counts.
	// +kubebuilder:default=self
	Assurance Assurance `json:"assurance,omitempty"`
}

// PlacementPolicyStatus says whether the policy is in force.
type PlacementPolicyStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready is False while the policy does not compile; requests that it
	// matches are then refused.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
