package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands returns all commands, the root first.
func commands(t *testing.T) []*cobra.Command {
	t.Helper()
	all := []*cobra.Command{newCommand()}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	if len(all) < 40 {
		t.Fatalf("only %d commands", len(all))
	}
	return all
}

// TestHelpFits: no line of a help text is broken by a terminal of 125 columns.
func TestHelpFits(t *testing.T) {
	for _, cmd := range commands(t) {
		for line := range strings.Lines(cmd.Long) {
			if len(line) > 125 {
				t.Errorf("%s: a line of %d characters: %s", cmd.CommandPath(), len(line), line)
			}
		}
	}
}

// TestUnknownCommands: an unknown command is refused at every level, and the error names
// the known ones.
func TestUnknownCommands(t *testing.T) {
	for _, cmd := range commands(t) {
		if !cmd.HasSubCommands() {
			continue
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		var first string // the first subcommand with one letter too many
		for _, sub := range cmd.Commands() {
			if first == "" && sub.Name() != "help" && sub.Name() != "completion" {
				first = sub.Name()
			}
		}
		for _, row := range []struct {
			args []string
			says string
		}{
			{append(slices.Clone(path), "frobnicate"), `unknown command "frobnicate" of "` + cmd.CommandPath() + `"`},
			{append(slices.Clone(path), "frobnicate", "x"), `unknown command "frobnicate"`},
			{append(slices.Clone(path), first+"x"), `did you mean "` + first + `"?`},
			{append(append([]string{"help"}, path...), "frobnicate"), `unknown command "frobnicate"`},
		} {
			t.Run(strings.Join(row.args, " "), func(t *testing.T) {
				if out, err := sluice(t, row.args...); err == nil || !strings.Contains(err.Error(), row.says) {
					t.Errorf("got %v, want %q; printed %.80q", err, row.says, out)
				}
			})
		}
		for _, args := range [][]string{path, append([]string{"help"}, path...)} {
			if help := mustSluice(t, args...); !strings.Contains(help, "Commands") {
				t.Errorf("sluice %s is no help:\n%s", strings.Join(args, " "), help)
			}
		}
	}
	if _, err := sluice(t, "help", "cluster", "list", "eu"); err == nil {
		t.Error("help of something that is no command succeeds")
	}
}

// TestMissingAndUnexpectedArguments: a command names the argument, and how it is called.
func TestMissingAndUnexpectedArguments(t *testing.T) {
	for command, says := range map[string]string{
		"cluster describe":         "NAME is missing: sluice cluster describe NAME [flags]",
		"order db":                 "SERVICE is missing: sluice order NAME SERVICE [PLAN] [flags]",
		"order db a b c":           `"c" is one argument too many: sluice order NAME SERVICE [PLAN] [flags]`,
		"peering remove a":         "PROVIDER is missing: sluice peering remove CONSUMER PROVIDER [flags]",
		"remnant adopt":            "CLUSTER/NAMESPACE is missing: sluice remnant adopt CLUSTER/NAMESPACE... [flags]",
		"sd revoke":                "FILE|DIGEST is missing: sluice sd revoke FILE|DIGEST --because REASON [flags]",
		"market a b c":             `"c" is one argument too many: sluice market [SERVICE [PLAN]] [flags]`,
		"policy check a b":         `"b" is one argument too many: sluice policy check (NAME | -f FILE) --to URL [flags]`,
		"status now":               `"now" is one argument too many: sluice status [flags]`,
		"catalog apply file --yes": `unknown flag: --yes`,
	} {
		if out, err := sluice(t, strings.Fields(command)...); err == nil || err.Error() != says {
			t.Errorf("sluice %s: %v, want %q; printed %.80q", command, err, says, out)
		}
	}
	for _, cmd := range commands(t) {
		if _, required := argumentsOf(cmd); required > 0 && (cmd.Args == nil || cmd.Args(cmd, nil) == nil) {
			t.Errorf("%q runs without the arguments that its usage requires", cmd.CommandPath())
		}
	}
}

// TestFlagHelp: the name of a flag's value in the help is one word.
func TestFlagHelp(t *testing.T) {
	for _, cmd := range commands(t) {
		check := func(f *pflag.Flag) {
			if name, usage := pflag.UnquoteUsage(f); strings.ContainsAny(name, " \t") || usage == "" {
				t.Errorf("%s --%s: the value is called %q, the usage is %q", cmd.CommandPath(), f.Name, name, usage)
			} else if first, _, _ := strings.Cut(usage, " "); slices.Contains([]string{"it", "its", "they", "their", "them", "those", "by"}, first) {
				t.Errorf("%s --%s: the usage is read alone, and begins with %q: %s", cmd.CommandPath(), f.Name, first, usage)
			}
		}
		cmd.Flags().VisitAll(check)
		cmd.PersistentFlags().VisitAll(check)
	}
}

// TestChoices: a flag with a fixed set of values takes no other, and offers them to the
// shell.
func TestChoices(t *testing.T) {
	for _, row := range []struct {
		command, flag string
		of            []string
	}{
		{"serve", "collect", []string{"report", "off", "remove"}},
		{"serve", "log-format", []string{"text", "json"}},
		{"cluster add", "tier", []string{"cloud", "edge"}},
		{"cluster add", "driver", []string{"kube", "liqo", "capi"}},
		{"cluster add", "gateway-service", []string{"LoadBalancer", "NodePort"}},
		{"cluster import", "tier", []string{"cloud", "edge"}},
		{"cluster manifest", "driver", []string{"kube", "liqo", "capi"}},
		{"peering join", "tier", []string{"cloud", "edge"}},
		{"issuer add", "assurance", []string{"notary", "label", "certified"}},
		{"cluster list", "output", []string{"table", "wide", "json", "yaml"}},
	} {
		t.Run(row.command+" --"+row.flag, func(t *testing.T) {
			command := strings.Fields(row.command)
			_, err := sluice(t, append(command, "--"+row.flag, "nonsense")...)
			if err == nil || !strings.Contains(err.Error(), "--"+row.flag) || !strings.Contains(err.Error(), "want ") {
				t.Errorf("nonsense: %v", err)
			}
			cmd, _, err := newCommand().Find(command)
			if err != nil {
				t.Fatal(err)
			}
			for _, value := range row.of {
				if err := cmd.Flags().Set(row.flag, value); err != nil {
					t.Errorf("%s: %v", value, err)
				}
			}
			offered := mustSluice(t, append(append([]string{"__complete"}, command...), "--"+row.flag, "")...)
			if got := strings.Fields(offered)[:len(row.of)]; !slices.Equal(got, row.of) {
				t.Errorf("the shell is offered %q, want %q", offered, row.of)
			}
		})
	}
}

func TestVersionAsADocument(t *testing.T) {
	if out := mustSluice(t, "version", "-o", "json"); !strings.Contains(out, `"version": "dev"`) || !strings.Contains(out, `"resources": "sluice.dev/v1alpha1"`) {
		t.Error(out)
	}
	if out := mustSluice(t, "version"); !strings.HasPrefix(out, "sluice dev") || !strings.HasSuffix(out, "\nOSB API 2.13 to 2.17\nresources sluice.dev/v1alpha1\n") {
		t.Error(out)
	}
}
