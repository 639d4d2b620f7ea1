package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// ResourcesParameters is what a consumer chooses of a plan of kind resources.
type ResourcesParameters struct {
	// Clusters is the number of clusters, at least 1.
	Clusters int32
	// Selector holds labels that the clusters must have besides the plan's.
	Selector map[string]string
	// Require holds what chosen clusters must have proven besides, by the name of the claim.
	Require map[string]v1alpha1.ClaimRule
}

// ResourcesParameters reads the parameters of an instance, with the plan's
// defaults for what they leave open. The error, a *ParameterError when the
// parameters are at fault, says what the plan does not allow.
func (p *Plan) ResourcesParameters(parameters json.RawMessage) (ResourcesParameters, error) {
	if p.Kind != v1alpha1.PlanKindResources || p.Resources == nil {
		return ResourcesParameters{}, fmt.Errorf("plan %s sells no resources", p.Name)
	}
	if err := p.ValidateCreate(parameters); err != nil {
		return ResourcesParameters{}, err
	}
	chosen := ResourcesParameters{Clusters: max(p.Resources.Clusters, 1)}
	if len(bytes.TrimSpace(parameters)) == 0 {
		return chosen, nil
	}
	given := struct {
		Clusters *float64                      `json:"clusters"` // JSON Schema takes 2.0 for an integer, Go does not
		Selector map[string]string             `json:"selector"`
		Require  map[string]v1alpha1.ClaimRule `json:"require"`
	}{}
	if err := json.Unmarshal(parameters, &given); err != nil {
		return ResourcesParameters{}, &ParameterError{Message: "not the parameters of a resources plan"}
	}
	if given.Clusters != nil {
		chosen.Clusters = int32(*given.Clusters) // the schema bounds it
	}
	chosen.Selector, chosen.Require = given.Selector, given.Require
	return chosen, nil
}
