package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestConfirmation: a command that deletes asks on a terminal, unless it is told not to.
func TestConfirmation(t *testing.T) {
	for name, row := range map[string]struct {
		args        []string
		typed       string // on a terminal; none if empty
		asks, given bool
	}{
		"agreed to":              {typed: "y\n", asks: true, given: true},
		"agreed to in full":      {typed: "Yes\n", asks: true, given: true},
		"not agreed to":          {typed: "n\n", asks: true},
		"without an answer":      {typed: "\n", asks: true},
		"told not to ask":        {args: []string{"--yes"}, typed: "n\n", given: true},
		"nobody is there to ask": {given: true},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			var confirmed confirmation
			given := false
			cmd := &cobra.Command{Use: "delete", Run: func(cmd *cobra.Command, _ []string) { given = confirmed.given(cmd, "Delete %s?", "all") }}
			confirmed.bind(cmd)
			cmd.SetErr(&said)
			cmd.SetArgs(row.args)
			cmd.SetIn(io.LimitReader(nil, 0))
			if row.typed != "" {
				cmd.SetIn(terminal(t, row.typed))
			}
			if err := cmd.Execute(); err != nil || given != row.given || strings.Contains(said.String(), "Delete all? [y/N]") != row.asks {
				t.Errorf("confirmed: %t, and it said %q; %v", given, said.String(), err)
			}
		})
	}
}
