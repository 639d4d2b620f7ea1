package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/pages"
)

// writeDefaultPlatform writes a platforms file with one platform, "default", with the user
// "sluice" and a random password.
func writeDefaultPlatform(path string) error {
	content := fmt.Sprintf(`# Who may call: docs/operating.md, "Platforms". Read again when it changes.
platforms:
- name: default
  basic:
  - {username: sluice, password: %s}
`, rand.Text())
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("make a default platform: %w", err)
	}
	return nil
}

func newPlatformCommand() *cobra.Command {
	f := &platformFlags{}
	cmd := &cobra.Command{
		Use:   "platform",
		Short: "Show the platforms that may call the OSB API",
	}
	cmd.PersistentFlags().StringVar(&f.dataDir, "data-dir", defaultDataDir(), "data folder of the sluice serve that they call")
	cmd.PersistentFlags().StringVar(&f.file, "platforms", "", "file that lists the platforms (default: the one that sluice serve was started with)")
	cmd.AddCommand(newPlatformListCommand(f), newPlatformShowCommand(f))
	return cmd
}

// platformFlags name the file of platforms.
type platformFlags struct{ dataDir, file string }

// read returns the file of platforms, after the same checks as in `sluice serve`.
func (f *platformFlags) read() (file broker.PlatformsFile, err error) {
	path := f.file
	if path == "" {
		path = platformsPath(f.dataDir)
	}
	if _, err := broker.LoadPlatforms(path); err != nil {
		if f.file == "" && errors.Is(err, fs.ErrNotExist) {
			return file, fmt.Errorf("no %s: run `sluice serve` first, or name the file with --platforms", path)
		}
		return file, err
	}
	document, err := os.ReadFile(path)
	if err != nil {
		return file, err
	}
	return broker.ReadPlatforms(document)
}

// shownPlatform has what is shown of a platform: no secrets.
type shownPlatform struct {
	Name         string   `json:"name"`
	Users        []string `json:"users,omitempty"`
	Tokens       int      `json:"tokens,omitempty"`
	Certificates []string `json:"certificates,omitempty"`
	OpenID       []string `json:"openID,omitempty"`
}

// warnOfPlatform warns if there is no platform of that name: no instance is of it, and for an embedded hub the file of
// platforms does not list it. It may come, so this is no error.
func (h *hubFlags) warnOfPlatform(cmd *cobra.Command, c client.Client, name string) {
	if name == "" {
		return
	}
	if h.embedded() {
		if file, err := (&platformFlags{dataDir: h.dataDir}).read(); err == nil && slices.ContainsFunc(file.Platforms, func(p broker.ListedPlatform) bool { return p.Name == name }) {
			return
		}
	}
	found := errors.New("found")
	err := pages.Each(cmd.Context(), c, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		if o.(*v1alpha1.ServiceInstance).Spec.Platform == name {
			return found
		}
		return nil
	}, client.InNamespace(h.namespace))
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: --platform %s: no instance is of such a platform\n", name)
	}
}

func newPlatformListCommand(f *platformFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the platforms and how they authenticate, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := f.read()
			if err != nil {
				return err
			}
			var shown []shownPlatform
			t := table{header: []string{"NAME", "USERS", "TOKENS", "CERTIFICATES", "OPENID"}}
			for _, p := range file.Platforms {
				one := shownPlatform{
					Name: p.Name, Tokens: len(p.Bearer), Certificates: p.ClientCertificateNames,
					OpenID: issuersOf(file.OpenID, access.Caller{Role: access.Platform, Name: p.Name}),
				}
				for _, basic := range p.Basic {
					one.Users = append(one.Users, basic.Username)
				}
				one.Users = slices.Compact(one.Users)
				shown = append(shown, one)
				t.rows = append(t.rows, []string{
					one.Name, orDash(strings.Join(one.Users, ", ")), fmt.Sprint(one.Tokens), orDash(strings.Join(one.Certificates, ", ")), orDash(strings.Join(one.OpenID, ", ")),
				})
			}
			return output.print(cmd.OutOrStdout(), shown, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// issuersOf returns the issuers whose tokens identify a caller.
func issuersOf(listed []openid.Listed, caller access.Caller) (issuers []string) {
	for _, issuer := range listed {
		if slices.ContainsFunc(issuer.Callers, func(c openid.ListedCaller) bool { return c.Is == caller.String() }) {
			issuers = append(issuers, issuer.Issuer)
		}
	}
	return issuers
}

// outputShell prints assignments for a POSIX shell.
const outputShell outputFormat = "shell"

func newPlatformShowCommand(f *platformFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print URL, user and password with which a platform calls the broker, as shell variables",
		Long: `Print with which URL and credentials a platform calls the broker, as exported shell variables: SLUICE_URL, and
SLUICE_USERNAME with SLUICE_PASSWORD, or SLUICE_TOKEN. If a platform has several, the first is printed. Keep the
output secret. Where SLUICE_OUTPUT is set, "-o shell" prints the variables.`,
		Example: `  eval "$(sluice platform show default)"
  curl -u "$SLUICE_USERNAME:$SLUICE_PASSWORD" -H 'X-Broker-API-Version: 2.17' "$SLUICE_URL/v2/catalog"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := f.access(args[0])
			if err != nil {
				return err
			}
			if output.format != outputShell {
				return output.print(cmd.OutOrStdout(), found, table{})
			}
			for _, one := range []struct{ name, value string }{
				{envURL, found.URL}, {envUsername, found.Username}, {envPassword, found.Password}, {envToken, found.Token},
			} {
				if one.value != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "export %s=%s\n", one.name, shellQuote(one.value))
				}
			}
			return nil
		},
	}
	output.bindFormats(cmd, outputShell, outputJSON, outputYAML)
	return cmd
}

// Variables of the environment with which consumers' commands call a broker.
const (
	envURL      = "SLUICE_URL"
	envUsername = "SLUICE_USERNAME"
	envPassword = "SLUICE_PASSWORD"
	envToken    = "SLUICE_TOKEN"
)

// brokerAccess is the way to a broker.
type brokerAccess struct {
	URL string `json:"url,omitempty"` // "" if it is not known
	osbclient.Credentials
}

// access returns with which URL and credentials a platform calls the broker; the first ones, if it has several.
func (f *platformFlags) access(name string) (brokerAccess, error) {
	file, err := f.read()
	if err != nil {
		return brokerAccess{}, err
	}
	i := slices.IndexFunc(file.Platforms, func(p broker.ListedPlatform) bool { return p.Name == name })
	if i < 0 {
		return brokerAccess{}, fmt.Errorf("no platform %q; `sluice platform list` shows them all", name)
	}
	url, err := os.ReadFile(brokerURLPath(f.dataDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return brokerAccess{}, err
	}
	found := brokerAccess{URL: strings.TrimSpace(string(url))}
	switch p := file.Platforms[i]; {
	case len(p.Basic) > 0:
		found.Username, found.Password = p.Basic[0].Username, p.Basic[0].Password
	case len(p.Bearer) > 0:
		found.Token = p.Bearer[0]
	case len(p.ClientCertificateNames) > 0:
		return brokerAccess{}, fmt.Errorf("platform %s authenticates by a client certificate, which Sluice does not have", p.Name)
	default:
		return brokerAccess{}, fmt.Errorf("platform %s authenticates by tokens of %s, which Sluice does not have", p.Name,
			strings.Join(issuersOf(file.OpenID, access.Caller{Role: access.Platform, Name: p.Name}), " and "))
	}
	return found, nil
}

// shellQuote quotes a text as one word of a POSIX shell.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
