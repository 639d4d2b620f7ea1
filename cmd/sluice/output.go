package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// outputFormat is the form of a command's output.
type outputFormat string

const (
	outputTable outputFormat = "table"
	outputWide  outputFormat = "wide"
	outputJSON  outputFormat = "json"
	outputYAML  outputFormat = "yaml"
	// outputJSONPath prints what a JSONPath template selects, in the dialect of kubectl.
	outputJSONPath outputFormat = "jsonpath"
)

// outputFlag is --output, the format of a command's output, and --no-headers.
type outputFlag struct {
	choice[outputFormat]
	format    outputFormat
	selects   *jsonpath.JSONPath
	noHeaders bool
}

// bind binds the flags of a command that prints a table or a document.
func (o *outputFlag) bind(cmd *cobra.Command) {
	o.bindFormats(cmd, outputTable, outputWide, outputJSON, outputYAML)
}

// bindFormats binds the flags for some formats, of which the first is the default, and for templates.
func (o *outputFlag) bindFormats(cmd *cobra.Command, formats ...outputFormat) {
	o.format = formats[0]
	o.choice = choice[outputFormat]{value: &o.format, of: append(formats, outputJSONPath+"=TEMPLATE")}
	bindFlag(cmd, o, "output", "o", "output format: "+o.list(), append(formats, outputJSONPath+"="))
	if o.forPeople() {
		cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print a table without its first line")
	}
}

// Set accepts a format, or a template after jsonpath=.
func (o *outputFlag) Set(text string) error {
	template, isTemplate := strings.CutPrefix(text, string(outputJSONPath)+"=")
	if !isTemplate {
		return o.choice.Set(text)
	}
	o.format, o.selects = outputJSONPath, jsonpath.New("output").AllowMissingKeys(true)
	if err := o.selects.Parse(template); err != nil {
		return fmt.Errorf("the template, for instance {range [*]}{.metadata.name}{\"\\n\"}{end}: %w", err)
	}
	return nil
}

// forPeople reports whether the output is a table rather than a document.
func (o *outputFlag) forPeople() bool { return o.format == outputTable || o.format == outputWide }

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

// print writes value as a document, or the table.
func (o *outputFlag) print(w io.Writer, value any, t table) error {
	if list := reflect.ValueOf(value); list.Kind() == reflect.Slice && list.IsNil() {
		value = []any{} // a script reads it as a list
	}
	switch o.format {
	case outputJSON:
		return printJSON(w, value)
	case outputJSONPath:
		return o.selected(w, value)
	case outputYAML:
		data, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	default:
		return t.write(w, o)
	}
}

// printJSON writes an indented document.
func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// selected writes what the template selects of the document.
func (o *outputFlag) selected(w io.Writer, value any) error {
	document, err := json.Marshal(value)
	var fields any
	if err == nil {
		err = json.Unmarshal(document, &fields) // by the names that the document has
	}
	if err == nil {
		err = o.selects.Execute(w, fields)
	}
	if err != nil {
		return fmt.Errorf("--output %s: %w; `--output json` shows the fields", outputJSONPath, err)
	}
	_, err = fmt.Fprintln(w)
	return err
}

// write prints the table; if it is wide, all columns with their whole text.
func (t table) write(w io.Writer, o *outputFlag) error {
	tw, wide := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), o.format == outputWide
	rows := t.rows
	if !o.noHeaders {
		rows = append([][]string{t.header}, rows...)
	}
	for _, row := range rows {
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
