package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/osbclient"
)

func newMarketCommand() *cobra.Command {
	f := &consumerFlags{}
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "market [SERVICE [PLAN]]",
		Short: "List what a broker offers, and the parameters of a plan",
		Long: `List the services and plans of a broker with their prices. For one plan, list the parameters of an order as well.` +
			consumerHelp,
		Example: `  sluice market
  sluice market postgresql small`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: f.completeOffer(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.connect(cmd)
			if err != nil {
				return err
			}
			catalog, err := c.market()
			if err != nil {
				return err
			}
			if len(args) < 2 {
				return listOffers(cmd, &output, catalog, args)
			}
			found, err := c.find(args[0], args[1])
			if err != nil {
				return err
			}
			return describeOffer(cmd, &output, found)
		},
	}
	f.bind(cmd)
	output.bind(cmd)
	return cmd
}

// listOffers prints the plans of all services, or of one.
func listOffers(cmd *cobra.Command, output *outputFlag, catalog *osbclient.Catalog, only []string) error {
	services := catalog.Services
	if len(only) > 0 {
		service, err := serviceOf(catalog, only[0])
		if err != nil {
			return err
		}
		services = []osbclient.Service{*service}
	}
	t := table{header: []string{"SERVICE", "PLAN", "PRICE", "VERSION", "DESCRIPTION", "SERVICE ID", "PLAN ID"}, wide: []string{"SERVICE ID", "PLAN ID"}}
	for _, s := range services {
		for _, p := range s.Plans {
			t.rows = append(t.rows, []string{s.Name, p.Name, orDash(priceOf(&p)), orDash(versionOf(p.MaintenanceInfo)), p.Description, s.ID, p.ID})
		}
	}
	return output.print(cmd.OutOrStdout(), services, t)
}

// priceOf reads a plan's costs as marketplaces show them (OSB profile, "Service Metadata"), for instance
// "EUR 10 MONTHLY". What is no cost is left out.
func priceOf(p *osbclient.Plan) string {
	var said struct {
		Costs []struct {
			Amount map[string]float64 `json:"amount"`
			Unit   string             `json:"unit"`
		} `json:"costs"`
	}
	if len(p.Metadata) == 0 || json.Unmarshal(p.Metadata, &said) != nil {
		return ""
	}
	var prices []string
	for _, cost := range said.Costs {
		for _, currency := range slices.Sorted(maps.Keys(cost.Amount)) {
			amount := strconv.FormatFloat(cost.Amount[currency], 'f', -1, 64)
			prices = append(prices, osbclient.Printable(strings.ToUpper(currency)+" "+amount+" "+cost.Unit))
		}
	}
	return strings.Join(prices, ", ")
}

func versionOf(m *osbclient.MaintenanceInfo) string {
	if m == nil {
		return ""
	}
	return osbclient.Printable(m.Version)
}

// describeOffer prints one plan, and the parameters of its orders.
func describeOffer(cmd *cobra.Command, output *outputFlag, of offered) error {
	if !output.forPeople() {
		return output.print(cmd.OutOrStdout(), of.plan, table{})
	}
	d := newDetails(cmd.OutOrStdout())
	d.line("Service", "%s: %s", of.service.Name, of.service.Description)
	d.line("Plan", "%s: %s", of.plan.Name, of.plan.Description)
	d.line("Price", "%s", orDash(priceOf(of.plan)))
	d.line("Version", "%s", orDash(versionOf(of.plan.MaintenanceInfo)))
	d.line("Can be bound", "%t", of.service.IsBindable(of.plan))
	d.line("Plan can change", "%t", of.service.IsUpdateable(of.plan))
	if err := d.flush(); err != nil {
		return err
	}
	for _, form := range []struct {
		title  string
		schema json.RawMessage
	}{
		{"Parameters of an order", of.plan.Schemas.Instance.Create.Schema},
		{"Parameters of an update", of.plan.Schemas.Instance.Update.Schema},
		{"Parameters of a binding", of.plan.Schemas.Binding.Create.Schema},
	} {
		t := table{header: []string{"NAME", "TYPE", "REQUIRED", "DEFAULT", "DESCRIPTION"}}
		for _, p := range parametersOf(form.schema) {
			t.rows = append(t.rows, []string{p.name, p.kind(), strconv.FormatBool(p.required), orDash(string(p.Default)), orDash(p.Description)})
		}
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\n%s:\n", form.title)
		if err := t.write(cmd.OutOrStdout(), output); err != nil {
			return err
		}
	}
	return nil
}
