package main

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestNobodyUsesTheDefaultInPlaceOfAFlag: the default of a flag is used only where the flag
// is declared. All other code must be given the flag's value; otherwise the two differ when
// an operator sets the flag.
func TestNobodyUsesTheDefaultInPlaceOfAFlag(t *testing.T) {
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := gotoken.NewFileSet()
	defaults, used := map[string]bool{}, map[string][]string{}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && declaresFlag(call) {
				for _, argument := range call.Args {
					if name := defaultName(argument); name != "" {
						defaults[name] = true
					}
				}
				return false
			}
			if e, ok := n.(ast.Expr); ok && defaultName(e) != "" {
				used[defaultName(e)] = append(used[defaultName(e)], files.Position(e.Pos()).String())
			}
			return true
		})
	}
	if len(defaults) < 3 {
		t.Fatalf("only %d defaults of flags were found: %v", len(defaults), defaults)
	}
	for name := range defaults {
		if len(used[name]) > 0 {
			t.Errorf("%s is the default of a flag, and used beside it at %s", name, strings.Join(used[name], ", "))
		}
	}
}

// declaresFlag reports whether a call is flags.DurationVar(…) or the like.
func declaresFlag(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (strings.HasSuffix(method.Sel.Name, "Var") || strings.HasSuffix(method.Sel.Name, "VarP"))
}

// defaultName returns for instance "placement.DefaultProbeEvery"; "" for any other
// expression.
func defaultName(e ast.Expr) string {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || !strings.HasPrefix(selector.Sel.Name, "Default") {
		return ""
	}
	if pkg, ok := selector.X.(*ast.Ident); ok {
		return pkg.Name + "." + selector.Sel.Name
	}
	return ""
}

// TestMeasurementsKnowHowOftenClustersAreProbed: the interval comes from the flags of
// `sluice serve`.
func TestMeasurementsKnowHowOftenClustersAreProbed(t *testing.T) {
	for _, row := range []struct {
		flags   string
		measure bool
		refused string
	}{
		{"--public-url=https://b.example --vantage=fra --measure-window=1h", true, ""},
		{"--public-url=https://b.example --measure-window=1h", false, ""},
		{"--public-url=https://b.example --vantage=fra --measure-window=119s", true, "--probe-every"},
		{"--public-url=https://b.example --vantage=fra --measure-window=59s", true, "a minute"},
	} {
		t.Run(row.flags, func(t *testing.T) {
			f, cmd := &trustFlags{}, &cobra.Command{}
			f.bind(cmd)
			if err := cmd.ParseFlags(strings.Fields(row.flags)); err != nil {
				t.Fatal(err)
			}
			p := prepared{measure: f.measured(12 * time.Second)}
			if took := p.probed() != nil; took != row.measure {
				t.Errorf("measures is %t", took)
			}
			if row.measure && (p.measure.Every != 12*time.Second || p.measure.Probes.Window != f.measureEvery || p.measure.Vantage != "fra") {
				t.Errorf("measures %+v", p.measure)
			}
			if err := f.checkMeasure(p.measure); (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Errorf("want refused for %q, got %v", row.refused, err)
			}
		})
	}
}
