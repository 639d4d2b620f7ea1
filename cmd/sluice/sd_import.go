package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

func newSDImportCommand(hub *hubFlags) *cobra.Command {
	var provider, key string
	cmd := &cobra.Command{
		Use:   "import FILE --provider NAME",
		Short: "Store a credential with a JSON-LD proof on behalf of a provider",
		Long: `Store a credential with a JSON-LD proof (JsonWebSignature2020, as self-descriptions had before they were JSON Web
Tokens) on behalf of a provider, and print how it was verified. No broker takes such credentials from the network:
an operator vouches that the provider handed it over. The report says which fields its form leaves unsigned.

Contexts are those of the W3C and of Gaia-X 25.11 and 22.10; docs/operating.md has their URLs. A proof of 2022 or 2023
may name the issuer's DID where it should name a key: say with --key which of the issuer's keys it is. A credential that
was imported before, for another provider or with another key, is replaced.`,
		Example: `  sluice sd import participant.jsonld --provider acme
  sluice sd import participant.jsonld --provider acme --key did:web:acme.example#JWK2020-RSA`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			if len(text) > selfdescription.MaxCredential {
				return fmt.Errorf("%s: longer than %d bytes", args[0], selfdescription.MaxCredential)
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			sd := &v1alpha1.SelfDescription{
				ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(string(text)))},
				Spec:       v1alpha1.SelfDescriptionSpec{Credential: string(text), Legacy: true, KeyID: key, Presenter: v1alpha1.Presenter{Provider: provider}},
			}
			if err := storeImported(cmd.Context(), c, sd); err != nil {
				return fmt.Errorf("store %s: %w", args[0], err)
			}
			return printVerdict(cmd, c, sd)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "name of the provider whose credential it is")
	cmd.Flags().StringVar(&key, "key", "", "DID URL of the issuer's key, where the proof names none")
	_ = cmd.MarkFlagRequired("provider")
	return cmd
}

// storeImported stores a credential. It replaces one that was imported with another key or for another provider, because
// neither can be changed. One that was withdrawn stays so.
func storeImported(ctx context.Context, c client.Client, sd *v1alpha1.SelfDescription) error {
	err := c.Create(ctx, sd)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	stored := &v1alpha1.SelfDescription{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(sd), stored); err != nil {
		return err
	}
	switch {
	case stored.Spec.Revoked:
		return fmt.Errorf("it was withdrawn here for good: %s; its issuer can sign another", stored.Spec.RevokedBecause)
	case !stored.Spec.Legacy:
		return fmt.Errorf("%s has it, and not as an import; delete that first", stored.Name)
	case stored.Spec.Presenter == sd.Spec.Presenter && stored.Spec.KeyID == sd.Spec.KeyID:
		return nil
	}
	unchanged := client.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion}
	if err := c.Delete(ctx, stored, unchanged); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("replace the one of %s: %w", stored.Spec.Presenter, err)
	}
	return c.Create(ctx, sd)
}

// printVerdict waits until a credential is verified or rejected, and prints the report.
func printVerdict(cmd *cobra.Command, c client.Client, sd *v1alpha1.SelfDescription) error {
	err := wait.PollUntilContextTimeout(cmd.Context(), 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(sd), sd)
		return sd.Status.State != "" && sd.Status.ObservedGeneration == sd.Generation, err
	})
	if wait.Interrupted(err) {
		return errors.New("stored, but no controller has read it within 30 s: is `sluice serve` running?")
	}
	if err != nil {
		return fmt.Errorf("wait until a controller has read it: %w", err)
	}
	printReport(cmd.OutOrStdout(), sd.Status.Report)
	if sd.Status.State != v1alpha1.CredentialVerified {
		return fmt.Errorf("stored, and %s", sd.Status.State)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s of %s: stored\n", sd.Status.Type, sd.Status.Subject)
	return err
}
