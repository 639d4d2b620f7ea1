package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/backup"
	"github.com/sluice-dev/sluice/internal/hub"
)

func newHubCommand(flags *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hub",
		Short: "Back up a hub, restore it as an embedded one, and move it",
	}
	flags.bind(cmd)
	cmd.AddCommand(newHubKeyCommand(), newHubBackupCommand(flags), newHubRestoreCommand(flags), newHubReleaseCommand(flags), newHubMoveCommand(flags))
	return cmd
}

func newHubKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key FILE",
		Short: "Make a key for backups",
		Long: `Make a key for backups, a key pair of age (age-encryption.org) as age-keygen makes it, and print the public key.

To make backups, the public key is enough. Keep FILE away from the hub's machine: without it no backup can be restored,
and with it and a backup, everything that the hub has encrypted can be read.`,
		Example: `  sluice hub key backup.key > backup.pub`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			public, err := backup.NewKey(args[0])
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists: a key that backups are sealed for is not replaced; name another file", args[0])
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
			return err
		},
	}
}

func newHubBackupCommand(flags *hubFlags) *cobra.Command {
	var key, keyset, platforms string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Back up a hub while it is in use",
		Long: `Back up a hub while it is in use: all resources as they were at one moment, with the keyset and the list of platforms,
sealed for a key. FILE must not exist. A keyset that lacks keys of what the hub has sealed is refused.

The backup of a hub on a cluster has the resources in one namespace, and the access to member clusters from its Secrets,
sealed with the keyset. It is restored as an embedded hub. Name keyset and platforms file, which are in Secrets there.`,
		Example: `  sluice hub backup hub.backup --key backup.pub
  sluice hub backup hub.backup --key backup.pub --kubeconfig hub.kubeconfig --keyset keyset.json --platforms platforms.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b := &hubBackup{key: key, keyset: keyset, platforms: platforms}
			if !flags.embedded() {
				if keyset == "" || platforms == "" {
					return errors.New("back up the hub: name its keyset and its platforms file: a hub on a cluster has them in Secrets (--keyset, --platforms)")
				}
				b.namespace = flags.namespace
			}
			if b.keyset == "" {
				b.keyset = flags.keysetPath()
			}
			if b.platforms == "" {
				b.platforms = platformsPath(flags.dataDir)
			}
			if _, err := backup.Identities(key); err == nil && isBelow(key, flags.dataDir) {
				return fmt.Errorf("back up the hub: the secret key %s is in the data folder, and would be lost with it: keep it elsewhere", key)
			}
			var err error
			if b.config, err = flags.config(cmd); err != nil {
				return err
			}
			made, err := b.write(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s at revision %s, of %s\n", args[0], count(made.Resources, "resource"), made.Revision, made.Taken.Format(time.RFC3339))
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the key that the backup is sealed for; the public one is enough (required)")
	cmd.Flags().StringVar(&keyset, "keyset", "", "keyset of sluice serve (default: the one that it was started with)")
	cmd.Flags().StringVar(&platforms, "platforms", "", "platforms file of sluice serve (default: the one that it was started with)")
	_ = cmd.MarkFlagRequired("key") // it exists
	return cmd
}

func newHubRestoreCommand(flags *hubFlags) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore an embedded hub from a backup, into a folder without one",
		Long: `Restore an embedded hub from a backup, into a data folder without one; "sluice serve" then runs it. The hub from which
the backup was made must not run any more: both would be the same one for the member clusters.

The whole backup is checked before anything is changed. If the command is killed, run it again.

The hub does not know what was made after the backup. So it is marked as restored, and nothing that it does not know is
removed from member clusters before "sluice hub release". What such instances have reserved is not sold again.`,
		Example: `  sluice hub restore hub.backup --key backup.key --data-dir /var/lib/sluice`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !flags.embedded() {
				return errors.New("restore the hub: want a folder (--data-dir), not a cluster: only an embedded hub can be restored")
			}
			identities, err := backup.Identities(key)
			if err != nil {
				return err
			}
			made, err := hub.Restore(cmd.Context(), hub.RestoreOptions{
				DataDir: flags.dataDir, Version: version,
				Files: filesIn(flags.dataDir),
				Read: func(do func(backup.Entry) error) (*backup.Header, error) {
					file, err := os.Open(args[0])
					if err != nil {
						return nil, err
					}
					defer file.Close()
					return backup.Read(file, identities, do)
				},
			})
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: restored %s of %s\n"+
				"Next: run `sluice serve`. What was made after that moment is on member clusters only: `sluice collect` lists it.\n"+
				"Nothing of it is removed before `sluice hub release`.\n",
				flags.dataDir, count(made.Resources, "resource"), made.Taken.Format(time.RFC3339))
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the secret key that opens the backup (required)")
	_ = cmd.MarkFlagRequired("key") // it exists
	return cmd
}

func newHubReleaseCommand(flags *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "End the hold of a restored hub on what it does not know",
		Long: `End the hold of a restored hub: from now on, objects on member clusters that belong to no instance or binding may be
removed again, by "sluice collect --remove" or "sluice serve --collect remove". Look at what "sluice collect" lists first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := flags.config(cmd)
			if err != nil {
				return err
			}
			mark, err := hub.Restored(cmd.Context(), config)
			if err != nil {
				return err
			}
			if mark == nil {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the hub holds nothing: it was not restored, or was released before")
				return err
			}
			if err := hub.Release(cmd.Context(), config); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "the hub that was %s is released\n", mark)
			return err
		},
	}
}

// isBelow reports whether a path is in a folder, or in one below it.
func isBelow(path, folder string) bool {
	path, errPath := filepath.Abs(path)
	folder, errFolder := filepath.Abs(folder)
	if errPath != nil || errFolder != nil {
		return false
	}
	relative, err := filepath.Rel(folder, path)
	return err == nil && relative != ".." && !strings.HasPrefix(relative, ".."+string(filepath.Separator))
}
