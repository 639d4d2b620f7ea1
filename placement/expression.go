package placement

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celtraits "github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// expressionCost limits the work of one evaluation, in CEL's own units: about a millisecond at
// the limit, and some microseconds for the usual expression.
const expressionCost = 10_000

// expression is a compiled CEL expression of type bool over
//
//	request   {id, plan, clusters, resources, images}
//	consumer  {platform, organization, space, claims}
//	cluster   {name, provider, region, tier, labels}
//	claims    [{name, value, assurance, issuer}]
type expression struct {
	source  string
	program cel.Program
	reads
	ast *cel.Ast
	// split is the condition that the expression is, if it reads both the request and the cluster, and can be split.
	split condition
	// known are the expressions that remain of it when values of the request are put in, by these.
	known *lru.Cache[string, *expression]
}

var expressionEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	return cel.NewEnv(
		cel.Variable("request", object), cel.Variable("consumer", object), cel.Variable("cluster", object),
		cel.Variable("claims", cel.ListType(cel.MapType(cel.StringType, cel.StringType))),
		ext.Strings(), ext.Sets(), cel.CustomTypeAdapter(ordered{}), cel.EnableMacroCallTracking(),
	)
})

// ordered is CEL's adapter of values with maps that are iterated in the order of their keys, so
// that an expression has the same value, and costs the same, each time.
type ordered struct{}

// NativeToValue implements types.Adapter.
func (ordered) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]string:
		return orderedMap{types.NewStringStringMap(ordered{}, v), slices.Sorted(maps.Keys(v))}
	case map[string]any:
		return orderedMap{types.NewStringInterfaceMap(ordered{}, v), slices.Sorted(maps.Keys(v))}
	case []map[string]string:
		return types.NewDynamicList(ordered{}, v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}

// orderedMap is a map that is iterated in the order of its keys.
type orderedMap struct {
	celtraits.Mapper
	keys []string
}

// Iterator implements traits.Iterable.
func (m orderedMap) Iterator() celtraits.Iterator {
	return types.NewStringList(ordered{}, m.keys).Iterator()
}

// mostKept bounds the expressions that are kept, those that remain of one with values of requests, and those whose
// answers a page keeps.
const mostKept = 256

var compiled = newKept[*expression]()

func newKept[T any]() *lru.Cache[string, T] {
	kept, err := lru.New[string, T](mostKept)
	if err != nil {
		panic(fmt.Sprintf("placement: keep %d values: %v", mostKept, err)) // the number is positive
	}
	return kept
}

// compileExpression compiles an expression, once for all that have the same text.
func compileExpression(source string) (*expression, error) {
	if known, ok := compiled.Get(source); ok {
		return known, nil
	}
	environment, err := expressionEnvironment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, program, err := compile(environment, source)
	if err != nil {
		return nil, err
	}
	if !ast.OutputType().IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("expression: is of type %s, want bool", ast.OutputType())
	}
	if err := checkFields(ast.NativeRep()); err != nil {
		return nil, err
	}
	whole := &parser{environment, ast.NativeRep()}
	e := &expression{source: source, program: program, reads: whole.readsOf(whole.of.Expr()), ast: ast, known: newKept[*expression]()}
	if e.split, err = whole.condition(whole.of.Expr(), true); err != nil {
		return nil, err
	}
	if unique := slices.ContainsFunc(e.asked, isUnique); unique && e.isMixed() && e.split == nil {
		return nil, fmt.Errorf("expression: %s: request.id, and request as a whole, can be read beside the cluster only in comparisons of the two (==, !=, <, <=, >, >=, in, startsWith, endsWith, contains); anything else would be evaluated for each request and cluster", source)
	}
	compiled.Add(source, e)
	return e, nil
}

// isUnique reports whether no two requests have the same of what an expression reads.
func isUnique(asked string) bool { return asked == "request" || asked == "request.id" }

// compile compiles an expression of any type.
func compile(environment *cel.Env, source string) (*cel.Ast, cel.Program, error) {
	ast, issues := environment.Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, nil, fmt.Errorf("expression: column %d: %s", errs[0].Location.Column()+1, errs[0].Message)
	}
	program, err := environment.Program(ast, cel.CostLimit(expressionCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, nil, fmt.Errorf("expression: %w", err)
	}
	return ast, program, nil
}

// with returns the expression that remains when the request's values are put in; the same one for all requests of
// which it reads the same. If it cannot be told, or if it does not read both, that is e itself.
func (e *expression) with(f *facts) *expression {
	if !e.isMixed() {
		return e
	}
	key := fmt.Sprintf("%#v", e.values(f))
	if known, ok := e.known.Get(key); ok {
		return known
	}
	rest, err := e.put(f)
	if err != nil || !rest.ofCluster() {
		rest = e
	}
	e.known.Add(key, rest)
	return rest
}

// put evaluates the expression as far as it goes without a cluster, and compiles what remains.
func (e *expression) put(f *facts) (*expression, error) {
	environment, err := expressionEnvironment()
	if err != nil {
		return nil, err
	}
	program, err := environment.Program(e.ast, cel.CostLimit(expressionCost), cel.EvalOptions(cel.OptTrackState, cel.OptPartialEval))
	if err != nil {
		return nil, err
	}
	vars, err := cel.PartialVars(map[string]any{"request": f.request, "consumer": f.consumer}, cel.AttributePattern("cluster"), cel.AttributePattern("claims"))
	if err != nil {
		return nil, err
	}
	_, details, err := program.Eval(vars)
	if err != nil {
		return nil, err
	}
	rest, err := environment.ResidualAst(e.ast, details)
	if err != nil {
		return nil, err
	}
	source, err := cel.AstToString(rest)
	if err != nil {
		return nil, err
	}
	return compileExpression(source)
}

