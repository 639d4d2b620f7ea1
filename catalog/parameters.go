package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

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
	// Replicas on all clusters together; zero where the plan has none.
	Replicas int32
	// Location of the consumer; nil where neither plan nor consumer says.
	Location *v1alpha1.Location
	// Application that the instance belongs to; empty where the consumer does not say.
	Application string
	// ExcludeProviders on whose clusters nothing is placed.
	ExcludeProviders []string
	// MaxPricePerHour in units of the currency of the plan's maximum; nil where the consumer does not say.
	MaxPricePerHour *resource.Quantity
	// Cluster is the member cluster of the consumer's own to which it is delivered; empty where
	// the consumer does not say.
	Cluster string
	// MaxLatency as the plan says or the consumer, whichever is less; nil where the plan bounds none.
	MaxLatency *v1alpha1.LatencyBound
}

// ResourcesParameters reads the parameters of an instance, with the plan's defaults for
// what they leave open. It does not check them against the plan's schema (ValidateCreate):
// what an instance was sold with stays readable when the plan is narrowed afterwards. The
// error is a *ParameterError when the parameters are those of no resources plan.
func (p *Plan) ResourcesParameters(parameters json.RawMessage) (ResourcesParameters, error) {
	if p.Kind != v1alpha1.PlanKindResources || p.Resources == nil {
		return ResourcesParameters{}, fmt.Errorf("plan %s sells no resources", p.Name)
	}
	r := p.Resources
	chosen := ResourcesParameters{Clusters: max(r.Clusters, 1), Location: r.Near, MaxLatency: r.MaxLatency}
	if r.Replicas != nil {
		chosen.Replicas = r.Replicas.Count
	}
	if len(bytes.TrimSpace(parameters)) == 0 {
		return chosen, nil
	}
	given := struct {
		Clusters *float64                      `json:"clusters"` // JSON Schema takes 2.0 for an integer, Go does not
		Replicas *float64                      `json:"replicas"`
		Selector map[string]string             `json:"selector"`
		Require  map[string]v1alpha1.ClaimRule `json:"require"`
		Location *struct {
			Latitude  float64 `json:"latitude"`
			Longitude float64 `json:"longitude"`
		} `json:"location"`
		Application      string       `json:"application"`
		Cluster          string       `json:"cluster"`
		ExcludeProviders []string     `json:"excludeProviders"`
		MaxPricePerHour  *json.Number `json:"maxPricePerHour"`
		MaxLatency       *float64     `json:"maxLatencyMilliseconds"`
	}{}
	if err := json.Unmarshal(parameters, &given); err != nil {
		return ResourcesParameters{}, &ParameterError{Message: "not the parameters of a resources plan"}
	}
	if given.Clusters != nil {
		chosen.Clusters = count(*given.Clusters, 1)
	}
	if given.Replicas != nil {
		chosen.Replicas = count(*given.Replicas, 1)
	}
	if at := given.Location; at != nil {
		degrees := func(d float64) string { return strconv.FormatFloat(d, 'f', 6, 64) }
		chosen.Location = &v1alpha1.Location{Latitude: degrees(at.Latitude), Longitude: degrees(at.Longitude)}
	}
	if given.MaxPricePerHour != nil {
		price, err := resource.ParseQuantity(given.MaxPricePerHour.String())
		if err != nil {
			return ResourcesParameters{}, &ParameterError{Message: "maxPricePerHour: " + err.Error()}
		}
		chosen.MaxPricePerHour = &price
	}
	if given.MaxLatency != nil && chosen.MaxLatency != nil { // a plan that bounds none says no vantage point
		chosen.MaxLatency = chosen.MaxLatency.DeepCopy()
		chosen.MaxLatency.Milliseconds = count(*given.MaxLatency, 1)
	}
	chosen.Selector, chosen.Require = given.Selector, given.Require
	chosen.Cluster = given.Cluster
	chosen.Application, chosen.ExcludeProviders = given.Application, given.ExcludeProviders
	return chosen, nil
}

// count is a number of parameters as an integer that is not less than least.
func count(given float64, least int32) int32 {
	return int32(min(max(given, float64(least)), math.MaxInt32))
}

// ApplicationOf is what an instance's parameters say it belongs to, empty where they
// do not say. Parameters of plans that have no such parameter cannot have it.
func ApplicationOf(parameters *runtime.RawExtension) string {
	if parameters == nil || !bytes.Contains(parameters.Raw, []byte(`"application"`)) {
		return ""
	}
	var given struct {
		Application string `json:"application"`
	}
	if json.Unmarshal(parameters.Raw, &given) != nil {
		return ""
	}
	return given.Application
}

// OnlyApplication are the parameters without all that is nobody's business but the
// application's name; nil where they have none.
func OnlyApplication(parameters *runtime.RawExtension) *runtime.RawExtension {
	application := ApplicationOf(parameters)
	if application == "" {
		return nil
	}
	kept, err := json.Marshal(map[string]string{"application": application})
	if err != nil {
		return nil // a string always encodes
	}
	return &runtime.RawExtension{Raw: kept}
}
