package market

import (
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/utils/ptr"
)

const (
	// maxWhere is the longest filter, in bytes.
	maxWhere = 1024
	// filterCost bounds the work for one plan, in CEL's own units; usual filters cost less than 20.
	filterCost = 1000
	// filtersKept is how many compiled filters are kept: the last used.
	filtersKept = 256
)

// variables of a filter, with their values of a plan. A price that is not known is infinite, and room that is not known
// is −1, so that neither is taken for a good offer.
var variables = []struct {
	name string
	kind *cel.Type
	of   func(*Plan) ref.Val
}{
	{"id", cel.StringType, func(p *Plan) ref.Val { return types.String(p.ID) }},
	{"plan", cel.StringType, func(p *Plan) ref.Val { return types.String(p.Name) }},
	{"offering", cel.StringType, func(p *Plan) ref.Val { return types.String(p.Offering.Name) }},
	{"kind", cel.StringType, func(p *Plan) ref.Val { return types.String(p.Kind) }},
	{"currency", cel.StringType, func(p *Plan) ref.Val { return types.String(ptr.Deref(p.Price, noPrice).Currency) }},
	{"price", cel.DoubleType, func(p *Plan) ref.Val { return types.Double(ptr.Deref(p.Price, noPrice).value) }},
	{"providers", stringList, func(p *Plan) ref.Val { return stringsOf(p.Providers) }},
	{"regions", stringList, func(p *Plan) ref.Val { return stringsOf(p.Regions) }},
	{"countries", stringList, func(p *Plan) ref.Val { return stringsOf(ptr.Deref(p.Proven, Proven{}).Countries) }},
	{"label_levels", stringList, func(p *Plan) ref.Val { return stringsOf(ptr.Deref(p.Proven, Proven{}).LabelLevels) }},
	{"tags", stringList, func(p *Plan) ref.Val { return stringsOf(p.Offering.Tags) }},
	{"proven", cel.BoolType, func(p *Plan) ref.Val { return types.Bool(ptr.Deref(p.Proven, Proven{}).EveryCluster) }},
	{"free", cel.BoolType, func(p *Plan) ref.Val { return types.Bool(p.Free) }},
	{"bindable", cel.BoolType, func(p *Plan) ref.Val { return types.Bool(p.Bindable) }},
	{"orders", cel.IntType, func(p *Plan) ref.Val { return roomOf(p, p.Availability.Orders) }},
	{"clusters", cel.IntType, func(p *Plan) ref.Val { return roomOf(p, p.Availability.Clusters) }},
}

var (
	noPrice    = Price{value: math.Inf(1)}
	stringList = cel.ListType(cel.StringType)
)

func stringsOf(of []string) ref.Val { return types.NewStringList(types.DefaultTypeAdapter, of) }

func roomOf(p *Plan, room int) ref.Val {
	if !p.Availability.Known {
		return types.Int(-1)
	}
	return types.Int(room)
}

var variableNumbers = func() map[string]int {
	numbers := map[string]int{}
	for i := range variables {
		numbers[variables[i].name] = i
	}
	return numbers
}()

// values of a plan, by the numbers of the variables: an interpreter.Activation.
type values []ref.Val

func valuesOf(p *Plan) values {
	all := make(values, 0, len(variables))
	for i := range variables {
		all = append(all, variables[i].of(p))
	}
	return all
}

// ResolveName implements interpreter.Activation.
func (v values) ResolveName(name string) (any, bool) {
	if i, ok := variableNumbers[name]; ok {
		return v[i], true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (v values) Parent() interpreter.Activation { return nil }

var filterEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{ext.Strings(), ext.Sets()}
	for _, v := range variables {
		options = append(options, cel.Variable(v.name, v.kind))
	}
	return cel.NewEnv(options...)
})

var filters = func() *lru.Cache[string, cel.Program] {
	kept, _ := lru.New[string, cel.Program](filtersKept) // an error is about the size
	return kept
}()

// compileFilter compiles a filter, once for all requests with the same text. The error is an *Error.
func compileFilter(source string) (cel.Program, error) {
	if known, ok := filters.Get(source); ok {
		return known, nil
	}
	if len(source) > maxWhere {
		return nil, badRequest("where: longer than %d bytes.", maxWhere)
	}
	environment, err := filterEnvironment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, issues := environment.Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, badRequest("where: column %d: %s.", errs[0].Location.Column()+1, errs[0].Message)
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, badRequest("where: is of type %s, want bool.", ast.OutputType())
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	// To count takes as long as to evaluate; most filters need not be counted.
	if estimated, err := environment.EstimateCost(ast, sizes{}); err != nil || estimated.Max > filterCost {
		options = append(options, cel.CostLimit(filterCost))
	}
	program, err := environment.Program(ast, options...)
	if err != nil {
		return nil, badRequest("where: %s.", err)
	}
	filters.Add(source, program)
	return program, nil
}

// sizes estimates the sizes of a plan's values for the cost of a filter. A plan whose values are larger costs more, in
// proportion.
type sizes struct{}

// mostUsual is the greatest usual length of a list or a string.
const mostUsual = 64

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	if len(node.Path()) == 0 {
		return nil
	}
	return &checker.SizeEstimate{Min: 0, Max: mostUsual}
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
