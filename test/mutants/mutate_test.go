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
		text, err := m.source()
		if err != nil {
			t.Fatal(err)
		}
		var changed []string
		for i, line := range strings.Split(string(text), "\n") {
			if before := strings.Split(source, "\n"); i >= len(before) || line != before[i] {
				changed = append(changed, strings.TrimSpace(line))
				break
			}
		}
		got[fmt.Sprintf("%d: %s", m.line, m.what)] = strings.Join(changed, "; ")
	}
	want := map[string]string{
		"6: the condition is always true":  "if a < b && !flag() || true {",
		"6: the condition is always false": "if a < b && !flag() && false {",
		"6: < becomes <=":                  "if a <= b && !flag() {",
		"6: < becomes >=":                  "if a >= b && !flag() {",
		"6: && becomes ||":                 "if a < b || !flag() {",
		"6: ! is left out":                 "if a < b && !!flag() {",
		"7: the statement is left out":     "",
		"8: the statement is left out":     "",
		"8: += becomes -=":                 "a -= 2",
		"10: == becomes !=":                "return a != b || true",
		"10: || becomes &&":                "return a == b && true",
		"10: true becomes false":           "return a == b || false",
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
