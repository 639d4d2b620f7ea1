package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

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

// CheckCredentials returns why the credentials of a plan cannot be made, if they cannot. account
// reports whether bindings have an account in the namespace. The error is a *RefusedError.
func CheckCredentials(plan *v1alpha1.WorkloadPlan, raw json.RawMessage, account bool) error {
	parameters, err := withDefaults(plan, raw)
	if err != nil {
		return refused("%v", err)
	}
	at := Addresses(plan, func(service string) string { return service + ".example" })
	var kubernetes map[string]any
	if account {
		kubernetes = map[string]any{"kubeconfig": "", "server": "", "namespace": "", "token": "", "certificate_authority": "", "clusters": []any{}}
	}
	if _, err := sampleBound(plan, parameters).Credentials(at, kubernetes); err != nil {
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
	return o.with("sample", "b0123456789abcdef", "", map[string]any{}, sampleSecrets(plan.Bindings.Secrets))
}
