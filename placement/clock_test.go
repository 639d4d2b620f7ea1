package placement

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheEngineHasNoClock: the time of a decision comes with its request, so that the decision can
// be made again. (Which packages the engine may import, .depguard.yaml says.)
func TestTheEngineHasNoClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	positions, uses := token.NewFileSet(), 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if of, ok := selector.X.(*ast.Ident); ok && of.Name == "time" {
				uses++
				if slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "Tick", "NewTimer", "NewTicker"}, selector.Sel.Name) {
					t.Errorf("%s reads the clock", positions.Position(n.Pos()))
				}
			}
			return true
		})
	}
	if uses == 0 {
		t.Error("the search finds no use of package time, and there are many")
	}
}
