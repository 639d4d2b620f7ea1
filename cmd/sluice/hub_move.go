package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/internal/backup"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/secretfile"
)

// hubMove moves a hub.
type hubMove struct {
	*hubFlags
	toKubeconfig, toDataDir string
	keyset, platforms       string
	dryRun                  bool
}

func newHubMoveCommand(flags *hubFlags) *cobra.Command {
	m := &hubMove{hubFlags: flags}
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move a hub from its data folder to a cluster, or back",
		Long: `Move a hub from its data folder to a cluster, or back. It stays the same hub, for platforms and for member clusters.

Stop Sluice on both sides first. Everything is checked before anything is changed. Then the source is marked, and Sluice no
longer starts there. It starts at the destination when everything has arrived. If the command is interrupted, run it again:
it goes on.

The cluster needs Sluice's definitions and the namespace, and must not have a hub. Keyset and platforms file become the
Secrets sluice-keyset and sluice-platforms there, and files on the way back.`,
		Example: `  sluice hub move --to-kubeconfig hub.kubeconfig --dry-run
  sluice hub move --to-kubeconfig hub.kubeconfig
  sluice hub move --kubeconfig hub.kubeconfig --keyset keyset.json --platforms platforms.yaml --to-data-dir /var/lib/sluice`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			quietLibraries()
			moved, err := m.run(cmd)
			if err != nil {
				return fmt.Errorf("move the hub: %w", err)
			}
			return m.report(cmd, moved)
		},
	}
	cmd.Flags().StringVar(&m.toKubeconfig, "to-kubeconfig", "", "kubeconfig of the cluster that the embedded hub moves to")
	cmd.Flags().StringVar(&m.toDataDir, "to-data-dir", "", "data folder that the hub on a cluster moves to")
	cmd.Flags().StringVar(&m.keyset, "keyset", "", "keyset of the hub (default: the one that sluice serve was started with)")
	cmd.Flags().StringVar(&m.platforms, "platforms", "", "platforms file of the hub (default: the one that sluice serve was started with)")
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "check everything, say what would move, and change nothing")
	cmd.MarkFlagsMutuallyExclusive("to-kubeconfig", "to-data-dir")
	cmd.MarkFlagsOneRequired("to-kubeconfig", "to-data-dir")
	return cmd
}

// run moves the hub. The result is nil after a dry run.
func (m *hubMove) run(cmd *cobra.Command) (*hub.Moved, error) {
	move := &hub.Move{
		Namespace: m.namespace, Version: version, DryRun: m.dryRun,
		Say: func(format string, arguments ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", arguments...) },
	}
	toCluster, cluster := m.toKubeconfig != "", m.kubeconfig
	switch {
	case toCluster && !m.embedded():
		return nil, errors.New("from a cluster, a hub moves to a folder (--to-data-dir) only")
	case toCluster:
		cluster = m.toKubeconfig
		m.keyset, m.platforms = cmp.Or(m.keyset, m.keysetPath()), cmp.Or(m.platforms, platformsPath(m.dataDir))
	case m.kubeconfig == "" || m.keyset == "" || m.platforms == "":
		return nil, errors.New("to a folder, a hub moves from a cluster: name it, its keyset and its platforms file (--kubeconfig, --keyset, --platforms)")
	}
	var err error
	if move.Cluster, err = readHub(cluster); err != nil {
		return nil, err
	}
	if move.Idle, err = idle(move.Cluster, m.namespace, move.Say); err != nil {
		return nil, err
	}
	keys, err := seal.Load(m.keyset)
	if err != nil {
		return nil, err
	}
	move.Check = func(ctx context.Context, config *rest.Config) error { return keysFit(ctx, config, m.namespace, keys) }
	files, err := hubFiles(m.keyset, m.platforms)
	if err != nil {
		return nil, err
	}
	if toCluster {
		move.DataDir, move.To = m.dataDir, fmt.Sprintf("namespace %s of the cluster at %s", m.namespace, move.Cluster.Host)
		return move.ToCluster(cmd.Context(), secretsOf(files))
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if move.DataDir, err = filepath.Abs(m.toDataDir); err != nil {
		return nil, err
	}
	move.To = fmt.Sprintf("folder %s on %s", move.DataDir, host)
	sealed, err := sealSecrets(move.Cluster, keys)
	if err != nil {
		return nil, err
	}
	return move.ToFolder(cmd.Context(), hub.BackupOptions{Files: files, Change: sealed}, hub.RestoreOptions{Files: filesIn(move.DataDir)})
}

// report tells what was done, and what is to be done.
func (m *hubMove) report(cmd *cobra.Command, moved *hub.Moved) error {
	if moved == nil {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "Nothing was changed.")
		return err
	}
	what := "The hub has arrived: " + count(moved.Resources, "resource") + ", compared with the former home."
	if moved.Already {
		what = "The hub had arrived before."
	}
	next := "Next: helm install sluice charts/sluice -n " + m.namespace + " --wait\n" +
		"The chart finds keyset and platforms in the Secrets sluice-keyset and sluice-platforms. Keep a copy of " + m.keyset + " away from the cluster."
	if m.toDataDir != "" {
		next = "Next: sluice serve --data-dir " + m.toDataDir
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", what, next)
	return err
}

// hubFiles reads the files that belong to a hub.
func hubFiles(keyset, platforms string) (files []backup.File, err error) {
	for _, file := range []struct{ name, path string }{{keysetName, keyset}, {platformsName, platforms}} {
		content, err := secretfile.Read(file.path)
		if err != nil {
			return nil, fmt.Errorf("%w; the hub could not be used without %s", err, file.name)
		}
		files = append(files, backup.File{Name: file.name, Content: content})
	}
	return files, nil
}

// secretsOf returns the Secrets in which the chart expects the files of a hub.
func secretsOf(files []backup.File) (secrets []*corev1.Secret) {
	names := map[string]string{keysetName: "sluice-keyset", platformsName: "sluice-platforms"}
	for _, file := range files {
		secrets = append(secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: names[file.Name]}, Data: map[string][]byte{file.Name: file.Content}})
	}
	return secrets
}
