package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// eventFilter selects events.
type eventFilter struct {
	platform, instance string
	since              time.Duration
}

// has reports whether the filter selects an event.
func (f eventFilter) has(e journal.Entry) bool {
	return (f.platform == "" || e.Platform == f.platform) &&
		(f.instance == "" || e.InstanceID == f.instance || e.Name == f.instance || e.Kind == v1alpha1.KindPeering && slices.Contains(e.Clusters, f.instance)) &&
		(f.since == 0 || time.Since(e.At.Time) <= f.since)
}

func newEventsCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	var filter eventFilter
	var watch bool
	cmd := &cobra.Command{
		Use:   "events [INSTANCE|CLUSTER]",
		Short: "List what happened to instances, bindings, clusters and peerings, also to those that are gone",
		Long: `List what happened to service instances and their bindings: what was ordered and by whom, where it was placed
and why, what moved, failed, or was removed; and to member clusters and peerings: which were ready, lost, admitted,
cordoned, drained or removed. The oldest event comes first. An instance is given by its OSB instance id or by the name
of its ServiceInstance, also after it was deleted; a cluster by its name, with its peerings.

With --watch, events that happen later follow. With -o json, each event is one line then.`,
		Example: `  sluice events --since 1h
  sluice events 5f1a2b3c
  sluice events --watch -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				filter.instance = args[0]
			}
			if filter.since < 0 {
				return fmt.Errorf("--since %s: want how old events may be, for instance 1h", filter.since)
			}
			config, err := hub.config(cmd)
			if err != nil {
				return err
			}
			c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
			if err != nil {
				return err
			}
			plans, err := namePlans(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			if watch {
				return watchEvents(cmd.Context(), cmd.OutOrStdout(), c, hub.namespace, filter, &output, plans)
			}
			events, err := journal.Read(cmd.Context(), c, hub.namespace, filter.has)
			if err != nil {
				return err
			}
			if len(events) == 0 && filter.instance != "" && output.forPeople() {
				return fmt.Errorf("no events of an instance or a cluster %q; `sluice instance list` and `sluice cluster list` show them", filter.instance)
			}
			return output.print(cmd.OutOrStdout(), events, eventTable(events, plans))
		},
	}
	hub.bind(cmd)
	output.bind(cmd)
	cmd.Flags().StringVar(&filter.platform, "platform", "", "platform that owns the instances (default: all)")
	cmd.Flags().DurationVar(&filter.since, "since", 0, "list events that are at most this old, for instance 1h; 0 lists all that are kept")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on with events as they happen")
	return cmd
}

func eventTable(events []journal.Entry, plans planNames) table {
	t := table{
		header: []string{"TIME", "PLATFORM", "INSTANCE", "BINDING", "EVENT", "OPERATION", "PLAN", "CLUSTERS", "BY", "AFTER", "MESSAGE"},
		wide:   []string{"PLATFORM", "PLAN", "BY"},
	}
	for _, e := range events {
		t.rows = append(t.rows, eventRow(e, plans))
	}
	return t
}

func eventRow(e journal.Entry, plans planNames) []string {
	after, plan := "", ""
	if e.After != nil {
		after = e.After.Duration.String()
	}
	if e.PlanID != "" {
		plan = plans.named(e.ServiceID, e.PlanID)
	}
	return []string{
		e.At.Local().Format(time.DateTime), orDash(e.Platform), orDash(e.InstanceID), orDash(e.BindingID), string(e.Type), orDash(string(e.Operation)), orDash(plan),
		orDash(strings.Join(e.Clusters, ",")), orDash(journal.User(e.By)), orDash(after), orDash(e.Message),
	}
}

// watchEvents prints events as they happen, after those that there are, until the context ends.
func watchEvents(ctx context.Context, w io.Writer, c client.WithWatch, namespace string, filter eventFilter, output *outputFlag, plans planNames) error {
	since := filter.since
	filter.since = 0
	began := time.Now()
	return journal.Watch(ctx, c, namespace, func(e journal.Entry) error {
		if !filter.has(e) || since > 0 && began.Sub(e.At.Time) > since {
			return nil
		}
		switch output.format {
		case outputJSON:
			return json.NewEncoder(w).Encode(e)
		case outputYAML:
			fmt.Fprintln(w, "---")
			return output.print(w, e, table{})
		case outputJSONPath:
			return output.print(w, e, table{})
		}
		row := eventRow(e, plans)
		if output.format != outputWide {
			row = slices.DeleteFunc(row, func(cell string) bool { return cell == "-" })
		}
		for i := range row {
			row[i] = printable(row[i])
		}
		_, err := fmt.Fprintln(w, strings.Join(row, "  "))
		return err
	})
}
