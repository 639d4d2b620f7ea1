package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newAddOnCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "addon",
		Short: "Manage packages of add-ons, which cluster plans name",
	}
	hub.bind(cmd)
	cmd.AddCommand(newAddOnApplyCommand(hub), newAddOnListCommand(hub), addOnRemoval.command(hub))
	return cmd
}

func newAddOnApplyCommand(hub *hubFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change packages of add-ons",
		Long: `Create or change the packages of add-ons in a YAML file ("-" is standard input). Plans that name them are checked
again; "sluice catalog list" shows errors. Existing clusters get a changed package with the next maintenance
of their plan.`,
		Example: `  sluice addon apply -f packages.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(cmd, file)
			if err != nil {
				return err
			}
			packages, err := decodeDocuments[v1alpha1.AddOnPackage](data, "AddOnPackage")
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			for _, document := range packages {
				if document.GetNamespace() == "" {
					document.SetNamespace(hub.namespace)
				}
				if err := c.Apply(cmd.Context(), client.ApplyConfigurationFromUnstructured(document), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
					return fmt.Errorf("add-on %s: apply it: %w", document.GetName(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "add-on %s: applied\n", document.GetName())
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with AddOnPackage resources, or - for standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func newAddOnListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List packages of add-ons",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var packages v1alpha1.AddOnPackageList
			if err := c.List(cmd.Context(), &packages, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list packages of add-ons: %w", err)
			}
			t := table{header: []string{"NAME", "CHART", "NAMESPACE", "PROVIDES", "REQUIRES", "SETTABLE", "DESCRIPTION"}}
			for i := range packages.Items {
				p := &packages.Items[i]
				t.rows = append(t.rows, []string{
					p.Name, p.Spec.Chart, p.Spec.Namespace, orDash(strings.Join(p.Spec.Provides, ", ")), orDash(strings.Join(p.Spec.Requires, ", ")),
					orDash(strings.Join(p.Spec.Settable, ", ")), orDash(p.Spec.Description),
				})
			}
			return output.print(cmd.OutOrStdout(), packages.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}
