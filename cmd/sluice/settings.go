package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// A flag that is not on the command line has the value of its environment variable, or else that in the settings file, or
// else its default. It does not count as given then: it may be beside a flag that excludes it, which wins.

// settingsHelp is the text of `sluice help settings`.
const settingsHelp = `Flags that are not on the command line are read from the environment, and then from a file. An empty variable counts
as none.

The variable of a flag is SLUICE_, the command, and the flag: SLUICE_SERVE_LISTEN is the flag --listen of sluice serve.
SLUICE_KUBECONFIG, SLUICE_NAMESPACE, SLUICE_DATA_DIR and SLUICE_OUTPUT are these flags of all commands that have them.
A command that does not print the format of SLUICE_OUTPUT, or of output for all commands in the file, prints its default.
The broker of consumers, and the credentials for it, are SLUICE_URL, SLUICE_USERNAME, SLUICE_PASSWORD and SLUICE_TOKEN.

The file is --settings, $SLUICE_SETTINGS, or settings.yaml in sluice in the folder of the user's configuration
(~/.config). It has flags of all commands, and below the name of a command flags of it alone. A profile has the same, and
stands above the rest of the file:

  namespace: sluice
  serve:
    listen: 0.0.0.0:8443
    platforms: /etc/sluice/platforms.yaml
  profile: lab            # in force, unless --profile or $SLUICE_PROFILE names another one
  profiles:
    lab:
      kubeconfig: /home/ann/lab.kubeconfig
      broker: https://broker.lab.example
    live:
      kubeconfig: /home/ann/live.kubeconfig`

// everywhere are the flags that have one variable for all commands.
var everywhere = []string{"kubeconfig", "namespace", "data-dir", "output"}

// settings are the values of flags that are not on the command line.
type settings struct{ file, profile string }

// bindSettings gives all commands below root settings.
func bindSettings(root *cobra.Command) {
	s := &settings{}
	flags := root.PersistentFlags()
	flags.StringVar(&s.file, "settings", "", "file with values of flags (default: $SLUICE_SETTINGS, or settings.yaml in ~/.config/sluice); sluice help settings has an example")
	flags.StringVar(&s.profile, "profile", "", "profile in the settings (default: $SLUICE_PROFILE, or the one that the file names)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if words := wordsOf(cmd); len(words) == 0 || slices.Contains([]string{"help", "completion", "version"}, words[0]) {
			return nil // they help also whoever has a mistake in the settings
		}
		return s.apply(cmd)
	}
	root.AddCommand(&cobra.Command{Use: "settings", Short: "Values of flags in the environment and in a file", Long: settingsHelp})
	completeWith(root, s)
}

// completeWith makes the completion of all commands' arguments use settings.
func completeWith(cmd *cobra.Command, s *settings) {
	if complete := cmd.ValidArgsFunction; complete != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if err := s.apply(cmd); err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return complete(cmd, args, begun)
		}
	}
	for _, sub := range cmd.Commands() {
		completeWith(sub, s)
	}
}

// apply sets the flags of a command that are not on its command line. The error names the variable, or the file and what
// is wrong in it.
func (s *settings) apply(cmd *cobra.Command) (err error) {
	from, err := s.read(cmd.Root())
	if err != nil {
		return err
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || err != nil || flag.Name == "help" {
			return
		}
		for i, name := range variablesOf(cmd, flag.Name) {
			if value := os.Getenv(name); value != "" {
				if failed := flag.Value.Set(value); failed != nil && !isFormat(flag, i == 0) {
					err = fmt.Errorf("$%s: %q is no value of --%s: %w", name, value, flag.Name, failed)
				}
				return
			}
		}
		err = from.set(cmd, flag)
	})
	return err
}

// wordsOf returns the names of a command below the root.
func wordsOf(cmd *cobra.Command) []string { return strings.Fields(cmd.CommandPath())[1:] }

// variablesOf returns the variables of a flag of a command, the most special one first.
func variablesOf(cmd *cobra.Command, flag string) []string {
	variable := func(words ...string) string {
		return strings.ToUpper(strings.ReplaceAll(strings.Join(append([]string{"sluice"}, words...), "_"), "-", "_"))
	}
	names := []string{variable(append(wordsOf(cmd), flag)...)}
	if slices.Contains(everywhere, flag) {
		names = append(names, variable(flag))
	}
	return names
}

// layers are the parts of a settings file that are in force, the one that stands above the others first.
type layers struct {
	file  string
	parts []map[string]any
}

