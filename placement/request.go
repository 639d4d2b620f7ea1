package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/lists"
)

// Request holds the requirements of one instance.
type Request struct {
	// ID names the instance; it breaks ties. Existing reservations under it count as free if
	// the instance stays.
	ID string
	// Resources to reserve on each chosen cluster.
	Resources Resources
	// Clusters is the number of distinct clusters; zero means one.
	Clusters int
	// Selector that the clusters' labels match; nil selects every cluster.
	Selector labels.Selector
	// Tolerations of cluster taints.
	Tolerations []corev1.Toleration
	// Tier of the clusters; empty means any.
	Tier v1alpha1.Tier
	// MaxPrice on each chosen cluster; nil means any price.
	MaxPrice *Price
	// Spread of the clusters over groups; nil means no spread.
	Spread *Spread
	// Replicas to divide over the clusters; Resources and MaxPrice are then those of one
	// replica. Zero means Resources in full on each cluster.
	Replicas int
	Division Division
	// Fewest means that Clusters is the least number on which there is room for all replicas.
	Fewest bool
	// Common are further resources on each chosen cluster, whatever its number of replicas. MaxPrice
	// is that of one replica with them.
	Common Resources
	// LargestPods are the pods that the instance is meant to run on each chosen cluster and that exceed
	// its others: for each there is a node with enough free. None means that its pods are not known.
	LargestPods []Resources
	// MaxLatency to each cluster; nil means any.
	MaxLatency *v1alpha1.LatencyBound
	// Near is the location of the consumer; nil if unknown.
	Near *Location
	// MaxDistance of the clusters from Near in kilometres; zero means any.
	MaxDistance int
	// ExcludeProviders are providers on whose clusters nothing is placed.
	ExcludeProviders []string
	// Affinity to other instances of the consumer.
	Affinity []v1alpha1.Affinity
	// Quotas that apply to the consumer.
	Quotas []Quota
	// Consumer that the request is made for, and what that one has proven.
	Consumer Consumer
	Proven   []v1alpha1.Claim
	// Rules that chosen clusters must meet, and preferences among those clusters.
	Rules       []Rule
	Preferences []Preference
	// Policies that added to them, or to the quotas and the weights, or might have.
	Policies []v1alpha1.PolicyInForce
	// Weights of the scorers; all zero means fit alone.
	Weights v1alpha1.ScoreWeights
	// External scores by cluster, from 0 to 100, of a scorer outside Sluice; clusters without
	// one score 0. Nil means that there is no such scorer, or that it did not answer.
	External map[string]int32
	// At is the time of the request; the age of measurements and claims is counted from it.
	At time.Time
	// Current clusters of the instance. It stays on them: if fewer clusters are requested, on
	// the best of them; if more, on all of them and on others. Filters for new placements only
	// (readiness, cordons, taints) do not evict it.
	Current []string
	// Free lets the instance leave its current clusters for better ones: what it holds there
	// counts as free, and being there is no advantage.
	Free bool
	// Leaving are clusters on which the instance is and must not stay.
	Leaving []string
	// Refused are the clusters that have refused what is to be delivered, with their reasons, see Avoid.
	Refused map[string]string
	// Components to place together, instead of Resources and Clusters; Links between them; and
	// ComponentClusters, the clusters that the instance's components are on, by name.
	Components        []Component
	Links             []Link
	ComponentClusters map[string]string
	// Recorded are the instance's reservations on the hub, which may be fewer than the inventory holds. A quota
	// warns with the decision that is written, not with one that was lost. Nil means as much as the inventory holds.
	Recorded *Holding
	// Class is the priority class; empty means none.
	Class string
	// Shape is the cluster to make, if one is requested. It is placed on a management cluster.
	Shape *v1alpha1.ClusterShape
	// Upstream has the orders from brokers, if there are any.
	Upstream *Upstream
	// Workload to run; nil if the plan has none. Images are those of its pods.
	Workload *v1alpha1.WorkloadPlan
	Images   []string
	Pods     []catalog.Pod
	// Sold are the rules for workloads by which an instance that only moves is on its clusters, by their names: it
	// keeps them where it stays. Nil means that the consumer asks for something, which is decided by the rules of today.
	Sold map[string][]v1alpha1.WorkloadRules
	// Exposed are the public ports of what the consumer runs itself.
	Exposed []v1alpha1.ExposedPort
	// Public lists the protocols of public ports, for which a cluster needs a Gateway. Hosts are asked for them, by
	// their first labels or as a whole, each with the field that asks for it. TCP are the components with a public
	// port that speaks TCP.
	Public []v1alpha1.AppProtocol
	Hosts  map[string]string
	TCP    []string
	// Peering with the consumer's own cluster; nil if the plan has none.
	Peering *Peering
	// WaitFor selects the event that ends the waiting of a request that fits nowhere; empty means
	// capacity.
	WaitFor v1alpha1.WaitFor

	// component that the request is a part for; empty if it is a whole.
	component string
	// atBest assumes that every cluster answers, takes new placements and has nothing on it.
	atBest bool
	// burden of a cluster for the request or a component of it; if not nil, the clusters are chosen by the least sum of
	// it, instead of by their scores.
	burden func(part *Request, at position) int64
}

