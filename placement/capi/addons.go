package capi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

const (
	// hookPatience limits how long one call waits for the hooks of a chart.
	hookPatience = time.Minute
	// labelApplied holds, on a release, a digest of its chart and values.
	labelApplied = "sluice.dev/applied"
)

// installAddOns updates the cluster's add-ons one after the other, each when the one before is
// ready. Then it removes those that are no longer in the list. It does not wait:
// *delivery.PendingError names the add-on that is not ready yet, and its object. It is refused
// if a chart cannot be fetched or rendered, or if the cluster rejects an object.
func (d *Driver) installAddOns(ctx context.Context, t *tenant.Tenant, addOns []v1alpha1.AddOn) error {
	connection, err := d.Connections.OfInstance(ctx, t.Connection.Cluster, t.Instance.Name)
	if err != nil {
		return err
	}
	for i := range addOns {
		a, err := d.load(ctx, &addOns[i], connection.Config)
		if err != nil {
			return fmt.Errorf("add-on %s: %w", addOns[i].Name, err)
		}
		if err := a.ensure(ctx); err != nil {
			return err
		}
	}
	return d.removeAddOns(ctx, connection.Config, addOns)
}

// installed is a release that was installed for the plan.
type installed struct {
	name   string
	config *action.Configuration
	since  time.Time
}

// removeAddOns removes releases that were installed for the plan and are not in keep: the last installed
// first, because it may need those before it. All other releases in the cluster belong to its owner.
func (d *Driver) removeAddOns(ctx context.Context, cluster *rest.Config, keep []v1alpha1.AddOn) error {
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return err
	}
	// Helm puts the release's labels on the Secret of each revision.
	releases, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{LabelSelector: "owner=helm," + labelApplied})
	if err != nil {
		return fmt.Errorf("list the add-ons that are installed: %w", err)
	}
	seen := map[[2]string]bool{} // there is a Secret for each revision
	var unwanted []installed
	for i := range releases.Items {
		name, namespace := releases.Items[i].Labels["name"], releases.Items[i].Namespace
		wanted := slices.ContainsFunc(keep, func(a v1alpha1.AddOn) bool { return a.Name == name && a.Namespace == namespace })
		if wanted || seen[[2]string{namespace, name}] {
			continue
		}
		seen[[2]string{namespace, name}] = true
		one := installed{name: name}
		if one.config, err = configuration(cluster, namespace); err != nil {
			return err
		}
		last, err := lastOf(one.config, name)
		if err != nil {
			return err
		}
		if last == nil {
			continue
		}
		one.since = last.Info.FirstDeployed
		unwanted = append(unwanted, one)
	}
	slices.SortStableFunc(unwanted, func(a, b installed) int { return b.since.Compare(a.since) })
	for _, one := range unwanted {
		uninstall := action.NewUninstall(one.config)
		uninstall.Timeout, uninstall.WaitStrategy = hookPatience, kube.HookOnlyStrategy
		if _, err := uninstall.Run(one.name); err != nil {
			return fmt.Errorf("add-on %s: remove it: %w", one.name, err)
		}
	}
	return nil
}

// observeAddOns returns an error that names the first add-on that is not as it was delivered.
// It writes nothing.
func (d *Driver) observeAddOns(ctx context.Context, t *tenant.Tenant, addOns []v1alpha1.AddOn) error {
	connection, err := d.Connections.OfInstance(ctx, t.Connection.Cluster, t.Instance.Name)
	if err != nil {
		return err
	}
	for i := range addOns {
		a, err := d.load(ctx, &addOns[i], connection.Config)
		if err != nil {
			return fmt.Errorf("add-on %s: %w", addOns[i].Name, err)
		}
		last, err := a.last()
		if err != nil {
			return err
		}
		if !a.is(last) {
			return fmt.Errorf("add-on %s is not as it was installed", a.Name)
		}
	}
	return nil
}

// addOn is one add-on of one cluster.
type addOn struct {
	*v1alpha1.AddOn
	charts *store.Store
	values map[string]any
	// digest of chart and values.
	digest  string
	config  *action.Configuration
	cluster *rest.Config
}

func (d *Driver) load(ctx context.Context, from *v1alpha1.AddOn, cluster *rest.Config) (*addOn, error) {
	a := &addOn{AddOn: from, charts: d.Charts, values: map[string]any{}, cluster: cluster}
	if from.Values != nil {
		if err := json.Unmarshal(from.Values.Raw, &a.values); err != nil {
			return nil, fmt.Errorf("values: %w", err)
		}
	}
	sum := exactSum(from.Digest)
	var err error
	if sum == nil {
		if sum, err = d.Charts.Sum(ctx, from.Chart); err != nil {
			return nil, unlessRefused(err)
		}
	}
	a.digest = a.digestWith(sum)
	a.config, err = configuration(cluster, from.Namespace)
	return a, err
}

// exactSum returns the sum of a chart whose archive has a digest, which needs no look at it; nil if it
// has none.
func exactSum(digest string) hash.Hash {
	if digest == "" {
		return nil
	}
	sum := sha256.New()
	sum.Write([]byte(digest))
	return sum
}

