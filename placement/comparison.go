package placement

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celtraits "github.com/google/cel-go/common/types/traits"
)

// condition is a part of an expression that reads both the request and the cluster. By the semantics of CEL, a && b is
// true exactly if both are, and a || b if one is, whether or not the evaluation of the other one fails.
type condition interface {
	// rows returns those of a page's rows for which the condition holds.
	rows(p *page, among set, f *facts) set
}

// allOf and anyOf are conditions joined by && and ||.
type (
	allOf []condition
	anyOf []condition
)

func (all allOf) rows(p *page, among set, f *facts) set {
	for _, one := range all {
		if among == (set{}) {
			break
		}
		among = one.rows(p, among, f)
	}
	return among
}

func (some anyOf) rows(p *page, among set, f *facts) (holds set) {
	for _, one := range some {
		if rest := among.without(holds); rest != (set{}) {
			holds = holds.or(one.rows(p, rest, f))
		}
	}
	return holds
}

// comparison is a condition on two values, of which one depends on the request alone and is computed once for each
// decision, and the other on the cluster alone and is kept. So an expression is not evaluated for each request and
// cluster.
type comparison struct {
	ofRequest, ofCluster *term
	// swapped means that the request's value is the second one.
	swapped bool
	compare func(first, second ref.Val) ref.Val
	// equality means that it holds for all equal values, or for all others.
	equality bool
	// result with which the condition holds: false for a comparison that is negated.
	result types.Bool
}

// comparisons are the functions of two values of which the result is computed for each cluster and request: some
// nanoseconds each.
var comparisons = map[string]func(first, second ref.Val) ref.Val{
	operators.Equals:        types.Equal,
	operators.NotEquals:     func(a, b ref.Val) ref.Val { return negated(types.Equal(a, b)) },
	operators.Less:          ordering(func(order int) bool { return order < 0 }),
	operators.LessEquals:    ordering(func(order int) bool { return order <= 0 }),
	operators.Greater:       ordering(func(order int) bool { return order > 0 }),
	operators.GreaterEquals: ordering(func(order int) bool { return order >= 0 }),
	operators.In: func(a, b ref.Val) ref.Val {
		if container, ok := b.(celtraits.Container); ok {
			return container.Contains(a)
		}
		return types.MaybeNoSuchOverloadErr(b)
	},
	overloads.StartsWith: types.StringStartsWith,
	overloads.EndsWith:   types.StringEndsWith,
	overloads.Contains:   types.StringContains,
}

func negated(value ref.Val) ref.Val {
	if is, ok := value.(types.Bool); ok {
		return !is
	}
	return value
}

func ordering(holds func(order int) bool) func(a, b ref.Val) ref.Val {
	return func(a, b ref.Val) ref.Val {
		comparable, ok := a.(celtraits.Comparer)
		if !ok {
			return types.MaybeNoSuchOverloadErr(a)
		}
		order := comparable.Compare(b)
		if n, ok := order.(types.Int); ok {
			return types.Bool(holds(int(n)))
		}
		return order
	}
}

func (c *comparison) rows(p *page, among set, f *facts) (holds set) {
	asked := f.value(c.ofRequest)
	if asked == nil {
		return holds
	}
	has := c.ofCluster.values(p, among, f)
	if text, ok := asked.(types.String); ok && c.equality && has.texts != nil {
		if c.holds(asked, asked) {
			return among.and(has.texts[text])
		}
		return among.and(has.rows).without(has.texts[text])
	}
	for _, one := range has.each {
		if rows := among.and(one.rows); rows != (set{}) && c.holds(asked, one.value) {
			holds = holds.or(rows)
		}
	}
	return holds
}

func (c *comparison) holds(asked, has ref.Val) bool {
	first, second := asked, has
	if c.swapped {
		first, second = has, asked
	}
	return c.compare(first, second) == c.result
}

// term is one side of a comparison.
type term struct {
	reads
	source  string
	program cel.Program
}

// termKey is the key of the values of a term for a page's clusters among its groupings.
type termKey string

// values are the values of a term for rows of a page.
type values struct {
	each []valued
	// rows that have a value, and those of each text; nil if these are not known.
	rows  set
	texts map[types.String]set
}

// valued are rows for which a term has the same value.
type valued struct {
	value ref.Val
	rows  set
}

