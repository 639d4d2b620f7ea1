package main

import (
	"path/filepath"
	"testing"
)

// A second run of the same sample starts from the fates that the first one recorded.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	first, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	fates := map[mutant]fate{
		{path: "main.go", line: 1, what: "! is left out"}:            died,
		{path: "main.go", line: 1, what: "! is left out", number: 1}: survived,
		{path: "main.go", line: 1, what: "! is left out", number: 2}: invalid,
	}
	for m, f := range fates {
		if err := first.add(m, f); err != nil {
			t.Fatal(err)
		}
	}
	second, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	for m, want := range fates {
		if got, ok := second.of(m); got != want || !ok {
			t.Errorf("change %d: %v, %v, want %v", m.number, got, ok, want)
		}
	}
	if _, ok := second.of(mutant{path: "main.go", line: 2, what: "! is left out"}); ok {
		t.Error("a mutant that was not tried has a fate")
	}
}
