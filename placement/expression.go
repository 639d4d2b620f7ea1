package placement

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// expressionCost limits the work of one evaluation, in CEL's own units: some tens of
// microseconds.
const expressionCost = 10_000

// expression is a compiled CEL expression of type bool over
//
//	request   {id, plan, clusters, resources, images}
//	consumer  {platform, organization, space}
//	cluster   {name, provider, region, tier, labels}
//	claims    [{name, value, assurance, issuer}]
type expression struct {
	source  string
	program cel.Program
}

var expressionEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	return cel.NewEnv(
		cel.Variable("request", object), cel.Variable("consumer", object), cel.Variable("cluster", object),
		cel.Variable("claims", cel.ListType(cel.MapType(cel.StringType, cel.StringType))),
		ext.Strings(), ext.Sets(),
	)
})

func compileExpression(source string) (*expression, error) {
	environment, err := expressionEnvironment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, issues := environment.Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, fmt.Errorf("expression: column %d: %s", errs[0].Location.Column()+1, errs[0].Message)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("expression: is of type %s, want bool", ast.OutputType())
	}
	program, err := environment.Program(ast, cel.CostLimit(expressionCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	return &expression{source, program}, nil
}

// facts are the values of a request that expressions can use.
type facts struct{ request, consumer map[string]any }

func (r *Request) facts() *facts {
	if len(r.Rules) == 0 && len(r.Preferences) == 0 {
		return nil // no expression uses them
	}
	resources := map[string]any{}
	for name, amount := range r.Resources {
		resources[string(name)] = amount
	}
	return &facts{
		request:  map[string]any{"id": r.ID, "plan": r.Consumer.Plan, "clusters": r.ClusterCount(), "resources": resources, "images": append([]string{}, r.Images...)},
		consumer: map[string]any{"platform": r.Consumer.Platform, "organization": r.Consumer.Organization, "space": r.Consumer.Space},
	}
}

// holds evaluates the expression for one cluster.
func (e *expression) holds(c *Cluster, f *facts) (bool, error) {
	claims := make([]map[string]string, len(c.Claims))
	for i := range c.Claims {
		claim := &c.Claims[i]
		claims[i] = map[string]string{"name": claim.Name, "value": claim.Value, "assurance": string(claim.Assurance), "issuer": claim.Issuer}
	}
	value, _, err := e.program.Eval(map[string]any{
		"request": f.request, "consumer": f.consumer, "claims": claims,
		"cluster": map[string]any{
			"name": c.Name, "provider": c.Provider, "region": c.Region, "tier": c.Labels["sluice.dev/tier"], "labels": map[string]string(c.Labels),
		},
	})
	if err != nil {
		return false, err
	}
	holds, ok := value.Value().(bool)
	return holds && ok, nil
}
