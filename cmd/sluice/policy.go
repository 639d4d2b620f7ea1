package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// policyFlags select where policies are: on the hub, or at a broker whose market answers for one provider or platform.
type policyFlags struct {
	hub    *hubFlags
	market marketFlags
}

// policies are kept on the hub, or at a market.
type policies interface {
	// list returns all that the caller sees, by name.
	list(ctx context.Context) ([]v1alpha1.PlacementPolicy, error)
	get(ctx context.Context, name string) (*v1alpha1.PlacementPolicy, error)
	// apply creates or changes a policy, and waits until it is in force. The error says why it does not compile.
	apply(ctx context.Context, document *unstructured.Unstructured) (*v1alpha1.PlacementPolicy, error)
	remove(ctx context.Context, name string) error
}

// open returns the policies that the flags select.
func (f *policyFlags) open(cmd *cobra.Command) (policies, error) {
	if f.market.to != "" {
		m, err := f.market.connect(cmd)
		if err != nil {
			return nil, err
		}
		return marketPolicies{m}, nil
	}
	c, err := f.hub.client(cmd)
	if err != nil {
		return nil, err
	}
	return hubPolicies{c, f.hub.namespace}, nil
}

// completeName completes the name of a policy.
func (f *policyFlags) completeName(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		if at, err := f.open(cmd); err == nil {
			all, _ := at.list(cmd.Context()) // nothing is offered
			for i := range all {
				names = append(names, all[i].Name)
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// hubPolicies are the policies on the hub.
type hubPolicies struct {
	client.Client
	namespace string
}

func (h hubPolicies) list(ctx context.Context) ([]v1alpha1.PlacementPolicy, error) {
	var all v1alpha1.PlacementPolicyList
	if err := h.List(ctx, &all, client.InNamespace(h.namespace)); err != nil {
		return nil, fmt.Errorf("list placement policies: %w", err)
	}
	return all.Items, nil
}

func (h hubPolicies) get(ctx context.Context, name string) (*v1alpha1.PlacementPolicy, error) {
	p := &v1alpha1.PlacementPolicy{}
	return p, h.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, p)
}

func (h hubPolicies) apply(ctx context.Context, document *unstructured.Unstructured) (*v1alpha1.PlacementPolicy, error) {
	if document.GetNamespace() == "" {
		document.SetNamespace(h.namespace)
	}
	policy := &v1alpha1.PlacementPolicy{}
	problem, err := applyDocument(ctx, h, document, policy, func() []metav1.Condition { return policy.Status.Conditions })
	if err == nil && problem != "" {
		err = fmt.Errorf("%s", problem)
	}
	return policy, err
}

func (h hubPolicies) remove(ctx context.Context, name string) error {
	return h.Delete(ctx, &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}})
}

func newPolicyCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Manage placement policies: what clusters must have proven, and which are preferred",
		Long:  "Manage placement policies: what clusters must have proven, and which are preferred." + marketHelp,
	}
	f := &policyFlags{hub: hub}
	hub.bind(cmd)
	f.market.bind(cmd)
	cmd.AddCommand(newPolicyApplyCommand(f), newPolicyListCommand(f), newPolicyShowCommand(f), newPolicyRemoveCommand(f), newPolicyCheckCommand(f))
	return cmd
}

func newPolicyApplyCommand(f *policyFlags) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or change placement policies, and wait until they are in force",
		Long: `Create or change the placement policies of a YAML file ("-" is standard input), and wait until they are in
force. They govern new placements; instances that are placed stay where they are. A policy with a rule that does
not compile is in force too: it refuses what it matches, and the command says why and fails.

With --to, a provider or a platform creates or changes its own policies, with the names PROVIDER.NAME or
platform.PLATFORM.NAME. Rules that do not compile are refused then.` + marketHelp,
		Example: `  sluice policy apply -f docs/examples/policy.yaml
  sluice policy apply -f policy.yaml --to https://broker.example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			documents, err := readPolicies(cmd, file)
			if err != nil {
				return err
			}
			at, err := f.open(cmd)
			if err != nil {
				return err
			}
			for _, document := range documents {
				policy, err := at.apply(cmd.Context(), document)
				if err != nil {
					return fmt.Errorf("policy %s: %w", document.GetName(), err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "policy %s: in force, %s%s\n", policy.Name, contents(&policy.Spec), remark(policy))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with PlacementPolicy resources, or - for standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

// readPolicies reads the policies of a file.
func readPolicies(cmd *cobra.Command, file string) ([]*unstructured.Unstructured, error) {
	data, err := readInput(cmd, file)
	if err != nil {
		return nil, err
	}
	documents, err := decodeDocuments[v1alpha1.PlacementPolicy](data, "PlacementPolicy")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return documents, nil
}

func newPolicyListCommand(f *policyFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List placement policies and what they apply to",
		Long: `List placement policies and what they apply to. With --to, it lists those about the provider or platform that calls,
