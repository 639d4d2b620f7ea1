package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// asked is a request by what decides about it: the plan, and a policy for its consumer.
type asked struct {
	Plan   v1alpha1.ResourcesPlan
	Policy v1alpha1.PlacementPolicySpec
}

// kind is a row of the table: one kind of rule, preference or weight.
type kind struct {
	name string
	set  func(*asked)
}

// kinds cover every field of plans and policies that a decision depends on; a test finds a field without one.
var kinds = []kind{
	{"limits only", func(*asked) {}},
	{"several clusters", func(a *asked) { a.Plan.Clusters = 5 }},
	{"largest pod", func(a *asked) {
		a.Plan.LargestPod = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	}},
	{"storage", func(a *asked) {
		a.Plan.Storage = map[string]resource.Quantity{"standard": resource.MustParse("10Gi")}
	}},
	{"selector", func(a *asked) { a.Plan.Selector = labelled("stage", "prod") }},
	{"tolerations", func(a *asked) {
		a.Plan.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}},
	{"tier", func(a *asked) { a.Plan.Tier = v1alpha1.TierCloud }},
	{"price, an hour", func(a *asked) { a.Plan.MaxPrice = &v1alpha1.Price{Currency: "EUR", PerHour: amount("0.03")} }},
	{"price, a month", func(a *asked) { a.Plan.MaxPrice = &v1alpha1.Price{Currency: "EUR", PerMonth: amount("22")} }},
	{"rule: a claim's value", requires(v1alpha1.PolicyRule{Name: "r", AppliesTo: v1alpha1.RuleClusters,
		Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}, Assurance: v1alpha1.AssuranceNotary}})},
	{"rule: a claim within bounds", requires(v1alpha1.PolicyRule{Name: "r",
		Claim: &v1alpha1.ClaimRule{Name: claimOfNumbers, AtLeast: "100", AtMost: "5000"}})},
	{"rule: CEL over a label", requires(expression("cluster.labels['stage'] == 'prod'"))},
	{"rule: CEL over claims", requires(expression("claims.exists(c, c.name == 'datacenter.country' && c.value == 'DE')"))},
	{"rule: CEL over the request", requires(expression("cluster.region != request.plan"))},
	{"rule: CEL over consumer and claims", requires(expression("consumer.space == '' || claims.exists(c, c.value == 'DE')"))},
	{"rule: CEL over the request and each name", requires(expression("cluster.name != request.id"))},
	{"rule: CEL over the space and each name", requires(expression("!cluster.name.endsWith(consumer.space) || request.resources['cpu'] > 4000"))},
	{"eight rules in CEL over the request", func(a *asked) {
		for i := range 8 {
			a.Plan.Require = append(a.Plan.Require, expression(fmt.Sprintf("cluster.region != request.plan + '%d'", i)))
		}
	}},
	{"two rules of a policy", func(a *asked) {
		a.Policy.Require = []v1alpha1.PolicyRule{{Name: "r", Claim: &v1alpha1.ClaimRule{Name: claimOfNumbers, AtLeast: "100", AtMost: "5000", Assurance: v1alpha1.AssuranceSelf}},
			{Name: "s", Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"DE"}}}}
	}},
	{"rule of a provider's policy", func(a *asked) {
		a.Policy.Provider, a.Policy.Require = "provider-1", []v1alpha1.PolicyRule{expression("consumer.platform != 'elsewhere'")}
	}},
	{"rule of a platform's policy", func(a *asked) {
		a.Policy.Platform, a.Policy.Require = "cf", []v1alpha1.PolicyRule{expression("cluster.provider != 'elsewhere'")}
	}},
	{"rule for hubs", func(a *asked) {
		one := expression("cluster.provider == 'exchange'")
		one.AppliesTo = v1alpha1.RuleHubs
		a.Policy.Require = []v1alpha1.PolicyRule{one}
	}},
	{"spread over groups", func(a *asked) {
		a.Plan.Clusters, a.Plan.Spread = 12, &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, Groups: 3, MaxSkew: 2}
	}},
	{"spread, one in each group", func(a *asked) {
		a.Plan.Spread = &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, Each: true}
	}},
	{"spread, each cluster its own group", func(a *asked) {
		a.Plan.Clusters, a.Plan.Spread = 5, &v1alpha1.Spread{By: []string{v1alpha1.LabelCluster}}
	}},
	{"spread, bounded groups", func(a *asked) {
		a.Plan.Clusters, a.Plan.Spread = 12, &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, MinGroups: 3, MinPerGroup: 2, MaxPerGroup: 3}
	}},
	{"spread, preferred", func(a *asked) {
		a.Plan.Clusters, a.Plan.Spread = 12, &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, Weight: 3}
	}},
	{"spread, preferred, each cluster its own group", func(a *asked) {
		a.Plan.Clusters, a.Plan.Spread = 12, &v1alpha1.Spread{By: []string{v1alpha1.LabelCluster}, Weight: 3}
	}},
	{"replicas, even", replicated(v1alpha1.Replicas{Count: 40, Divide: v1alpha1.DivideEvenly})},
	{"replicas, by weight", replicated(v1alpha1.Replicas{Count: 40, Divide: v1alpha1.DivideByWeight,
		Weights: []v1alpha1.ReplicaWeight{{Selector: *labelled("stage", "prod"), Weight: 3}}})},
	{"replicas, by capacity", replicated(v1alpha1.Replicas{Count: 40, Divide: v1alpha1.DivideByCapacity})},
	{"replicas, by price", replicated(v1alpha1.Replicas{Count: 40, Divide: v1alpha1.DivideByPrice})},
	{"replicas beyond the best clusters' room", replicated(v1alpha1.Replicas{Count: 1500, Divide: v1alpha1.DivideByCapacity})},
	{"three components", func(a *asked) { a.Plan.Components = components() }},
	{"three components with links", func(a *asked) {
		most := int32(10)
		a.Plan.Components = components()
		a.Plan.Links = []v1alpha1.Link{{Between: []string{"a", "b"}, MaxMilliseconds: &most}, {Between: []string{"b", "c"}, MaxMilliseconds: &most}}
	}},
	{"apart from others of the space", related(v1alpha1.Affinity{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true})},
	{"together with others of the platform", related(v1alpha1.Affinity{With: v1alpha1.ScopePlatform, By: v1alpha1.LabelRegion})},
	{"preferably apart from others", related(v1alpha1.Affinity{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true, Weight: 5})},
	{"latency from Sluice", func(a *asked) { a.Plan.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: 40} }},
	{"latency from a vantage", func(a *asked) {
		a.Plan.MaxLatency = &v1alpha1.LatencyBound{From: "vantage", Milliseconds: 40, MaxAgeSeconds: 3600}
	}},
	{"distance", func(a *asked) {
		a.Plan.Near, a.Plan.MaxDistanceKilometers = &v1alpha1.Location{Latitude: "52.5", Longitude: "13.4"}, 2000
	}},
	{"peering, without a cluster of its own", func(a *asked) {
		a.Plan.Peering = &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNode, Role: v1alpha1.RoleTransparent, Offloading: &v1alpha1.Offloading{Mapping: "Enforced", Name: "shop", Pods: "Remote"}}
	}},
	{"priority class", func(a *asked) {
		a.Plan.PriorityClass = "gold"
		a.Policy.PriorityClasses = []v1alpha1.PriorityClass{{Name: "gold", Value: 100, Preempts: v1alpha1.PreemptsAnyConsumer}}
	}},
	{"quota", func(a *asked) {
		a.Policy.Quota = &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}}
	}},
	{"quota: a budget, and instances", func(a *asked) {
		many := int32(1000)
		a.Policy.Quota = &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Instances: &many, WarnAt: 80, Budget: &v1alpha1.Price{Currency: "EUR", PerMonth: amount("100000")}}
	}},
	{"preference: a claim", func(a *asked) {
		a.Policy.Prefer = []v1alpha1.PolicyPreference{{Weight: 3, PolicyRule: v1alpha1.PolicyRule{Name: "p",
			Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}, Assurance: v1alpha1.AssuranceNotary}}}}
	}},
	{"preference: a claim within bounds", func(a *asked) {
		a.Policy.Prefer = []v1alpha1.PolicyPreference{{Weight: 3, PolicyRule: v1alpha1.PolicyRule{Name: "p", AppliesTo: v1alpha1.RuleClusters,
			Claim: &v1alpha1.ClaimRule{Name: claimOfNumbers, AtLeast: "100", AtMost: "5000"}}}}
	}},
	{"preference: CEL over the request", func(a *asked) {
		a.Policy.Prefer = []v1alpha1.PolicyPreference{{Weight: 3, PolicyRule: expression("cluster.region != request.plan")}}
	}},
	{"weight: fit", weighed(v1alpha1.ScoreWeights{Fit: 1})},
	{"weight: balance and pack", weighed(v1alpha1.ScoreWeights{Balance: 1, Pack: 2})},
	{"weight: price", weighed(v1alpha1.ScoreWeights{Price: 1})},
	{"weight: latency", weighed(v1alpha1.ScoreWeights{Latency: 1})},
	{"weight: locality", func(a *asked) {
		a.Plan.Near, a.Plan.Score = &v1alpha1.Location{Latitude: "52.5", Longitude: "13.4"}, v1alpha1.ScoreWeights{Locality: 1}
	}},
	{"weight: freshness", weighed(v1alpha1.ScoreWeights{Freshness: 1})},
	{"weight: diversity", weighed(v1alpha1.ScoreWeights{Diversity: 1})},
	{"weight: a scorer outside", weighed(v1alpha1.ScoreWeights{External: 1})},
	{"all weights, of a policy", func(a *asked) {
		a.Policy.Score = v1alpha1.ScoreWeights{Fit: 1, Balance: 1, Pack: 1, Price: 1, Latency: 1, Locality: 1, Freshness: 1, Diversity: 1, External: 1}
	}},
	{"a policy for this consumer", func(a *asked) {
		a.Policy.Match = v1alpha1.PolicyMatch{Platforms: []string{"cf"}, Organizations: []string{"org"}, Spaces: []string{"space"}, Plans: []string{"plan"}}
	}},
	{"nothing is large enough", func(a *asked) { a.Plan.Limits[corev1.ResourceCPU] = resource.MustParse("100k") }},
}

