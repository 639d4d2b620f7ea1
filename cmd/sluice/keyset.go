package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/seal"
)

func newKeysetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keyset",
		Short: "The keys that seal kubeconfigs and credentials at rest",
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "new FILE",
			Short:   "Create a keyset, unless the file is there",
			Example: "  sluice keyset new keyset.json && kubectl create secret generic sluice-keyset --from-file keyset.json",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := seal.Load(args[0])
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: it was there and is kept as it is; sluice keyset rotate adds a key\n", args[0])
					return err
				}
				if !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				if _, err := seal.Open(args[0]); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: created; keep a safe backup: what it seals cannot be read without it\n", args[0])
				return err
			},
		},
		&cobra.Command{
			Use:   "rotate FILE",
			Short: "Add a key that seals from now on; older ones still unseal",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				keys, err := seal.Load(args[0])
				if errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("no keyset in %s: sluice keyset new makes one", args[0])
				}
				if err != nil {
					return err
				}
				if err := keys.Rotate(); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: a new key seals from now on\n", args[0])
				return err
			},
		},
	)
	return cmd
}
