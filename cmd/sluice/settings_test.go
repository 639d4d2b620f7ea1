package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagOf returns the value that a flag of a command line has, by the settings of this process.
func flagOf(line, flag string) (value string, err error) {
	root := newCommand()
	args := strings.Fields(line)
	cmd, _, err := root.Find(args)
	if err != nil {
		return "", err
	}
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		value = cmd.Flag(flag).Value.String()
		return nil
	}
	root.SetArgs(args)
	return value, root.Execute()
}

// TestSettings: of a flag, the command line stands above the environment, that above the profile, that above the rest of the
// file, and that above the default; what is said of one command stands above what is said of all.
func TestSettings(t *testing.T) {
	const file = `
namespace: ours
output: wide
serve: {listen: ":2", moves-at-once: 1000000, join-allow-addresses: [10.0.0.0/8, 192.168.0.0/16]}
cluster: {list: {output: json}}
profiles:
  lab: {namespace: lab, serve: {listen: ":3"}}
  live: {kubeconfig: /live}
`
	for name, row := range map[string]struct {
		file, environment string
		line, flag, want  string
	}{
		"default":                             {"", "", "serve", "moves-at-once", "10"},
		"environment":                         {"", "SLUICE_SERVE_LISTEN=:1", "serve", "listen", ":1"},
		"environment of another command":      {"", "SLUICE_SERVE_OUTPUT=json", "cluster list", "output", "table"},
		"environment of all":                  {"", "SLUICE_NAMESPACE=theirs", "cluster list", "namespace", "theirs"},
		"a format that the command lacks":     {"", "SLUICE_OUTPUT=wide", "policy show eu", "output", "yaml"},
		"the same in the file":                {file, "", "policy show eu", "output", "yaml"},
		"environment of all and of one":       {"", "SLUICE_NAMESPACE=theirs SLUICE_CLUSTER_LIST_NAMESPACE=mine", "cluster list", "namespace", "mine"},
		"environment with a list":             {"", "SLUICE_SERVE_JOIN_ALLOW_ADDRESSES=10.0.0.0/8,192.168.0.0/16", "serve", "join-allow-addresses", "[10.0.0.0/8,192.168.0.0/16]"},
		"environment that is empty":           {"", "SLUICE_SERVE_MOVES_AT_ONCE= SLUICE_OUTPUT=", "serve", "moves-at-once", "10"},
		"file above an empty environment":     {file, "SLUICE_CLUSTER_LIST_NAMESPACE=", "cluster list", "namespace", "ours"},
		"the broker of consumers":             {"", "SLUICE_URL=https://broker.example SLUICE_USERNAME=ann", "broker add", "url", ""},
		"the user at that":                    {"", "SLUICE_URL=https://broker.example SLUICE_USERNAME=ann", "broker add", "username", ""},
		"command line above environment":      {"", "SLUICE_SERVE_LISTEN=:1", "serve --listen :0", "listen", ":0"},
		"file":                                {file, "", "serve", "listen", ":2"},
		"file with a number":                  {file, "", "serve", "moves-at-once", "1000000"},
		"file with a list":                    {file, "", "serve", "join-allow-addresses", "[10.0.0.0/8,192.168.0.0/16]"},
		"file for all commands":               {file, "", "catalog list", "output", "wide"},
		"file for one command":                {file, "", "cluster list", "output", "json"},
		"environment above file":              {file, "SLUICE_SERVE_LISTEN=:1", "serve", "listen", ":1"},
		"command line above file":             {file, "", "cluster list -o yaml", "output", "yaml"},
		"profile that the file names":         {file + "profile: lab", "", "serve", "listen", ":3"},
		"profile that the environment names":  {file + "profile: lab", "SLUICE_PROFILE=live", "catalog list", "kubeconfig", "/live"},
		"profile that the command line names": {file + "profile: lab", "SLUICE_PROFILE=live", "catalog list --profile lab", "namespace", "lab"},
		"profile without it":                  {file + "profile: lab", "", "serve", "moves-at-once", "1000000"},
		"beside what excludes it":             {"", "SLUICE_PLACE_RECORD=a", "place --replay b", "replay", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			if row.file != "" {
				writeSettings(t, filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "sluice", "settings.yaml"), row.file)
			}
			for _, variable := range strings.Fields(row.environment) {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			if got, err := flagOf(row.line, row.flag); err != nil || got != row.want {
				t.Errorf("--%s is %q, want %q; %v", row.flag, got, row.want, err)
			}
		})
	}
}

func TestSettingsWithMistakesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"regoin: eu":                     `regoin: no command of "sluice" has such a flag`,
		"serve: {region: eu}":            `serve.region: no command of "sluice serve" has such a flag`,
		"sevre: {listen: a}":             `sevre: "sluice" has no such command`,
		"profiles: {a: {regoin: eu}}":    `profiles.a.regoin: no command`,
		"profiles: [a]":                  "profiles: want profiles by their names",
		"profiles: {a: b}":               "profiles.a: want flags and commands",
		"profile: [a]":                   "profile: want the name of a profile",
		"profile: a":                     `there is no profile "a"`,
		"serve: {moves-at-once: many}":   "serve.moves-at-once: ",
		"serve: {moves-at-once: [1, 2]}": "serve.moves-at-once: want one value",
		"serve: {listen: }":              "serve.listen: want a value",
		"namespace: a\nnamespace: b":     `key "namespace" already set`,
		"- a":                            "settings",
	} {
		path := filepath.Join(t.TempDir(), "mistaken.yaml")
		writeSettings(t, path, text)
		if _, err := flagOf("serve --settings "+path, "listen"); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q and the file", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "settings.yaml")
	writeSettings(t, path, "policy: {show: {output: wide}}")
	if _, err := flagOf("policy show eu --settings "+path, "output"); err == nil || !strings.Contains(err.Error(), "policy.show.output: ") {
		t.Errorf("a format that this command lacks: %v", err)
	}
	t.Setenv("SLUICE_SETTINGS", filepath.Join(t.TempDir(), "absent"))
	if help, err := sluice(t, "help", "serve"); err != nil || !strings.Contains(help, "--listen") {
		t.Errorf("without the file there is no help: %v", err)
	}
	if _, err := flagOf("serve", "listen"); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("of no file: %v", err)
	}
	t.Setenv("SLUICE_SETTINGS", "")
	t.Setenv("SLUICE_SERVE_MOVES_AT_ONCE", "many")
	if _, err := flagOf("serve", "listen"); err == nil || !strings.Contains(err.Error(), "$SLUICE_SERVE_MOVES_AT_ONCE") {
		t.Errorf("of a variable without a number: %v", err)
	}
}

// TestTheSettingsOfTheHelp: the file in the help is one.
func TestTheSettingsOfTheHelp(t *testing.T) {
	help, err := sluice(t, "help", "settings")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(help, "rest of the file:")
	path := filepath.Join(t.TempDir(), "settings.yaml")
	writeSettings(t, path, strings.ReplaceAll(example, "\n  ", "\n"))
	for line, want := range map[string]string{"serve": "/home/ann/lab.kubeconfig", "cluster list --profile live": "/home/ann/live.kubeconfig"} {
		if got, err := flagOf(line+" --settings "+path, "kubeconfig"); err != nil || got != want {
			t.Errorf("%s: --kubeconfig is %q, want %q; %v", line, got, want, err)
		}
	}
}

// TestVariablesOfServices: Kubernetes gives pods variables about each Service. Those of a Service named sluice are of no flag.
func TestVariablesOfServices(t *testing.T) {
	ofService, flags := regexp.MustCompile(`^SLUICE_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)`), 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			for _, name := range variablesOf(cmd, flag.Name) {
				if flags++; ofService.MatchString(name) {
					t.Errorf("$%s would be --%s of %s", name, flag.Name, cmd.CommandPath())
				}
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	if look(newCommand()); flags < 200 {
		t.Errorf("there are only %d flags", flags)
	}
}

func writeSettings(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