its own and the operator's.` + marketHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := f.open(cmd)
			if err != nil {
				return err
			}
			policies, err := at.list(cmd.Context())
			if err != nil {
				return err
			}
			t := table{
				header: []string{"NAME", "READY", "PROVIDER", "PLATFORMS", "ORGANIZATIONS", "SPACES", "PLANS", "REQUIRES", "PREFERS", "FURTHER", "FORECAST"},
				wide:   []string{"FORECAST"},
			}
			for i := range policies {
				policy := &policies[i]
				ready := "unknown"
				if view := viewCondition(policy.Status.Conditions, v1alpha1.ConditionReady); view != nil {
					ready = "yes" + remark(policy)
					if !view.isTrue {
						ready = "no: " + view.message
					}
				}
				forecast := ""
				if view := viewCondition(policy.Status.Conditions, v1alpha1.ConditionForecast); view != nil {
					forecast = view.message
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
				m := policy.Spec.Concerned()
				t.rows = append(t.rows, []string{
					policy.Name, ready, orDash(policy.Spec.Provider), all(m.Platforms), all(m.Organizations), all(m.Spaces), all(m.Plans),
					orDash(strings.Join(requires, ", ")), orDash(strings.Join(prefers, ", ")), orDash(strings.Join(further(&policy.Spec), ", ")), orDash(forecast),
				})
			}
			return output.print(cmd.OutOrStdout(), policies, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// contents lists what a policy has, for instance "2 requirements and quota".
func contents(spec *v1alpha1.PlacementPolicySpec) string {
	var parts []string
	if n := len(spec.Require); n > 0 {
		parts = append(parts, count(n, "requirement"))
	}
	if n := len(spec.Prefer); n > 0 {
		parts = append(parts, count(n, "preference"))
	}
	parts = append(parts, further(spec)...)
	switch last := len(parts) - 1; last {
	case -1:
		return "without any rule"
	case 0:
		return parts[0]
	default:
		return strings.Join(parts[:last], ", ") + " and " + parts[last]
	}
}

// further lists the fields that a policy has beside require and prefer.
func further(spec *v1alpha1.PlacementPolicySpec) (fields []string) {
	for _, field := range []struct {
		name string
		has  bool
	}{
		{"workloads", spec.Workloads != nil}, {"score", spec.Score != v1alpha1.ScoreWeights{}}, {"quota", spec.Quota != nil},
		{"rebalance", spec.Rebalance != nil}, {"makeRoom", spec.MakeRoom != nil}, {"elastic", spec.Elastic != nil},
		{"measure", spec.Measure != nil}, {"priorityClasses", len(spec.PriorityClasses) > 0},
	} {
		if field.has {
			fields = append(fields, field.name)
		}
	}
	return fields
}

// remark returns what the status of a policy in force adds to that, for instance that it names a plan that there is not.
func remark(policy *v1alpha1.PlacementPolicy) string {
	view := viewCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
	if view == nil || !view.isTrue {
		return ""
	}
	return printable(strings.TrimPrefix(view.message, v1alpha1.PolicyInForceMessage))
}

func newPolicyShowCommand(f *policyFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Print a placement policy as a file that apply takes",
		Long:              "Print a placement policy as a file that apply takes." + marketHelp,
		Example:           `  sluice policy show acme.residents --to https://broker.example > policy.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := f.open(cmd)
			if err != nil {
				return err
			}
			policy, err := at.get(cmd.Context(), args[0])
			if err != nil {
				return fmt.Errorf("policy %s: %w", args[0], err)
			}
			return output.print(cmd.OutOrStdout(), map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PlacementPolicy", "metadata": map[string]string{"name": policy.Name}, "spec": policy.Spec,
			}, table{})
		},
	}
	output.bindFormats(cmd, outputYAML, outputJSON)
	return cmd
}

func newPolicyRemoveCommand(f *policyFlags) *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a placement policy, so that it no longer rejects clusters",
		Long:              "Remove a placement policy, so that it no longer rejects clusters." + marketHelp,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeName,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := f.open(cmd)
			if err != nil {
				return err
			}
			if err := at.remove(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("policy %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "policy %s: removed\n", args[0])
			return err
		},
	}
}
