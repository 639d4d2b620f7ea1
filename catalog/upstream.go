package catalog

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
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
	if u.Selector != nil {
		if errs := metavalidation.ValidateLabelSelector(u.Selector, metavalidation.LabelSelectorValidationOptions{}, field.NewPath("selector")); len(errs) > 0 {
			return errs.ToAggregate()
		}
		if _, err := metav1.LabelSelectorAsSelector(u.Selector); err != nil {
			return fmt.Errorf("selector: %w", err)
		}
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
