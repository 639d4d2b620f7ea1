package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Address ranges are separated by commas or given one after the other, and checked when they are given.
func TestAddressRanges(t *testing.T) {
	for given, want := range map[string]string{
		"":                                    "",
		"--in=":                               "",
		"--in 10.0.0.0/8":                     "[10.0.0.0/8]",
		"--in 10.0.0.0/8,fd00::/8":            "[10.0.0.0/8,fd00::/8]",
		"--in 10.0.0.0/8 --in 192.168.0.0/16": "[10.0.0.0/8,192.168.0.0/16]",
	} {
		var all ranges
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Var(&all, "in", "")
		if err := flags.Parse(strings.Fields(given)); err != nil || all.String() != want {
			t.Errorf("%q is %s, %v; want %s", given, &all, err, want)
		}
	}
	for _, wrong := range []string{"10.0.0.0", "10.0.0.0/33", "example.com", "10.0.0.0/8, 10.1.0.0/16", "10.0.0.0/8,"} {
		var all ranges
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Var(&all, "in", "")
		if err := flags.Parse([]string{"--in", wrong}); err == nil || !strings.Contains(err.Error(), "--in") || !strings.Contains(err.Error(), "want address ranges (CIDR), for instance 10.0.0.0/8") {
			t.Errorf("%q: %v", wrong, err)
		}
		if len(all) > 0 {
			t.Errorf("%q: it keeps %s", wrong, &all)
		}
	}
}
