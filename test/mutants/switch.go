package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// chosen is the environment variable with the id of the mutant that a test binary runs; absent, it
// runs the package as it is.
const chosen = "SLUICE_MUTANT"

// switchFile declares the variable that the changed functions read.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var activeMutant, _ = strconv.Atoi(os.Getenv(%q))
`

// alternative is the body of a function with one change.
type alternative struct {
	id          int    // of the mutant
	start, line int    // of the original body, behind its brace
	text        string // with braces
	results     bool   // of the function
}

// alternative returns the body of the function that the mutant changes.
func (m mutant) alternative() (alternative, error) {
	positions, file, err := parse(m.path)
	if err != nil {
		return alternative{}, err
	}
	c := changes(file)[m.number]
	kind, body := function(file, c.at)
	c.make()
	ast.Inspect(body, func(n ast.Node) bool { // a label is declared once in a function
		switch n := n.(type) {
		case *ast.LabeledStmt:
			n.Label.Name += fmt.Sprintf("_%d", m.id)
		case *ast.BranchStmt:
			if n.Label != nil {
				n.Label.Name += fmt.Sprintf("_%d", m.id)
			}
		}
		return true
	})
	var text bytes.Buffer
	err = format.Node(&text, positions, body)
	brace := positions.Position(body.Lbrace)
	return alternative{m.id, brace.Offset + 1, brace.Line, text.String(), kind.Results != nil}, err
}

// switched returns a file whose functions run as the chosen mutant has them. Errors of a compiler
// name the mutant (file mutant-ID) or the line of the original.
func switched(path string, some []mutant) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	bodies := map[int][]alternative{}
	for _, m := range some {
		a, err := m.alternative()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		bodies[a.start] = append(bodies[a.start], a)
	}
	var out bytes.Buffer
	written := 0
	for _, start := range slices.Sorted(maps.Keys(bodies)) {
		out.Write(text[written:start])
		out.WriteString("\nswitch activeMutant {\n")
		for _, a := range bodies[start] {
			end := "return"
			if a.results {
				end = `panic("the change removed a return")`
			}
			fmt.Fprintf(&out, "case %d:\n//line mutant-%d:1\n%s\n%s\n", a.id, a.id, a.text, end)
		}
		fmt.Fprintf(&out, "}\n//line %s:%d\n", filepath.Base(path), bodies[start][0].line)
		written = start
	}
	out.Write(text[written:])
	return out.Bytes(), nil
}

// overlay writes what the go command needs to compile a package with mutants behind the switch to a
// folder, and returns the path of the description for its flag -overlay.
func overlay(folder string, some []mutant, scratch string) (string, error) {
	pack, err := build.ImportDir(folder, 0)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	add := func(path string, text []byte) error {
		original, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		replace[original] = filepath.Join(scratch, filepath.Base(path))
		return os.WriteFile(replace[original], text, 0o600)
	}
	files := map[string][]mutant{}
	for _, m := range some {
		files[m.path] = append(files[m.path], m)
	}
	if err := add(filepath.Join(folder, "active_mutant.go"), fmt.Appendf(nil, switchFile, pack.Name, chosen)); err != nil {
		return "", err
	}
	for path, of := range files {
		text, err := switched(path, of)
		if err := errors.Join(err, add(path, text)); err != nil {
			return "", err
		}
	}
	description, err := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(scratch, "overlay.json")
	return path, errors.Join(err, os.WriteFile(path, description, 0o600))
}
