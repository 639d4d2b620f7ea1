package catalog

import (
	"errors"
	"fmt"

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
