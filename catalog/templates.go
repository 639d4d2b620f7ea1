package catalog

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/internal/jsonschema"
)

// checkTemplates refuses texts of consumers that a chart could execute as a template. Many charts do that with their
// values, by Helm's function tpl; a template reads all values of the chart, secrets included. The error is a
// *ParameterError, which names the parameter and contains no value.
func (p *Plan) checkTemplates(parameters json.RawMessage) error {
	addOns := p.Cluster != nil && len(p.Cluster.AddOns) > 0
	if !addOns && (p.Workload == nil || len(p.Workload.Charts()) == 0) || len(bytes.TrimSpace(parameters)) == 0 {
		return nil
	}
	var given map[string]any
	if err := json.Unmarshal(parameters, &given); err != nil {
		return &ParameterError{Message: "want an object"}
	}
	if addOns {
		return refuseTemplates(given["addOnValues"], "addOnValues") // other parameters come to no chart
	}
	return refuseTemplates(given)
}

// refuseTemplates refuses templates in a JSON value at a location. Without a brace at the end, two texts that a plan joins
// are no template either.
func refuseTemplates(value any, location ...string) error {
	wrong := func(text string) error {
		if !strings.Contains(text, "{{") && !strings.HasSuffix(text, "{") {
			return nil
		}
		return &ParameterError{Path: jsonschema.Pointer(location...),
			Message: "may not contain {{ or end with {, because charts may execute their values as templates"}
	}
	within := slices.Clip(location)
	switch value := value.(type) {
	case string:
		return wrong(value)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if err := wrong(name); err != nil {
				return err
			}
			if err := refuseTemplates(value[name], append(within, name)...); err != nil {
				return err
			}
		}
	case []any:
		for i, one := range value {
			if err := refuseTemplates(one, append(within, strconv.Itoa(i))...); err != nil {
				return err
			}
		}
	}
	return nil
}