// NewRequest returns the request of an instance of a plan with the given OSB parameters. It
// does not check them against the plan's schema. It fails if the plan sells nothing that is
// placed, or if the parameters cannot be read.
func NewRequest(id string, plan *catalog.Plan, parameters json.RawMessage) (Request, error) {
	if plan.Kind == v1alpha1.PlanKindCluster && plan.Cluster != nil {
		return clusterRequest(id, plan, parameters)
	}
	if plan.Upstream != nil {
		return upstreamRequest(id, plan)
	}
	if plan.Resources == nil {
		return Request{}, fmt.Errorf("plan %s sells no resources", plan.Name)
	}
	asked, err := plan.ResourcesParameters(parameters)
	if err != nil {
		return Request{}, fmt.Errorf("parameters of plan %s: %w", plan.Name, err)
	}
	sold := plan.Resources
	r := Request{
		ID:          id,
		Clusters:    int(asked.Clusters),
		Tolerations: sold.Tolerations,
		Tier:        sold.Tier,
		MaxPrice:    lower(PriceOf(sold.MaxPrice), asked.MaxPricePerHour),
		Replicas:    int(asked.Replicas),
		MaxLatency:  asked.MaxLatency,
		MaxDistance: int(sold.MaxDistanceKilometers),
		Affinity:    sold.Affinity,
		Weights:     sold.Score,
		Consumer:    Consumer{Application: asked.Application, Plan: plan.ID},
		Peering:     peeringOf(sold.Peering, asked.Cluster),
		Workload:    plan.Workload,
		Class:       sold.PriorityClass,
		WaitFor:     plan.WaitFor,

		ExcludeProviders: asked.ExcludeProviders,
	}
	if r.Selector, err = selectorOf(plan, asked.Selector); err != nil {
		return Request{}, err
	}
	if r.Rules, err = rulesOf(plan, asked); err != nil {
		return Request{}, err
	}
	if r.Near, err = locationOf(asked.Location); err != nil {
		return Request{}, fmt.Errorf("parameter location: %w", err)
	}
	if r.Spread, err = spreadOf(sold.Spread); err != nil {
		return Request{}, fmt.Errorf("plan %s: %w", plan.Name, err)
	}
	if r.Division, err = divisionOf(sold.Replicas); err != nil {
		return Request{}, fmt.Errorf("plan %s: %w", plan.Name, err)
	}
	if err := r.take(plan, parameters); err != nil {
		return Request{}, err
	}
	return r, nil
}

// take adds what the plan sells: resources, components, public ports and images.
func (r *Request) take(plan *catalog.Plan, parameters json.RawMessage) error {
	resources, footprint, err := soldBy(plan, parameters)
	if err != nil {
		return err
	}
	r.Resources, r.LargestPods, r.Images, r.Pods = resources, largestPods(plan, footprint), footprint.Images, footprint.Pods
	if footprint.Replica != nil {
		r.Common, r.Resources = resources, ResourcesOf(footprint.Replica)
		r.Common.Add(r.Resources, -1)
	}
	exposed, public, err := plan.Exposed(parameters)
	if err != nil {
		return fmt.Errorf("parameters of plan %s: %w", plan.Name, err)
	}
	if public == nil {
		public = footprint
	}
	r.Exposed, r.Public, r.Hosts, r.TCP = exposed, public.Public, public.Hosts, public.TCP
	if r.Replicas > 0 {
		r.Common = takeTCP(r.Common, len(r.TCP))
	} else {
		r.Resources = takeTCP(r.Resources, len(r.TCP))
	}
	if r.Components, r.Links, err = componentsOf(plan, r.Resources, footprint); err != nil {
		return fmt.Errorf("plan %s: %w", plan.Name, err)
	}
	return nil
}

// selectorOf returns the selector of the plan with the labels that the consumer asks for.
func selectorOf(plan *catalog.Plan, asked map[string]string) (labels.Selector, error) {
	selector, err := planSelector(plan, plan.Resources.Selector)
	if err != nil {
		return nil, err
	}
	chosen, err := labels.ValidatedSelectorFromSet(asked)
	if err != nil {
		return nil, fmt.Errorf("parameter selector: %w", err)
	}
	requirements, _ := chosen.Requirements()
	return selector.Add(requirements...), nil
}

// planSelector returns a selector of a plan; absent, it selects everything.
func planSelector(plan *catalog.Plan, from *metav1.LabelSelector) (labels.Selector, error) {
	if from == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return nil, fmt.Errorf("selector of plan %s: %w", plan.Name, err)
	}
	return selector, nil
}

