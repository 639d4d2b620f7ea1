package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func newClusterCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Member clusters: where instances can be placed",
	}
	hub.bind(cmd)
	cmd.AddCommand(newClusterAddCommand(hub), newClusterListCommand(hub), newClusterClaimsCommand(hub), newClusterRemoveCommand(hub),
		newClusterScheduleCommand(hub, schedulability{
			use: "cordon NAME", short: "Let nothing new onto a member cluster; instances on it stay", done: "takes no new placements", cordoned: true,
		}),
		newClusterScheduleCommand(hub, schedulability{
			use: "uncordon NAME", short: "Let new placements onto a member cluster again, and end its draining", done: "takes placements again",
		}),
		newClusterImportCommand(hub), newClusterDrainCommand(hub), newClusterLatencyCommand(hub), newClusterManifestCommand())
	return cmd
}

// clusterAddFlags describe the cluster to be added.
type clusterAddFlags struct {
	kubeconfig, context    string
	server, consumerServer string
	provider, region, zone string
	tier                   string
	labels                 map[string]string
	taints                 []string
	currency               string
	prices                 map[string]string
	oversubscribe          map[string]string
	driver                 string
	capacity               map[string]string
	latitude, longitude    string
	offering               string
	requires               []string
	grace                  time.Duration
	liqo                   liqoFlags
	manifest               kube.ManifestOptions
	wait                   time.Duration
}

func newClusterAddCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Register a member cluster from a kubeconfig context",
		Long: `Register a member cluster from a kubeconfig context.

With that context's rights, which must be an administrator's, it applies what Sluice needs there: the
namespace sluice-system, a service account with exactly the verbs in "sluice cluster manifest", and its
token. Only that token is kept, sealed in the hub (or in a Secret, when the hub is a cluster); the
administrator's credentials are not. Running it again renews the registration.

With --offering, the cluster takes no new instances until its provider has proven, with signed credentials, that
it is this offering (sluice sd --help).`,
		Example: `  sluice cluster add eu-1 --context kind-eu-1 --region eu-de --provider acme
  sluice cluster add edge-7 --from-kubeconfig edge.kubeconfig --tier edge --price cpu=0.04,memory=0.005
  sluice cluster add eu-3 --context kind-eu-3 --driver liqo --gateway-service NodePort
  sluice cluster add theirs --context kind-theirs --driver liqo --consumer cf/their-org
  sluice cluster add makers --context kind-makers --driver capi --capacity sluice.dev/clusters=10,cpu=200
  sluice cluster add eu-2 --context kind-eu-2 --provider acme --offering "https://acme.example/selfdescription/offering-eu#subject"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := f.cluster(args[0])
			if err != nil {
				return err
			}
			admin, err := f.config()
			if err != nil {
				return err
			}
			c, err := hub.client()
			if err != nil {
				return err
			}
			cluster.Namespace = hub.namespace
			manifest, err := forDriver(f.manifest, f.driver, f.liqo.namespace, len(f.liqo.consumers) == 0)
			if err != nil {
				return err
			}
			return addCluster(cmd.Context(), cmd.OutOrStdout(), hub, c, cluster, admin, manifest, f.wait)
		},
	}
	flags := cmd.Flags()
	f.bindAdmin(cmd, "member cluster")
	flags.StringVar(&f.server, "server", "", "URL at which Sluice reaches the API server, where it differs from the kubeconfig's")
	flags.StringVar(&f.consumerServer, "consumer-server", "", "URL at which consumers reach the API server, where it differs from Sluice's")
	f.bindDescription(flags)
	flags.StringToStringVar(&f.oversubscribe, "oversubscribe", nil, "by how much more of a resource is sold than there is, for instance cpu=1.5")
	flags.StringVar(&f.latitude, "latitude", "", "where the cluster is, in decimal degrees, north positive")
	flags.StringVar(&f.longitude, "longitude", "", "where the cluster is, in decimal degrees, east positive")
	bindManifest(cmd, &f.manifest, &f.driver)
	f.liqo.bind(flags)
	flags.StringToStringVar(&f.capacity, "capacity", nil, "what a cluster with the driver capi may make, for instance sluice.dev/clusters=10,cpu=200,memory=800Gi")
	flags.StringVar(&f.offering, "offering", "", "id of the service offering that --provider must prove the cluster to be")
	flags.StringSliceVar(&f.requires, "requires", nil, "types of credentials that must be there beside the offering's own, for instance LabelCredential")
	flags.DurationVar(&f.grace, "grace", 0, "how long claims count on after their credentials have ended")
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until the cluster is ready; 0 does not wait")
	return cmd
}

// bindAdmin binds the flags of config.
func (f *clusterAddFlags) bindAdmin(cmd *cobra.Command, of string) {
	cmd.Flags().StringVar(&f.kubeconfig, "from-kubeconfig", "", "kubeconfig of the "+of+" (default: $KUBECONFIG or ~/.kube/config)")
	cmd.Flags().StringVar(&f.context, "context", "", "context in that kubeconfig (default: its current one)")
}

// bindDescription binds the flags that say what a cluster is.
func (f *clusterAddFlags) bindDescription(flags *pflag.FlagSet) {
	flags.StringVar(&f.provider, "provider", "", "organisation that runs the cluster")
	flags.StringVar(&f.region, "region", "", "region of the cluster")
	flags.StringVar(&f.zone, "zone", "", "zone within the region")
	flags.StringVar(&f.tier, "tier", string(v1alpha1.TierCloud), "tier of the cluster: cloud or edge")
	flags.StringToStringVarP(&f.labels, "label", "l", nil, "labels that selectors match, key=value")
	flags.StringArrayVar(&f.taints, "taint", nil, "taint that repels requests, key=value:NoSchedule (repeatable)")
	flags.StringVar(&f.currency, "currency", "EUR", "currency of --price, an ISO 4217 code")
	flags.StringToStringVar(&f.prices, "price", nil, "price of one unit for one hour by resource, for instance cpu=0.04,memory=0.005 (memory by the GiB)")
}

// config reads the administrator's kubeconfig.
func (f *clusterAddFlags) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the member cluster's kubeconfig: %w", err)
	}
	if f.server != "" {
		config.Host = f.server
	}
	return config, nil
}

// cluster returns the MemberCluster that the flags describe, without its access.
func (f *clusterAddFlags) cluster(name string) (*v1alpha1.MemberCluster, error) {
	cluster := &v1alpha1.MemberCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MemberCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: f.labels},
		Spec: v1alpha1.MemberClusterSpec{
			Driver: f.driver, ConsumerServer: f.consumerServer,
			Provider: f.provider, Region: f.region, Zone: f.zone, Tier: v1alpha1.Tier(f.tier),
		},
	}
	trust, err := f.trust()
	if err != nil {
		return nil, err
	}
	cluster.Spec.Trust = trust
	for _, text := range f.taints {
		taint, err := parseTaint(text)
		if err != nil {
			return nil, err
		}
		cluster.Spec.Taints = append(cluster.Spec.Taints, taint)
	}
	if err := f.liqo.describe(cluster); err != nil {
		return nil, err
	}
	for name, text := range f.capacity {
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("--capacity %s=%s: want an amount, for instance 10 or 64Gi", name, text)
		}
		if cluster.Spec.Capacity == nil {
			cluster.Spec.Capacity = corev1.ResourceList{}
		}
		cluster.Spec.Capacity[corev1.ResourceName(name)] = amount
	}
	if (f.driver == v1alpha1.DriverCAPI) != (len(f.capacity) > 0) {
		return nil, errors.New("--capacity says what a cluster with --driver capi may make, for instance sluice.dev/clusters=10; others have what their nodes have")
	}
	for name, text := range f.oversubscribe {
		ratio, err := resource.ParseQuantity(text)
		if err != nil || ratio.MilliValue() < 1000 {
			return nil, fmt.Errorf("--oversubscribe %s=%s: want a number of at least 1", name, text)
		}
		if cluster.Spec.Oversubscription == nil {
			cluster.Spec.Oversubscription = map[corev1.ResourceName]resource.Quantity{}
		}
		cluster.Spec.Oversubscription[corev1.ResourceName(name)] = ratio
	}
	if f.latitude != "" || f.longitude != "" {
		cluster.Spec.Location = &v1alpha1.Location{Latitude: f.latitude, Longitude: f.longitude}
	}
	if len(f.prices) > 0 {
		prices := &v1alpha1.PriceList{Currency: f.currency, PerHour: map[corev1.ResourceName]resource.Quantity{}}
		for name, text := range f.prices {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return nil, fmt.Errorf("--price %s=%s: %w", name, text, err)
			}
			prices.PerHour[corev1.ResourceName(name)] = quantity
		}
		cluster.Spec.Prices = prices
	}
	return cluster, nil
}

// trust is what the provider must prove; nil means nothing.
func (f *clusterAddFlags) trust() (*v1alpha1.TrustRequirements, error) {
	switch {
	case f.offering == "" && (len(f.requires) > 0 || f.grace > 0):
		return nil, errors.New("--requires and --grace go with --offering")
	case f.offering == "":
		return nil, nil
	case f.provider == "":
		return nil, errors.New("--offering needs --provider: whose credentials prove it")
	}
	return &v1alpha1.TrustRequirements{Offering: f.offering, Types: f.requires, GraceSeconds: int64(f.grace / time.Second)}, nil
}

// parseTaint reads key=value:Effect or key:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	left, effect, found := strings.Cut(text, ":")
	key, value, _ := strings.Cut(left, "=")
	if !found || key == "" || effect == "" {
		return corev1.Taint{}, fmt.Errorf("--taint %q: want key=value:Effect or key:Effect", text)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}

// addCluster registers Sluice on the member cluster, then the member cluster in
// the hub. Both steps are idempotent.
func addCluster(ctx context.Context, w io.Writer, hub *hubFlags, c client.Client, cluster *v1alpha1.MemberCluster, admin *rest.Config, manifest kube.ManifestOptions, patience time.Duration) error {
	fmt.Fprintf(w, "cluster %s: applying Sluice's service account and permissions on %s\n", cluster.Name, admin.Host)
	kubeconfig, err := kube.Register(ctx, admin, manifest)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if cluster.Spec.Access, err = storeAccess(ctx, hub, c, cluster, kubeconfig); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if err := apply(ctx, c, cluster); err != nil {
		return fmt.Errorf("cluster %s: write it to the hub: %w", cluster.Name, err)
	}
	if patience == 0 {
		fmt.Fprintf(w, "cluster %s: registered\n", cluster.Name)
		return nil
	}
	return awaitCluster(ctx, w, c, cluster, patience)
}

// storeAccess keeps the member cluster's kubeconfig: sealed with the embedded
// hub's keyset, which lies on this machine, or else in a Secret of the hub.
func storeAccess(ctx context.Context, hub *hubFlags, c client.Client, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (v1alpha1.ClusterAccess, error) {
	if hub.embedded() {
		keys, err := seal.Open(hub.keysetPath())
		if err != nil {
			return v1alpha1.ClusterAccess{}, err
		}
		sealed, err := keys.Seal(kubeconfig, member.Owner(cluster.Namespace, cluster.Name))
		if err != nil {
			return v1alpha1.ClusterAccess{}, fmt.Errorf("seal its kubeconfig: %w", err)
		}
		return v1alpha1.ClusterAccess{SealedKubeconfig: sealed}, nil
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "sluice-cluster-" + cluster.Name, Namespace: cluster.Namespace},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	if err := apply(ctx, c, secret); err != nil {
		return v1alpha1.ClusterAccess{}, fmt.Errorf("store its kubeconfig in Secret %s: %w", secret.Name, err)
	}
	return v1alpha1.ClusterAccess{SecretRef: &v1alpha1.SecretKeyReference{Name: secret.Name, Key: "kubeconfig"}}, nil
}

// awaitCluster waits until the controller finds the cluster ready, saying what it waits for.
func awaitCluster(ctx context.Context, w io.Writer, c client.Client, cluster *v1alpha1.MemberCluster, patience time.Duration) error {
	generation, told := cluster.Generation, ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return false, err
		}
		ready := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.generation < generation {
			return false, nil
		}
		if ready.message != told && !ready.isTrue {
			told = ready.message
			fmt.Fprintf(w, "cluster %s: not ready yet: %s\n", cluster.Name, told)
		}
		return ready.isTrue, nil
	})
	if wait.Interrupted(err) {
		if told == "" {
			told = "no controller has looked at it: is `sluice serve` running?"
		}
		return fmt.Errorf("cluster %s: registered, but not ready after %s: %s", cluster.Name, patience, told)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: wait until it is ready: %w", cluster.Name, err)
	}
	fmt.Fprintf(w, "cluster %s: ready, %d nodes, allocatable %s\n", cluster.Name, cluster.Status.Nodes, quantities(cluster.Status.Allocatable))
	return nil
}

func newClusterListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List member clusters with their capacity",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			var clusters v1alpha1.MemberClusterList
			if err := c.List(cmd.Context(), &clusters, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list member clusters: %w", err)
			}
			t := table{header: []string{"NAME", "READY", "ADMITTED", "REGION", "TIER", "NODES", "CPU", "USED BY OTHERS", "MEMORY", "USED BY OTHERS", "VERSION", "AGE"}}
			for _, cluster := range clusters.Items {
				ready := "unknown"
				if view := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady); view != nil {
					ready = "yes"
					if !view.isTrue {
						ready = "no: " + view.message
					}
				}
				all, others := cluster.Status.Allocatable, cluster.Status.ForeignUse
				t.rows = append(t.rows, []string{
					cluster.Name, ready, admission(&cluster), orDash(cluster.Spec.Region), string(cluster.Spec.Tier), fmt.Sprint(cluster.Status.Nodes),
					all.Cpu().String(), others.Cpu().String(), gib(all.Memory()), gib(others.Memory()),
					orDash(cluster.Status.KubernetesVersion), age(cluster.CreationTimestamp),
				})
			}
			return output.print(cmd.OutOrStdout(), clusters.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newClusterRemoveCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a member cluster out of the inventory",
		Long: `Take a member cluster out of the inventory. It takes no new placements from then on, and leaves when
