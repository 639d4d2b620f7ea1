package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// outputFlag is --output: how a command prints what it found.
type outputFlag string

func (o *outputFlag) bind(cmd *cobra.Command) {
	*o = "table"
	cmd.Flags().StringVarP((*string)(o), "output", "o", "table", "output format: table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// table is what --output table prints: a header and rows of the same length.
type table struct {
	header []string
	rows   [][]string
}

// print writes value as JSON or YAML, or the table.
func (o outputFlag) print(w io.Writer, value any, t table) error {
	switch o {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		data, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	case "table":
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, strings.Join(t.header, "\t"))
		for _, row := range t.rows {
			fmt.Fprintln(tw, strings.Join(row, "\t"))
		}
		return tw.Flush()
	default:
		return fmt.Errorf("--output %q: want table, json or yaml", string(o))
	}
}

// orDash keeps empty cells visible.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
