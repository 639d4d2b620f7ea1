package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestFewFilesWriteTheStatus: what an instance's status can become is read in instance_status.go and, for its moves and its
// data, in those beside it.
func TestFewFilesWriteTheStatus(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writes := map[string]int{}
	positions := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			assignment, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, target := range assignment.Lhs {
				if ofScope(target) {
					writes[name]++
					if !strings.HasPrefix(name, "instance_status") {
						t.Errorf("%s writes the status", positions.Position(target.Pos()))
					}
				}
			}
			return true
		})
	}
	if writes["instance_status.go"] < 10 {
		t.Errorf("the search finds only %d writes where they should be", writes["instance_status.go"])
	}
}

// ofScope reports whether an expression is s.Status, or a part of it.
func ofScope(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := selector.X.(*ast.Ident)
	return ok && of.Name == "s" && selector.Sel.Name == "Status" || ofScope(selector.X)
}
