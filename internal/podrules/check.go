package podrules

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// compiled are the programs of the variables and of the rules, in their order.
type compiled struct{ variables, rules []cel.Program }

var programs = sync.OnceValues(func() (*compiled, error) {
	env, err := cel.NewEnv(cel.OptionalTypes(), ext.Strings(),
		cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType),
		cel.Variable("oldObject", cel.DynType))
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	compile := func(source string) (cel.Program, error) {
		ast, issues := env.Compile(source)
		if err := issues.Err(); err != nil {
			return nil, fmt.Errorf("compile %s: %w", source, err)
		}
		return env.Program(ast)
	}
	all := &compiled{}
	for _, v := range Variables {
		program, err := compile(v.Expression)
		if err != nil {
			return nil, err
		}
		all.variables = append(all.variables, program)
	}
	for _, r := range Rules {
		program, err := compile(r.Holds)
		if err != nil {
			return nil, err
		}
		all.rules = append(all.rules, program)
	}
	return all, nil
})

// Check returns the message of the first rule that a new pod template does not meet; "" if it meets
// all. The template is decoded JSON. An error means that the template cannot be evaluated, for
// instance because a field has another type than in Kubernetes.
func Check(template map[string]any) (refused string, err error) {
	all, err := programs()
	if err != nil {
		return "", err
	}
	object := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	for name, value := range template {
		object[name] = value
	}
	variables := map[string]any{"spec": object["spec"]}
	input := map[string]any{
		"object": object, "variables": variables, "oldObject": map[string]any{},
		"request": map[string]any{"operation": "CREATE", "resource": map[string]any{"resource": "pods"}},
	}
	for i, program := range all.variables {
		value, _, err := program.Eval(input)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", Variables[i].Name, err)
		}
		variables[Variables[i].Name] = value
	}
	for i, program := range all.rules {
		holds, _, err := program.Eval(input)
		if err != nil {
			return "", fmt.Errorf("apply the rule %q: %w", Rules[i].Otherwise, err)
		}
		if holds.Value() != true {
			return Rules[i].Otherwise, nil
		}
	}
	return "", nil
}
