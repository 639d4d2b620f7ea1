package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/selfdescription"
)

func newSDRevokeCommand(hub *hubFlags) *cobra.Command {
	var because string
	cmd := &cobra.Command{
		Use:   "revoke FILE|DIGEST --because REASON",
		Short: "Withdraw a credential from this hub, whatever its issuer says",
		Long: `Withdraw a credential from this hub, whatever its issuer says. Its claims count no more: no new instance is
placed on the strength of it, and those that were stay. There is no way back; its issuer can sign another.`,
		Example: `  sluice sd revoke credentials/certification.jwt --because "the certificate was withdrawn"
  sluice sd revoke sha256-PxzN… --because "the audit failed"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			digest, ok := parseDigest(args[0])
			if !ok {
				credential, err := readCredential(args[0])
				if err != nil {
					return err
				}
				digest = credential.Digest
			}
			return revoke(cmd, hub, digest, because)
		},
	}
	hub.bind(cmd)
	cmd.Flags().StringVar(&because, "because", "", "reason, which everybody can read who fetches the credential")
	_ = cmd.MarkFlagRequired("because")
	return cmd
}

func revoke(cmd *cobra.Command, hub *hubFlags, digest selfdescription.Digest, because string) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	stored, err := findStored(cmd.Context(), hub, c, digest)
	if err != nil {
		return err
	}
	before := stored.DeepCopy()
	stored.Spec.Revoked, stored.Spec.RevokedBecause = true, because
	if err := c.Patch(cmd.Context(), stored, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("revoke credential %s: %w", digest.SRI(), err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "credential %s: a %s of %s, revoked\n", digest.SRI(), cmp.Or(stored.Status.Type, "credential"), cmp.Or(stored.Status.Issuer, "an issuer not known yet"))
	return err
}