// facts are the values of a request that expressions can use, and the values of expressions that are known,
// by what they read of a cluster; and the values of its own sides of comparisons.
type facts struct {
	request, consumer map[string]any
	known             map[*expression]map[string]bool
	values            map[*term]ref.Val
	// proven as Request.Proven.
	proven []v1alpha1.Claim
	// pods of the order, and how rules for workloads refuse them; sold as Request.Sold.
	pods    []catalog.Pod
	refused map[*Rule]refusedPod
	sold    bool
}

func (r *Request) facts() *facts {
	if len(r.Rules) == 0 && len(r.Preferences) == 0 {
		return nil // no expression uses them
	}
	resources := map[string]any{}
	for name, amount := range r.on(1) {
		resources[string(name)] = amount
	}
	return &facts{
		known:  map[*expression]map[string]bool{},
		values: map[*term]ref.Val{},
		proven: r.Proven,
		pods:   r.Pods, refused: map[*Rule]refusedPod{}, sold: r.Sold != nil,
		request:  map[string]any{"id": r.ID, "plan": r.Consumer.Plan, "clusters": r.ClusterCount(), "resources": resources, "images": append([]string{}, r.Images...)},
		consumer: map[string]any{"platform": r.Consumer.Platform, "organization": r.Consumer.Organization, "space": r.Consumer.Space, "claims": claimsOf(r.Proven)},
	}
}

// answers are the rows of a page for which something is known to hold or not.
type answers struct{ known, holds set }

// rows returns those of a page's rows for which the expression holds. What depends on the cluster alone is
// evaluated once, and kept with the page's traits.
func (e *expression) rows(p *page, among set, f *facts) set {
	if e.split != nil {
		return e.split.rows(p, among, f)
	}
	if e = e.with(f); !e.ofCluster() {
		return e.evaluate(p, among, f)
	}
	return p.judged(e.source, among, func(missing set) set { return e.evaluate(p, missing, f) })
}

// judged returns those of the rows for which something holds that depends on the cluster alone. It is asked once
// for each row, and kept with the page's traits under a key.
func (p *page) judged(key string, among set, holds func(missing set) set) set {
	kept, _ := p.answers.Get(key)
	missing := among.without(kept.known)
	if missing != (set{}) {
		kept.holds, kept.known = kept.holds.or(holds(missing)), kept.known.or(missing)
		p.answers.Add(key, kept) // of two at the same time, the later one
	}
	return among.and(kept.holds)
}

// evaluate returns the rows for which the expression holds, by one evaluation for all clusters of which it
// reads the same.
func (e *expression) evaluate(p *page, among set, f *facts) (holds set) {
	if among.len() == 1 { // nothing to share
		if ok, err := e.holds(p.clusters[among.first()], f); ok && err == nil {
			return among
		}
		return holds
	}
	for _, group := range p.alike(&e.reads) {
		if rows := among.and(group.rows); rows != (set{}) && f.holdsAlike(e, group.values, p.clusters[rows.first()]) {
			holds = holds.or(rows)
		}
	}
	return holds
}

// holdsAlike reports whether the expression holds for all clusters of which it reads these values, of which one is
// given.
func (f *facts) holdsAlike(e *expression, values string, c *Cluster) bool {
	known := f.known[e]
	if holds, ok := known[values]; ok {
		return holds
	}
	holds, err := e.holds(c, f)
	if known == nil {
		known = map[string]bool{}
		f.known[e] = known
	}
	known[values] = holds && err == nil
	return known[values]
}

// holds evaluates the expression for one cluster.
func (e *expression) holds(c *Cluster, f *facts) (bool, error) {
	value, _, err := e.program.Eval(subject{f, c})
	if err != nil {
		return false, err
	}
	holds, ok := value.Value().(bool)
	return holds && ok, nil
}

// subject is the variables of one evaluation, which are made as they are read.
type subject struct {
	*facts
	cluster *Cluster
}

// ResolveName implements cel.Activation.
func (s subject) ResolveName(name string) (any, bool) {
	switch c := s.cluster; name {
	case "request":
		return s.request, true
	case "consumer":
		return s.consumer, true
	case "cluster":
		return map[string]any{
			"name": c.Name, "provider": c.Provider, "region": c.Region, "tier": c.Labels[v1alpha1.LabelTier], "labels": map[string]string(c.Labels),
		}, true
	case "claims":
		return claimsOf(c.Claims), true
	}
	return nil, false
}

// claimsOf returns claims as expressions read them.
func claimsOf(of []v1alpha1.Claim) []map[string]string {
	claims := make([]map[string]string, len(of))
	for i := range of {
		claims[i] = map[string]string{"name": of[i].Name, "value": of[i].Value, "assurance": string(of[i].Assurance), "issuer": of[i].Issuer}
	}
	return claims
}

// Parent implements cel.Activation.
func (subject) Parent() cel.Activation { return nil }
