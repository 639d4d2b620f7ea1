package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/osbclient"
)

func newOrderCommand() *cobra.Command {
	f := &consumerFlags{}
	var output outputFlag
	var parameters parameterFlags
	var wait patience
	var organization, space string
	cmd := &cobra.Command{
		Use:   "order NAME SERVICE [PLAN]",
		Short: "Order an instance of a service, and wait until it is there",
		Long: `Order an instance of a service, and wait until it is there. You choose its name, which is its OSB instance id.
The same order may be sent again, for instance after a broken connection: it is carried out once.` + consumerHelp,
		Example: `  sluice order db postgresql small
  sluice order db postgresql small -p version=17 -p storage=20Gi
  sluice order site web small --parameters site.yaml --wait 0`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: f.completeOffer(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.connect(cmd)
			if err != nil {
				return err
			}
			found, err := c.find(args[1], append(args, "")[2])
			if err != nil {
				return err
			}
			order := osbclient.Order{
				ServiceID: found.service.ID, PlanID: found.plan.ID, OrganizationGUID: organization, SpaceGUID: space, MaintenanceInfo: found.plan.MaintenanceInfo,
			}
			if order.Parameters, err = parameters.read(cmd, found.plan.Schemas.Instance.Create.Schema); err != nil {
				return err
			}
			err = c.order(args[0], found, order, wait)
			if refused := (*osbclient.Error)(nil); errors.As(err, &refused) && !refused.Orphan() {
				return err
			}
			if err != nil {
				return fmt.Errorf("%w\nRemove what there may be of it: sluice cancel %s --service %s --plan %s", err, args[0], found.service.Name, found.plan.Name)
			}
			return c.show(args[0], &output)
		},
	}
	f.bind(cmd)
	output.bind(cmd)
	parameters.bind(cmd)
	wait.bind(cmd)
	cmd.Flags().StringVar(&organization, "organization", "default", "organization that orders: the order's organization_guid")
	cmd.Flags().StringVar(&space, "space", "default", "space that orders: the order's space_guid")
	return cmd
}

// order orders an instance of a plan, and waits for it.
func (c *consumer) order(name string, of offered, order osbclient.Order, wait patience) error {
	accepted, err := c.Provision(c.cmd.Context(), name, order)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = c.awaitInstance(name, of, wait, accepted)
	return err
}

// awaitInstance waits for an operation of an instance.
func (c *consumer) awaitInstance(name string, of offered, wait patience, accepted osbclient.Accepted) (bool, error) {
	return c.await(name, wait, accepted, func(ctx context.Context) (osbclient.Operation, error) {
		return c.LastOperation(ctx, name, of.service.ID, of.plan.ID, accepted.Operation)
	})
}

func newShowCommand() *cobra.Command {
	f := &consumerFlags{}
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show an instance: its plan, its state, where it is",
		Long:  `Show an instance: its plan, how far its last operation is, its parameters, and what its broker says of where it is.` + consumerHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.connect(cmd)
			if err != nil {
				return err
			}
			return c.show(args[0], &output)
		},
	}
	f.bind(cmd)
	output.bind(cmd)
	return cmd
}

// shownInstance holds what a broker says of an instance.
type shownInstance struct {
	Name         string          `json:"name"`
	Service      string          `json:"service,omitempty"`
	Plan         string          `json:"plan,omitempty"`
	Version      string          `json:"version,omitempty"`
	State        string          `json:"state"`
	Description  string          `json:"description,omitempty"`
	DashboardURL string          `json:"dashboardURL,omitempty"`
	Parameters   json.RawMessage `json:"parameters,omitempty"`
	Attributes   map[string]any  `json:"attributes,omitempty"`
}

