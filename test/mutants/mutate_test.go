package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMutants(t *testing.T) {
	folder := t.TempDir()
	const source = `package p

const fixed = 1 + 1

var first = fixed == 1

func f(a, b int, log func()) bool {
	if a < b && !flag() {
		log()
		a += 2
	}
	return a == b || true
}
`
	if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := mutants(folder)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range all {
		a, err := m.alternative()
		if err != nil {
			t.Fatal(err)
		}
		body, changed := strings.Split(source[a.start-1:], "\n"), ""
		for i, line := range strings.Split(a.text, "\n") {
			if i >= len(body) || line != body[i] {
				changed = strings.TrimSpace(line)
				break
			}
		}
		got[fmt.Sprintf("%d: %s", m.line, m.what)] = changed
	}
	want := map[string]string{
		"8: the condition is always true":  "if a < b && !flag() || true {",
		"8: the condition is always false": "if a < b && !flag() && false {",
		"8: < becomes <=":                  "if a <= b && !flag() {",
		"8: < becomes >=":                  "if a >= b && !flag() {",
		"8: && becomes ||":                 "if a < b || !flag() {",
		"8: ! is left out":                 "if a < b && !!flag() {",
		"9: the statement is left out":     "",
		"10: the statement is left out":    "",
		"10: += becomes -=":                "a -= 2",
		"12: == becomes !=":                "return a != b || true",
		"12: || becomes &&":                "return a == b && true",
		"12: true becomes false":           "return a == b || false",
	}
	for what, line := range want {
		if !strings.Contains(got[what], line) {
			t.Errorf("%s: %q, want %q", what, got[what], line)
		}
		delete(got, what)
	}
	if len(got) > 0 {
		t.Errorf("more: %v", slices.Sorted(maps.Keys(got)))
	}
}
