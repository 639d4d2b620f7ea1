package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/rebalance"
	"github.com/sluice-dev/sluice/placement/replay"
)

func newPlaceCommand(hub *hubFlags) *cobra.Command {
	f := &placeFlags{hub: hub}
	cmd := &cobra.Command{
		Use:   "place --service NAME --plan NAME --dry-run",
		Short: "Show where an instance would be placed, and why not on other clusters",
		Long: `Show where an instance of a plan would be placed now: every cluster, chosen or rejected, with its scores or
with the amounts that are missing there. Nothing is reserved.

With --record, everything that the decision depends on is written to a file: clusters, the capacity that is
reserved on them, policies and the plan, without credentials. With --replay, the decision is made again from
such a file, without a hub; the command fails if the result differs.`,
		Example: `  sluice place --service kubernetes-resources --plan large --dry-run
  sluice place --service kubernetes-resources --plan large --parameters '{"clusters": 2}' --dry-run
  sluice place --service kubernetes-resources --plan large --dry-run --what-if 'cluster eu-1 is lost'
  sluice place --service kubernetes-resources --plan large --dry-run --record decision.yaml
  sluice place --service kubernetes-resources --plan large --dry-run --instance si-1 --leaving eu-1 --record move.yaml
  sluice place --replay decision.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.replay != "" {
				return f.again(cmd)
			}
			return f.ask(cmd)
		},
	}
	hub.bind(cmd)
	f.output.bind(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.service, "service", "", "name of the service offering")
	flags.StringVar(&f.plan, "plan", "", "name of the plan")
	flags.StringVar(&f.parameters, "parameters", "{}", "parameters of the instance, as JSON")
	flags.StringVar(&f.id, "instance", "dry-run", "name of the instance, which breaks ties between equal clusters; one that exists is updated, and stays where it is")
	flags.StringArrayVar(&f.leaving, "leaving", nil, "decide how the instance of --instance moves from this cluster, on which it is (repeatable)")
	flags.StringVar(&f.consumer.Platform, "platform", "", "platform of the consumer, for policies")
	flags.StringVar(&f.consumer.Organization, "organization", "", "organization_guid of the consumer, for policies")
	flags.StringVar(&f.consumer.Space, "space", "", "space_guid of the consumer, for policies")
	flags.StringArrayVar(&f.suppositions, "what-if", nil, `decide as if "cluster NAME is lost", "… is cordoned" or "… is back" (repeatable)`)
	flags.BoolVar(&f.dryRun, "dry-run", false, "explain the decision; place nothing")
	flags.StringVar(&f.record, "record", "", "record the decision, and everything that it depends on, in this file")
	flags.StringVar(&f.replay, "replay", "", "make the decision again from this recording")
	cmd.MarkFlagsMutuallyExclusive("record", "replay")
	return cmd
}

// placeFlags describe an order for a dry run of placement.
type placeFlags struct {
	hub                           *hubFlags
	service, plan, parameters, id string
	consumer                      placement.Consumer
	suppositions, leaving         []string
	dryRun                        bool
	record, replay                string
	output                        outputFlag
}

// ask decides from the state of the hub.
func (f *placeFlags) ask(cmd *cobra.Command) error {
	if !f.dryRun {
		return errors.New("instances are placed when a platform orders them; with --dry-run this command shows where one would be placed")
	}
	if f.service == "" || f.plan == "" {
		return errors.New("--service and --plan are required; `sluice catalog list` shows them all")
	}
	c, err := f.hub.client(cmd)
	if err != nil {
		return err
	}
	offering, plan, err := findPlan(cmd, c, f.hub.namespace, f.service, f.plan)
	if err != nil {
		return err
	}
	if err := plan.ValidateCreate(json.RawMessage(f.parameters)); err != nil {
		return err
	}
	f.hub.warnOfPlatform(cmd, c, f.consumer.Platform)
	order := replay.Order{ID: f.id, PlanID: plan.ID, Parameters: json.RawMessage(f.parameters), Consumer: f.consumer, Leaving: f.leaving}
	for _, text := range f.suppositions {
		supposed, err := placement.ParseSupposition(text)
		if err != nil {
			return fmt.Errorf("--what-if: %w", err)
		}
		order.Suppositions = append(order.Suppositions, supposed)
	}
	recording, verdicts, err := replay.Record(cmd.Context(), c, f.hub.namespace, *offering, order, time.Now())
	if err != nil {
		return err
	}
	if f.record != "" {
		data, err := yaml.Marshal(recording)
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.record, data, 0o600); err != nil {
			return err
		}
	}
	if err := f.show(cmd, recording, verdicts); err != nil || recording.Error == "" || len(f.suppositions) > 0 || !f.output.forPeople() {
		return err
	}
	return f.showRoom(cmd, c, recording)
}

// showRoom prints the moves of other instances that would make room.
func (f *placeFlags) showRoom(cmd *cobra.Command, c client.Client, recording *replay.Recording) error {
	request, _, err := recording.Request()
	if err != nil {
		return err
	}
	served, _, err := servedCatalog(cmd.Context(), c, f.hub.namespace)
	if err != nil {
		return err
	}
	room, allowed, err := rebalance.Room(cmd.Context(), c, f.hub.namespace, served, request, recording.At.Time)
	if err != nil || room == nil {
		return err
	}
	moves := make([]string, len(room.Victims))
	for i, v := range room.Victims {
		moves[i] = v.Instance + " to " + strings.Join(v.To, ", ")
	}
	why := "a policy allows that"
	if !allowed {
		why = "no policy allows that (makeRoom)"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would make room on %s: %s; %s\n", count(len(moves), "move"), room.Cluster, strings.Join(moves, "; "), why)
	return err
}

// again decides from a recording.
func (f *placeFlags) again(cmd *cobra.Command) error {
	data, err := readInput(cmd, f.replay)
	if err != nil {
		return err
	}
	recording, err := replay.ReadRecording(data)
	if err != nil {
		return fmt.Errorf("--replay: %w", err)
	}
	verdicts, err := recording.Replay()
	return errors.Join(f.show(cmd, recording, verdicts), err)
}

func (f *placeFlags) show(cmd *cobra.Command, recording *replay.Recording, verdicts []placement.Verdict) error {
	if !f.output.forPeople() {
		return f.output.print(cmd.OutOrStdout(), verdicts, table{})
	}
	if recording.Error != "" {
		fmt.Fprintln(cmd.OutOrStdout(), recording.Error)
	}
	return placement.WriteTable(cmd.OutOrStdout(), verdicts)
}

// findPlan finds a served plan by the names that people use.
func findPlan(cmd *cobra.Command, c client.Client, namespace, service, plan string) (*v1alpha1.ServiceOfferingSpec, *catalog.Plan, error) {
	snapshot, offerings, err := servedCatalog(cmd.Context(), c, namespace)
	if err != nil {
		return nil, nil, err
	}
	for _, offering := range offerings {
		if accepted := offering.Status.Accepted; accepted != nil && accepted.Name == service {
			for _, p := range accepted.Plans {
				if p.Name == plan {
					found, err := snapshot.Plan(accepted.ID, p.ID)
					return accepted, found, err
				}
			}
		}
	}
	return nil, nil, fmt.Errorf("no plan %q of service %q is served; `sluice catalog list` shows them all", plan, service)
}

// servedCatalog returns the catalog that the hub's offerings and member clusters serve.
func servedCatalog(ctx context.Context, c client.Client, namespace string) (*catalog.Snapshot, []v1alpha1.ServiceOffering, error) {
	var offerings v1alpha1.ServiceOfferingList
	if err := c.List(ctx, &offerings, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list service offerings: %w", err)
	}
	var clusters v1alpha1.MemberClusterList
	if err := c.List(ctx, &clusters, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list member clusters: %w", err)
	}
	snapshot, err := catalog.Build(offerings.Items, clusters.Items, &store.Hub{Reader: c, Namespace: namespace}, nil)
	return snapshot, offerings.Items, err
}
