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
		Short: "Manage the keys that encrypt kubeconfigs and credentials at rest",
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:     "new FILE",
			Short:   "Create a keyset, unless the file exists",
			Example: "  sluice keyset new keyset.json && kubectl -n sluice create secret generic sluice-keyset --from-file keyset.json",
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := seal.Load(args[0])
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: exists and is kept as it is; `sluice keyset rotate` adds a key\n", args[0])
					return err
				}
				if !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("keyset in %s: the file exists and is not replaced: name another, or correct this one: %w", args[0], err)
				}
				if _, err := seal.Open(args[0]); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: created; keep a safe backup: nothing that it encrypts can be read without it\n", args[0])
				return err
			},
		},
		&cobra.Command{
			Use:   "rotate FILE",
			Short: "Add a key that encrypts from now on; older keys still decrypt",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				keys, err := seal.Load(args[0])
				if errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("no keyset in %s: `sluice keyset new` creates one", args[0])
				}
				if err != nil {
					return err
				}
				if err := keys.Rotate(); err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyset in %s: a new key encrypts from now on\n", args[0])
				return err
			},
		},
	)
	return cmd
}