// uncovered lists fields of plans and policies that no decision depends on, with the reason.
var uncovered = map[string]string{
	"Plan.MaxClusters":            "bounds a parameter",
	"Plan.Selectable":             "bounds a parameter",
	"Plan.Requirable":             "bounds a parameter",
	"Plan.Adjustable":             "bounds a parameter",
	"Plan.Replicas.Max":           "bounds a parameter",
	"Plan.OverlapSeconds":         "says when an instance leaves its old cluster",
	"Plan.Exposure":               "needs ports that the consumer names",
	"Policy.Quota.Bindings":       "is the broker's",
	"Policy.Quota.Budget.PerHour": "is measured by the month",
	"Policy.Rebalance":            "says when instances move",
	"Policy.Workloads":            "refuses pods of workloads, and these plans have none",
	"Policy.MakeRoom":             "says which instances move for an order",
	"Policy.Elastic":              "says which clusters are made",
	"Policy.Measure":              "says which probes run",
}

// claimOfNumbers is a claim of which every cluster has another value.
const claimOfNumbers = "energy.gramsPerKilowattHour"

func expression(source string) v1alpha1.PolicyRule {
	return v1alpha1.PolicyRule{Name: "r", Expression: source}
}

func requires(rule v1alpha1.PolicyRule) func(*asked) {
	return func(a *asked) { a.Plan.Require = []v1alpha1.PolicyRule{rule} }
}

func replicated(r v1alpha1.Replicas) func(*asked) {
	return func(a *asked) { a.Plan.Clusters, a.Plan.Replicas = 12, &r }
}

func related(one v1alpha1.Affinity) func(*asked) {
	return func(a *asked) { a.Plan.Affinity = []v1alpha1.Affinity{one} }
}

func weighed(w v1alpha1.ScoreWeights) func(*asked) {
	return func(a *asked) { a.Plan.Score = w }
}

func components() []v1alpha1.Component {
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return []v1alpha1.Component{
		{Name: "a", Limits: limits}, {Name: "b", Selector: labelled("stage", "prod")}, {Name: "c", Tier: v1alpha1.TierCloud},
	}
}

func labelled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func amount(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}
