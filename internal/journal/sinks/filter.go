package sinks

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"

	"github.com/sluice-dev/sluice/internal/journal"
)

// filterCost bounds the evaluation of a filter, in units of CEL's cost.
const filterCost = 10_000

var filterEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(cel.Variable("event", cel.MapType(cel.StringType, cel.DynType)), ext.Strings())
})

// filter selects events; nil selects all.
type filter struct{ program cel.Program }

// newFilter compiles an expression. It refuses one that fails for an event without any value, such as one that reads
// a field that events do not have.
func newFilter(source string) (*filter, error) {
	if source == "" {
		return nil, nil
	}
	environment, err := filterEnvironment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, issues := environment.Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, fmt.Errorf("filter: column %d: %s", errs[0].Location.Column()+1, errs[0].Message)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("filter: is of type %s, want bool", ast.OutputType())
	}
	program, err := environment.Program(ast, cel.CostLimit(filterCost), cel.EvalOptions(cel.OptOptimize), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	f := &filter{program}
	if _, err := f.has(context.Background(), journal.Entry{}); err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	return f, nil
}

// CheckFilter reports what is wrong with the filter of a sink.
func CheckFilter(source string) error {
	_, err := newFilter(source)
	return err
}

// selects reports whether an event is to be sent: also if the filter fails for it, so that none is lost.
func (f *filter) selects(ctx context.Context, e journal.Entry) bool {
	if f == nil {
		return true
	}
	selected, err := f.has(ctx, e)
	return selected || err != nil
}

func (f *filter) has(ctx context.Context, e journal.Entry) (bool, error) {
	clusters := e.Clusters
	if clusters == nil {
		clusters = []string{}
	}
	value, _, err := f.program.ContextEval(ctx, map[string]any{"event": map[string]any{
		"kind": e.Kind, "type": string(e.Type), "operation": string(e.Operation), "platform": e.Platform,
		"instanceID": e.InstanceID, "bindingID": e.BindingID, "serviceID": e.ServiceID, "planID": e.PlanID,
		"organizationGUID": e.OrganizationGUID, "spaceGUID": e.SpaceGUID, "clusters": clusters, "message": e.Message,
	}})
	if err != nil {
		return false, err
	}
	selected, _ := value.Value().(bool)
	return selected, nil
}