no instance is placed on it any more. Sluice's service account stays on the cluster: remove it there with
"sluice cluster manifest | kubectl delete -f -".`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			return removeCluster(cmd.Context(), cmd.OutOrStdout(), c, client.ObjectKey{Namespace: hub.namespace, Name: args[0]}, patience)
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", time.Minute, "how long to wait until it has left; 0 does not wait")
	return cmd
}

func removeCluster(ctx context.Context, w io.Writer, c client.Client, key client.ObjectKey, patience time.Duration) error {
	cluster := &v1alpha1.MemberCluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	if err := c.Delete(ctx, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	if ref := cluster.Spec.Access.SecretRef; ref != nil && ref.Name == "sluice-cluster-"+key.Name {
		defer func() {
			fmt.Fprintf(w, "cluster %s: its kubeconfig is still in Secret %s; delete it when the cluster has left\n", key.Name, ref.Name)
		}()
	}
	if patience == 0 {
		fmt.Fprintf(w, "cluster %s: leaving\n", key.Name)
		return nil
	}
	told := ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, cluster)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if ready := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady); err == nil && ready != nil && ready.message != told {
			told = ready.message
			fmt.Fprintf(w, "cluster %s: %s\n", key.Name, told)
		}
		return false, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("cluster %s: still there after %s: %s", key.Name, patience, told)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: wait until it has left: %w", key.Name, err)
	}
	fmt.Fprintf(w, "cluster %s: has left the inventory\n", key.Name)
	return nil
}

// forDriver are the options for a cluster with that driver, where Liqo, if it has one, is
// installed in a namespace, and which sells, or is a consumer's own.
func forDriver(o kube.ManifestOptions, driver, liqoNamespace string, sells bool) (kube.ManifestOptions, error) {
	switch driver {
	case v1alpha1.DriverKube:
	case v1alpha1.DriverCAPI:
		o.Rules, o.TenantRules = capi.Rules(), capi.TenantRules()
	case v1alpha1.DriverLiqo:
		return liqo.Manifest(o, liqoNamespace, sells), nil
	default:
		return o, fmt.Errorf("--driver %q: want kube, capi or liqo", driver)
	}
	return o, nil
}

func newClusterManifestCommand() *cobra.Command {
	var options kube.ManifestOptions
	var driver, liqoNamespace string
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what `cluster add` applies on a member cluster: every permission Sluice needs there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := forDriver(options, driver, liqoNamespace, true)
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
	cmd.Flags().StringVar(&liqoNamespace, "liqo-namespace", names.DefaultNamespace, "namespace that Liqo is installed in, with the driver liqo")
	return cmd
}

// bindManifest binds what decides what Sluice gets on a member cluster.
func bindManifest(cmd *cobra.Command, o *kube.ManifestOptions, driver *string) {
	cmd.Flags().StringVar(driver, "driver", v1alpha1.DriverKube,
		"what the cluster is for: kube runs instances; liqo does too, and is peered with consumers' clusters by Liqo; capi makes clusters by Cluster API. Liqo and Cluster API are installed there before")
	cmd.Flags().BoolVar(&o.WithoutAdmissionPolicies, "without-admission-policies", false,
		"for clusters before Kubernetes 1.30: a leaked Sluice token then reaches all namespaces that Sluice made there")
}
