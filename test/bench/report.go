package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// table answers one question.
type table struct {
	question string
	note     string // how it was measured
	header   []string
	rows     [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// column adds a last column.
func (t *table) column(title string, cells []string) {
	t.header = append(t.header, title)
	for i, cell := range cells {
		t.rows[i] = append(t.rows[i], cell)
	}
}

// String is the table in Markdown, aligned, for terminals too.
func (t table) String() string {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "### %s\n\n%s\n\n", t.question, t.note)
	line := func(row []string, fill string) {
		for i, cell := range row {
			fmt.Fprintf(&text, "|%s%s%s%s", fill, cell, strings.Repeat(fill, widths[i]-utf8.RuneCountInString(cell)), fill)
		}
		text.WriteString("|\n")
	}
	line(t.header, " ")
	line(make([]string, len(t.header)), "-")
	for _, row := range t.rows {
		line(row, " ")
	}
	return text.String()
}

// latencies are durations of the same thing.
type latencies []time.Duration

// quantile is the smallest latency that a share of all is not above (nearest rank).
func (l latencies) quantile(share float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l))
	return sorted[max(int(math.Ceil(share*float64(len(sorted))))-1, 0)]
}

func (l latencies) median() time.Duration { return l.quantile(0.5) }

// milliseconds writes a duration with what precision it deserves.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	default:
		return fmt.Sprintf("%.0f ms", ms)
	}
}

// verdict says whether a bar is met.
func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// machine describes where this runs, and how busy it is.
func machine() string {
	return fmt.Sprintf("%d cores (%s), %s of memory, %s, %s; load average before: %s",
		runtime.NumCPU(), fieldOf("/proc/cpuinfo", "model name"), memory(), runtime.Version(), runtime.GOOS, busy())
}

// busy is the load average of the last minute, from proc(5).
func busy() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

func memory() string {
	var kibibytes int64
	if _, err := fmt.Sscan(fieldOf("/proc/meminfo", "MemTotal"), &kibibytes); err != nil {
		return "unknown size"
	}
	return fmt.Sprintf("%d GiB", (kibibytes+1<<19)>>20)
}

// fieldOf is the first value of a name in one of the "name: value" files of proc(5).
func fieldOf(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// The lines between which the figures stand in a Markdown file.
const (
	figuresBegin = "<!-- figures: written by go run ./test/bench -markdown -->"
	figuresEnd   = "<!-- end of figures -->"
)

// replaceFigures writes a report into a Markdown file in place of the last one.
func replaceFigures(file, report string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("replace the figures: %w", err)
	}
	before, rest, found := strings.Cut(string(text), figuresBegin)
	_, after, closed := strings.Cut(rest, figuresEnd)
	if !found || !closed {
		return fmt.Errorf("replace the figures: %s lacks the lines %q and %q", file, figuresBegin, figuresEnd)
	}
	return os.WriteFile(file, []byte(before+figuresBegin+"\n\n"+report+"\n"+figuresEnd+after), 0o644) // documentation
}
