package placement

import (
	"fmt"
	"slices"
	"strings"

	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// fieldsOf has the fields of what expressions read, and of the elements of claims and consumer.claims.
var fieldsOf = map[string][]string{
	"request":  {"id", "plan", "clusters", "resources", "images"},
	"consumer": {"platform", "organization", "space", "claims"},
	"cluster":  {"name", "provider", "region", "tier", "labels"},
	aClaim:     {"name", "value", "assurance", "issuer"},
}

const aClaim = "a claim"

// checkFields returns an error if an expression reads a field that there is not. The variables are maps to CEL, which would
// find that out for each order.
func checkFields(of *celast.AST) error {
	for _, ident := range celast.MatchDescendants(celast.NavigateAST(of), celast.KindMatcher(celast.IdentKind)) {
		read, name := ident, ident.AsIdent()
		if over, bound := rangeOf(ident); bound {
			if !isClaims(over) {
				continue
			}
			name = aClaim
		} else if list, ok := claimsOfIdent(ident); ok {
			if read, ok = elementOf(list); ok {
				name = aClaim
			} else {
				read = ident
			}
		}
		fields, known := fieldsOf[name]
		if whole, field, ok := part(read); known && ok && !slices.Contains(fields, field) {
			at := of.SourceInfo().GetStartLocation(whole.ID())
			return fmt.Errorf("expression: column %d: %s has no field %q, only %s", at.Column()+1, name, field, strings.Join(fields, ", "))
		}
	}
	return nil
}

// rangeOf returns the list or map over whose elements a macro such as exists runs that binds the name; bound is false of a
// variable.
func rangeOf(ident celast.NavigableExpr) (over celast.Expr, bound bool) {
	for e, ok := ident.Parent(); ok; e, ok = e.Parent() {
		if e.Kind() == celast.ComprehensionKind && e.AsComprehension().IterVar() == ident.AsIdent() {
			return e.AsComprehension().IterRange(), true
		}
	}
	return nil, false
}

// isClaims reports whether an expression is the claims of the cluster or of the consumer.
func isClaims(e celast.Expr) bool {
	if e.Kind() == celast.SelectKind {
		of := e.AsSelect()
		return of.FieldName() == "claims" && of.Operand().Kind() == celast.IdentKind && of.Operand().AsIdent() == "consumer"
	}
	return e.Kind() == celast.IdentKind && e.AsIdent() == "claims"
}

// claimsOfIdent returns the claims that an expression reads by a variable.
func claimsOfIdent(ident celast.NavigableExpr) (celast.NavigableExpr, bool) {
	if isClaims(ident) {
		return ident, true
	}
	whole, ok := ident.Parent()
	return whole, ok && isClaims(whole)
}

// elementOf returns the expression that takes an element of a list by its number.
func elementOf(list celast.NavigableExpr) (celast.NavigableExpr, bool) {
	element, ok := list.Parent()
	if !ok || element.Kind() != celast.CallKind || element.AsCall().FunctionName() != operators.Index {
		return nil, false
	}
	return element, element.AsCall().Args()[0].ID() == list.ID()
}