// digestWith returns the digest of the add-on with a chart of that sum. It adds to the sum.
func (a *addOn) digestWith(sum hash.Hash) string {
	if a.Values != nil {
		sum.Write(a.Values.Raw)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// configuration returns Helm's configuration for the releases of a namespace.
func configuration(cluster *rest.Config, namespace string) (*action.Configuration, error) {
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	return config, config.Init(&getter{cluster, namespace}, namespace, "secret")
}

// last returns the newest revision of the release; nil if there is none.
func (a *addOn) last() (*release.Release, error) { return lastOf(a.config, a.Name) }

func lastOf(config *action.Configuration, name string) (*release.Release, error) {
	last, err := config.Releases.Last(name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("add-on %s: read its release: %w", name, err)
	}
	return revision(last)
}

// revision returns a revision of a release, in the only version of its format.
func revision(of any) (*release.Release, error) {
	one, ok := of.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("it is a release in an unknown format: %T", of)
	}
	return one, nil
}

// is reports whether a release is the add-on in its wanted state.
func (a *addOn) is(last *release.Release) bool {
	return last != nil && last.Info.Status == common.StatusDeployed && last.Labels[labelApplied] == a.digest
}

// ensure installs or upgrades the release if it is not in its wanted state, and then checks
// whether its objects are ready.
func (a *addOn) ensure(ctx context.Context) error {
	last, err := a.last()
	if err != nil {
		return err
	}
	if !a.is(last) {
		last, err = a.apply(ctx, last)
		if err != nil {
			return a.failure(err)
		}
	}
	resources, err := a.config.KubeClient.Build(strings.NewReader(last.Manifest), false)
	if err != nil {
		return fmt.Errorf("add-on %s: read its objects: %w", a.Name, err)
	}
	kubernetes, err := kubernetes.NewForConfig(a.cluster)
	if err != nil {
		return err
	}
	ready := kube.NewReadyChecker(kubernetes, kube.CheckJobs(true), kube.PausedAsReady(true))
	return resources.Visit(func(one *resource.Info, err error) error {
		if err != nil {
			return err
		}
		ok, err := ready.IsReady(ctx, one)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("add-on %s: ask whether %s is ready: %w", a.Name, one.Name, err)
		}
		if !ok {
			return &delivery.PendingError{Step: "add-on " + a.Name, Detail: fmt.Sprintf("%s %s is not ready", one.Mapping.GroupVersionKind.Kind, one.Name), Every: often}
		}
		return nil
	})
}

// apply writes a new revision. A revision that a kill interrupted, or whose removal failed, is marked
// as failed first, because Helm would wait for it for ever, or refuse its name. Nothing else works on the release.
func (a *addOn) apply(ctx context.Context, last *release.Release) (*release.Release, error) {
	chart, err := a.charts.LoadExact(ctx, a.Chart, a.Digest) // a copy of its own: Helm changes it
	if err != nil {
		return nil, unlessRefused(err)
	}
	if a.Digest == "" {
		a.digest = a.digestWith(store.SumOf(chart)) // the files may have changed since
	}
	if last != nil && (last.Info.Status.IsPending() || last.Info.Status == common.StatusUninstalling) {
		last.SetStatus(common.StatusFailed, "interrupted")
		if err := a.config.Releases.Update(last); err != nil {
			return nil, err
		}
	}
	labels := map[string]string{labelApplied: a.digest}
	if _, err := a.config.Releases.Deployed(a.Name); err != nil {
		install := action.NewInstall(a.config)
		install.ReleaseName, install.Namespace, install.CreateNamespace = a.Name, a.Namespace, true
		install.Replace, install.Labels, install.Timeout = true, labels, hookPatience
		install.WaitStrategy = kube.HookOnlyStrategy
		install.TakeOwnership = true // of the objects that an interrupted install has left
		made, err := install.RunWithContext(ctx, chart, a.values)
		if err != nil {
			return nil, err
		}
		return revision(made)
	}
	upgrade := action.NewUpgrade(a.config)
	upgrade.Namespace, upgrade.Labels, upgrade.Timeout, upgrade.MaxHistory = a.Namespace, labels, hookPatience, 3
	upgrade.WaitStrategy = kube.HookOnlyStrategy
	made, err := upgrade.RunWithContext(ctx, a.Name, chart, a.values)
	if err != nil {
		return nil, err
	}
	return revision(made)
}

// unlessRefused returns the error, as a *delivery.RefusedError if a chart is refused.
func unlessRefused(err error) error {
	if no := (*store.RefusedError)(nil); errors.As(err, &no) {
		return &delivery.RefusedError{Reason: strings.TrimSuffix(err.Error(), ": "+no.Remedy), Remedy: no.Remedy}
	}
	return err
}

// failure returns *delivery.RefusedError if a retry cannot help.
func (a *addOn) failure(err error) error {
	cause := err
	for errors.Unwrap(cause) != nil {
		cause = errors.Unwrap(cause)
	}
	var transient interface{ Timeout() bool }
	if errors.As(err, &transient) || apierrors.IsServerTimeout(cause) || apierrors.IsTooManyRequests(cause) || apierrors.IsInternalError(cause) ||
		apierrors.IsServiceUnavailable(cause) || apierrors.IsConflict(cause) || apierrors.IsForbidden(cause) {
		return fmt.Errorf("add-on %s: %w", a.Name, err)
	}
	return &delivery.RefusedError{Reason: fmt.Sprintf("add-on %s: %v", a.Name, err), Remedy: "the operator has to correct the chart or its values"}
}

// getter gives Helm access to a cluster by its configuration
// (genericclioptions.RESTClientGetter).
type getter struct {
	config    *rest.Config
	namespace string
}

var _ genericclioptions.RESTClientGetter = (*getter)(nil)

func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(g.config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

func (g *getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewDeferredDiscoveryRESTMapper(client), nil
}

func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}}
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, overrides)
}
