package main

import (
	"github.com/spf13/cobra"
)

// newCommand returns the root command with its subcommands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "An Open Service Broker in front of many Kubernetes clusters",
		Long: `Sluice is one Open Service Broker (OSB 2.17) endpoint in front of many Kubernetes clusters.
A platform asks it for a service instance; Sluice decides where that instance should live, delivers it
there, and hands back credentials and the addresses at which the consumer reaches it.

Start with:
  sluice serve                                      run the broker, with its own embedded hub
  sluice cluster add eu-1 --context kind-eu-1       let it sell that cluster's capacity
  sluice catalog apply -f offering.yaml             say what it sells
  sluice place --service NAME --plan NAME --dry-run ask where an instance would land, and why`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	hub := &hubFlags{}
	root.AddCommand(
		newServeCommand(),
		newClusterCommand(hub),
		newPeeringCommand(hub),
		newCatalogCommand(hub),
		newProviderCommand(hub),
		newIssuerCommand(hub),
		newSDCommand(hub),
		newPolicyCommand(hub),
		newPlaceCommand(hub),
		newRebalanceCommand(hub),
		newInstanceCommand(hub),
		newCollectCommand(hub),
		newKeysetCommand(),
		newVersionCommand(),
	)
	return root
}
