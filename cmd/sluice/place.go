package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

func newPlaceCommand(hub *hubFlags) *cobra.Command {
	var service, plan, parameters, id string
	var consumer placement.Consumer
	var suppositions []string
	var dryRun bool
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "place --service NAME --plan NAME --dry-run",
		Short: "Ask where an instance would land, and why not elsewhere",
		Long: `Ask where an instance of a plan would land now, and why not elsewhere: every cluster, chosen or rejected,
with its scores or the numbers that it lacks. Nothing is reserved.`,
		Example: `  sluice place --service kubernetes-resources --plan large --dry-run
  sluice place --service kubernetes-resources --plan large --parameters '{"clusters": 2}' --dry-run
  sluice place --service kubernetes-resources --plan large --dry-run --what-if 'cluster eu-1 is lost'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !dryRun {
				return errors.New("instances are placed when a platform orders them; use --dry-run to ask where one would land")
			}
			c, err := hub.client()
			if err != nil {
				return err
			}
			p, err := findPlan(cmd, c, hub.namespace, service, plan)
			if err != nil {
				return err
			}
			if err := p.ValidateCreate(json.RawMessage(parameters)); err != nil {
				return err
			}
			request, err := placement.NewRequest(id, p, json.RawMessage(parameters))
			if err != nil {
				return err
			}
			snapshot, err := placement.SnapshotFromHub(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			for _, text := range suppositions {
				supposed, err := placement.ParseSupposition(text)
				if err != nil {
					return fmt.Errorf("--what-if: %w", err)
				}
				if snapshot, err = snapshot.Suppose(supposed); err != nil {
					return fmt.Errorf("--what-if: %w", err)
				}
			}
			request = snapshot.Policies().Govern(request, consumer)
			verdicts := placement.Explain(request, snapshot)
			if output == "table" {
				return placement.WriteTable(cmd.OutOrStdout(), verdicts)
			}
			return output.print(cmd.OutOrStdout(), verdicts, table{})
		},
	}
	hub.bind(cmd)
	output.bind(cmd)
	flags := cmd.Flags()
	flags.StringVar(&service, "service", "", "name of the service offering")
	flags.StringVar(&plan, "plan", "", "name of the plan")
	flags.StringVar(&parameters, "parameters", "{}", "parameters of the instance, as JSON")
	flags.StringVar(&id, "instance", "dry-run", "instance id, which breaks ties between equal clusters")
	flags.StringVar(&consumer.Platform, "platform", "", "platform that asks, as policies see it")
	flags.StringVar(&consumer.Organization, "organization", "", "its organization_guid, as policies see it")
	flags.StringVar(&consumer.Space, "space", "", "its space_guid, as policies see it")
	flags.StringArrayVar(&suppositions, "what-if", nil, `decide as if "cluster NAME is lost", "… is cordoned" or "… is back" (repeatable)`)
	flags.BoolVar(&dryRun, "dry-run", false, "explain without placing")
	for _, name := range []string{"service", "plan"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

// findPlan looks a served plan up by the names that people use.
func findPlan(cmd *cobra.Command, c client.Client, namespace, service, plan string) (*catalog.Plan, error) {
	var offerings v1alpha1.ServiceOfferingList
	if err := c.List(cmd.Context(), &offerings, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list service offerings: %w", err)
	}
	snapshot, err := catalog.Build(offerings.Items, nil)
	if err != nil {
		return nil, err
	}
	for _, offering := range offerings.Items {
		if accepted := offering.Status.Accepted; accepted != nil && accepted.Name == service {
			for _, p := range accepted.Plans {
				if p.Name == plan {
					return snapshot.Plan(accepted.ID, p.ID)
				}
			}
		}
	}
	return nil, fmt.Errorf("no plan %q of service %q is served; `sluice catalog list` shows them all", plan, service)
}
