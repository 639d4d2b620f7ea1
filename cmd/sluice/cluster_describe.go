package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement"
)

func newClusterDescribeCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show one member cluster: its conditions, its capacity and prices, what is on it, and its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			cluster := &v1alpha1.MemberCluster{}
			if err := c.Get(cmd.Context(), client.ObjectKey{Namespace: hub.namespace, Name: args[0]}, cluster); err != nil {
				return fmt.Errorf("cluster %s: %w", args[0], err)
			}
			if !output.forPeople() {
				return output.print(cmd.OutOrStdout(), *cluster, table{})
			}
			var instances v1alpha1.ServiceInstanceList
			if err := c.List(cmd.Context(), &instances, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service instances: %w", err)
			}
			events, err := journal.Of(cmd.Context(), c, cluster)
			if err != nil {
				return fmt.Errorf("read the journal: %w", err)
			}
			return describeCluster(cmd.OutOrStdout(), cluster, instances.Items, events)
		},
	}
	output.bind(cmd)
	return cmd
}

// describeCluster prints what is known of a cluster, what is on it, and its events.
func describeCluster(w io.Writer, m *v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance, events []v1alpha1.Event) error {
	d := newDetails(w)
	d.line("Cluster", "%s", m.Name)
	d.line("Driver", "%s", m.DriverName())
	on := describeSupply(d, m, instances)
	d.line("Instances", "%d", len(on))
	list(d, "", on, func(s v1alpha1.EventSubject) string { return s.Name + " (" + s.Platform + "/" + s.InstanceID + ")" })
	describeEvents(d, events)
	return d.flush()
}

// describeSupply prints what a member cluster of any kind sells, where, and whether it takes orders, and returns the instances
// that are on it.
func describeSupply(d *details, m *v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) (on []v1alpha1.EventSubject) {
	d.line("Provider", "%s", orDash(m.Spec.Provider))
	d.line("Region", "%s", strings.Join(slices.DeleteFunc([]string{orDash(m.Region()), m.Spec.Zone, string(m.Spec.Tier)}, func(s string) bool { return s == "" }), ", "))
	if version := m.Status.KubernetesVersion; version != "" {
		d.line("Kubernetes", "%s, %s", version, count(int(m.Status.Nodes), "node"))
	}
	d.line("Takes orders", "%s", readiness(m))
	list(d, "Taint", m.Spec.Taints, func(t corev1.Taint) string { return t.ToString() })
	for _, condition := range m.Status.Conditions {
		text := fmt.Sprintf("%s (%s), %s", condition.Status, condition.Reason, age(condition.LastTransitionTime))
		if condition.Message != "" {
			text += ": " + condition.Message
		}
		d.line(condition.Type, "%s", text)
	}
	known, sold := placement.ClusterOf(m, time.Now()), placement.Resources{}
	for i := range instances {
		if held := placement.Ledger(&instances[i].Status)[m.Name]; held != nil {
			sold.Add(held, 1)
			on = append(on, instances[i].Subject())
		}
	}
	names := slices.Sorted(maps.Keys(known.Allocatable.List()))
	list(d, "Capacity", names, func(name corev1.ResourceName) string { return capacityOf(known, name, sold[name]) })
	for _, class := range m.Status.DeviceClasses {
		if class.Uncounted != "" {
			d.line("Not counted", "devices of class %s: %s", class.Name, class.Uncounted)
		}
	}
	if prices := m.Spec.Prices; prices != nil {
		list(d, "Price", slices.Sorted(maps.Keys(prices.PerHour)), func(name corev1.ResourceName) string {
			return fmt.Sprintf("%s an hour for %s", placement.FormatMoney(prices.PerHour[name], prices.Currency), name)
		})
	}
	if latency := m.Status.Latency; latency != nil {
		d.line("Latency", "%s from here", latency.Duration)
	}
	list(d, "Latency", slices.Concat(m.Status.Latencies, m.Spec.Latencies), func(l v1alpha1.MeasuredLatency) string {
		return fmt.Sprintf("%s from %s, %s ago", l.Median.Duration, l.From, age(l.MeasuredAt))
	})
	list(d, "Proven", m.Status.Claims, func(claim v1alpha1.Claim) string {
		return fmt.Sprintf("%s = %s, %s, until %s", claim.Name, claim.Value, claim.Assurance, date(claim.ExpiresAt))
	})
	return on
}

// capacityOf says how a resource of a cluster is divided, of which an amount is sold.
func capacityOf(c *placement.Cluster, name corev1.ResourceName, sold int64) string {
	amount := func(n int64) string {
		q := (placement.Resources{name: n}).List()[name]
		if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			return gib(&q)
		}
		return q.String()
	}
	return fmt.Sprintf("%s %s, of which %s sold, %s used by others, %s free", amount(c.Allocatable[name]), name, amount(sold), amount(c.ForeignUse[name]), amount(max(0, c.Unreserved(name)-sold)))
}
