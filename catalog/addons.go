package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/addons"
	"github.com/sluice-dev/sluice/internal/charts"
)

// completion completes the add-ons of plans: it takes their packages over, and describes what consumers
// may set as their charts do.
type completion struct {
	ctx      context.Context
	packages []v1alpha1.AddOnPackage
	archives Archives
	// failed reports that a chart could not be obtained.
	failed bool
}

// addOns completes the add-ons of a plan in place.
func (c *completion) addOns(plan *v1alpha1.ClusterPlan) error {
	for i := range plan.AddOns {
		a := &plan.AddOns[i]
		if err := c.takeOver(a); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		if err := c.describe(a); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

// takeOver fills in from its package what an add-on does not say itself.
func (c *completion) takeOver(a *v1alpha1.AddOn) error {
	if a.Package == "" {
		return nil
	}
	i := slices.IndexFunc(c.packages, func(p v1alpha1.AddOnPackage) bool { return p.Name == a.Package })
	if i < 0 {
		return fmt.Errorf("there is no AddOnPackage %s", a.Package)
	}
	from, own := c.packages[i].Spec.DeepCopy(), a.AddOnChart
	if a.Description == "" {
		a.Description = from.Description
	}
	a.AddOnChart = from.AddOnChart
	if own.Chart != "" {
		a.Chart, a.Digest = own.Chart, own.Digest
	}
	if own.Namespace != "" {
		a.Namespace = own.Namespace
	}
	if own.When != "" {
		a.When = own.When
	}
	for _, list := range []struct{ own, into *[]string }{{&own.Provides, &a.Provides}, {&own.Requires, &a.Requires}, {&own.Settable, &a.Settable}} {
		if *list.own != nil {
			*list.into = *list.own
		}
	}
	values, err := addons.Values(from.Values)
	if err != nil {
		return err
	}
	over, err := addons.Values(own.Values)
	if err != nil {
		return err
	}
	if merged := addons.Merged(values, over); len(merged) > 0 {
		document, err := json.Marshal(merged)
		if err != nil {
			return fmt.Errorf("values: %w", err)
		}
		a.Values = &runtime.RawExtension{Raw: document}
	}
	return nil
}

// describe describes the values that consumers may set, as the chart does. Their default is what the
// add-on sets, unless that is an expression, or else the chart's.
func (c *completion) describe(a *v1alpha1.AddOn) error {
	a.Schemas = nil
	if len(a.Settable) == 0 {
		return nil
	}
	archive, err := c.archives.Archive(c.ctx, a.Chart)
	if err != nil {
		c.failed = true
		return fmt.Errorf("settable: %w", err)
	}
	if actual := charts.Digest(archive); a.Digest != "" && actual != a.Digest {
		c.failed = true
		return fmt.Errorf("the digest of %s is %s, not %s", a.Chart, actual, a.Digest)
	}
	chart, err := charts.Read(archive)
	if err != nil {
		return fmt.Errorf("settable: %w", err)
	}
	values, err := addons.Values(a.Values)
	if err != nil {
		return err
	}
	schemas := map[string]any{}
	for _, name := range a.Settable {
		parameter, err := chart.Parameter(name)
		if err != nil {
			return fmt.Errorf("settable: %s: %w", name, err)
		}
		switch value := values[name].(type) {
		case nil:
		case string:
			if strings.Contains(value, "${") {
				delete(parameter.Schema, "default")
			} else {
				parameter.Schema["default"] = value
			}
		default:
			parameter.Schema["default"] = value
		}
		schemas[name] = parameter.Schema
	}
	document, err := json.Marshal(schemas)
	if err != nil {
		return fmt.Errorf("settable: %w", err)
	}
	a.Schemas = &runtime.RawExtension{Raw: document}
	return nil
}

// checkAddOns checks what is certain before anything is ordered.
func checkAddOns(c *v1alpha1.ClusterPlan) error {
	for i := range c.AddOns {
		if a := &c.AddOns[i]; a.Chart == "" || a.Namespace == "" {
			return fmt.Errorf("addOns: %s: there is no AddOnPackage %s", a.Name, a.Package)
		}
	}
	sample := &v1alpha1.ClusterShape{PodCIDRs: c.PodCIDRs, ServiceCIDRs: c.ServiceCIDRs}
	facts := addons.FactsOf(&v1alpha1.ServiceInstance{}, sample, addons.Order{Parameters: map[string]any{}})
	if err := addons.Check(c.AddOns, facts); err != nil {
		return fmt.Errorf("addOns: %w", err)
	}
	return nil
}

// addOnParameters are the parameters by which consumers choose add-ons.
var addOnParameters = []parameter[clusterSold, ClusterParameters]{
	{
		name: "addOns",
		schema: func(c *clusterSold) map[string]any {
			choices, defaults := addons.Offered(c.AddOns)
			if len(choices) == 0 {
				return nil
			}
			description := "Add-ons that the cluster gets beside those that every cluster of the plan has."
			if about := addons.Describe(c.AddOns); about != "" {
				description += " " + about + "."
			}
			return map[string]any{
				"description": description, "type": "array", "uniqueItems": true,
				"items": map[string]any{"type": "string", "enum": anySlice(choices)}, "default": anySlice(defaults),
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error {
			chosen.AddOns.Names = []string{} // also of an empty list: none are chosen
			return json.Unmarshal(value, &chosen.AddOns.Names)
		},
	},
	{
		name: "addOnValues",
		schema: func(c *clusterSold) map[string]any {
			described := map[string]any{}
			for i := range c.AddOns {
				a, schemas := &c.AddOns[i], map[string]any{}
				if a.Schemas == nil || utiljson.Unmarshal(a.Schemas.Raw, &schemas) != nil {
					continue
				}
				described[a.Name] = map[string]any{"type": "object", "properties": schemas, "additionalProperties": false}
			}
			if len(described) == 0 {
				return nil
			}
			return map[string]any{
				"description": "Values of the add-ons' charts, by the name of the add-on.",
				"type":        "object", "properties": described, "additionalProperties": false,
			}
		},
		set: func(chosen *ClusterParameters, value []byte) error {
			return utiljson.Unmarshal(value, &chosen.AddOns.Values)
		},
	},
}

// checkChoice refuses add-ons that do not go together.
func (p *Plan) checkChoice(parameters json.RawMessage) error {
	asked, err := p.ClusterParameters(parameters)
	if err != nil {
		return err
	}
	shape := &v1alpha1.ClusterShape{Version: asked.Version, PodCIDRs: p.Cluster.PodCIDRs, ServiceCIDRs: p.Cluster.ServiceCIDRs, AddOnsSold: p.Cluster.AddOns}
	if shape.Version == "" && len(p.Cluster.Versions) > 0 {
		shape.Version = p.Cluster.Versions[0]
	}
	if asked.Join == v1alpha1.SideConsumer {
		shape.Member = &v1alpha1.ShapeMember{Consumers: make([]v1alpha1.ConsumerReference, 1)}
	}
	return p.RenderAddOns(&v1alpha1.ServiceInstance{}, shape, parameters)
}

// addOnOrder returns what expressions in add-ons see of an order with these parameters.
func (p *Plan) addOnOrder(parameters json.RawMessage) addons.Order {
	order := addons.Order{PlanID: p.ID, PlanName: p.Name, Parameters: map[string]any{}, Tier: p.Cluster.Tier}
	_ = utiljson.Unmarshal(parameters, &order.Parameters) // the schema has been checked
	return order
}

// RenderAddOns sets the add-ons of a shape: those that the plan sells to it (AddOnsSold), as far as a
// consumer's parameters choose them. The error is a *ParameterError if they do not go together.
func (p *Plan) RenderAddOns(instance *v1alpha1.ServiceInstance, shape *v1alpha1.ClusterShape, parameters json.RawMessage) error {
	asked, err := p.ClusterParameters(parameters)
	if err != nil {
		return err
	}
	shape.AddOns, err = addons.Render(shape.AddOnsSold, asked.AddOns, addons.FactsOf(instance, shape, p.addOnOrder(parameters)))
	if wrong := (*addons.ConflictError)(nil); errors.As(err, &wrong) {
		return &ParameterError{Path: "/addOns", Message: wrong.Message}
	}
	if err == nil && shape.Member.Side() == v1alpha1.SideConsumer && v1alpha1.Liqo(shape.AddOns) == nil {
		return &ParameterError{Path: "/join", Message: "the cluster of a consumer needs Liqo, and it is not among the chosen add-ons"}
	}
	return err
}
