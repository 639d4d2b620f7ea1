package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// defaultBinding is the name of a binding that is not named.
const defaultBinding = "default"

func newBindCommand() *cobra.Command {
	var output outputFlag
	b := &bindCommand{}
	cmd := b.command(&cobra.Command{
		Use:   "bind NAME [BINDING]",
		Short: "Print credentials for an instance, and where it is reached",
		Long: `Print credentials for an instance, the addresses where it is reached, and when the credentials end. They are issued
when a name of a binding is used for the first time, and printed again later. The name is "` + defaultBinding + `" if none is given.
With --replaces, the credentials of an older binding go on until that is unbound. Keep the output secret.` + consumerHelp,
		Example: `  sluice bind db | jq -r .credentials.uri
  sluice bind db 2026 --replaces 2025`,
	}, func(cmd *cobra.Command, bound *osbclient.Binding) error {
		return output.print(cmd.OutOrStdout(), shownBindingOf(bound), table{})
	})
	output.bindFormats(cmd, outputJSON, outputYAML)
	return cmd
}

func newKubeconfigCommand() *cobra.Command {
	b := &bindCommand{}
	return b.command(&cobra.Command{
		Use:   "kubeconfig NAME [BINDING]",
		Short: "Print the kubeconfig of an instance's credentials",
		Long: `Print the kubeconfig with which an instance's namespace or cluster is used: the credentials of a binding, as of
"sluice bind". Keep the output secret.` + consumerHelp,
		Example: `  (umask 077; sluice kubeconfig first >first.kubeconfig)
  kubectl --kubeconfig first.kubeconfig get pods`,
	}, func(cmd *cobra.Command, bound *osbclient.Binding) error {
		var credentials map[string]any
		if err := json.Unmarshal(bound.Credentials.Reveal(), &credentials); err != nil {
			return errors.New("the binding has no credentials")
		}
		kubeconfig, isText := credentials["kubeconfig"].(string)
		if !isText {
			return fmt.Errorf("the credentials have no kubeconfig but %s: see sluice bind", strings.Join(slices.Sorted(maps.Keys(credentials)), ", "))
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), kubeconfig)
		return err
	})
}

// bindCommand gets a binding.
type bindCommand struct {
	instanceFlags
	parameters parameterFlags
	wait       patience
	replaces   string
}

// command completes a command that gets a binding and prints it.
func (b *bindCommand) command(cmd *cobra.Command, print func(*cobra.Command, *osbclient.Binding) error) *cobra.Command {
	cmd.Args = cobra.RangeArgs(1, 2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, found, err := b.open(cmd, args[0])
		if err != nil {
			return err
		}
		order := osbclient.BindOrder{ServiceID: found.service.ID, PlanID: found.plan.ID, PredecessorBindingID: b.replaces}
		if order.Parameters, err = b.parameters.read(cmd, found.plan.Schemas.Binding.Create.Schema); err != nil {
			return err
		}
		bound, err := c.credentials(args[0], append(args, defaultBinding)[1], found, order, b.wait)
		if err != nil || bound == nil {
			return err
		}
		return print(cmd, bound)
	}
	b.bind(cmd)
	b.parameters.bind(cmd)
	b.wait.bind(cmd)
	cmd.Flags().StringVar(&b.replaces, "replaces", "", "older binding whose successor this is")
	return cmd
}

// credentials binds, or fetches what was bound before; nil if nobody wants to wait for it.
func (c *consumer) credentials(name, binding string, of offered, order osbclient.BindOrder, wait patience) (*osbclient.Binding, error) {
	what := name + "/" + binding
	bound, accepted, err := c.Bind(c.cmd.Context(), name, binding, order, of.service.BindingsRetrievable)
	if err != nil || bound != nil {
		return bound, err
	}
	ended, err := c.awaitBinding(name, binding, of, wait, accepted)
	if err != nil || !ended {
		return nil, err
	}
	if bound, err = c.FetchBinding(c.cmd.Context(), name, binding, of.service.ID, of.plan.ID); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return bound, nil
}

// awaitBinding waits for an operation of a binding.
func (c *consumer) awaitBinding(name, binding string, of offered, wait patience, accepted osbclient.Accepted) (bool, error) {
	return c.await(name+"/"+binding, wait, accepted, func(ctx context.Context) (osbclient.Operation, error) {
		return c.BindingLastOperation(ctx, name, binding, of.service.ID, of.plan.ID, accepted.Operation)
	})
}

// shownBinding is a binding as OSB shows it.
type shownBinding struct {
	Credentials json.RawMessage     `json:"credentials,omitempty"`
	Endpoints   []v1alpha1.Endpoint `json:"endpoints,omitempty"`
	ExpiresAt   *time.Time          `json:"expires_at,omitempty"`
	RenewBefore *time.Time          `json:"renew_before,omitempty"`
}

func shownBindingOf(bound *osbclient.Binding) shownBinding {
	shown := shownBinding{Credentials: bound.Credentials.Reveal(), Endpoints: bound.Endpoints}
	if !bound.ExpiresAt.IsZero() {
		shown.ExpiresAt = &bound.ExpiresAt
	}
	if !bound.RenewBefore.IsZero() {
		shown.RenewBefore = &bound.RenewBefore
	}
	return shown
}

func newUnbindCommand() *cobra.Command {
	f := &instanceFlags{}
	var wait patience
	cmd := &cobra.Command{
		Use:   "unbind NAME [BINDING]",
		Short: "Revoke the credentials of a binding",
		Long:  `Revoke the credentials of a binding; its name is "` + defaultBinding + `" if none is given.` + consumerHelp,
		Args:  cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, found, err := f.open(cmd, args[0])
			if err != nil {
				return err
			}
			name, binding := args[0], append(args, defaultBinding)[1]
			accepted, err := c.Unbind(cmd.Context(), name, binding, found.service.ID, found.plan.ID, nil, found.service.BindingsRetrievable)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", name, binding, err)
			}
			ended, err := c.awaitBinding(name, binding, found, wait, accepted)
			if ended && err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked\n", printable(name+"/"+binding))
			}
			return err
		},
	}
	f.bind(cmd)
	wait.bind(cmd)
	return cmd
}