// soldBy returns what the plan sells on each cluster: its limits and storage, or what its workload
// takes with these parameters, and the workload's footprint; that is empty if there is none.
func soldBy(plan *catalog.Plan, parameters json.RawMessage) (Resources, *catalog.Footprint, error) {
	if plan.Workload != nil {
		footprint, err := plan.Footprint(parameters)
		if err != nil {
			return nil, nil, fmt.Errorf("workload of plan %s: %w", plan.Name, err)
		}
		return ResourcesOf(footprint.Takes), footprint, nil
	}
	resources := ResourcesOf(plan.Resources.Limits)
	for class, size := range plan.Resources.Storage {
		resources[v1alpha1.StorageResource(class)] = size.Value()
	}
	return resources, &catalog.Footprint{}, nil
}

// largestPods returns the largest pods of an instance of a plan.
func largestPods(plan *catalog.Plan, footprint *catalog.Footprint) (pods []Resources) {
	if len(plan.Resources.LargestPod) > 0 {
		return []Resources{ResourcesOf(plan.Resources.LargestPod)}
	}
	for _, component := range slices.Sorted(maps.Keys(footprint.LargestPods)) {
		pods = append(pods, podsOf(footprint.LargestPods[component])...)
	}
	return pods
}

// rulesOf returns the rules for clusters of the plan and of the consumer's parameters.
func rulesOf(plan *catalog.Plan, asked catalog.ResourcesParameters) (rules []Rule, err error) {
	if rules, err = planRules(plan.Name, plan.Resources.Require); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(asked.Require)) {
		claim := asked.Require[name]
		claim.Name = name
		rule, err := CompileRule("parameter require", "", v1alpha1.PolicyRule{Name: name, Claim: &claim})
		if err != nil {
			return nil, fmt.Errorf("parameter require: %w", err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// ClusterCount returns the number of requested clusters.
func (r Request) ClusterCount() int {
	if r.Replicas > 0 {
		return max(min(r.Clusters, r.Replicas), 1) // each has at least one replica
	}
	return max(r.Clusters, 1)
}

// width returns on how many clusters of a snapshot the request is placed. If it is spread over
// all groups, it is one in each group.
func (r Request) width(s *Snapshot) int {
	if r.Spread == nil || !r.Spread.Each {
		return r.ClusterCount()
	}
	return len(everyGroup(r.Spread.By, s.pages, r.filters(s, nil)))
}

// stays returns on how many of its current clusters the instance stays.
func (r Request) stays() int {
	if r.Free {
		return 0
	}
	return min(r.ClusterCount(), len(r.Current))
}

// on returns the resources that the request reserves on a cluster with a number of replicas; 0 means
// that the request has none.
func (r Request) on(replicas int64) Resources {
	sum := r.Resources.times(max(replicas, 1))
	if len(r.Common) == 0 {
		return sum
	}
	sum = maps.Clone(sum)
	sum.Add(r.Common, 1)
	return sum
}

// total returns what the request reserves on n clusters together.
func (r Request) total(n int) Resources {
	if len(r.Components) > 0 {
		sum := Resources{}
		for _, c := range r.Components {
			sum.Add(c.Resources, 1)
		}
		return sum
	}
	if r.Replicas > 0 {
		sum := Resources{}
		sum.Add(r.Common, int64(n))
		sum.Add(r.Resources, int64(r.Replicas))
		return sum
	}
	return r.Resources.times(int64(n))
}

// lower returns the plan's maximum price, or the consumer's if that is lower.
func lower(plan *Price, consumer *resource.Quantity) *Price {
	if plan == nil || consumer == nil {
		return plan
	}
	return &Price{Currency: plan.Currency, NanoPerHour: min(plan.NanoPerHour, consumer.ScaledValue(resource.Nano))}
}

// weights returns the weights in force.
func (r Request) weights() v1alpha1.ScoreWeights {
	if r.Weights == (v1alpha1.ScoreWeights{}) {
		return v1alpha1.ScoreWeights{Fit: 1}
	}
	return r.Weights
}

// OnlyClusters narrows a selector, which may be nil, to clusters by their names.
func OnlyClusters(selector labels.Selector, clusters ...string) (labels.Selector, error) {
	named, err := labels.NewRequirement(v1alpha1.LabelCluster, selection.In, clusters)
	if err != nil {
		return nil, err
	}
	if selector == nil {
		selector = labels.NewSelector()
	}
	return selector.Add(*named), nil
}

// MovingTo returns the request of an instance that leaves clusters for others of those named alone. The clusters that it
// leaves are not refused by their names, or a group that it follows would be gone with them.
func (r Request) MovingTo(clusters []string) (Request, error) {
	selector, err := OnlyClusters(r.Selector, lists.Union(r.Current, r.Leaving, clusters)...)
	if err != nil {
		return Request{}, fmt.Errorf("move to %s: %w", strings.Join(clusters, ", "), err)
	}
	r.Selector = selector
	return r, nil
}
