package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/registration"
)

func newClusterCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Manage member clusters, the clusters on which instances are placed",
	}
	hub.bind(cmd)
	cmd.AddCommand(newClusterAddCommand(hub), newClusterRenewCommand(hub), newClusterListCommand(hub), newClusterDescribeCommand(hub), newClusterClaimsCommand(hub), newClusterRemoveCommand(hub),
		newClusterScheduleCommand(hub, schedulability{
			use: "cordon NAME", short: "Stop new placements on a member cluster; its instances stay", done: "takes no new placements", apply: (*v1alpha1.MemberClusterSpec).Cordon,
		}),
		newClusterScheduleCommand(hub, schedulability{
			use: "uncordon NAME", short: "Allow new placements on a member cluster again, and stop draining it", done: "takes placements again", apply: (*v1alpha1.MemberClusterSpec).Uncordon,
		}),
		newClusterImportCommand(hub), newClusterJoinCommand(), newClusterDrainCommand(hub), newClusterLossCommand(hub), newClusterLatencyCommand(hub), newClusterManifestCommand())
	return cmd
}

func newClusterAddCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Register a member cluster from a kubeconfig context, or change its description",
		Long: `Register a member cluster from a kubeconfig context.

The context must have an administrator's rights. With them the command creates what Sluice needs on the cluster:
the namespace sluice-system, a service account with exactly the verbs in "sluice cluster manifest", and its token.
Sluice keeps only that token, sealed in the hub (or in a Secret, if the hub is a cluster), and not the
administrator's credentials. The kubeconfig's current context is not used by itself: if there are several
contexts, name one with --context, or the command asks.

If the cluster is registered already, only the given flags change it: labels are added, taints replaced, and
everything else stays. "sluice cluster renew" changes only the access. The hub checks the change first; if it
refuses, nothing is done on the cluster.

With --offering, no new instances are placed on the cluster until its provider has proven, with signed
credentials, that the cluster is this offering (sluice sd --help).`,
		Example: `  sluice cluster add eu-1 --context kind-eu-1 --region eu-de --provider acme
  sluice cluster add edge-7 --from-kubeconfig edge.kubeconfig --tier edge --price cpu=0.04,memory=0.005
  sluice cluster add eu-3 --context kind-eu-3 --driver liqo --gateway-service NodePort
  sluice cluster add eu-4 --context kind-eu-4 --capacity cpu=8,memory=32Gi,pods=110
  sluice cluster add theirs --context kind-theirs --driver liqo --consumer cf/their-org
  sluice cluster add makers --context kind-makers --driver capi --capacity sluice.dev/clusters=10,cpu=200
  sluice cluster add eu-2 --context kind-eu-2 --provider acme --offering "https://acme.example/selfdescription/offering-eu#subject"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.register(cmd, hub, args[0], func(cluster *v1alpha1.MemberCluster) error {
				if cluster.IsJoined() {
					return errors.New("it has joined by invitation: change it with `sluice peering join`")
				}
				return f.describe(cluster, givenOf(cmd))
			})
		},
	}
	f.bind(cmd)
	return cmd
}

// register registers Sluice on the cluster that the administrator's flags name, and the
// cluster in the hub.
func (f *clusterAddFlags) register(cmd *cobra.Command, hub *hubFlags, name string, change func(*v1alpha1.MemberCluster) error) error {
	r, err := hub.registrar(cmd)
	if err != nil {
		return err
	}
	key, known := client.ObjectKey{Namespace: hub.namespace, Name: name}, &v1alpha1.MemberCluster{}
	if err := r.hub.Client.Get(cmd.Context(), key, known); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	changeCluster := func(cluster *v1alpha1.MemberCluster) error {
		return cmp.Or(checkKind(cluster, overview.KindCluster), change(cluster))
	}
	if err := changeCluster(known); err != nil { // before a kubeconfig is asked for
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	admin, err := f.admin.config(cmd)
	if err != nil {
		return err
	}
	r.manifest, r.patience = f.manifest, f.wait
	if f.reader.tokenFile != "" {
		named := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: name}}
		token, err := os.ReadFile(f.reader.tokenFile)
		if err != nil {
			return fmt.Errorf("--reader-token-file: %w", err)
		}
		access, err := r.store.Store(cmd.Context(), v1alpha1.ReaderIdentity(named), token)
		if err != nil {
			return fmt.Errorf("cluster %s: store the token for its reader: %w", name, err)
		}
		f.reader.token = &access
	}
	return r.register(cmd.Context(), key, admin, f.admin.server != "", changeCluster)
}

func newClusterRenewCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{}
	cmd := &cobra.Command{
		Use:   "renew NAME",
		Short: "Renew Sluice's access to a member cluster: its rights there and its token",
		Long: `Renew Sluice's access to a member cluster: apply again what Sluice needs there, as "sluice cluster add" does,
and store the new token. Nothing else changes: provider, region, prices and required proofs stay. The context must
have an administrator's rights, and must be of the cluster that is registered by that name.`,
		Example: `  sluice cluster renew eu-1 --context kind-eu-1`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.register(cmd, hub, args[0], checkRenewable) },
	}
	f.admin.bind(cmd, "member cluster")
	f.admin.bindServer(cmd)
	bindWithoutPolicies(cmd, &f.manifest)
	cmd.Flags().DurationVar(&f.wait, "wait", time.Minute, "how long to wait until the cluster is ready; 0 does not wait")
	return cmd
}

// checkRenewable returns an error if Sluice's access to a cluster cannot be renewed: also of the zero value, if there is none.
func checkRenewable(cluster *v1alpha1.MemberCluster) error {
	switch {
	case cluster.UID == "":
		return errors.New("no member cluster has that name: `sluice cluster list` shows them all, `sluice cluster add` registers one")
	case cluster.IsJoined():
		return errors.New("it has joined by invitation: its owner runs `sluice peering accept` again, then you run `sluice peering join`")
	}
	return nil
}

func newClusterManifestCommand() *cobra.Command {
	var options kube.ManifestOptions
	var driver, reader, liqoNamespace string
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what `cluster add` creates on a member cluster: every permission that Sluice needs there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: driver, Liqo: &v1alpha1.LiqoCluster{Namespace: liqoNamespace}}}
			options.Reader = reader
			options, err := registration.Permissions(options, cluster)
			if err != nil {
				return err
			}
			manifest, err := kube.Manifest(options)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(manifest)
			return err
		},
	}
	bindManifest(cmd, &options, &driver)
	bindReader(cmd, &reader)
	cmd.Flags().StringVar(&liqoNamespace, "liqo-namespace", names.DefaultNamespace, "namespace of Liqo, with --driver liqo")
	return cmd
}
