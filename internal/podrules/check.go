package podrules

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// compiled are variables, and their programs and those of rules, in their order. because are those of the messages of
// agreed rules.
type compiled struct {
	variables              []Variable
	values, rules, because []cel.Program
}

var (
	programs = sync.OnceValues(func() (*compiled, error) { return compile(Variables, Rules) })
	agreed   = sync.OnceValues(func() (*compiled, error) {
		var rules []Rule
		for _, rule := range Agreed {
			rules = append(rules, rule.Rule)
		}
		all, err := compile(AgreedVariables, rules)
		if err != nil {
			return nil, err
		}
		for _, rule := range Agreed {
			program, err := compileOne(rule.Because)
			if err != nil {
				return nil, err
			}
			all.because = append(all.because, program)
		}
		return all, nil
	})
)

var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.OptionalTypes(), ext.Strings(),
		cel.Variable("object", cel.DynType), cel.Variable("request", cel.DynType), cel.Variable("variables", cel.DynType),
		cel.Variable("oldObject", cel.DynType))
})

func compile(variables []Variable, rules []Rule) (*compiled, error) {
	all := &compiled{variables: variables}
	for _, v := range variables {
		program, err := compileOne(v.Expression)
		if err != nil {
			return nil, err
		}
		all.values = append(all.values, program)
	}
	for _, r := range rules {
		program, err := compileOne(r.Holds)
		if err != nil {
			return nil, err
		}
		all.rules = append(all.rules, program)
	}
	return all, nil
}

func compileOne(source string) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, issues := env.Compile(source)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("compile %s: %w", source, err)
	}
	return env.Program(ast)
}

// Check returns the message of the first rule that a new pod template does not meet; "" if it meets
// all. The template is decoded JSON. An error means that the template cannot be evaluated, for
// instance because a field has another type than in Kubernetes.
func Check(template map[string]any) (refused string, err error) {
	all, err := programs()
	if err != nil {
		return "", err
	}
	input, err := all.read(template, nil)
	if err != nil {
		return "", err
	}
	first, err := all.first(input)
	if err != nil || first < 0 {
		return "", err
	}
	return Rules[first].Otherwise, nil
}

// CheckAgreed is Check for the rules of Agreed in a namespace with annotations. It also returns the message with the
// values.
func CheckAgreed(template map[string]any, annotations map[string]string) (refused, because string, err error) {
	all, err := agreed()
	if err != nil {
		return "", "", err
	}
	input, err := all.read(template, annotations)
	if err != nil {
		return "", "", err
	}
	first, err := all.first(input)
	if err != nil || first < 0 {
		return "", "", err
	}
	value, _, err := all.because[first].Eval(input)
	if err != nil {
		return "", "", fmt.Errorf("explain the rule %q: %w", Agreed[first].Otherwise, err)
	}
	because, _ = value.Value().(string)
	return Agreed[first].Otherwise, because, nil
}

// read returns the input of the programs for a template, with the values of the variables.
func (c *compiled) read(template map[string]any, annotations map[string]string) (map[string]any, error) {
	object := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}
	for name, value := range template {
		object[name] = value
	}
	variables := map[string]any{"spec": object["spec"], "agreed": annotations}
	input := map[string]any{
		"object": object, "variables": variables, "oldObject": map[string]any{},
		"request": map[string]any{"operation": "CREATE", "resource": map[string]any{"resource": "pods"}},
	}
	for i, program := range c.values {
		value, _, err := program.Eval(input)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", c.variables[i].Name, err)
		}
		variables[c.variables[i].Name] = value
	}
	return input, nil
}

// first returns the index of the first rule that does not hold; -1 if all hold.
func (c *compiled) first(input map[string]any) (int, error) {
	for i, program := range c.rules {
		holds, _, err := program.Eval(input)
		if err != nil {
			return -1, fmt.Errorf("apply the rule %d: %w", i+1, err)
		}
		if holds.Value() != true {
			return i, nil
		}
	}
	return -1, nil
}
