package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/market"
)

// policyCheckFlags are the question of a check.
type policyCheckFlags struct {
	of                            *policyFlags
	file                          string
	platform, organization, space string
	claims                        []string
	output                        outputFlag
}

func newPolicyCheckCommand(of *policyFlags) *cobra.Command {
	f := &policyCheckFlags{of: of}
	cmd := &cobra.Command{
		Use:   "check (NAME | -f FILE) --to URL",
		Short: "Show what a provider's or a platform's policy would refuse, without changing anything",
		Long: `Show what a policy would refuse if everything that is there were ordered now: the one of that name as it is, or the one
in a YAML file ("-" is standard input) before it is applied. It changes nothing.

To a provider, it shows instances on its own clusters, as if the consumer of the flags had ordered them, and which of
these clusters would no longer serve which plans. To a platform, it shows its own instances, and where the clusters are
that it would no longer get.` + marketHelp,
		Example: `  sluice policy check -f policy.yaml --to https://broker.example
  sluice policy check acme.residents --organization guests --to https://broker.example`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: of.completeName,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.check(cmd, args) },
	}
	cmd.Flags().StringVarP(&f.file, "filename", "f", "", "file with a PlacementPolicy resource, or - for standard input")
	cmd.Flags().StringVar(&f.platform, "platform", "", "platform that is supposed to order, if a provider's policy looks at it")
	cmd.Flags().StringVar(&f.organization, "organization", "", "organization that is supposed to order, if the policy looks at it")
	cmd.Flags().StringVar(&f.space, "space", "", "space that is supposed to order, if the policy looks at it")
	cmd.Flags().StringArrayVar(&f.claims, "claim", nil, "what the consumer of a provider's policy is supposed to have proven, as NAME=VALUE or NAME=VALUE@ASSURANCE, for instance consumer.country=DE@notary (repeatable)")
	f.output.bind(cmd)
	return cmd
}

func (f *policyCheckFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case f.of.market.to == "":
		return errors.New("a check is asked of a broker's market: name it with --to")
	case (len(args) == 1) == (f.file != ""):
		return errors.New("want either the name of a policy, or -f with a file")
	}
	name, spec := "", any(nil)
	if f.file == "" {
		name = args[0]
	} else {
		documents, err := readPolicies(cmd, f.file)
		if err != nil {
			return err
		}
		if len(documents) != 1 {
			return fmt.Errorf("%s: has %s, want one", f.file, count(len(documents), "policy"))
		}
		if name, spec = documents[0].GetName(), documents[0].Object["spec"]; spec == nil {
			spec = v1alpha1.PlacementPolicySpec{}
		}
	}
	m, err := f.of.market.connect(cmd)
	if err != nil {
		return err
	}
	var by market.Supposed
	for _, given := range []struct {
		name, value string
		into        **string
	}{{"platform", f.platform, &by.Platform}, {"organization", f.organization, &by.Organization}, {"space", f.space, &by.Space}} {
		if cmd.Flags().Changed(given.name) {
			*given.into = &given.value
		}
	}
	if cmd.Flags().Changed("claim") {
		claims, err := market.ParseClaims(f.claims)
		if err != nil {
			return fmt.Errorf("--claim: %w", err)
		}
		by.Claims = &claims
	}
	answer, found, err := marketPolicies{m}.check(cmd.Context(), name, spec, by)
	if err != nil {
		return fmt.Errorf("policy %s: %w", name, err)
	}
	if !f.output.forPeople() {
		return f.output.print(cmd.OutOrStdout(), answer, table{})
	}
	return f.show(cmd, found)
}

// show prints what would be refused.
func (f *policyCheckFlags) show(cmd *cobra.Command, found *market.PolicyCheck) error {
	out := cmd.OutOrStdout()
	instances := table{header: []string{"SERVICE", "PLAN", "INSTANCES", "REFUSED", "BY"}}
	for _, one := range found.Instances {
		var rules []string
		for _, rule := range one.Rules {
			rules = append(rules, fmt.Sprintf("%s (%d)", rule.Rule, rule.Refused))
		}
		instances.rows = append(instances.rows, []string{one.Service, one.Plan, strconv.Itoa(one.Present), strconv.Itoa(one.Refused), orDash(strings.Join(rules, ", "))})
	}
	if err := instances.write(out, &f.output); err != nil {
		return err
	}
	unserved := table{header: []string{"CLUSTER", "REGION", "NO LONGER FOR", "BY", "WHY"}}
	for _, one := range found.Unserved {
		at := one.Cluster
		if at == "" {
			at = "of " + cmp.Or(one.Provider, "the operator")
		}
		unserved.rows = append(unserved.rows, []string{at, orDash(one.Region), one.Service + "/" + one.Plan, one.Rule, one.Why})
	}
	if len(unserved.rows) > 0 {
		fmt.Fprintln(out)
		if err := unserved.write(out, &f.output); err != nil {
			return err
		}
	}
	if found.UnservedMore > 0 {
		fmt.Fprintf(out, "and %d more\n", found.UnservedMore)
	}
	if found.Warning != "" {
		fmt.Fprintf(out, "warning: %s\n", printable(found.Warning))
	}
	for _, one := range found.Nowhere {
		fmt.Fprintf(out, "no cluster is left for %s/%s\n", one.Service, one.Plan)
	}
	return nil
}
