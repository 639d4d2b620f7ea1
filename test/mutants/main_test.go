package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The tests of a package decide the fate of each mutant, and they run on the package as it is besides.
func TestTry(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module example.com/p\n\ngo 1.26\n",
		"p.go": `package p

func least(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func unused(a int) bool { return a == 1 }

func next(a int) int {
	step := 1
	a += step // without it, step is not used
	return a
}

func count(of []int) (n int) {
again:
	for i := range of {
		for i > 0 {
			n++
			continue again
		}
	}
	return n
}
`,
		"p_test.go": `package p

import "testing"

func TestLeast(t *testing.T) {
	if least(1, 2) != 1 || least(2, 1) != 1 {
		t.Fail()
	}
}

func TestCount(t *testing.T) {
	if next(1) != 2 || count([]int{1, 2, 3}) != 2 {
		t.Fail()
	}
}
`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "record")
	past, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	killed, tried, err := try(t.Context(), ".", 100, 2, 1, past)
	if err != nil {
		t.Fatal(err)
	}
	all, err := mutants(".")
	if err != nil {
		t.Fatal(err)
	}
	got := map[fate][]string{}
	for _, m := range all {
		end, _ := past.of(m)
		got[end] = append(got[end], m.String())
	}
	for end, want := range map[fate][]string{
		survived: {"p.go:4: < becomes <=: if a < b {", "p.go:10: == becomes !=: func unused(a int) bool { return a == 1 }"},
		invalid:  {"p.go:14: the statement is left out: a += step // without it, step is not used"},
	} {
		if !slices.Equal(got[end], want) {
			t.Errorf("%s: %q, want %q", fateNames[end], got[end], want)
		}
	}
	if tried != len(all)-1 || killed != tried-2 || killed != len(got[died]) {
		t.Errorf("%d killed of %d, of %d", killed, tried, len(all))
	}
}
