package workload

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
)

// Expand returns a JSON value in which the expressions of all strings are replaced by their values, over
// these variables. The error names the path below the given one.
func Expand(variables map[string]any, value any, path string) (any, error) {
	return (&expressions{variables: variables}).all(value, path)
}

// CheckExpressions returns an error if an expression in a JSON value cannot be compiled. It names the path
// below the given one.
func CheckExpressions(value any, path string) error {
	_, err := eachString(value, path, func(text string) (any, error) {
		segments, err := split(text)
		if err != nil {
			return nil, err
		}
		for _, one := range segments {
			if one.source == "" {
				continue
			}
			if _, err := compile(one.source); err != nil {
				return nil, fmt.Errorf("${%s}: %w", one.source, err)
			}
		}
		return text, nil
	})
	return err
}

// Uses describes what the expressions of a string read of the consumer's parameters.
type Uses struct {
	// Names of the parameters.
	Names []string
	// All means that they may read any parameter.
	All bool
	// Value is the parameter whose value takes the place of the whole string; empty if there is none.
	Value string
}

// UsesOf returns what the expressions of a string read.
func UsesOf(text string) (uses Uses, err error) {
	segments, err := split(text)
	if err != nil {
		return Uses{}, err
	}
	env, err := environment()
	if err != nil {
		return Uses{}, err
	}
	for _, one := range segments {
		if one.source == "" {
			continue
		}
		parsed, issues := env.Parse(one.source)
		if err := issues.Err(); err != nil {
			return Uses{}, err
		}
		root := parsed.NativeRep().Expr()
		if name := parameterOf(root); name != "" && !root.AsSelect().IsTestOnly() && len(segments) == 1 {
			uses.Value = name
		}
		selected, mentioned := 0, 0
		ast.PreOrderVisit(root, ast.NewExprVisitor(func(e ast.Expr) {
			if name := parameterOf(e); name != "" {
				uses.Names = append(uses.Names, name)
				selected++
			} else if isParameters(e) {
				mentioned++
			}
		}))
		uses.All = uses.All || mentioned > selected // not only by names
	}
	return uses, nil
}

// parameterOf returns NAME if an expression is parameters.NAME, otherwise "".
func parameterOf(e ast.Expr) string {
	if e.Kind() == ast.SelectKind && isParameters(e.AsSelect().Operand()) {
		return e.AsSelect().FieldName()
	}
	return ""
}

func isParameters(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == varParameters
}
