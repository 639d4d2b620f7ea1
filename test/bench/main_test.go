package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestQuickRunAnswersEveryQuestion keeps the program from rotting; what it measures
// means nothing.
func TestQuickRunAnswersEveryQuestion(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Sluice and control planes")
	}
	file := filepath.Join(t.TempDir(), "performance.md")
	if err := os.WriteFile(file, []byte("# Before\n\n"+figuresBegin+"\nold\n"+figuresEnd+"\n\nAfter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), options{quick: true, markdown: file}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(out.String(), "### "), len(questions); got != want {
		t.Errorf("%d tables, want %d:\n%s", got, want, out.String())
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(written)
	if !strings.HasPrefix(text, "# Before\n") || !strings.HasSuffix(text, "\nAfter\n") || strings.Contains(text, "\nold\n") || !strings.Contains(text, out.String()) {
		t.Errorf("the figures were not replaced in place:\n%s", text)
	}
}

func TestQuantileIsTheNearestRank(t *testing.T) {
	var l latencies
	for n := range 100 {
		l = append(l, time.Duration(100-n))
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := l.quantile(share); got != want {
			t.Errorf("quantile %v of 1…100 is %d, want %d", share, got, want)
		}
	}
}
