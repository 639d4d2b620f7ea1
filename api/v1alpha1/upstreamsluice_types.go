package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxSluices is the greatest number of other Sluices that an order may come through.
const MaxSluices = 8

// UpstreamSluice describes a broker that is a Sluice too, as it describes itself beyond OSB.
type UpstreamSluice struct {
	// Hub is the id of its hub.
	// +kubebuilder:validation:MaxLength=64
	Hub string `json:"hub"`
	// Depth is the greatest number of Sluices that an order there comes through, itself included.
	Depth int32 `json:"depth"`
	// Plans that offerings order, sorted by their names.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	Plans []SluicePlan `json:"plans,omitempty"`
	// Withheld are plans that are not ordered: orders would come back here, or come through too many Sluices.
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Withheld []WithheldPlan `json:"withheld,omitempty"`
	// MarketReadAt is when its market was read last; absent if it never was.
	MarketReadAt *metav1.Time `json:"marketReadAt,omitempty"`
	// MarketProblem is the reason for which the market could not be read when that was last tried; empty if it was.
	// +kubebuilder:validation:MaxLength=500
	MarketProblem string `json:"marketProblem,omitempty"`
}

// MarketAge returns for how long a market that was read counts: three times as long as until the next read, at least
// two and at most ten minutes.
func (b *UpstreamBroker) MarketAge() time.Duration {
	return min(max(3*time.Duration(b.RefreshSeconds)*time.Second, 2*time.Minute), 10*time.Minute)
}

// Plan returns what the broker says of a plan, SERVICE/PLAN; nil if it says nothing.
func (s *UpstreamSluice) Plan(name string) *SluicePlan {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Plans, func(p SluicePlan) bool { return p.Plan == name }); i >= 0 {
		return &s.Plans[i]
	}
	return nil
}

// SluicePlan is a plan of a broker that is a Sluice.
type SluicePlan struct {
	// Plan as SERVICE/PLAN.
	Plan string `json:"plan"`
	// Hubs are the ids of the hubs that an order may come to, the broker's own first.
	// +kubebuilder:validation:MaxItems=65
	// +listType=atomic
	Hubs []string `json:"hubs"`
	// Depth is the greatest number of Sluices that an order comes through, the broker included.
	Depth int32 `json:"depth"`
	// Market has the plan as the broker's market lists it; absent if it was not read.
	Market *MarketPlan `json:"market,omitempty"`
}

// MarketPlan is a plan in the market of a broker that is a Sluice, when it was read last.
type MarketPlan struct {
	// Orders that fit beside one another; absent if the broker does not know.
	Orders *int64 `json:"orders,omitempty"`
	// AtLeast says that more may fit.
	AtLeast bool `json:"atLeast,omitempty"`
	// Clusters of the broker that would take one.
	Clusters int32 `json:"clusters,omitempty"`
	// Reason why none fits, in the broker's words.
	// +kubebuilder:validation:MaxLength=500
	Reason string `json:"reason,omitempty"`
	// Ordered is the number of instances that were reserved at the broker here.
	Ordered int64 `json:"ordered,omitempty"`
	// Price of an instance.
	Price *Price `json:"price,omitempty"`
	// Regions of the clusters that instances can be on.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Regions []string `json:"regions,omitempty"`
	// Proven are facts about these clusters that the broker calls proven. They decide nothing here.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Proven []string `json:"proven,omitempty"`
}

// WithheldPlan is a plan that is not ordered.
type WithheldPlan struct {
	// Plan as SERVICE/PLAN.
	Plan string `json:"plan"`
	// Reason in words.
	// +kubebuilder:validation:MaxLength=500
	Reason string `json:"reason"`
}
