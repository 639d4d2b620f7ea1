package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// operatorGroup is the group of operators' commands in the help.
const operatorGroup = "operator"

// newCommand returns the root command with its subcommands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "An Open Service Broker in front of many Kubernetes clusters",
		Long: `Sluice is one Open Service Broker (OSB 2.17) endpoint in front of many Kubernetes clusters.
A platform orders a service instance; Sluice decides on which clusters it runs, delivers it there, and
returns credentials and the addresses at which the consumer reaches it.

Operators start with:
  sluice serve                                      run the broker, with its own embedded hub
  sluice cluster add eu-1 --context kind-eu-1       register a cluster whose capacity it sells
  sluice catalog apply -f offering.yaml             define what it sells
  sluice place --service NAME --plan NAME --dry-run show where an instance would be placed, and why

Consumers, of this or any other OSB broker, start with:
  sluice market                                     list what is offered
  sluice order db postgresql small                  order an instance, and wait until it is there
  sluice bind db                                    print credentials, and where it is reached`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	hub := &hubFlags{}
	root.AddGroup(&cobra.Group{ID: consumerGroup, Title: "Commands for consumers:"}, &cobra.Group{ID: operatorGroup, Title: "Commands for operators:"})
	root.AddCommand(
		newMarketCommand(),
		newOrderCommand(),
		newShowCommand(),
		newUpdateCommand(),
		newBindCommand(),
		newKubeconfigCommand(),
		newUnbindCommand(),
		newCancelCommand(),
		newClaimsCommand(),
	)
	operators := []*cobra.Command{
		newServeCommand(),
		newStatusCommand(hub),
		newDoctorCommand(hub),
		newClusterCommand(hub),
		newBrokerCommand(hub),
		newPoolCommand(hub),
		newPeeringCommand(hub),
		newCatalogCommand(hub),
		newProviderCommand(hub),
		newConsumerCommand(hub),
		newIssuerCommand(hub),
		newSDCommand(hub),
		newAddOnCommand(hub),
		newPolicyCommand(hub),
		newPlaceCommand(hub),
		newSimulateCommand(hub),
		newRebalanceCommand(hub),
		newInstanceCommand(hub),
		newEventsCommand(hub),
		newUsageCommand(hub),
		newSinkCommand(hub),
		newCollectCommand(hub),
		newRemnantCommand(hub),
		newHubCommand(hub),
		newKeysetCommand(),
		newPlatformCommand(),
		newProbeCommand(),
		newConsoleCommand(hub),
		newUninstallCommand(hub),
	}
	for _, command := range operators {
		command.GroupID = operatorGroup
	}
	root.AddCommand(operators...)
	root.AddCommand(newVersionCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	bindSettings(root)
	refuseUnknown(root)
	nameArguments(root)
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Run, help.RunE = nil, helpOf
	}
	return root
}

// refuseUnknown makes a command that only groups others, and the groups below it, refuse
// unknown subcommands. By default, cobra prints the help for them and succeeds.
func refuseUnknown(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = unknownCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
}

// nameArguments makes commands, and those below them, name the argument that is missing, or is one too many. By default, cobra
// counts them.
func nameArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil && !cmd.HasSubCommands() {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			all, required := argumentsOf(cmd)
			switch err := check(cmd, args); {
			case err == nil:
				return nil
			case len(args) < required:
				return fmt.Errorf("%s is missing: %s", all[len(args)], cmd.UseLine())
			case len(args) > len(all):
				return fmt.Errorf("%q is one argument too many: %s", args[len(all)], cmd.UseLine())
			default:
				return err
			}
		}
	}
	for _, sub := range cmd.Commands() {
		nameArguments(sub)
	}
}

// argumentsOf returns the arguments of a command by its usage, in which a flag follows after them, and how many are required.
func argumentsOf(cmd *cobra.Command) (all []string, required int) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "-") || word == "|" {
			break
		}
		name := strings.Trim(word, "[]().")
		if name == "" {
			continue
		}
		if !strings.ContainsAny(word[:1], "[(") {
			required++
		}
		all = append(all, name)
	}
	return all, required
}

// unknownCommand returns an error for arguments that name no subcommand.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q of %q: did you mean %s?", args[0], cmd.CommandPath(), `"`+strings.Join(near, `" or "`)+`"`)
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	if len(known) == 0 {
		return fmt.Errorf("unknown command %q of %q", args[0], cmd.CommandPath())
	}
	return fmt.Errorf("unknown command %q of %q; there is %s", args[0], cmd.CommandPath(), strings.Join(known, ", "))
}

// helpOf prints the help of the command that the arguments name.
func helpOf(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err == nil {
		err = unknownCommand(found, rest)
	}
	if err != nil {
		return err
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}
