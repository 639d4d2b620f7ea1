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

// ResourcesParameters are a consumer's choices for an instance of a plan of kind resources.
type ResourcesParameters struct {
	// Clusters is the number of clusters, at least 1.
	Clusters int32
	// Selector holds labels that the clusters must have in addition to the plan's.
	Selector map[string]string
	// Require holds additional claims that chosen clusters must have, by name.
	Require map[string]v1alpha1.ClaimRule
	// Replicas on all clusters together; zero if the plan has none.
	Replicas int32
	// Location of the consumer; nil if neither plan nor consumer gives one.
	Location *v1alpha1.Location
	// Application that the instance belongs to; empty if the consumer does not name one.
	Application string
	// ExcludeProviders lists providers on whose clusters nothing is placed.
	ExcludeProviders []string
	// MaxPricePerHour in the currency of the plan's maximum; nil if the consumer gives none.
	MaxPricePerHour *resource.Quantity
	// Cluster is the name of the consumer's own member cluster to which the instance is delivered;
	// empty if the consumer does not name one.
	Cluster string
	// MaxLatency is the plan's limit, with the consumer's value if it gives one; nil if the plan
	// has no limit. The plan's schema keeps the consumer's value from exceeding the plan's.
	MaxLatency *v1alpha1.LatencyBound
}

// ResourcesParameters parses the parameters of an instance and fills in the plan's
// defaults. It does not check them against the plan's schema (see ValidateCreate), so that
// existing instances stay readable when the plan is narrowed later. The error is a
// *ParameterError if they are not parameters of a resources plan.
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
		Clusters *float64                      `json:"clusters"` // JSON Schema accepts 2.0 as an integer, Go does not
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
	if given.MaxLatency != nil && chosen.MaxLatency != nil { // without the plan's limit there is no place of measurement
		chosen.MaxLatency = chosen.MaxLatency.DeepCopy()
		chosen.MaxLatency.Milliseconds = count(*given.MaxLatency, 1)
	}
	chosen.Selector, chosen.Require = given.Selector, given.Require
	chosen.Cluster = given.Cluster
	chosen.Application, chosen.ExcludeProviders = given.Application, given.ExcludeProviders
	return chosen, nil
}

// count converts a number from parameters to an integer of at least least.
func count(given float64, least int32) int32 {
	return int32(min(max(given, float64(least)), math.MaxInt32))
}

// ApplicationOf returns the application that an instance's parameters name, or "". The
// schemas of plans without that parameter refuse it.
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

// OnlyApplication returns parameters that contain nothing except the application's name;
// nil if none is named.
func OnlyApplication(parameters *runtime.RawExtension) *runtime.RawExtension {
	application := ApplicationOf(parameters)
	if application == "" {
		return nil
	}
	kept, err := json.Marshal(map[string]string{"application": application})
	if err != nil {
		return nil // cannot happen: a string always encodes
	}
	return &runtime.RawExtension{Raw: kept}
}
