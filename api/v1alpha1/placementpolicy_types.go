package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PlacementPolicy restricts the clusters for instances, and ranks them. All policies that
// match a request apply together: every requirement must hold, and weights of preferences
// add up.
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

// PlacementPolicySpec selects requests and states the rules for them.
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || !has(self.priorityClasses)",message="priority classes are the operator's: the policy of a provider declares none"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || !has(self.makeRoom)",message="makeRoom is the operator's: the policy of a provider moves no instances"
// +kubebuilder:validation:XValidation:rule="!has(self.measure) || !has(self.provider) && !has(self.platform)",message="measure is the operator's: the policy of a provider or a platform runs no probes"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.provider)",message="a policy is about the clusters of a provider or about the orders of a platform, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.priorityClasses)",message="priority classes are the operator's: the policy of a platform declares none"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.match) || !has(self.match.platforms)",message="the policy of a platform concerns its orders alone: match names no platforms"
type PlacementPolicySpec struct {
	// Match selects the requests that the policy concerns; empty means all.
	Match PolicyMatch `json:"match,omitempty"`
	// Provider whose clusters the policy is about. The policy then concerns only these, and states who may
	// consume them. A policy with the name PROVIDER.NAME is the provider's own, which changes it by the
	// market; others are the operator's.
	Provider string `json:"provider,omitempty"`
	// Platform whose orders the policy is about. The policy then concerns only these, and states which clusters
	// the platform accepts. A policy with the name platform.PLATFORM.NAME is the platform's own, which changes it
	// by the market; others are the operator's.
	Platform string `json:"platform,omitempty"`
	// Require lists the rules that a cluster must satisfy. A rejection names the first rule that
	// refuses the cluster.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Require []PolicyRule `json:"require,omitempty"`
	// Workloads has the rules for pods. They are decided together with the placement, hold for it as long as the instance
	// is not changed, and are enforced by the cluster. Instances whose plan has a workload with other pods are not
	// placed there. Rules of all policies that concern an instance and its cluster hold together.
	Workloads *WorkloadRules `json:"workloads,omitempty"`
	// Prefer lists rules that raise the score of the clusters that satisfy them.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Prefer []PolicyPreference `json:"prefer,omitempty"`
	// Score adds to the weights that the plan gives to the scorers.
	Score ScoreWeights `json:"score,omitempty"`
	// Quota limits how much the consumers that the policy concerns hold at the same time.
	Quota *Quota `json:"quota,omitempty"`
	// Rebalance moves instances to clusters that suit them better today.
	Rebalance *Rebalance `json:"rebalance,omitempty"`
	// MakeRoom moves instances out of the way of orders that fit nowhere.
	MakeRoom *MakeRoom `json:"makeRoom,omitempty"`
	// Elastic creates member clusters for instances that the policy concerns and that fit nowhere,
	// and gives the clusters back later.
	Elastic *Elastic `json:"elastic,omitempty"`
	// Measure runs probes on member clusters, by which the broker measures what workloads there get.
	Measure *Measure `json:"measure,omitempty"`
	// PriorityClasses that plans may name. They hold for all requests, whatever Match selects. If
	// two policies declare the same class, the one of the first policy by name counts.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	PriorityClasses []PriorityClass `json:"priorityClasses,omitempty"`
}

// PriorityClass lets instances of one plan displace those of another. Only instances of
// declared classes displace others or are displaced.
type PriorityClass struct {
	// Name of the class; plans refer to it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Value of the class; only instances of classes with a lower value are displaced.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000
	Value int32 `json:"value"`
	// Preempts selects the consumers whose instances of lower classes may be displaced for an
	// instance of this class that fits nowhere.
	// +kubebuilder:default=sameConsumer
	Preempts Preempts `json:"preempts,omitempty"`
}

// Preempts selects the consumers whose instances may be displaced: none, the same consumer
// (platform, organization and space), or all.
// +kubebuilder:validation:Enum=never;sameConsumer;anyConsumer
type Preempts string

// Values of Preempts.
const (
	PreemptsNever        Preempts = "never"
	PreemptsSameConsumer Preempts = "sameConsumer"
	PreemptsAnyConsumer  Preempts = "anyConsumer"
)

