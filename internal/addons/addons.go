// Package addons turns the add-ons that a plan sells into those that a cluster gets: chosen, with their
// values, in the order in which they are installed. It is pure.
package addons

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Choice of a consumer among the add-ons of a plan.
type Choice struct {
	// Names of the chosen ones; nil means the plan's defaults.
	Names []string
	// Values by the name of the add-on.
	Values map[string]map[string]any
}

// Facts are the variables of expressions, as v1alpha1.AddOnChart describes them.
type Facts map[string]any

// ConflictError means that add-ons do not go together.
type ConflictError struct{ Message string }

func (e *ConflictError) Error() string { return e.Message }

func conflict(format string, values ...any) error {
	return &ConflictError{Message: fmt.Sprintf(format, values...)}
}

// Render returns the add-ons of a cluster: those of the plan that always are, and the chosen ones, as far
// as their conditions hold, each after what it requires. Nothing is left to expand in them. The error is a
// *ConflictError if they do not go together.
func Render(sold []v1alpha1.AddOn, choice Choice, facts Facts) ([]v1alpha1.AddOn, error) {
	var all []v1alpha1.AddOn
	for i := range sold {
		a := &sold[i]
		if !choice.has(a) {
			if _, set := choice.Values[a.Name]; set {
				return nil, conflict("values for %s, which is not chosen", a.Name)
			}
			continue
		}
		holds, err := facts.hold(a)
		if err != nil {
			return nil, err
		}
		if holds {
			all = append(all, *a)
		}
	}
	ordered, err := inOrder(all)
	if err != nil {
		return nil, err
	}
	rendered := make([]v1alpha1.AddOn, 0, len(ordered))
	for i := range ordered {
		one, err := facts.render(&ordered[i], choice.Values[ordered[i].Name])
		if err != nil {
			return nil, err
		}
		rendered = append(rendered, *one)
	}
	return rendered, nil
}

// has reports whether a cluster gets an add-on, apart from its condition.
func (c Choice) has(a *v1alpha1.AddOn) bool {
	switch a.Mode {
	case v1alpha1.AddOnOptional:
		return slices.Contains(c.Names, a.Name)
	case v1alpha1.AddOnDefault:
		return c.Names == nil || slices.Contains(c.Names, a.Name)
	default:
		return true
	}
}

// hold reports whether the condition of an add-on holds.
func (f Facts) hold(a *v1alpha1.AddOn) (bool, error) {
	if a.When == "" {
		return true, nil
	}
	value, err := workload.Expand(f, "${"+a.When+"}", "when")
	if err != nil {
		return false, fmt.Errorf("add-on %s: %w", a.Name, err)
	}
	holds, ok := value.(bool)
	if !ok {
		return false, fmt.Errorf("add-on %s: when: is no condition: it is %T", a.Name, value)
	}
	return holds, nil
}

// inOrder returns add-ons so that each comes after what it requires, and otherwise in their order.
func inOrder(all []v1alpha1.AddOn) ([]v1alpha1.AddOn, error) {
	by := map[string]int{} // the add-on that provides it, by name
	for i := range all {
		for _, what := range append([]string{all[i].Name}, all[i].Provides...) {
			if other, taken := by[what]; taken && other != i {
				return nil, conflict("%s and %s both provide %s: only one of them can be chosen", all[other].Name, all[i].Name, what)
			}
			by[what] = i
		}
	}
	var ordered []v1alpha1.AddOn
	done := map[int]bool{} // false while what it requires is visited
	var visit func(i int) error
	visit = func(i int) error {
		if finished, seen := done[i]; seen {
			if !finished {
				return conflict("%s requires itself, by way of others", all[i].Name)
			}
			return nil
		}
		done[i] = false
		for _, what := range all[i].Requires {
			on, ok := by[what]
			if !ok {
				return conflict("%s requires %s, and none of the chosen add-ons provides it", all[i].Name, what)
			}
			if err := visit(on); err != nil {
				return err
			}
		}
		done[i] = true
		ordered = append(ordered, all[i])
		return nil
	}
	for i := range all {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// render returns an add-on with its values, over which the consumer's are laid. Those are not expanded.
func (f Facts) render(a *v1alpha1.AddOn, set map[string]any) (*v1alpha1.AddOn, error) {
	rendered := &v1alpha1.AddOn{Name: a.Name, AddOnChart: v1alpha1.AddOnChart{Chart: a.Chart, Digest: a.Digest, Namespace: a.Namespace}}
	values, err := Values(a.Values)
	if err != nil {
		return nil, fmt.Errorf("add-on %s: %w", a.Name, err)
	}
	expanded, err := workload.Expand(f, values, "values")
	if err != nil {
		return nil, fmt.Errorf("add-on %s: %w", a.Name, err)
	}
	merged := Merged(expanded.(map[string]any), set)
	if len(merged) == 0 {
		return rendered, nil
	}
	document, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("add-on %s: values: %w", a.Name, err)
	}
	rendered.Values = &runtime.RawExtension{Raw: document}
	return rendered, nil
}

// Values decodes the values of an add-on.
func Values(from *runtime.RawExtension) (map[string]any, error) {
	values := map[string]any{}
	if from == nil || len(from.Raw) == 0 {
		return values, nil
	}
	if err := utiljson.Unmarshal(from.Raw, &values); err != nil {
		return nil, fmt.Errorf("values: want an object: %w", err)
	}
	return values, nil
}

// Merged returns values with others laid over them: objects are merged, anything else is replaced.
func Merged(values, over map[string]any) map[string]any {
	merged := maps.Clone(values)
	for name, value := range over {
		below, both := merged[name].(map[string]any)
		if object, ok := value.(map[string]any); ok && both {
			merged[name] = Merged(below, object)
			continue
		}
		merged[name] = value
	}
	return merged
}

// Check returns why the add-ons of a plan cannot be sold: an expression that does not compile, add-ons of
// every cluster, or of those whose consumers choose none, that do not go together, or one that requires
// what no other provides.
func Check(sold []v1alpha1.AddOn, facts Facts) error {
	provided := map[string]bool{}
	for i := range sold {
		provided[sold[i].Name] = true
		for _, what := range sold[i].Provides {
			provided[what] = true
		}
	}
	for i := range sold {
		a := &sold[i]
		for _, what := range a.Requires {
			if !provided[what] {
				return conflict("%s requires %s, which no add-on of the plan provides", a.Name, what)
			}
		}
		if _, err := facts.hold(a); err != nil {
			return err
		}
		if _, err := facts.render(a, nil); err != nil {
			return err
		}
	}
	_, err := Render(sold, Choice{}, facts)
	return err
}

// Offered returns the names of the add-ons that consumers may choose, and of those that they have if they
// choose none.
func Offered(sold []v1alpha1.AddOn) (all, defaults []string) {
	for i := range sold {
		switch sold[i].Mode {
		case v1alpha1.AddOnDefault:
			defaults = append(defaults, sold[i].Name)
			fallthrough
		case v1alpha1.AddOnOptional:
			all = append(all, sold[i].Name)
		}
	}
	return all, defaults
}

// Describe returns what consumers read about add-ons.
func Describe(sold []v1alpha1.AddOn) string {
	var parts []string
	for i := range sold {
		if a := &sold[i]; a.Mode != v1alpha1.AddOnAlways && a.Mode != "" && a.Description != "" {
			parts = append(parts, a.Name+": "+a.Description)
		}
	}
	return strings.Join(parts, "; ")
}
