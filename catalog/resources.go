package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
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
	// MaxLatency is the lesser of the plan's limit and the consumer's; nil if the plan has no limit.
	MaxLatency *v1alpha1.LatencyBound
	// Expose lists the ports that the consumer makes public.
	Expose []v1alpha1.ExposedPort
}

type resourcesParameter = parameter[v1alpha1.ResourcesPlan, ResourcesParameters]

// resourcesParameters are the parameters of plans of kind resources.
var resourcesParameters = []resourcesParameter{
	{
		name: "clusters",
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if r.MaxClusters <= r.Clusters {
				return nil
			}
			least := max(r.Clusters, 1)
			return map[string]any{
				"description": "Number of clusters; each delivers the plan's resources in full.",
				"type":        "integer", "minimum": least, "maximum": r.MaxClusters, "default": least,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return setCount(&chosen.Clusters, value) },
	},
	{
		name: "selector", whereItIs: true,
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if len(r.Selectable) == 0 {
				return nil
			}
			keys := map[string]any{}
			for _, key := range r.Selectable {
				// The syntax of Kubernetes label values.
				keys[key] = map[string]any{
					"type": "string", "maxLength": 63,
					"pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
				}
			}
			return map[string]any{
				"description": "Labels that the clusters must have.",
				"type":        "object", "properties": keys, "additionalProperties": false,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return json.Unmarshal(value, &chosen.Selector) },
	},
	{
		name: "require", whereItIs: true,
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if len(r.Requirable) == 0 {
				return nil
			}
			claims := map[string]any{}
			for _, name := range r.Requirable {
				claims[name] = claimSchema
			}
			return map[string]any{
				"description": "Claims that must have been proven of the clusters.",
				"type":        "object", "properties": claims, "additionalProperties": false,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return json.Unmarshal(value, &chosen.Require) },
	},
	{
		name: "replicas",
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if r.Replicas == nil || r.Replicas.Max <= r.Replicas.Count {
				return nil
			}
			return map[string]any{
				"description": "Number of replicas on all clusters together.",
				"type":        "integer", "minimum": 1, "maximum": r.Replicas.Max, "default": r.Replicas.Count,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return setCount(&chosen.Replicas, value) },
	},
	{
		name: "cluster", whereItIs: true,
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if r.Peering == nil {
				return nil
			}
			return map[string]any{
				"description": "Cluster of the consumer's own to which the instance is delivered, as the operator calls it; needed where there are several.",
				"type":        "string", "minLength": 1, "maxLength": 253,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return json.Unmarshal(value, &chosen.Cluster) },
	},
	{
		name: "expose",
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			if r.Exposure == nil {
				return nil
			}
			return map[string]any{
				"description": "Ports that everyone reaches, each at a host of their own. The pods of each are those with the label " + v1alpha1.LabelComponent + ": NAME.",
				"type":        "array", "maxItems": r.Exposure.Hosts, "items": exposeSchema,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error { return json.Unmarshal(value, &chosen.Expose) },
	},
	adjustable(v1alpha1.AdjustLocation, resourcesParameter{
		whereItIs: true,
		schema: func(*v1alpha1.ResourcesPlan) map[string]any {
			degrees := func(most int) map[string]any {
				return map[string]any{"type": "number", "minimum": -most, "maximum": most}
			}
			return map[string]any{
				"description": "Where the consumer is, in decimal degrees.",
				"type":        "object", "additionalProperties": false, "required": []any{"latitude", "longitude"},
				"properties": map[string]any{"latitude": degrees(90), "longitude": degrees(180)},
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error {
			var at struct{ Latitude, Longitude float64 }
			if err := json.Unmarshal(value, &at); err != nil {
				return err
			}
			degrees := func(d float64) string { return strconv.FormatFloat(d, 'f', 6, 64) }
			chosen.Location = &v1alpha1.Location{Latitude: degrees(at.Latitude), Longitude: degrees(at.Longitude)}
			return nil
		},
	}),
	adjustable(v1alpha1.AdjustExcludeProviders, resourcesParameter{
		whereItIs: true,
		schema: func(*v1alpha1.ResourcesPlan) map[string]any {
			return map[string]any{
				"description": "Providers on whose clusters nothing is placed.",
				"type":        "array", "maxItems": 64, "items": map[string]any{"type": "string", "minLength": 1, "maxLength": 63},
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error {
			return json.Unmarshal(value, &chosen.ExcludeProviders)
		},
	}),
	adjustable(v1alpha1.AdjustMaxPrice, resourcesParameter{
		whereItIs: true,
		schema: func(*v1alpha1.ResourcesPlan) map[string]any {
			return map[string]any{
				"description": "Most that an hour may cost on each cluster, in the currency of the plan's maximum.",
				"type":        "number", "minimum": 0,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error {
			var number json.Number
			if err := json.Unmarshal(value, &number); err != nil {
				return err
			}
			price, err := resource.ParseQuantity(number.String())
			chosen.MaxPricePerHour = &price
			return err
		},
	}),
	adjustable(v1alpha1.AdjustMaxLatency, resourcesParameter{
		schema: func(r *v1alpha1.ResourcesPlan) map[string]any {
			return map[string]any{
				"description": "Longest round-trip time to a cluster, in milliseconds.",
				"type":        "integer", "minimum": 1, "maximum": r.MaxLatency.Milliseconds,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error {
			if chosen.MaxLatency == nil {
				return nil // without the plan's limit there is no place of measurement
			}
			limit := chosen.MaxLatency.DeepCopy()
			if err := setCount(&limit.Milliseconds, value); err != nil {
				return err
			}
			limit.Milliseconds = min(limit.Milliseconds, chosen.MaxLatency.Milliseconds)
			chosen.MaxLatency = limit
			return nil
		},
	}),
	adjustable(v1alpha1.AdjustApplication, resourcesParameter{
		schema: func(*v1alpha1.ResourcesPlan) map[string]any {
			return map[string]any{
				"description": "Name of the application that the instance belongs to, within the space.",
				"type":        "string", "minLength": 1, "maxLength": 63,
			}
		},
		set: func(chosen *ResourcesParameters, value []byte) error {
			return json.Unmarshal(value, &chosen.Application)
		},
	}),
}

// adjustable is a parameter that only plans offer that list it as adjustable.
func adjustable(name v1alpha1.Adjustable, p resourcesParameter) resourcesParameter {
	schema := p.schema
	p.name = string(name)
	p.schema = func(r *v1alpha1.ResourcesPlan) map[string]any {
		if !slices.Contains(r.Adjustable, name) {
			return nil
		}
		return schema(r)
	}
	return p
}

// exposeSchema is the schema of a v1alpha1.ExposedPort.
var exposeSchema = map[string]any{
	"type": "object", "additionalProperties": false, "required": []any{"name", "port"},
	"properties": map[string]any{
		"name": map[string]any{"type": "string", "maxLength": 40, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
		"port": map[string]any{"type": "integer", "minimum": 1, "maximum": 65535, "description": "Port of the pods."},
		"host": map[string]any{
			"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
			"description": "First label of the host, or a whole host in a domain of your own; without it, one is generated.",
		},
		"appProtocol": map[string]any{
			"type": "string", "enum": []any{"http", "tls", "tcp"}, "default": "http",
			"description": "What everyone speaks to it: HTTP, with the certificate of the Gateway; TLS, with that of the pods; or anything over TCP, at a port of its own.",
		},
	},
}

// Exposed returns the ports that an instance's parameters make public, and what is known of them before
// the cluster is; both are nil if there are none. The error is a *ParameterError.
func (p *Plan) Exposed(parameters json.RawMessage) ([]v1alpha1.ExposedPort, *Footprint, error) {
	if p.Resources == nil || p.Resources.Exposure == nil {
		return nil, nil, nil
	}
	chosen, err := p.ResourcesParameters(parameters)
	if err != nil || len(chosen.Expose) == 0 {
		return nil, nil, err
	}
	names := map[string]bool{}
	for _, port := range chosen.Expose {
		if names[port.Name] {
			return nil, nil, &ParameterError{Message: fmt.Sprintf("expose[%s]: there is another one of this name", port.Name)}
		}
		names[port.Name] = true
	}
	f, err := workload.FootprintOf(workload.Exposing(chosen.Expose), nil, nil, 0)
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) {
		return nil, nil, &ParameterError{Message: refused.Reason}
	}
	return chosen.Expose, f, err
}

// claimSchema is the schema of a v1alpha1.ClaimRule without its name.
var claimSchema = map[string]any{
	"type": "object", "additionalProperties": false,
	"properties": map[string]any{
		"values":    map[string]any{"type": "array", "maxItems": 64, "items": map[string]any{"type": "string", "maxLength": 63}},
		"atLeast":   map[string]any{"type": "string", "maxLength": 63},
		"atMost":    map[string]any{"type": "string", "maxLength": 63},
		"assurance": map[string]any{"type": "string", "enum": []any{"self", "notary", "label", "certified", "measured"}},
	},
}

// ResourcesParameters parses the parameters of an instance and fills in the plan's
// defaults. It does not check them against the plan's schema (see ValidateCreate), so that
// existing instances stay readable when the plan is narrowed later. The error is a
// *ParameterError that names the parameter.
func (p *Plan) ResourcesParameters(parameters json.RawMessage) (ResourcesParameters, error) {
	if p.Kind == v1alpha1.PlanKindCluster || p.Resources == nil {
		return ResourcesParameters{}, fmt.Errorf("plan %s sells no resources", p.Name)
	}
	r := p.Resources
	chosen := ResourcesParameters{Clusters: max(r.Clusters, 1), Location: r.Near, MaxLatency: r.MaxLatency}
	if r.Replicas != nil {
		chosen.Replicas = r.Replicas.Count
	}
	err := read(p.resourcesParameters(), &chosen, parameters)
	return chosen, err
}