// Elastic describes the clusters to create when instances fit nowhere for lack of capacity.
// Each is an instance of a cluster plan that Sluice itself owns, and becomes a member
// cluster when it is ready. A cluster without placements for IdleSeconds is given back.
type Elastic struct {
	// ServiceID and PlanID of the cluster plan.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ServiceID string `json:"serviceID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	PlanID string `json:"planID"`
	// Parameters of the instance, as the plan takes them.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// Member is the template of the new member clusters.
	// +kubebuilder:validation:XValidation:rule="!has(self.prices) || self.prices.perHour.all(name, type(self.prices.perHour[name]) == string ? !self.prices.perHour[name].startsWith('-') : self.prices.perHour[name] >= 0)",message="no price is negative"
	Member MemberTemplate `json:"member,omitempty"`
	// AtMost is the greatest number of such clusters at the same time.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	AtMost int32 `json:"atMost"`
	// Budget is the greatest price of all such clusters together, by the price lists of the
	// management clusters; absent means no limit.
	Budget *Price `json:"budget,omitempty"`
	// CoolDownSeconds is the least time between the starts of two clusters.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=60
	CoolDownSeconds int64 `json:"coolDownSeconds,omitempty"`
	// IdleSeconds without placements after which a cluster is given back.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2592000
	// +kubebuilder:default=900
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
	// AheadSeconds makes clusters for orders that are expected within this time, too, by the forecaster of
	// `serve --forecast-url`; clusters that they need are not given back. 0 looks at no forecast.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	AheadSeconds int64 `json:"aheadSeconds,omitempty"`
}

// Measure runs one probe on each selected member cluster: an instance of Sluice's own, of a plan of kind workload. The plan
// has a secret named token, and lists sluice.dev/cluster among its selectable labels. If several policies select a cluster,
// the first by name counts. A cluster that is being drained or removed has no probe.
type Measure struct {
	// Clusters selects the member clusters, by the labels that the selectors of plans match; empty means all.
	Clusters metav1.LabelSelector `json:"clusters,omitempty"`
	// ServiceID and PlanID of the plan of the probes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ServiceID string `json:"serviceID"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	PlanID string `json:"planID"`
	// Parameters of the instances, as the plan takes them; selector is added.
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// MemberTemplate holds the labels and spec of a new member cluster.
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
	// Prices of reservations on the cluster.
	Prices *PriceList `json:"prices,omitempty"`
}

// Quota limits what each platform, organization or space holds: the sum of all reservations
// for its instances, on all clusters together, what these cost, and how many instances and bindings it has.
// +kubebuilder:validation:XValidation:rule="has(self.limits) || has(self.budget) || has(self.instances) || has(self.bindings)",message="a quota needs one of limits, budget, instances and bindings"
type Quota struct {
	// Per is the scope that has the quota; each platform, organization or space has its own.
	// +kubebuilder:validation:Enum=platform;organization;space
	Per Scope `json:"per"`
	// Limits by resource.
	// +kubebuilder:validation:MinProperties=1
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Budget is the greatest price of all reservations together, by the prices that their decisions had. Clusters
	// without a price list cost nothing; on those with prices in another currency nothing new is placed.
	Budget *Price `json:"budget,omitempty"`
	// Instances is the greatest number of instances with reservations.
	// +kubebuilder:validation:Minimum=0
	Instances *int32 `json:"instances,omitempty"`
	// Bindings is the greatest number of bindings. Requests for more are refused at once.
	// +kubebuilder:validation:Minimum=0
	Bindings *int32 `json:"bindings,omitempty"`
	// WarnAt is the percentage of a bound from which on there is the event NearQuota, of the instance or binding that
	// reaches it; absent means that there is none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	WarnAt int32 `json:"warnAt,omitempty"`
}

// Rebalance states when the instances that the policy concerns move to a better place.
type Rebalance struct {
	// Schedule is the start of a window, as a cron expression in UTC, for instance "0 2 * * 6".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// WindowSeconds is the length of a window.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=3600
	WindowSeconds int64 `json:"windowSeconds,omitempty"`
	// LeastGain is the least gain in points of score for which an instance is moved.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=20
	LeastGain int32 `json:"leastGain,omitempty"`
	// AtMost is the greatest number of instances that are moved in one window.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=10
	AtMost int32 `json:"atMost,omitempty"`
}

// MakeRoom states that the instances that the policy concerns may move, to make room for an order that fits nowhere.
// An instance that fits nowhere else stays.
type MakeRoom struct {
	// AtMost is the greatest number of instances that move together with one of these, for one order.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	// +kubebuilder:default=3
	AtMost int32 `json:"atMost,omitempty"`
}

