package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/kube"
)

func newClusterImportCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{driver: v1alpha1.DriverKube}
	var selector string
	cmd := &cobra.Command{
		Use:   "import --selector LABELS",
		Short: "Register the clusters that Cluster API has made on a management cluster",
		Long: `Register the clusters that Cluster API has made on a management cluster, as far as their labels match.

With that context's rights, which must allow it to list Clusters and to read the Secrets with their kubeconfigs, it
does for each what "sluice cluster add" does: Sluice gets a service account of its own there, and keeps nothing else. A
cluster is called like its Cluster, and has its labels. Clusters that are not available yet are named and left out; run it
again, it is made for that. Clusters that Sluice has made itself are left alone.`,
		Example: `  sluice cluster import --context kind-management --selector fleet=shared --provider acme --region eu-de`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := labels.Parse(selector)
			if err != nil || parsed.Empty() {
				return errors.New("--selector says which clusters, for instance fleet=shared; all of them would be too many by accident")
			}
			admin, err := f.config()
			if err != nil {
				return err
			}
			c, err := hub.client()
			if err != nil {
				return err
			}
			return importClusters(cmd.Context(), cmd.OutOrStdout(), hub, c, f, admin, parsed)
		},
	}
	flags := cmd.Flags()
	f.bindAdmin(cmd, "management cluster")
	flags.StringVarP(&selector, "selector", "l", "", "labels of the Clusters to register")
	flags.StringVar(&f.provider, "provider", "", "organisation that runs the clusters")
	flags.StringVar(&f.region, "region", "", "region of the clusters")
	flags.StringVar(&f.zone, "zone", "", "zone within the region")
	flags.StringVar(&f.tier, "tier", string(v1alpha1.TierCloud), "tier of the clusters: cloud or edge")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until each is ready; 0 does not wait")
	return cmd
}

// importClusters registers what matches, all that it can; the error has the others.
func importClusters(ctx context.Context, w io.Writer, hub *hubFlags, c client.Client, f *clusterAddFlags, admin *rest.Config, which labels.Selector) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clusterv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	management, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the management cluster: %w", err)
	}
	var found clusterv1.ClusterList
	if err := management.List(ctx, &found, client.MatchingLabelsSelector{Selector: which}); err != nil {
		return fmt.Errorf("list Clusters on the management cluster: %w", err)
	}
	var problems []error
	imported := 0
	for i := range found.Items {
		made := &found.Items[i]
		switch {
		case made.Labels[v1alpha1.LabelInstance] != "":
			continue
		case !meta.IsStatusConditionTrue(made.Status.Conditions, clusterv1.ClusterAvailableCondition):
			fmt.Fprintf(w, "cluster %s: left out: it is not available yet\n", made.Name)
			continue
		}
		if err := importCluster(ctx, w, hub, c, f, management, made); err != nil {
			problems = append(problems, err)
			continue
		}
		imported++
	}
	fmt.Fprintf(w, "%d of %d clusters registered\n", imported, len(found.Items))
	return errors.Join(problems...)
}

func importCluster(ctx context.Context, w io.Writer, hub *hubFlags, c client.Client, f *clusterAddFlags, management client.Client, made *clusterv1.Cluster) error {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: made.Namespace, Name: made.Name + "-kubeconfig"}
	if err := management.Get(ctx, key, &secret); err != nil {
		return fmt.Errorf("cluster %s: read its kubeconfig from Secret %s: %w", made.Name, key, err)
	}
	config, err := member.Config(secret.Data["value"])
	if err != nil {
		return fmt.Errorf("cluster %s: its kubeconfig: %w", made.Name, err)
	}
	cluster, err := f.cluster(made.Name)
	if err != nil {
		return err
	}
	cluster.Namespace, cluster.Labels = hub.namespace, maps.Clone(made.Labels)
	delete(cluster.Labels, clusterv1.ClusterTopologyOwnedLabel)
	cluster.Annotations = map[string]string{annotationImported: made.Namespace + "/" + made.Name}
	var known v1alpha1.MemberCluster
	err = c.Get(ctx, client.ObjectKeyFromObject(cluster), &known)
	if err == nil && known.Annotations[annotationImported] != cluster.Annotations[annotationImported] {
		return fmt.Errorf("cluster %s: there is another member cluster of that name", made.Name)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: read it from the hub: %w", made.Name, err)
	}
	return addCluster(ctx, w, hub, c, cluster, config, kube.ManifestOptions{}, f.wait)
}

// annotationImported names the Cluster that a member cluster was imported from.
const annotationImported = "sluice.dev/imported-from"