// values returns a term's values for a page's rows, as far as it can be evaluated. They are computed once for a
// page's traits and kept with them.
func (t *term) values(p *page, among set, f *facts) *values {
	if known, ok := p.groupings.Load(termKey(t.source)); ok {
		return known.(*values)
	}
	if among.len() == 1 { // not worth all others
		return &values{each: t.valued(p, among, f)}
	}
	all := &values{texts: map[types.String]set{}}
	for _, group := range p.alike(&t.reads) {
		for _, one := range t.valued(p, group.rows, f) {
			all.each, all.rows = append(all.each, one), all.rows.or(one.rows)
			if text, ok := one.value.(types.String); ok {
				all.texts[text] = all.texts[text].or(one.rows)
			}
		}
	}
	p.groupings.Store(termKey(t.source), all)
	return all
}

// valued returns the value of a term for rows of which it reads the same; none if it cannot be evaluated.
func (t *term) valued(p *page, rows set, f *facts) []valued {
	if value := t.value(f, p.clusters[rows.first()]); value != nil {
		return []valued{{value, rows}}
	}
	return nil
}

// value evaluates a term; nil if that fails.
func (t *term) value(f *facts, c *Cluster) ref.Val {
	value, _, err := t.program.Eval(subject{f, c})
	if err != nil {
		return nil
	}
	return value
}

// value returns a term of the request, which is evaluated once for each decision; nil if that fails.
func (f *facts) value(t *term) ref.Val {
	value, known := f.values[t]
	if !known {
		value = t.value(f, nil)
		f.values[t] = value
	}
	return value
}

// parser makes conditions of an expression's parts.
type parser struct {
	environment *cel.Env
	of          *celast.AST
}

// condition returns the condition that a part of an expression has a result; nil if the part cannot be split, or
// needs not be, because it does not read both the request and the cluster.
func (s *parser) condition(e celast.Expr, result bool) (condition, error) {
	if reads := s.readsOf(e); e.Kind() != celast.CallKind || !reads.isMixed() {
		return nil, nil
	}
	call := e.AsCall()
	switch name := call.FunctionName(); name {
	case operators.LogicalNot:
		return s.condition(call.Args()[0], !result)
	case operators.LogicalAnd, operators.LogicalOr:
		var parts []condition
		for _, arg := range call.Args() {
			one, err := s.part(arg, result)
			if err != nil {
				return nil, err
			}
			parts = append(parts, one)
		}
		if (name == operators.LogicalAnd) == result {
			return allOf(parts), nil
		}
		return anyOf(parts), nil
	case operators.Conditional:
		return s.conditional(call.Args(), result)
	default:
		return s.comparison(call, result)
	}
}

// conditional returns the condition that a ? b : c has a result: a and b have it, or a is false and c has it.
func (s *parser) conditional(args []celast.Expr, result bool) (condition, error) {
	var either anyOf
	for i, holds := range []bool{true, false} {
		if is, err := s.part(args[0], holds); err != nil {
			return nil, err
		} else if then, err := s.part(args[1+i], result); err != nil {
			return nil, err
		} else {
			either = append(either, allOf{is, then})
		}
	}
	return either, nil
}

// part returns the condition that a part has a result: an expression of its own if it cannot be split.
func (s *parser) part(e celast.Expr, result bool) (condition, error) {
	if split, err := s.condition(e, result); split != nil || err != nil {
		return split, err
	}
	source, err := cel.ExprToString(e, s.of.SourceInfo())
	if err != nil {
		return nil, fmt.Errorf("write a part of the expression: %w", err)
	}
	if !result {
		source = "!(" + source + ")"
	}
	return compileExpression(source)
}

// comparison returns a call as a comparison; nil if it is none.
func (s *parser) comparison(call celast.CallExpr, result bool) (condition, error) {
	operands := call.Args()
	if call.IsMemberFunction() {
		operands = slices.Insert(slices.Clone(operands), 0, call.Target())
	}
	name := call.FunctionName()
	c := &comparison{compare: comparisons[name], equality: name == operators.Equals || name == operators.NotEquals, result: types.Bool(result)}
	if c.compare == nil || len(operands) != 2 {
		return nil, nil
	}
	first, second := s.readsOf(operands[0]), s.readsOf(operands[1])
	if first.isMixed() || second.isMixed() {
		return nil, nil
	}
	if c.swapped = len(first.asked) == 0; c.swapped {
		slices.Reverse(operands)
	}
	var err error
	if c.ofRequest, err = s.term(operands[0]); err == nil {
		c.ofCluster, err = s.term(operands[1])
	}
	return c, err
}

func (s *parser) term(e celast.Expr) (*term, error) {
	source, err := cel.ExprToString(e, s.of.SourceInfo())
	if err != nil {
		return nil, fmt.Errorf("write a part of the expression: %w", err)
	}
	_, program, err := compile(s.environment, source)
	if err != nil {
		return nil, err
	}
	return &term{s.readsOf(e), source, program}, nil
}

func (s *parser) readsOf(e celast.Expr) reads { return readsOf(celast.NavigateExpr(s.of, e)) }
