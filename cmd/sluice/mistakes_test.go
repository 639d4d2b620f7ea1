package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestNamesOfNothing: a flag that names what is not there, or says nothing, is refused or warned of, instead of an answer
// about something else.
func TestNamesOfNothing(t *testing.T) {
	h, c, dataDir := startHub(t)
	readyCluster(t, c, h.Namespace, "eu", 4)
	readyCluster(t, c, h.Namespace, "us", 64)
	servedOffering(t, c, h.Namespace)
	deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newCommand()
		cmd.SetArgs(append(args, "--data-dir", dataDir))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	place := []string{"place", "--service", "compute", "--plan", "small", "--dry-run"}
	for _, row := range []struct {
		says string
		args []string
	}{
		{`instance si-1 is not on cluster "us"`, slices.Concat(place, []string{"--instance", "si-1", "--leaving", "eu", "--leaving", "us"})},
		{`instance si-1 is not on cluster "nope"`, slices.Concat(place, []string{"--instance", "si-1", "--leaving", "nope"})},
		{"there is no instance dry-run that could leave a cluster", slices.Concat(place, []string{"--leaving", "eu"})},
		{"--by: plan is there twice", []string{"usage", "--by", "plan,plan"}},
		{"--by and --per do not go with -o focus", []string{"usage", "-o", "focus", "--by", "plan"}},
		{"--by and --per do not go with -o focus", []string{"usage", "-o", "focus", "--per", "day"}},
		{"--since -5m0s: want how old", []string{"events", "--since", "-5m"}},
	} {
		if out, err := run(row.args...); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%v: %v, want %q\n%s", row.args, err, row.says, out)
		}
	}
	const noInstance = "warning: --platform nope: no instance is of such a platform"
	for _, row := range []struct {
		says string
		args []string
	}{
		{noInstance, slices.Concat(place, []string{"--platform", "nope"})},
		{noInstance, []string{"sink", "add", "billing", "--url", "https://billing.example/", "--platform", "nope"}},
		{`nothing was used of platform "nope" in the month`, []string{"usage", "--platform", "nope"}},
		{`nothing was used of provider "nope" in the month`, []string{"usage", "--provider", "nope", "-o", "csv"}},
	} {
		if out, err := run(row.args...); err != nil || !strings.Contains(out, row.says) {
			t.Errorf("%v: %v, want %q\n%s", row.args, err, row.says, out)
		}
	}
	for _, args := range [][]string{slices.Concat(place, []string{"--platform", "cf"}), {"sink", "add", "billing", "--platform", "cf"}, {"usage"}} {
		if out, err := run(args...); err != nil || strings.Contains(out, "warning") || strings.Contains(out, "nothing was used") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