// read reads and checks the settings file. No file is no error, unless one is named.
func (s *settings) read(root *cobra.Command) (layers, error) {
	path := cmp.Or(s.file, os.Getenv("SLUICE_SETTINGS"))
	profile := cmp.Or(s.profile, os.Getenv("SLUICE_PROFILE"))
	isNamed := path != ""
	if folder, err := os.UserConfigDir(); err == nil && !isNamed {
		path = filepath.Join(folder, "sluice", "settings.yaml")
	}
	text, err := os.ReadFile(path)
	switch {
	case !isNamed && profile == "" && (path == "" || errors.Is(err, fs.ErrNotExist)):
		return layers{}, nil
	case err != nil:
		return layers{}, fmt.Errorf("read the settings: %w", err)
	}
	parts, err := parseSettings(root, text, profile)
	if err != nil {
		return layers{}, fmt.Errorf("settings %s: %w", path, err)
	}
	return layers{path, parts}, nil
}

// parseSettings checks the text of a settings file for the commands below root, and returns its parts that are in force with a
// profile; empty means the one that it names.
func parseSettings(root *cobra.Command, text []byte, profile string) ([]map[string]any, error) {
	all := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &all, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		return nil, err
	}
	profiles, isMap := all["profiles"].(map[string]any)
	if !isMap && all["profiles"] != nil {
		return nil, errors.New("profiles: want profiles by their names")
	}
	named, isText := all["profile"].(string)
	if !isText && all["profile"] != nil {
		return nil, errors.New("profile: want the name of a profile")
	}
	delete(all, "profiles")
	delete(all, "profile")
	if err := checkSettings(root, "", all); err != nil {
		return nil, err
	}
	for name, one := range profiles {
		values, isMap := one.(map[string]any)
		if !isMap {
			return nil, fmt.Errorf("profiles.%s: want flags and commands", name)
		}
		if err := checkSettings(root, "profiles."+name+".", values); err != nil {
			return nil, err
		}
	}
	if profile = cmp.Or(profile, named); profile == "" {
		return []map[string]any{all}, nil
	}
	values, is := profiles[profile].(map[string]any)
	if !is {
		return nil, fmt.Errorf("there is no profile %q", profile)
	}
	return []map[string]any{values, all}, nil
}

// checkSettings checks that each key is a subcommand of a command, or a flag of it or of one below it.
func checkSettings(cmd *cobra.Command, at string, values map[string]any) error {
	for key, value := range values {
		below, isMap := value.(map[string]any)
		sub := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == key })
		switch {
		case value == nil:
			return fmt.Errorf("%s%s: want a value", at, key)
		case isMap && sub < 0:
			return fmt.Errorf("%s%s: %q has no such command", at, key, cmd.CommandPath())
		case isMap:
			if err := checkSettings(cmd.Commands()[sub], at+key+".", below); err != nil {
				return err
			}
		case !hasFlag(cmd, key):
			return fmt.Errorf("%s%s: no command of %q has such a flag", at, key, cmd.CommandPath())
		}
	}
	return nil
}

// hasFlag reports whether a command, or one below it, has a flag.
func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flag(name) != nil || slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return hasFlag(c, name) })
}

// set sets a flag of a command to what the settings have for it, if they do.
func (l layers) set(cmd *cobra.Command, flag *pflag.Flag) error {
	for _, part := range l.parts {
		value, at, found := find(part, wordsOf(cmd), flag.Name)
		if !found {
			continue
		}
		texts := []string{}
		if list, isList := value.([]any); isList {
			for _, one := range list {
				texts = append(texts, fmt.Sprint(one))
			}
		} else {
			texts = append(texts, fmt.Sprint(value))
		}
		var err error
		if many, takesList := flag.Value.(pflag.SliceValue); takesList {
			err = many.Replace(texts)
		} else if len(texts) != 1 {
			err = errors.New("want one value")
		} else {
			err = flag.Value.Set(texts[0])
		}
		if err != nil && !isFormat(flag, at != flag.Name) {
			return fmt.Errorf("settings %s: %s: %w", l.file, at, err)
		}
		return nil
	}
	return nil
}

// isFormat reports whether a flag is --output, and its value meant for all commands: these differ in the formats that they
// print, and one without that format prints its default.
func isFormat(flag *pflag.Flag, ofCommand bool) bool { return flag.Name == "output" && !ofCommand }

// find returns the value of a flag of a command, the most special one, and where it is.
func find(part map[string]any, path []string, flag string) (value any, at string, found bool) {
	if len(path) > 0 {
		if below, isMap := part[path[0]].(map[string]any); isMap {
			if value, at, found = find(below, path[1:], flag); found {
				return value, path[0] + "." + at, true
			}
		}
	}
	value, found = part[flag]
	if _, isCommand := value.(map[string]any); isCommand {
		return nil, "", false
	}
	return value, flag, found
}