// show prints an instance. While it is being provisioned, and at brokers that do not show instances, only the state
// of its last operation is known.
func (c *consumer) show(name string, output *outputFlag) error {
	shown := shownInstance{Name: name}
	last, err := c.LastOperation(c.cmd.Context(), name, "", "", "")
	switch {
	case last.Gone, isStatus(err, http.StatusNotFound):
		return fmt.Errorf("there is no service instance %q", name)
	case err == nil:
		shown.State, shown.Description = string(last.State), last.Description
	}
	fetched, fetchErr := c.FetchInstance(c.cmd.Context(), name, "", "")
	if fetchErr != nil && err != nil {
		return fmt.Errorf("%s: %w", name, errors.Join(err, fetchErr))
	}
	if fetchErr == nil {
		of := c.offerOf(fetched.ServiceID, fetched.PlanID)
		shown.Service, shown.Plan, shown.Version = of.service.Name, of.plan.Name, versionOf(fetched.MaintenanceInfo)
		shown.DashboardURL, shown.Parameters, shown.Attributes = fetched.DashboardURL, fetched.Parameters, fetched.Metadata.Attributes
	}
	if !output.forPeople() {
		return output.print(c.cmd.OutOrStdout(), shown, table{})
	}
	d := newDetails(c.cmd.OutOrStdout())
	for _, line := range [][2]string{
		{"Instance", shown.Name}, {"Service", shown.Service}, {"Plan", shown.Plan}, {"Version", shown.Version}, {"State", shown.State},
		{"Description", shown.Description}, {"Dashboard", shown.DashboardURL}, {"Parameters", string(shown.Parameters)},
	} {
		if line[1] != "" && line[1] != "null" {
			d.line(line[0], "%s", line[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown.Attributes)) {
		d.line(name, "%v", shown.Attributes[name])
	}
	return d.flush()
}

func newUpdateCommand() *cobra.Command {
	f := &instanceFlags{}
	var output outputFlag
	var parameters parameterFlags
	var wait patience
	var to string
	var upgrade bool
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change an instance's plan or parameters, or upgrade it",
		Long: `Change an instance: its parameters, its plan with --to, its version with --upgrade. Parameters that are not given
stay as they are.` + consumerHelp,
		Example: `  sluice update db --to large
  sluice update db -p storage=40Gi
  sluice update db --upgrade`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, now, err := f.open(cmd, args[0])
			if err != nil {
				return err
			}
			change := osbclient.Change{ServiceID: now.service.ID, PreviousValues: osbclient.PreviousValues{PlanID: now.plan.ID}}
			then := now
			if to != "" {
				if then, err = c.find(now.service.ID, to); err != nil {
					return err
				}
				change.PlanID = then.plan.ID
			}
			if upgrade || to != "" {
				change.MaintenanceInfo = then.plan.MaintenanceInfo
			}
			if change.Parameters, err = parameters.read(cmd, then.plan.Schemas.Instance.Update.Schema); err != nil {
				return err
			}
			if change.PlanID == "" && change.MaintenanceInfo == nil && change.Parameters == nil {
				return fmt.Errorf("%s: nothing is to change; there is --to, --parameter and --upgrade", args[0])
			}
			accepted, err := c.Update(cmd.Context(), args[0], change)
			if err == nil {
				_, err = c.awaitInstance(args[0], now, wait, accepted)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return c.show(args[0], &output)
		},
	}
	f.bind(cmd)
	output.bind(cmd)
	parameters.bind(cmd)
	wait.bind(cmd)
	cmd.Flags().StringVar(&to, "to", "", "plan that it changes to")
	cmd.Flags().BoolVar(&upgrade, "upgrade", false, "upgrade it to the version that its plan has now")
	return cmd
}

func newCancelCommand() *cobra.Command {
	f := &instanceFlags{}
	var wait patience
	var confirmed confirmation
	cmd := &cobra.Command{
		Use:   "cancel NAME",
		Short: "Delete an instance and its data",
		Long:  `Delete an instance and its data, and wait until nothing is left of it. On a terminal, it asks first.` + consumerHelp,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, found, err := f.open(cmd, args[0])
			if err != nil {
				return err
			}
			if !confirmed.given(cmd, "Delete %s, %s of %s, and its data?", args[0], found.plan.Name, found.service.Name) {
				return errors.New("nothing is deleted")
			}
			accepted, err := c.Deprovision(cmd.Context(), args[0], found.service.ID, found.plan.ID, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			ended, err := c.awaitInstance(args[0], found, wait, accepted)
			if ended && err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", printable(args[0]))
			}
			return err
		},
	}
	f.bind(cmd)
	wait.bind(cmd)
	confirmed.bind(cmd)
	return cmd
}
