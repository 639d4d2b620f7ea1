package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
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
			var clusters v1alpha1.MemberClusterList
			if err := c.List(cmd.Context(), &clusters, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list member clusters: %w", err)
			}
			var instances v1alpha1.ServiceInstanceList
			if err := c.List(cmd.Context(), &instances, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service instances: %w", err)
			}
			return output.print(cmd.OutOrStdout(), clusters.Items, clusterTable(clusters.Items, instances.Items))
		},
	}
	output.bind(cmd)
	return cmd
}

// clusterTable shows clusters with the reservations of instances on them, and the free
// capacity by the rules of placement.
func clusterTable(clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) table {
	inventory := placement.NewInventory()
	for i := range clusters {
		inventory.UpsertCluster(placement.ClusterOf(&clusters[i], time.Now()))
	}
	for i := range instances {
		inventory.Reserve(placement.HoldingOf(&instances[i]))
	}
	snapshot := inventory.Snapshot()
	t := table{
		header: []string{
			"NAME", "READY", "ADMITTED", "PROVIDER", "REGION", "TIER", "NODES", "CPU", "CPU SOLD", "CPU OTHERS", "CPU FREE",
			"MEMORY", "MEMORY SOLD", "MEMORY OTHERS", "MEMORY FREE", "VERSION", "AGE",
		},
		wide: []string{"PROVIDER", "CPU OTHERS", "MEMORY OTHERS"},
	}
	for i := range clusters {
		cluster := &clusters[i]
		if cluster.DriverName() == v1alpha1.DriverOSB {
			continue // sluice broker list
		}
		sold := placement.Resources{}
		for _, reservation := range snapshot.Reservations(cluster.Name) {
			for name, amount := range reservation.Resources {
				sold[name] += amount
			}
		}
		free := placement.Resources{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			free[name] = max(0, snapshot.Free(cluster.Name, name))
		}
		all, others := cluster.Status.Allocatable, cluster.Status.ForeignUse
		if cluster.Spec.Driver == v1alpha1.DriverCAPI {
			all = cluster.Spec.Capacity
		}
		row := []string{
			cluster.Name, readiness(cluster), admission(cluster), orDash(cluster.Spec.Provider), orDash(cluster.Spec.Region), string(cluster.Spec.Tier), fmt.Sprint(cluster.Status.Nodes),
		}
		row = append(row, all.Cpu().String()+forSale(cluster, corev1.ResourceCPU))
		for _, list := range []corev1.ResourceList{sold.List(), others, free.List()} {
			row = append(row, list.Cpu().String())
		}
		row = append(row, gib(all.Memory())+forSale(cluster, corev1.ResourceMemory))
		for _, list := range []corev1.ResourceList{sold.List(), others, free.List()} {
			row = append(row, gib(list.Memory()))
		}
		t.rows = append(t.rows, append(row, orDash(cluster.Status.KubernetesVersion), age(v1alpha1.CreatedOf(cluster))))
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
