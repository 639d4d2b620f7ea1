package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// outputFlag is --output, the format of a command's output.
type outputFlag string

const (
	outputTable outputFlag = "table"
	outputWide  outputFlag = "wide"
	outputJSON  outputFlag = "json"
	outputYAML  outputFlag = "yaml"
)

func (o *outputFlag) bind(cmd *cobra.Command) {
	bindChoice(cmd, o, "output", "o", "output format", outputTable, outputWide, outputJSON, outputYAML)
}

// forPeople reports whether the output is a table rather than a document.
func (o outputFlag) forPeople() bool { return o == outputTable || o == outputWide }

// table is output for people: a header and rows of the same length.
type table struct {
	header []string
	rows   [][]string
	// wide lists the titles of columns that only --output wide shows.
	wide []string
}

// longestCell is the greatest number of characters of a cell, except with --output wide, so
// that a long message does not push the next columns out of sight.
const longestCell = 60

// print writes value as JSON or YAML, or the table.
func (o outputFlag) print(w io.Writer, value any, t table) error {
	switch o {
	case outputJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case outputYAML:
		data, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	default:
		return t.write(w, o == outputWide)
	}
}

// write prints the table; with wide, all columns with their whole text.
func (t table) write(w io.Writer, wide bool) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		var cells []string
		for i, cell := range row {
			if !wide && slices.Contains(t.wide, t.header[i]) {
				continue
			}
			cell = printable(cell)
			if !wide {
				cell = v1alpha1.Cut(cell, longestCell)
			}
			cells = append(cells, cell)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// printable escapes characters that a terminal would obey instead of showing: escapes,
// newlines, marks that change the direction of writing. Platforms choose instance ids, and
// providers choose their claims.
func printable(text string) string {
	clean := func(r rune) bool { return unicode.IsPrint(r) && r != unicode.ReplacementChar }
	if strings.IndexFunc(text, func(r rune) bool { return !clean(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if clean(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(fmt.Sprintf("%+q", r), "'"))
		}
	}
	return b.String()
}

// details print one object as lines of a key and a text. A line without a key continues the
// one above.
type details struct{ tw *tabwriter.Writer }

func newDetails(w io.Writer) *details { return &details{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

// line prints one line.
func (d *details) line(key, format string, args ...any) {
	if key != "" {
		key += ":"
	}
	fmt.Fprintf(d.tw, "%s\t%s\n", key, printable(fmt.Sprintf(format, args...)))
}

// list prints a line for each item; only the first has the key.
func list[T any](d *details, key string, items []T, show func(T) string) {
	for _, item := range items {
		d.line(key, "%s", show(item))
		key = ""
	}
}

// flush aligns the lines and prints them.
func (d *details) flush() error { return d.tw.Flush() }

// orDash keeps empty cells visible.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
