package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

func newCatalogCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Manage the catalog: service offerings and their plans",
	}
	hub.bind(cmd)
	cmd.AddCommand(newCatalogListCommand(hub), newCatalogApplyCommand(hub), offeringRemoval.command(hub))
	return cmd
}

func newCatalogListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plans of every service offering, and whether the catalog serves them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var offerings v1alpha1.ServiceOfferingList
			if err := c.List(cmd.Context(), &offerings, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service offerings: %w", err)
			}
			var clusters v1alpha1.MemberClusterList
			if err := c.List(cmd.Context(), &clusters, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list member clusters: %w", err)
			}
			t := table{header: []string{"SERVICE", "PLAN", "KIND", "BUYS", "COSTS", "SERVED"}}
			for _, offering := range offerings.Items {
				served := "no: the controller has not read it yet"
				if ready := meta.FindStatusCondition(offering.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
					served = "yes"
					if ready.Status != "True" {
						served = "no: " + ready.Message
					}
				}
				for _, plan := range offering.Spec.Plans {
					state := served
					if served == "yes" && catalog.IsWithdrawn(&plan, clusters.Items) {
						state = withdrawn
					}
					t.rows = append(t.rows, []string{offering.Spec.Name, plan.Name, string(plan.Kind), buys(plan), costs(plan), state})
				}
			}
			return output.print(cmd.OutOrStdout(), offerings.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// buys describes what a plan sells, for instance "1 cpu, 1Gi memory × 2 clusters" or "a
// cluster: 3 workers of 4 cpu".
func buys(plan v1alpha1.Plan) string {
	switch {
	case plan.Workload != nil:
		return buysWorkload(plan.Workload)
	case plan.Resources != nil:
		return buysResources(plan.Resources)
	case plan.Cluster != nil:
		return buysCluster(plan.Cluster)
	}
	return "-"
}

// buysWorkload describes a workload by its components, for instance "web, db".
func buysWorkload(plan *v1alpha1.WorkloadPlan) string {
	var names []string
	for i := range plan.Components {
		names = append(names, plan.Components[i].Name)
	}
	return strings.Join(names, ", ")
}

func buysResources(plan *v1alpha1.ResourcesPlan) string {
	text := quantities(plan.Limits)
	for _, class := range slices.Sorted(maps.Keys(plan.Storage)) {
		size := plan.Storage[class]
		text += fmt.Sprintf(", %s of %s", size.String(), class)
	}
	if plan.Clusters > 1 {
		text += " × " + count(int(plan.Clusters), "cluster")
	}
	if plan.Exposure != nil {
		text += ", " + count(int(plan.Exposure.Hosts), "public port")
	}
	return text
}

func buysCluster(plan *v1alpha1.ClusterPlan) string {
	text := "a cluster"
	if len(plan.Versions) > 0 {
		text += " " + plan.Versions[0]
	}
	parts := []string{}
	machines := func(what string, m *v1alpha1.Machines) {
		part := count(int(m.Replicas), what)
		if m.Max > m.Replicas {
			part = fmt.Sprintf("%d to %s", m.Replicas, count(int(m.Max), what))
		}
		if len(m.Machine) > 0 {
			part += " of " + quantities(m.Machine)
		}
		parts = append(parts, part)
	}
	for i := range plan.Workers {
		machines("worker", &plan.Workers[i].Machines)
	}
	if len(parts) == 0 {
		return text
	}
	return text + ": " + strings.Join(parts, "; ")
}

func costs(plan v1alpha1.Plan) string {
	var lines []string
	for _, cost := range plan.Costs {
		for _, currency := range slices.Sorted(maps.Keys(cost.Amount)) {
			lines = append(lines, placement.FormatMoney(cost.Amount[currency], strings.ToUpper(currency))+" "+strings.ToLower(cost.Unit))
		}
	}
	return orDash(strings.Join(lines, ", "))
}

func newCatalogApplyCommand(hub *hubFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change service offerings, and wait until the catalog serves them",
		Long: `Create or change the service offerings of a YAML file ("-" is standard input), and wait until the
catalog serves them. An offering that would break the catalog (an id or name used twice, a plan in use
removed, or any plan given another kind) is stored but not served; the command then says why and fails.`,
		Example: `  sluice catalog apply -f docs/examples/offering.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(cmd, file)
			if err != nil {
				return err
			}
			offerings, err := decodeDocuments[v1alpha1.ServiceOffering](data, "ServiceOffering")
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			for _, document := range offerings {
				if document.GetNamespace() == "" {
					document.SetNamespace(hub.namespace)
				}
				offering := &v1alpha1.ServiceOffering{}
				problem, err := applyDocument(cmd.Context(), c, document, offering, func() []metav1.Condition { return offering.Status.Conditions })
				if err == nil && problem != "" {
					err = fmt.Errorf("stored, but %s", problem)
				}
				if err != nil {
					return fmt.Errorf("service offering %s: %w", document.GetName(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "service offering %s: the catalog serves %s with %s\n", offering.Name, offering.Spec.Name, count(len(offering.Spec.Plans), "plan"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with ServiceOffering resources, or - for standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}