// PolicyMatch selects requests. Every list that is not empty must contain the request's
// value.
type PolicyMatch struct {
	// Platforms of the instance.
	Platforms []string `json:"platforms,omitempty"`
	// Organizations are OSB organization_guid.
	Organizations []string `json:"organizations,omitempty"`
	// Spaces are OSB space_guid.
	Spaces []string `json:"spaces,omitempty"`
	// Plans by id (OSB plan_id), not by name. An id that no plan of the catalog has is reported in the condition Ready.
	Plans []string `json:"plans,omitempty"`
}

// Selects reports whether a policy with this match concerns the requests of a consumer for a plan.
func (m *PolicyMatch) Selects(platform, organization, space, plan string) bool {
	return within(m.Platforms, platform) && within(m.Organizations, organization) && within(m.Spaces, space) && within(m.Plans, plan)
}

// within reports whether a list has a value, or is empty and so has all.
func within(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }

// Concerned returns the requests that the policy concerns.
func (s *PlacementPolicySpec) Concerned() PolicyMatch {
	m := s.Match
	if s.Platform != "" {
		m.Platforms = []string{s.Platform}
	}
	return m
}

// PolicyRule is one rule about a cluster, or about what the consumer has proven: exactly one of Claim and Expression.
// +kubebuilder:validation:XValidation:rule="!has(self.appliesTo) || self.appliesTo != 'Consumer' || has(self.claim)",message="a rule that applies to the consumer has a claim; an expression reads consumer.claims"
// +kubebuilder:validation:XValidation:rule="has(self.claim) != has(self.expression)",message="a rule has either a claim or an expression"
type PolicyRule struct {
	// Name of the rule in explanations.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Claim that must hold.
	Claim *ClaimRule `json:"claim,omitempty"`
	// Expression is a CEL expression of type bool. One that reads a field that there is not does not
	// compile; if its evaluation fails, the cluster is refused. It is over request (id, plan, clusters,
	// resources by name, images of a workload), consumer (platform, organization, space, claims), cluster
	// (name, provider, region, tier, labels), and claims, a list of name, value, assurance, issuer, as the
	// consumer's. Beside the cluster, request.id and request as a whole can be read only in comparisons of
	// the two: ==, !=, <, <=, >, >=, in, startsWith, endsWith, contains.
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
	// AppliesTo selects who must satisfy the rule: the whole path (the chosen clusters, and the hub if
	// they are reached through one), the chosen clusters only, the hubs only, or the consumer that
	// orders.
	// +kubebuilder:default=Path
	AppliesTo RuleScope `json:"appliesTo,omitempty"`
}

// RuleScope selects who must satisfy a rule.
// +kubebuilder:validation:Enum=Path;Clusters;Hubs;Consumer
type RuleScope string

// Values of RuleScope; empty means Path.
const (
	RulePath     RuleScope = "Path"
	RuleClusters RuleScope = "Clusters"
	RuleHubs     RuleScope = "Hubs"
	RuleConsumer RuleScope = "Consumer"
)

// PolicyPreference is a rule with a weight.
type PolicyPreference struct {
	PolicyRule `json:",inline"`
	// Weight of the rule, on the same scale as the scorers' weights.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`
}

// ClaimRule asks for a claim with a minimum assurance. It holds if one claim of that name
// has one of the values and at least that assurance.
// +kubebuilder:validation:XValidation:rule="!has(self.values) || !(has(self.atLeast) || has(self.atMost))",message="a claim rule has values or bounds (atLeast, atMost), not both"
type ClaimRule struct {
	// Name of the claim, for instance datacenter.country.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Values that satisfy the rule; empty means any. For claims about countries, "EU" and "EEA"
	// stand for their member states.
	// +kubebuilder:validation:MaxItems=64
	Values []string `json:"values,omitempty"`
	// AtLeast is the least value. Label levels order as SC < L1 < L2 < L3; other values compare as
	// numbers.
	// +kubebuilder:validation:MaxLength=63
	AtLeast string `json:"atLeast,omitempty"`
	// AtMost is the greatest value, in the order of AtLeast, for instance 50 for latency.p95Ms.
	// +kubebuilder:validation:MaxLength=63
	AtMost string `json:"atMost,omitempty"`
	// Assurance is the least assurance that counts.
	// +kubebuilder:default=self
	Assurance Assurance `json:"assurance,omitempty"`
}

// PlacementPolicyStatus reports whether the policy is in force.
type PlacementPolicyStatus struct {
	// ObservedGeneration is the generation of spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready is False while the policy does not compile; requests that it matches are
	// then refused.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
