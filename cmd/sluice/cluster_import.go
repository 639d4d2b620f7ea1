package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

func newClusterImportCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{driver: v1alpha1.DriverKube}
	var selector string
	cmd := &cobra.Command{
		Use:   "import --selector LABELS",
		Short: "Register the existing Cluster API clusters of a management cluster",
		Long: `Register the existing Cluster API clusters of a management cluster and whose labels match.

The context must have the right to list Clusters and to read the Secrets with their kubeconfigs. For each cluster the
command does what "sluice cluster add" does: Sluice gets a service account of its own there, and keeps nothing else. A
member cluster has the name and the labels of its Cluster. Clusters that are not available yet are listed and left out; run
the command again later. Clusters that Sluice has made itself are left alone.`,
		Example: `  sluice cluster import --context kind-management --selector fleet=shared --provider acme --region eu-de`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := labels.Parse(selector)
			if err != nil || parsed.Empty() {
				return errors.New("--selector is required, for instance fleet=shared, so that no cluster is registered by accident")
			}
			admin, err := f.admin.config(cmd)
			if err != nil {
				return err
			}
			r, err := hub.registrar(cmd)
			if err != nil {
				return err
			}
			r.patience = f.wait
			return importClusters(cmd.Context(), r, hub.namespace, admin, parsed, func(cluster *v1alpha1.MemberCluster) error {
				return f.describe(cluster, givenOf(cmd))
			})
		},
	}
	flags := cmd.Flags()
	f.admin.bind(cmd, "management cluster")
	flags.StringVarP(&selector, "selector", "l", "", "labels of the Clusters to register")
	flags.StringVar(&f.provider, "provider", "", "organisation that runs the clusters")
	flags.StringVar(&f.region, "region", "", "region of the clusters")
	flags.StringVar(&f.zone, "zone", "", "zone within the region")
	f.bindTier(cmd)
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until each is ready; 0 does not wait")
	return cmd
}

// importClusters registers all matching clusters that it can; the error names the others.
func importClusters(ctx context.Context, r *registrar, namespace string, admin *rest.Config, which labels.Selector, describe func(*v1alpha1.MemberCluster) error) error {
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
			fmt.Fprintf(r.out, "cluster %s: left out: it is not available yet\n", made.Name)
			continue
		}
		if err := importCluster(ctx, r, namespace, management, made, describe); err != nil {
			problems = append(problems, err)
			continue
		}
		imported++
	}
	fmt.Fprintf(r.out, "%d of %s registered\n", imported, count(len(found.Items), "cluster"))
	return errors.Join(problems...)
}

func importCluster(ctx context.Context, r *registrar, namespace string, management client.Client, made *clusterv1.Cluster, describe func(*v1alpha1.MemberCluster) error) error {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: made.Namespace, Name: made.Name + "-kubeconfig"}
	if err := management.Get(ctx, key, &secret); err != nil {
		return fmt.Errorf("cluster %s: read its kubeconfig from Secret %s: %w", made.Name, key, err)
	}
	config, err := member.Config(secret.Data["value"])
	if err != nil {
		return fmt.Errorf("cluster %s: its kubeconfig: %w", made.Name, err)
	}
	from := made.Namespace + "/" + made.Name
	return r.register(ctx, client.ObjectKey{Namespace: namespace, Name: made.Name}, config, true, func(cluster *v1alpha1.MemberCluster) error {
		if cluster.UID != "" && cluster.Annotations[annotationImported] != from {
			return errors.New("there is another member cluster of that name")
		}
		cluster.Labels = maps.Clone(made.Labels)
		delete(cluster.Labels, clusterv1.ClusterTopologyOwnedLabel)
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, annotationImported, from)
		return describe(cluster)
	})
}

// annotationImported names the Cluster from which a member cluster was imported.
const annotationImported = "sluice.dev/imported-from"
