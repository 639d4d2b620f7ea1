package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/selfdescription"
)

func newInstanceContractCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	var signs signFlags
	var platform string
	var number int64
	cmd := &cobra.Command{
		Use:   "contract INSTANCE",
		Short: "Show what was agreed about one instance, also about one that is gone, or sign it",
		Long: `Show the contracts of one instance, given by its OSB instance id or by the name of its ServiceInstance, also after its
end: what it had where, at which price, by which plan, policies and proofs of the clusters' providers, from when to
when. Each names the one before by its digest.

With -o jwt, the last one, or the one of --number, is signed by the broker's present key. Whoever has the broker's
did.json verifies it with "sluice sd verify".`,
		Example: `  sluice instance contract 5f1a2b3c
  sluice instance contract 5f1a2b3c --number 1 -o jwt > contract.jwt
  sluice sd verify contract.jwt --keys did.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			name, err := findContractor(cmd.Context(), c, hub.namespace, platform, args[0])
			if err != nil {
				return err
			}
			all, err := contracts.Read(cmd.Context(), c, hub.namespace, name)
			if err != nil {
				return err
			}
			if number > 0 {
				all = slices.DeleteFunc(all, func(a contracts.Agreement) bool { return a.Contract.Number != number })
			}
			if len(all) == 0 {
				return fmt.Errorf("instance %q has no such contract: one begins when the instance is delivered", args[0])
			}
			if output.format == outputJWT {
				return signs.print(cmd, hub, c, selfdescription.StatementContract, all[len(all)-1].Claims())
			}
			return output.print(cmd.OutOrStdout(), all, contractTable(all))
		},
	}
	output.bindFormats(cmd, outputTable, outputWide, outputJSON, outputYAML, outputJWT)
	signs.bind(cmd)
	bindPlatform(cmd, &platform)
	cmd.Flags().Int64Var(&number, "number", 0, "number of the contract (default: all; with -o jwt the last)")
	return cmd
}

// findContractor returns the name of an instance that is there, or of one that is gone and has a journal.
func findContractor(ctx context.Context, c client.Client, namespace, platform, id string) (string, error) {
	found := map[string]bool{}
	look := func(of v1alpha1.EventSubject) {
		if of.Kind == v1alpha1.KindServiceInstance && isNamed(of, platform, id) {
			found[of.Name] = true
		}
	}
	err := pages.Each(ctx, c, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		look(o.(*v1alpha1.ServiceInstance).Subject())
		return nil
	}, client.InNamespace(namespace))
	if err == nil && len(found) == 0 {
		err = pages.Each(ctx, c, &v1alpha1.JournalList{}, func(o client.Object) error {
			look(o.(*v1alpha1.Journal).Spec.EventSubject)
			return nil
		}, client.InNamespace(namespace))
	}
	switch names := slices.Collect(maps.Keys(found)); {
	case err != nil:
		return "", fmt.Errorf("look for instance %q: %w", id, err)
	case len(names) == 0:
		return "", fmt.Errorf("no instance %q, and nothing is kept of one; `sluice instance list` shows those that there are", id)
	case len(names) > 1:
		return "", fmt.Errorf("%d platforms have had an instance %q: choose one with --platform", len(names), id)
	default:
		return names[0], nil
	}
}

func contractTable(all []contracts.Agreement) table {
	t := table{header: []string{"NUMBER", "FROM", "TO", "PLAN", "CLUSTER", "PROVIDER", "RESERVED", "PRICE/H", "POLICIES", "CREDENTIALS", "DIGEST"}, wide: []string{"CREDENTIALS", "DIGEST"}}
	for _, a := range all {
		c, to := a.Contract, "-"
		if a.EndedAt != nil {
			to = a.EndedAt.Format(time.DateTime)
		}
		var policies []string
		for _, p := range c.Policies {
			policies = append(policies, p.Name)
		}
		clusters := c.Clusters
		if len(clusters) == 0 {
			clusters = []contracts.Cluster{{}}
		}
		for _, on := range clusters {
			var reserved []string
			for _, name := range slices.Sorted(maps.Keys(on.Reserved)) {
				reserved = append(reserved, on.Reserved[name]+" "+name)
			}
			t.rows = append(t.rows, []string{
				fmt.Sprint(c.Number), c.From.Format(time.DateTime), to, cmp.Or(c.Plan.Service, c.Plan.ServiceID) + "/" + c.Plan.ID,
				orDash(on.Cluster), orDash(on.Provider), orDash(strings.Join(reserved, ", ")), orDash(strings.TrimSpace(on.PricePerHour + " " + on.Currency)),
				orDash(strings.Join(policies, ",")), orDash(strings.Join(on.Credentials, ",")), a.Digest,
			})
		}
	}
	return t
}
