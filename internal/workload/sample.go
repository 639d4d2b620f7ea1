package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
)

// Offered returns a plan with the parameters that its charts describe added to its own. It blocks as
// Render. The error is a *RefusedError if a chart does not describe one.
func Offered(plan *v1alpha1.WorkloadPlan, charts Charts) (*v1alpha1.WorkloadPlan, error) {
	offered := plan.DeepCopy()
	for i := range offered.Components {
		c := &offered.Components[i]
		if c.Chart == nil {
			continue
		}
		chart, err := chartOf(charts, c.Chart)
		if err != nil {
			return nil, fmt.Errorf("component %s: %w", c.Name, err)
		}
		for _, name := range c.Chart.Parameters {
			if err := offer(offered, chart, c.Chart, name); err != nil {
				return nil, refused("component %s: chart.parameters: %s: %v", c.Name, name, err)
			}
		}
	}
	return offered, nil
}

// offer adds a parameter of a chart to a plan. Its default is that of the plan, or else of the chart.
func offer(plan *v1alpha1.WorkloadPlan, chart *charts.Chart, of *v1alpha1.WorkloadChart, name string) error {
	if _, taken := plan.Parameters[name]; taken {
		return errors.New("is already described by the plan or another chart")
	}
	parameter, err := chart.Parameter(name)
	if err != nil {
		return err
	}
	values := map[string]any{}
	if of.Values != nil && len(of.Values.Raw) > 0 {
		if err := decode(of.Values.Raw, &values); err != nil {
			return fmt.Errorf("chart.values: %w", err)
		}
	}
	if value, set := values[name]; set {
		switch value := value.(type) {
		case map[string]any, []any:
			return errors.New("chart.values sets it to more than one value; either the plan sets it, or the consumer")
		case string:
			if strings.Contains(value, "${") {
				return errors.New("chart.values sets it with an expression; either the plan sets it, or the consumer")
			}
		}
		parameter.Schema["default"], parameter.Required = values[name], false
	}
	document, err := json.Marshal(parameter.Schema)
	if err != nil {
		return err
	}
	if plan.Parameters == nil {
		plan.Parameters = map[string]v1alpha1.ParameterSchema{}
	}
	plan.Parameters[name] = v1alpha1.ParameterSchema{RawExtension: runtime.RawExtension{Raw: document}}
	if parameter.Required {
		plan.Required = append(plan.Required, name)
	}
	return nil
}

// SampleParameters returns parameters with which a plan can be rendered: the required ones that have
// no default, each with a value that its schema probably allows.
func SampleParameters(plan *v1alpha1.WorkloadPlan) (json.RawMessage, error) {
	chosen := map[string]any{}
	for _, name := range plan.Required {
		schema, err := describe(plan.Parameters[name])
		if err != nil {
			return nil, fmt.Errorf("parameters.%s: %w", name, err)
		}
		if _, ok := schema["default"]; !ok {
			chosen[name] = sampleOf(schema)
		}
	}
	return json.Marshal(chosen)
}

// sampleOf returns a value for a schema: one that it names, or the least of its type.
func sampleOf(schema map[string]any) any {
	if value, ok := schema["const"]; ok {
		return value
	}
	for _, list := range []string{"examples", "enum"} {
		if values, ok := schema[list].([]any); ok && len(values) > 0 {
			return values[0]
		}
	}
	switch schema["type"] {
	case "integer", "number":
		if least, ok := schema["minimum"]; ok {
			return least
		}
		return int64(1)
	case "boolean":
		return false
	case "array":
		return []any{}
	case "object":
		object := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for name, of := range properties {
			if described, ok := of.(map[string]any); ok && slices.Contains(required, any(name)) {
				object[name] = sampleOf(described)
			}
		}
		return object
	}
	least, _ := schema["minLength"].(int64)
	return strings.Repeat("x", max(int(least), 1))
}

// CheckCredentials returns an error if the credentials of a plan cannot be rendered. account reports
// whether bindings have an account in the namespace. The error is a *RefusedError.
func CheckCredentials(plan *v1alpha1.WorkloadPlan, raw json.RawMessage, account bool) error {
	parameters, err := withDefaults(plan, raw)
	if err != nil {
		return refused("%v", err)
	}
	o := sampleBound(plan, parameters)
	at, err := o.Addresses(func(service string) string { return service + ".example" }, func(string) *v1alpha1.ClusterExposure { return sampleExposure })
	if err != nil {
		return err
	}
	var kubernetes map[string]any
	if account {
		kubernetes = map[string]any{"kubeconfig": "", "server": "", "namespace": "", "token": "", "certificate_authority": "", "clusters": []any{}}
	}
	if _, err := o.Credentials(at, kubernetes); err != nil {
		return refused("%v", err)
	}
	return nil
}

// sampleBound is sample with a binding of which nothing is known.
func sampleBound(plan *v1alpha1.WorkloadPlan, parameters map[string]any) *Order {
	o := sample(plan, parameters)
	if plan.Bindings == nil {
		return o.with("sample", "b0123456789abcdef", "", map[string]any{}, nil)
	}
	results := map[string]string{}
	for _, name := range plan.Bindings.Results {
		results[name] = strings.Repeat("r", usualLength)
	}
	return o.with("sample", "b0123456789abcdef", "", map[string]any{}, sampleSecrets(plan.Bindings.Secrets).WithResults(results))
}
