package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	id           int // among those of the package, from 1
	path         string
	line, column int
	first, last  int // lines of the function
	what         string
	number       int // of the change among those of the file
}

// change is made to a parsed file.
type change struct {
	at   token.Pos
	what string
	make func()
}

// swaps are the operators that are exchanged.
var swaps = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

// changes lists what can be changed in a file, in the order of the source.
func changes(file *ast.File) (all []change) {
	swap := func(at token.Pos, operator *token.Token) {
		for _, other := range swaps[*operator] {
			all = append(all, change{at, fmt.Sprintf("%s becomes %s", *operator, other), func() { *operator = other }})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR // the others decide nothing
		case *ast.BinaryExpr:
			swap(n.OpPos, &n.Op)
		case *ast.AssignStmt:
			swap(n.TokPos, &n.Tok)
		case *ast.IncDecStmt:
			swap(n.TokPos, &n.Tok)
		case *ast.BranchStmt:
			if n.Label == nil {
				swap(n.TokPos, &n.Tok)
			}
		case *ast.Ident:
			if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok && n.Obj == nil {
				all = append(all, change{n.Pos(), n.Name + " becomes " + other, func() { n.Name = other }})
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				all = append(all, change{n.OpPos, "! is left out", func() { n.X = &ast.UnaryExpr{Op: token.NOT, X: n.X} }})
			}
		case *ast.IfStmt:
			for _, value := range []string{"true", "false"} {
				all = append(all, change{n.Cond.Pos(), "the condition is always " + value, func() {
					n.Cond = &ast.BinaryExpr{X: n.Cond, Op: map[string]token.Token{"true": token.LOR, "false": token.LAND}[value], Y: ast.NewIdent(value)}
				}})
			}
		case *ast.BlockStmt:
			all = append(all, removals(n.List)...)
		case *ast.CaseClause:
			all = append(all, removals(n.Body)...)
		}
		return true
	})
	return all
}

// removals are the statements that can be left out.
func removals(list []ast.Stmt) (all []change) {
	for i, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue // it would not compile
			}
		default:
			continue
		}
		all = append(all, change{statement.Pos(), "the statement is left out", func() { list[i] = &ast.EmptyStmt{Semicolon: statement.Pos()} }})
	}
	return all
}

// function returns the outermost function whose body contains a position; nil if there is none.
func function(file *ast.File, at token.Pos) (kind *ast.FuncType, body *ast.BlockStmt) {
	contains := func(n ast.Node) bool { return n.Pos() <= at && at < n.End() }
	ast.Inspect(file, func(n ast.Node) bool {
		if body != nil || n == nil || !contains(n) {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil && contains(n.Body) {
				kind, body = n.Type, n.Body
			}
		case *ast.FuncLit:
			if contains(n.Body) {
				kind, body = n.Type, n.Body
			}
		}
		return true
	})
	return kind, body
}

// mutants lists those of the functions of a package, without its tests and what is generated.
func mutants(folder string) (all []mutant, err error) {
	pack, err := build.ImportDir(folder, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range pack.GoFiles {
		if strings.HasPrefix(name, "zz_generated") {
			continue
		}
		path := filepath.Join(folder, name)
		positions, file, err := parse(path)
		if err != nil {
			return nil, err
		}
		for number, c := range changes(file) {
			_, body := function(file, c.at)
			if body == nil {
				continue // the value of a package's variable
			}
			at := positions.Position(c.at)
			all = append(all, mutant{
				id: len(all) + 1, path: path, line: at.Line, column: at.Column, what: c.what, number: number,
				first: positions.Position(body.Pos()).Line, last: positions.Position(body.End()).Line,
			})
		}
	}
	return all, nil
}

func parse(path string) (*token.FileSet, *ast.File, error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, nil, parser.ParseComments)
	return positions, file, err
}

func (m mutant) String() string {
	text, _ := os.ReadFile(m.path)
	lines := strings.Split(string(text), "\n")
	return fmt.Sprintf("%s:%d: %s: %s", m.path, m.line, m.what, strings.TrimSpace(lines[m.line-1]))
}
