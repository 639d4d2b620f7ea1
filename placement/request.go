package placement

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Request is what one instance asks of placement.
type Request struct {
	// ID names the instance; it breaks ties, and what is already reserved under it
	// counts as free where the instance stays.
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
	// Weights of the scorers; all zero means balance alone.
	Weights v1alpha1.ScoreWeights
	// Current clusters of the instance. It stays on them: when fewer clusters are asked
	// for, on the best of them; when more, on all of them and others. What only concerns
	// new placements (readiness, cordons, taints) does not drive it away.
	Current []string
}

// NewRequest is the request of an instance of a plan with the given OSB
// parameters. Errors are the plan's: it sells no resources, or the parameters do
// not match it.
func NewRequest(id string, plan *catalog.Plan, parameters json.RawMessage) (Request, error) {
	if plan.Kind != v1alpha1.PlanKindResources || plan.Resources == nil {
		return Request{}, fmt.Errorf("plan %s sells no resources", plan.Name)
	}
	asked, err := plan.ResourcesParameters(parameters)
	if err != nil {
		return Request{}, fmt.Errorf("parameters of plan %s: %w", plan.Name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(plan.Resources.Selector)
	if err != nil {
		return Request{}, fmt.Errorf("selector of plan %s: %w", plan.Name, err)
	}
	if plan.Resources.Selector == nil {
		selector = labels.Everything()
	}
	chosen, err := labels.ValidatedSelectorFromSet(asked.Selector)
	if err != nil {
		return Request{}, fmt.Errorf("parameter selector: %w", err)
	}
	requirements, _ := chosen.Requirements()

	resources := ResourcesOf(plan.Resources.Limits)
	for class, size := range plan.Resources.Storage {
		resources[StorageResource(class)] = size.Value()
	}
	return Request{
		ID:          id,
		Resources:   resources,
		Clusters:    int(asked.Clusters),
		Selector:    selector.Add(requirements...),
		Tolerations: plan.Resources.Tolerations,
		Tier:        plan.Resources.Tier,
		MaxPrice:    PriceOf(plan.Resources.MaxPrice),
		Weights:     plan.Resources.Score,
	}, nil
}

// clusters is the number of clusters asked for.
func (r Request) clusters() int { return max(r.Clusters, 1) }

// weights are the weights in force.
func (r Request) weights() v1alpha1.ScoreWeights {
	if r.Weights == (v1alpha1.ScoreWeights{}) {
		return v1alpha1.ScoreWeights{Balance: 1}
	}
	return r.Weights
}
