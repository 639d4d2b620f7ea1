package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/seal"
)

// consoleFlags say as whom the console is opened, and where it is.
type consoleFlags struct {
	url, keyset            string
	asPlatform, asProvider string
	revoke                 bool
}

func newConsoleCommand(hub *hubFlags) *cobra.Command {
	f := &consoleFlags{}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that opens the web console",
		Long: `Print a link that opens the web console, as its operator, or as a platform or a provider sees it. The link works once,
within a minute, in any browser; the session that it opens lasts for up to twelve hours.

This needs the hub and its keyset. --revoke ends the sessions and tokens of all operators, and all links that
were not opened; --revoke --as-provider NAME those of a provider. A platform's end with its credentials in the
platforms file.`,
		Example: `  sluice console
  sluice console --as-platform default
  sluice console --as-provider acme --revoke`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			caller, err := f.caller()
			if err != nil {
				return err
			}
			if f.revoke {
				return f.end(cmd, hub, caller)
			}
			return f.open(cmd, hub, caller)
		},
	}
	hub.bind(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "URL of the broker (default: the one that sluice serve noted in the data folder)")
	flags.StringVar(&f.keyset, "keyset", "", "keyset of sluice serve (default: the one that it was started with)")
	flags.StringVar(&f.asPlatform, "as-platform", "", "platform as which the console is opened")
	flags.StringVar(&f.asProvider, "as-provider", "", "provider as which the console is opened")
	flags.BoolVar(&f.revoke, "revoke", false, "end sessions, tokens and links instead of making a link")
	cmd.MarkFlagsMutuallyExclusive("as-platform", "as-provider")
	return cmd
}

// caller returns as whom the console is opened.
func (f *consoleFlags) caller() (access.Caller, error) {
	switch {
	case f.asProvider != "":
		return access.Caller{Role: access.Provider, Name: f.asProvider}, nil
	case f.asPlatform != "" && f.revoke:
		return access.Caller{}, errors.New("--revoke --as-platform: a platform's tokens end when its credentials are removed from the platforms file; remove them there")
	case f.asPlatform != "":
		return access.Caller{Role: access.Platform, Name: f.asPlatform}, nil
	}
	return access.Caller{Role: access.Operator}, nil
}

// open prints a link.
func (f *consoleFlags) open(cmd *cobra.Command, hub *hubFlags, caller access.Caller) error {
	base := f.url
	if base == "" {
		noted, err := os.ReadFile(brokerURLPath(hub.dataDir))
		if errors.Is(err, fs.ErrNotExist) || !hub.embedded() {
			return errors.New("the URL of the broker is not known here: name it with --url")
		}
		if err != nil {
			return err
		}
		base = strings.TrimSpace(string(noted))
	}
	if f.keyset == "" {
		f.keyset = hub.keysetPath()
	}
	keys, err := seal.Load(f.keyset)
	if err != nil {
		return fmt.Errorf("--keyset: %w", err)
	}
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	if caller.Role == access.Provider {
		key := client.ObjectKey{Namespace: hub.namespace, Name: caller.Name}
		if err := c.Get(cmd.Context(), key, &v1alpha1.Provider{}); err != nil {
			return fmt.Errorf("--as-provider %s: %w", caller.Name, err)
		}
	}
	ticket, err := (&access.Tokens{Hub: c, Namespace: hub.namespace, Seal: keys}).Ticket(cmd.Context(), caller)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "opens the console once, as %s, within %s:\n", caller, access.TicketLifetime)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/console/enter#ticket=%s\n", strings.TrimSuffix(base, "/"), ticket)
	return err
}

// end revokes what was issued to a caller.
func (f *consoleFlags) end(cmd *cobra.Command, hub *hubFlags, caller access.Caller) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	if err := (&access.Tokens{Live: c, Namespace: hub.namespace}).Revoke(cmd.Context(), c, caller); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: the sessions and tokens have ended\n", caller)
	return err
}
