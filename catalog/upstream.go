package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
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

// upstreamSchema returns a schema of an upstream plan by its name: the candidates', unless the operator has one.
func (p *Plan) upstreamSchema(name string, own *runtime.RawExtension) map[string]any {
	if passed := p.passed[name]; passed != nil && own == nil {
		return passed
	}
	return anyObject()
}

// checkUpstream checks what the definition's schema cannot.
func checkUpstream(plan *v1alpha1.Plan) error {
	u := plan.Upstream
	if err := checkSelector(u.Selector, field.NewPath("selector")); err != nil {
		return err
	}
	for i := range u.Candidates {
		c := &u.Candidates[i]
		if c.PassDashboard && plan.DashboardURL != "" {
			return errors.New("candidates[" + c.Broker + "].passDashboard: the plan has a dashboardURL of its own, which is shown instead: remove one of them")
		}
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

// PassesDashboards reports whether instances may have the dashboard of another broker.
func (p *Plan) PassesDashboards() bool {
	return p.Upstream != nil && slices.ContainsFunc(p.Upstream.Candidates, func(c v1alpha1.UpstreamCandidate) bool { return c.PassDashboard })
}

// PassesDashboardOf reports whether those of a broker are shown to consumers.
func (p *Plan) PassesDashboardOf(broker string) bool {
	return p.Upstream != nil && slices.ContainsFunc(p.Upstream.Candidates, func(c v1alpha1.UpstreamCandidate) bool { return c.Broker == broker && c.PassDashboard })
}

// HiddenParameters returns the names of the parameters of instances that the plan's schemas, or those of a candidate's
// broker, call writeOnly (JSON Schema, "writeOnly"), or values inside of them, sorted: the hub stores them sealed, and nobody
// can fetch them. If that concerns parameters that a schema does not name, all of those given are among them.
func (p *Plan) HiddenParameters(given json.RawMessage) []string {
	if p.Upstream == nil {
		return workload.HiddenParameters(p.Workload)
	}
	return p.hidden.of(given)
}

// HiddenBindingParameters returns those of bindings, of plans of all kinds.
func (p *Plan) HiddenBindingParameters(given json.RawMessage) []string {
	return p.hiddenOfBindings.of(given)
}

// hide adds to the hidden parameters those that the plan's own schemas hide.
func (p *Plan) hide() {
	p.bind.hide(&p.hiddenOfBindings)
	if p.Upstream != nil {
		p.create.hide(&p.hidden)
		p.update.hide(&p.hidden)
	}
}

// hide adds the parameters that a schema, which may be nil, hides.
func (s *schema) hide(to *hiding) {
	var object map[string]any
	if s != nil && json.Unmarshal(s.document, &object) == nil { // it was encoded just now
		to.add(hiddenBy(object))
	}
}
