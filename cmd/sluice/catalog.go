package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newCatalogCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "What Sluice sells: service offerings and their plans",
	}
	hub.bind(cmd)
	cmd.AddCommand(newCatalogListCommand(hub), newCatalogApplyCommand(hub))
	return cmd
}

func newCatalogListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plans of every service offering, and whether the catalog serves them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			var offerings v1alpha1.ServiceOfferingList
			if err := c.List(cmd.Context(), &offerings, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list service offerings: %w", err)
			}
			t := table{header: []string{"SERVICE", "PLAN", "KIND", "BUYS", "COSTS", "SERVED"}}
			for _, offering := range offerings.Items {
				served := "no: the controller has not looked at it yet"
				if ready := meta.FindStatusCondition(offering.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
					served = "yes"
					if ready.Status != "True" {
						served = "no: " + ready.Message
					}
				}
				for _, plan := range offering.Spec.Plans {
					t.rows = append(t.rows, []string{offering.Spec.Name, plan.Name, string(plan.Kind), buys(plan), costs(plan), served})
				}
			}
			return output.print(cmd.OutOrStdout(), offerings.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// buys names what a plan sells, for instance "1 cpu, 1Gi memory × 2 clusters".
func buys(plan v1alpha1.Plan) string {
	if plan.Resources == nil {
		return "-"
	}
	text := quantities(plan.Resources.Limits)
	for class, size := range plan.Resources.Storage {
		text += fmt.Sprintf(", %s of %s", size.String(), class)
	}
	if plan.Resources.Clusters > 1 {
		text += fmt.Sprintf(" × %d clusters", plan.Resources.Clusters)
	}
	return text
}

func costs(plan v1alpha1.Plan) string {
	var lines []string
	for _, cost := range plan.Costs {
		for currency, amount := range cost.Amount {
			lines = append(lines, fmt.Sprintf("%s %s %s", strconv.FormatFloat(amount.AsApproximateFloat64(), 'f', 2, 64), strings.ToUpper(currency), strings.ToLower(cost.Unit)))
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
removed or given another meaning) is stored but not served; the command then says why and fails.`,
		Example: `  sluice catalog apply -f docs/examples/offering.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := readInput(cmd, file)
			if err != nil {
				return err
			}
			offerings, err := decodeOfferings(data)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			c, err := hub.client()
			if err != nil {
				return err
			}
			for _, document := range offerings {
				if document.GetNamespace() == "" {
					document.SetNamespace(hub.namespace)
				}
				offering, err := applyOffering(cmd.Context(), c, document)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "service offering %s: the catalog serves %s with %d plans\n", offering.Name, offering.Spec.Name, len(offering.Spec.Plans))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with ServiceOffering resources, or - for standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func readInput(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file)
}

// decodeOfferings reads a stream of YAML or JSON documents and refuses unknown
// fields. What it returns holds only the fields that are in the documents, so that
// the hub's defaults apply to the others.
func decodeOfferings(data []byte) ([]*unstructured.Unstructured, error) {
	var offerings []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return offerings, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		if err := yaml.UnmarshalStrict(document, &v1alpha1.ServiceOffering{}); err != nil {
			return nil, err
		}
		offering := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &offering.Object); err != nil {
			return nil, err
		}
		if want := v1alpha1.GroupVersion.WithKind("ServiceOffering"); offering.GroupVersionKind() != want {
			return nil, fmt.Errorf("%s: want %s", offering.GroupVersionKind(), want)
		}
		offerings = append(offerings, offering)
	}
}

// applyOffering writes one offering and waits until the controller has judged it.
func applyOffering(ctx context.Context, c client.Client, document *unstructured.Unstructured) (*v1alpha1.ServiceOffering, error) {
	name := document.GetName()
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("apply service offering %s: %w", name, err)
	}
	generation := document.GetGeneration()
	offering := &v1alpha1.ServiceOffering{}
	var ready *conditionView
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(document), offering); err != nil {
			return false, err
		}
		ready = viewCondition(offering.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.generation >= generation, nil
	})
	switch {
	case wait.Interrupted(err):
		return nil, fmt.Errorf("service offering %s is stored, but no controller has looked at it within 30 s: is `sluice serve` running?", name)
	case err != nil:
		return nil, fmt.Errorf("wait for service offering %s: %w", name, err)
	case !ready.isTrue:
		return nil, fmt.Errorf("service offering %s is stored but not served: %s", name, ready.message)
	}
	return offering, nil
}
