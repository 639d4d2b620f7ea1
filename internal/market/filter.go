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
)

const (
	// maxWhere is the longest filter, in bytes.
	maxWhere = 1024
	// filterCost bounds the work for one plan, in CEL's own units; usual filters cost less than 20.
	filterCost = 1000
	// filtersKept is how many compiled filters are kept: the last used.
	filtersKept = 256
)

// variables of a filter, in the order of values.
var variables = []*cel.Type{
	cel.StringType, cel.StringType, cel.StringType, cel.StringType, cel.StringType,
	cel.DoubleType, cel.ListType(cel.StringType), cel.ListType(cel.StringType), cel.ListType(cel.StringType), cel.ListType(cel.StringType), cel.ListType(cel.StringType),
	cel.BoolType, cel.BoolType, cel.BoolType, cel.IntType, cel.IntType,
}

// variableNames are the names of the variables, in the same order.
var variableNames = []string{
	"id", "plan", "offering", "kind", "currency",
	"price", "providers", "regions", "countries", "label_levels", "tags",
	"proven", "free", "bindable", "orders", "clusters",
}

var variableNumbers = func() map[string]int {
	numbers := map[string]int{}
	for i, name := range variableNames {
		numbers[name] = i
	}
	return numbers
}()

// values of a plan, by the numbers of the variables: an interpreter.Activation.
type values []ref.Val

// valuesOf returns a plan's values. A price that is not known is infinite, and room that is not known is −1, so that
// neither is taken for a good offer.
func valuesOf(p *Plan) values {
	list := func(of []string) ref.Val { return types.NewStringList(types.DefaultTypeAdapter, of) }
	price, currency := math.Inf(1), ""
	if p.Price != nil {
		price, currency = p.Price.value, p.Price.Currency
	}
	var countries, levels []string
	if p.Proven != nil {
		countries, levels = p.Proven.Countries, p.Proven.LabelLevels
	}
	orders, clusters := -1, -1
	if p.Availability.Known {
		orders, clusters = p.Availability.Orders, p.Availability.Clusters
	}
	return values{
		types.String(p.ID), types.String(p.Name), types.String(p.Offering.Name), types.String(p.Kind), types.String(currency),
		types.Double(price), list(p.Providers), list(p.Regions), list(countries), list(levels), list(p.Offering.Tags),
		types.Bool(p.Proven != nil && p.Proven.EveryCluster), types.Bool(p.Free), types.Bool(p.Bindable), types.Int(orders), types.Int(clusters),
	}
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
	for i, name := range variableNames {
		options = append(options, cel.Variable(name, variables[i]))
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
