package catalog

import (
	"bytes"
	"encoding/json"
	"math"

	"k8s.io/apimachinery/pkg/runtime"
)

// parameter is one parameter of the instances of one kind of plan. Its schema is derived from a
// Plan; Chosen holds the consumers' choices.
type parameter[Plan, Chosen any] struct {
	name string
	// schema describes the parameter in the catalog; nil if the plan does not offer it.
	schema func(*Plan) map[string]any
	// set decodes a consumer's value.
	set func(chosen *Chosen, value []byte) error
	// whereItIs is true if the parameter limits the clusters of an instance. An update replaces all
	// parameters, and so repeats it, and the clusters that the instance is on must satisfy it.
	whereItIs bool
}

// properties returns the schemas of the parameters that a plan offers, by name.
func properties[Plan, Chosen any](table []parameter[Plan, Chosen], plan *Plan) map[string]any {
	offered := map[string]any{}
	for i := range table {
		if schema := table[i].schema(plan); schema != nil {
			offered[table[i].name] = schema
		}
	}
	return offered
}

// read decodes the parameters of an instance into chosen, which has the defaults. It ignores
// unknown ones. The error is a *ParameterError that names the parameter; chosen is then
// incomplete.
func read[Plan, Chosen any](table []parameter[Plan, Chosen], chosen *Chosen, parameters json.RawMessage) error {
	if len(bytes.TrimSpace(parameters)) == 0 {
		return nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(parameters, &given); err != nil {
		return &ParameterError{Message: "want an object"}
	}
	for i := range table {
		value, isGiven := given[table[i].name]
		if !isGiven || string(value) == "null" {
			continue
		}
		if err := table[i].set(chosen, value); err != nil {
			return &ParameterError{Message: table[i].name + ": is not of the type that the plan's schema gives"}
		}
	}
	return nil
}

// setCount decodes a positive integer, of which JSON Schema accepts 2.0 too.
func setCount(into *int32, value []byte) error {
	var given float64
	if err := json.Unmarshal(value, &given); err != nil {
		return err
	}
	*into = count(given, 1)
	return nil
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
