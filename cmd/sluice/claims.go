package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

func newClusterClaimsCommand(hub *hubFlags) *cobra.Command {
	return newClaimsOfCommand(hub, "Show what is proven of a member cluster, by whom, and until when",
		"Show what is proven of a member cluster, by whom, and until when: the claims that placement policies go by. Where\nthe cluster must prove what it is, the steps of its admission come first.",
		"  sluice cluster claims eu-1", "cluster",
		func() (client.Object, *[]v1alpha1.VerificationStep, *[]v1alpha1.Claim) {
			cluster := &v1alpha1.MemberCluster{}
			return cluster, &cluster.Status.Admission, &cluster.Status.Claims
		})
}

// newClaimsOfCommand returns a command that shows the claims of a resource. blank returns an empty one, and where its
// report and claims are.
func newClaimsOfCommand(hub *hubFlags, short, long, example, noun string, blank func() (client.Object, *[]v1alpha1.VerificationStep, *[]v1alpha1.Claim)) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use: "claims NAME", Short: short, Long: long, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			of, report, claims := blank()
			if err := c.Get(cmd.Context(), client.ObjectKey{Namespace: hub.namespace, Name: args[0]}, of); err != nil {
				return fmt.Errorf("%s %s: %w", noun, args[0], err)
			}
			if output.forPeople() {
				for _, s := range *report {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %-10s %s\n", mark(selfdescription.Result(s.Result)), s.Step, printable(s.Message))
				}
			}
			t := table{header: []string{"CLAIM", "VALUE", "ASSURANCE", "ISSUER", "CREDENTIAL", "UNTIL"}}
			for _, claim := range *claims {
				t.rows = append(t.rows, []string{claim.Name, claim.Value, string(claim.Assurance), claim.Issuer, claim.Credential, date(claim.ExpiresAt)})
			}
			return output.print(cmd.OutOrStdout(), *claims, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// admission describes whether a cluster has proven what it must; "-" if nothing is
// required.
func admission(cluster *v1alpha1.MemberCluster) string {
	if cluster.Spec.Trust == nil {
		return "-"
	}
	return yesNo(viewCondition(cluster.Status.Conditions, v1alpha1.ConditionAdmitted))
}

func date(t *metav1.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.DateOnly)
}
