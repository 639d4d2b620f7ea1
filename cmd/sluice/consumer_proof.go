package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newConsumerCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consumer",
		Short: "Manage consumers that prove by credentials who they are, for policies that ask for it",
	}
	hub.bind(cmd)
	cmd.AddCommand(newConsumerAddCommand(hub), newConsumerListCommand(hub), newConsumerClaimsCommand(hub), consumerRemoval.command(hub))
	return cmd
}

var consumerRemoval = removal{
	noun: "consumer", short: "Believe a consumer's credentials no more", object: &v1alpha1.Consumer{},
	long: "Believe a consumer's credentials no more. What it has ordered stays; from the next order on, it has proven nothing.",
}

func newConsumerAddCommand(hub *hubFlags) *cobra.Command {
	identity := &identityFlags{}
	var of []string
	cmd := &cobra.Command{
		Use:   "add NAME --did DID --of PLATFORM[/ORGANIZATION[/SPACE]]",
		Short: "Let a consumer present credentials, and say which orders are its own",
		Long: `Let a consumer present credentials with "sluice sd present", and say which orders are its own: all of a platform, of one
of its organizations (OSB organization_guid), or of one space (space_guid). Policies ask for what it has proven by rules
with "appliesTo: Consumer", or by consumer.claims in expressions (docs/trust.md). If several consumers have the same
order, the one of the space counts, else the one of the organization.

Its keys are fetched or given as those of a provider ("sluice provider add --help").`,
		Example: `  sluice consumer add city --did did:web:city.example --of cf/4f9e6a1c
  sluice consumer add lab --did did:web:lab.example --keys lab/jwks.json --of cf/4f9e6a1c/77ab --of default`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			consumer := &v1alpha1.Consumer{ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: hub.namespace}}
			err := identity.add(cmd, hub, consumer, &consumer.Spec.Identified, func(given) error {
				consumer.Spec.Orders = nil
				for _, text := range of {
					orders, err := parseConsumer("of", text)
					if err != nil {
						return err
					}
					consumer.Spec.Orders = append(consumer.Spec.Orders, orders)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("consumer %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "consumer %s: %s may present credentials\n", args[0], consumer.Spec.DID)
			return err
		},
	}
	identity.bind(cmd)
	cmd.Flags().StringArrayVar(&of, "of", nil, "orders of the consumer, by platform[/organization[/space]] (repeatable)")
	_ = cmd.MarkFlagRequired("of")
	return cmd
}

func newConsumerListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List consumers, and whether they have proven who they are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var consumers v1alpha1.ConsumerList
			if err := c.List(cmd.Context(), &consumers, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list consumers: %w", err)
			}
			t := table{header: []string{"NAME", "DID", "KEYS", "ORDERS", "PROVEN", "AGE"}}
			for i := range consumers.Items {
				one := &consumers.Items[i]
				var orders []string
				for _, of := range one.Spec.Orders {
					orders = append(orders, strings.TrimRight(of.Platform+"/"+of.Organization+"/"+of.Space, "/"))
				}
				t.rows = append(t.rows, []string{one.Name, one.Spec.DID, keySource(one.Spec.Identified), strings.Join(orders, ", "),
					yesNo(viewCondition(one.Status.Conditions, v1alpha1.ConditionProven)), age(v1alpha1.CreatedOf(one))})
			}
			return output.print(cmd.OutOrStdout(), consumers.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newConsumerClaimsCommand(hub *hubFlags) *cobra.Command {
	return newClaimsOfCommand(hub, "Show what a consumer has proven, who says so, and until when",
		"Show what a consumer has proven, who says so, and until when: the claims that placement policies go by.\nThe steps by which its credentials were checked together come first.",
		"  sluice consumer claims city", "consumer",
		func() (client.Object, *[]v1alpha1.VerificationStep, *[]v1alpha1.Claim) {
			one := &v1alpha1.Consumer{}
			return one, &one.Status.Report, &one.Status.Claims
		})
}
