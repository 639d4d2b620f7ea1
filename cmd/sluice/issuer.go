package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func newIssuerCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "issuer",
		Short: "Manage trusted issuers, the organisations whose credentials about providers are believed",
	}
	hub.bind(cmd)
	cmd.AddCommand(newIssuerAddCommand(hub), newIssuerListCommand(hub), issuerRemoval.command(hub))
	return cmd
}

func newIssuerAddCommand(hub *hubFlags) *cobra.Command {
	identity := &identityFlags{}
	var types []string
	var assurance v1alpha1.Assurance
	cmd := &cobra.Command{
		Use:   "add NAME --did DID --type TYPE --assurance ASSURANCE",
		Short: "Trust an organisation for certain types of credentials",
		Long: `Trust an organisation for certain types of credentials: a notary for registration numbers, a compliance
service for labels, a certification body for certifications. A credential of such a type from any other issuer counts
no more than a provider's own word, "self".

  self < notary < label < certified

Policies ask for the least assurance that they accept.`,
		Example: `  sluice issuer add notary --did did:web:notary.example --type VatID,LeiCode --assurance notary
  sluice issuer add tuv --did did:web:tuv.example --type Certification --assurance certified --keys tuv-jwks.json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			issuer := &v1alpha1.TrustedIssuer{ObjectMeta: metav1.ObjectMeta{Name: args[0], Namespace: hub.namespace}}
			err := identity.add(cmd, hub, issuer, &issuer.Spec.Identified, func(given) error {
				issuer.Spec.Types, issuer.Spec.Assurance = types, assurance
				return nil
			})
			if err != nil {
				return fmt.Errorf("trusted issuer %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "trusted issuer %s: what %s says in a %s counts as %s\n",
				args[0], issuer.Spec.DID, strings.Join(types, ", "), assurance)
			return err
		},
	}
	identity.bind(cmd)
	cmd.Flags().StringSliceVar(&types, "type", nil, "types of credentials it is trusted for, without prefix, for instance VatID")
	bindRequiredChoice(cmd, &assurance, "assurance", "", "assurance of these credentials", v1alpha1.AssuranceNotary, v1alpha1.AssuranceLabel, v1alpha1.AssuranceCertified)
	for _, name := range []string{"type", "assurance"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}

func newIssuerListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List trusted issuers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var issuers v1alpha1.TrustedIssuerList
			if err := c.List(cmd.Context(), &issuers, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list trusted issuers: %w", err)
			}
			t := table{header: []string{"NAME", "DID", "KEYS", "TYPES", "ASSURANCE", "AGE"}}
			for _, i := range issuers.Items {
				t.rows = append(t.rows, []string{i.Name, i.Spec.DID, keySource(i.Spec.Identified), strings.Join(i.Spec.Types, ", "),
					string(i.Spec.Assurance), age(v1alpha1.CreatedOf(&i))})
			}
			return output.print(cmd.OutOrStdout(), issuers.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}
