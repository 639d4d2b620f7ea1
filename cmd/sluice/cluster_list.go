package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/placement"
)

func newClusterListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List member clusters: whether they accept placements, their capacity, what is reserved and what is free",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			all, instances, err := readInventory(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			clusters := ofKind(all, overview.KindCluster)
			return output.print(cmd.OutOrStdout(), clusters, clusterTable(clusters, instances))
		},
	}
	output.bind(cmd)
	return cmd
}

// inventoryOf returns the inventory of clusters, with the reservations of instances.
func inventoryOf(clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) *placement.Snapshot {
	inventory := placement.NewInventory()
	for i := range clusters {
		inventory.UpsertCluster(placement.ClusterOf(&clusters[i], time.Now()))
	}
	for i := range instances {
		inventory.Reserve(placement.HoldingOf(&instances[i]))
	}
	return inventory.Snapshot()
}

// amountColumns are the titles of the cells of amountsOf; wideAmounts are those of them that only wide tables show.
var (
	amountColumns = []string{"CPU", "CPU SOLD", "CPU OTHERS", "CPU FREE", "MEMORY", "MEMORY SOLD", "MEMORY OTHERS", "MEMORY FREE"}
	wideAmounts   = []string{"CPU OTHERS", "MEMORY OTHERS"}
)

// amountsOf returns how the cores and the memory of a cluster are divided, with the free amounts by the rules of placement.
func amountsOf(cluster *v1alpha1.MemberCluster, snapshot *placement.Snapshot) (cells []string) {
	sold := placement.Resources{}
	for _, reservation := range snapshot.Reservations(cluster.Name) {
		sold.Add(reservation.Resources, 1)
	}
	free := placement.Resources{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		free[name] = max(0, snapshot.Free(cluster.Name, name))
	}
	all, others := cluster.Status.Allocatable, cluster.Status.ForeignUse
	if cluster.Spec.Driver == v1alpha1.DriverCAPI {
		all = cluster.Spec.Capacity
	}
	cells = append(cells, all.Cpu().String()+forSale(cluster, corev1.ResourceCPU))
	for _, list := range []corev1.ResourceList{sold.List(), others, free.List()} {
		cells = append(cells, list.Cpu().String())
	}
	cells = append(cells, gib(all.Memory())+forSale(cluster, corev1.ResourceMemory))
	for _, list := range []corev1.ResourceList{sold.List(), others, free.List()} {
		cells = append(cells, gib(list.Memory()))
	}
	return cells
}

// clusterTable shows clusters with the reservations of instances on them.
func clusterTable(clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) table {
	snapshot := inventoryOf(clusters, instances)
	t := table{
		header: slices.Concat([]string{"NAME", "READY", "ADMITTED", "PROVIDER", "REGION", "TIER", "NODES"}, amountColumns, []string{"VERSION", "AGE"}),
		wide:   append([]string{"PROVIDER"}, wideAmounts...),
	}
	for i := range clusters {
		cluster := &clusters[i]
		t.rows = append(t.rows, slices.Concat(
			[]string{cluster.Name, readiness(cluster), admission(cluster), orDash(cluster.Spec.Provider), orDash(cluster.Spec.Region), string(cluster.Spec.Tier), fmt.Sprint(cluster.Status.Nodes)},
			amountsOf(cluster, snapshot), []string{orDash(cluster.Status.KubernetesVersion), age(v1alpha1.CreatedOf(cluster))},
		))
	}
	return t
}

// readiness describes whether a cluster takes placements, and why not.
func readiness(cluster *v1alpha1.MemberCluster) string {
	ready := yesNo(viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady))
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		return "leaving, " + ready
	case cluster.IsDraining():
		return "draining, " + ready
	case cluster.Spec.Unschedulable:
		return "cordoned, " + ready
	}
	if why := nodeless(cluster); why != "" {
		ready += ", but " + why
	}
	return ready
}

// nodeless returns why no node of a cluster that is ready and sells takes pods, with a remedy; empty if one does, or if it is not
// known.
func nodeless(cluster *v1alpha1.MemberCluster) string {
	ready, _ := cluster.Holds(v1alpha1.ConditionReady)
	known := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionCapacityKnown)
	if !ready || !cluster.Sells() || known == nil || known.reason != v1alpha1.ReasonNoNodes {
		return ""
	}
	return known.message
}
