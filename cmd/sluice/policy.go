package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newPolicyCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Manage placement policies: what clusters must have proven, and which are preferred",
	}
	hub.bind(cmd)
	cmd.AddCommand(newPolicyApplyCommand(hub), newPolicyListCommand(hub), newPolicyRemoveCommand(hub))
	return cmd
}

func newPolicyApplyCommand(hub *hubFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change placement policies, and wait until they are in force",
		Long: `Create or change the placement policies of a YAML file ("-" is standard input), and wait until they are in
force. They govern new placements; instances that are placed stay where they are. A policy with a rule that does
not compile is in force too: it refuses what it matches, and the command says why and fails.`,
		Example: `  sluice policy apply -f docs/examples/policy.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(cmd, file)
			if err != nil {
				return err
			}
			policies, err := decodeDocuments[v1alpha1.PlacementPolicy](data, "PlacementPolicy")
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			for _, document := range policies {
				if document.GetNamespace() == "" {
					document.SetNamespace(hub.namespace)
				}
				policy := &v1alpha1.PlacementPolicy{}
				problem, err := applyDocument(cmd.Context(), c, document, policy, func() []metav1.Condition { return policy.Status.Conditions })
				if err == nil && problem != "" {
					err = fmt.Errorf("%s", problem)
				}
				if err != nil {
					return fmt.Errorf("policy %s: %w", document.GetName(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "policy %s: in force, %s and %s\n", policy.Name, count(len(policy.Spec.Require), "requirement"), count(len(policy.Spec.Prefer), "preference"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with PlacementPolicy resources, or - for standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func newPolicyListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List placement policies and what they apply to",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var policies v1alpha1.PlacementPolicyList
			if err := c.List(cmd.Context(), &policies, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list placement policies: %w", err)
			}
			t := table{header: []string{"NAME", "READY", "PROVIDER", "PLATFORMS", "ORGANIZATIONS", "SPACES", "PLANS", "REQUIRES", "PREFERS"}}
			for i := range policies.Items {
				policy := &policies.Items[i]
				ready := "unknown"
				if view := viewCondition(policy.Status.Conditions, v1alpha1.ConditionReady); view != nil {
					ready = "yes"
					if !view.isTrue {
						ready = "no: " + view.message
					}
				}
				var requires, prefers []string
				for _, rule := range policy.Spec.Require {
					requires = append(requires, rule.Name)
				}
				for _, rule := range policy.Spec.Prefer {
					prefers = append(prefers, fmt.Sprintf("%s (%d)", rule.Name, rule.Weight))
				}
				all := func(list []string) string {
					if len(list) == 0 {
						return "all"
					}
					return strings.Join(list, ", ")
				}
				m := policy.Spec.Match
				t.rows = append(t.rows, []string{
					policy.Name, ready, orDash(policy.Spec.Provider), all(m.Platforms), all(m.Organizations), all(m.Spaces), all(m.Plans),
					orDash(strings.Join(requires, ", ")), orDash(strings.Join(prefers, ", ")),
				})
			}
			return output.print(cmd.OutOrStdout(), policies.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newPolicyRemoveCommand(hub *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a placement policy, so that it no longer rejects clusters",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			policy := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: args[0]}}
			if err := c.Delete(cmd.Context(), policy); err != nil {
				return fmt.Errorf("policy %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "policy %s: removed\n", args[0])
			return err
		},
	}
}
