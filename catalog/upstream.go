package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// anyObject is the schema of parameters that another broker judges.
func anyObject() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}}
}

// checkUpstream checks what the definition's schema cannot.
func checkUpstream(u *v1alpha1.UpstreamPlan) error {
	if err := checkSelector(u.Selector, field.NewPath("selector")); err != nil {
		return err
	}
	for i := range u.Candidates {
		c := &u.Candidates[i]
		if c.Parameters == nil {
			continue
		}
		var template any
		if err := utiljson.Unmarshal(c.Parameters.Raw, &template); err != nil {
			return fmt.Errorf("candidates[%s].parameters: %w", c.Broker, err)
		}
		if _, ok := template.(map[string]any); !ok {
			return errors.New("candidates[" + c.Broker + "].parameters: want an object")
		}
		if err := workload.CheckExpressions(template, "candidates["+c.Broker+"].parameters"); err != nil {
			return err
		}
	}
	return nil
}

// HiddenParameters returns the names of the parameters that the plan's schemas call writeOnly (JSON Schema,
// "writeOnly"), sorted: the hub stores them sealed, and nobody can fetch them.
func (p *Plan) HiddenParameters() []string {
	if p.Upstream == nil || p.Plan.Schemas == nil {
		return workload.HiddenParameters(p.Workload)
	}
	hidden := map[string]bool{}
	for _, given := range []*runtime.RawExtension{p.Plan.Schemas.InstanceCreate, p.Plan.Schemas.InstanceUpdate} {
		var schema struct {
			Properties map[string]struct {
				WriteOnly bool `json:"writeOnly"`
			} `json:"properties"`
		}
		if given == nil || json.Unmarshal(given.Raw, &schema) != nil {
			continue // it was compiled when the offering was accepted
		}
		for name, property := range schema.Properties {
			if property.WriteOnly {
				hidden[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(hidden))
}
