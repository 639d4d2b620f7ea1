package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newInstanceCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "instance",
		Short: "Service instances: where they are and why",
	}
	hub.bind(cmd)
	cmd.AddCommand(newInstanceListCommand(hub), newInstanceDescribeCommand(hub))
	return cmd
}

func newInstanceListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List service instances",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			var instances v1alpha1.ServiceInstanceList
			if err := c.List(cmd.Context(), &instances, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service instances: %w", err)
			}
			t := table{header: []string{"PLATFORM", "INSTANCE", "PLAN", "OPERATION", "STATE", "CLUSTERS", "AGE"}}
			for _, instance := range instances.Items {
				operation, state := "-", "-"
				if op := instance.Status.Operation; op != nil {
					operation, state = string(op.Type), string(op.State)
				}
				t.rows = append(t.rows, []string{
					instance.Spec.Platform, instance.Spec.InstanceID, instance.Spec.Desired.PlanID,
					operation, state, orDash(strings.Join(clustersOf(instance.Status.Decision), ",")), age(instance.CreationTimestamp),
				})
			}
			return output.print(cmd.OutOrStdout(), instances.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func clustersOf(decision *v1alpha1.Decision) []string {
	if decision == nil {
		return nil
	}
	var names []string
	for _, p := range decision.Placements {
		names = append(names, p.Cluster)
	}
	return names
}

func newInstanceDescribeCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	var platform string
	cmd := &cobra.Command{
		Use:   "describe INSTANCE",
		Short: "Show one instance: its operation, its decision, and why other clusters were rejected",
		Long:  "Show one instance, given by its OSB instance id or by the name of its ServiceInstance.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			var instances v1alpha1.ServiceInstanceList
			if err := c.List(cmd.Context(), &instances, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service instances: %w", err)
			}
			var found []v1alpha1.ServiceInstance
			for _, instance := range instances.Items {
				named := instance.Name == args[0] || instance.Spec.InstanceID == args[0]
				if named && (platform == "" || platform == instance.Spec.Platform) {
					found = append(found, instance)
				}
			}
			switch {
			case len(found) == 0:
				return fmt.Errorf("no instance %q; `sluice instance list` shows them all", args[0])
			case len(found) > 1:
				return fmt.Errorf("%d platforms have an instance %q: choose one with --platform", len(found), args[0])
			}
			if output == "table" {
				return describeInstance(cmd.OutOrStdout(), &found[0])
			}
			return output.print(cmd.OutOrStdout(), found[0], table{})
		},
	}
	output.bind(cmd)
	cmd.Flags().StringVar(&platform, "platform", "", "platform that owns the instance, where the id alone is ambiguous")
	return cmd
}

func describeInstance(w io.Writer, instance *v1alpha1.ServiceInstance) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(key, format string, args ...any) { fmt.Fprintf(tw, "%s:\t%s\n", key, fmt.Sprintf(format, args...)) }
	line("Instance", "%s", instance.Spec.InstanceID)
	line("Resource", "%s", instance.Name)
	line("Platform", "%s", instance.Spec.Platform)
	line("Service", "%s", instance.Spec.ServiceID)
	line("Plan", "%s", instance.Spec.Desired.PlanID)
	line("Namespace", "%s on every cluster below", v1alpha1.MemberNamespace(instance.Name))
	if op := instance.Status.Operation; op != nil {
		line("Operation", "%s: %s, started %s ago", op.Type, op.State, age(op.StartedAt))
		if op.Description != "" {
			line("", "%s", op.Description)
		}
	}
	for _, condition := range instance.Status.Conditions {
		line(condition.Type, "%s (%s) %s", condition.Status, condition.Reason, condition.Message)
	}
	describeRoom(line, "Makes room", instance.Status.Preemption)
	if decision := instance.Status.Decision; decision != nil {
		line("Considered", "%d clusters", decision.Considered)
		for _, p := range decision.Placements {
			price := ""
			if p.PricePerHour != nil {
				price = fmt.Sprintf(", %s %s an hour", p.PricePerHour.String(), p.Currency)
			}
			line("Placed on", "%s, score %d, reserved %s%s", p.Cluster, p.Score, quantities(p.Reserved), price)
		}
		for _, d := range decision.Displaced {
			line("Displaced from", "%s, %s ago: %s", d.Cluster, age(d.At), d.Reason)
		}
		describeRoom(line, "Displaced", decision.Preemption)
		for _, rejection := range decision.Rejections {
			line("Rejected", "%d × %s", rejection.Count, rejection.Reason)
			for _, example := range rejection.Examples {
				line("", "%s: %s", example.Cluster, example.Message)
			}
		}
	}
	return tw.Flush()
}

// describeRoom says who leaves a cluster, or has left it, for the instance.
func describeRoom(line func(key, format string, args ...any), key string, p *v1alpha1.Preemption) {
	if p == nil {
		return
	}
	line(key, "on %s for class %s (%d): %s", p.Cluster, p.PriorityClass, p.Priority, p.Message)
	for _, v := range p.Victims {
		line("", "%s of class %s (%d), %s", v.Instance, v.PriorityClass, v.Priority, quantities(v.Reserved))
	}
}
