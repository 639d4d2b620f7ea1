package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/kube"
)

// clusterAddFlags describe the cluster to add.
type clusterAddFlags struct {
	admin                  adminFlags
	consumerServer         string
	provider, region, zone string
	tier                   v1alpha1.Tier
	labels                 map[string]string
	taints                 []string
	currency               string
	prices                 map[string]string
	oversubscribe          map[string]string
	sell                   map[string]string
	hide                   []string
	driver                 string
	reader                 readerFlags
	capacity               map[string]string
	latitude, longitude    string
	offering               string
	requires               []string
	grace                  time.Duration
	liqo                   liqoFlags
	exposure               exposureFlags
	manifest               kube.ManifestOptions
	wait                   time.Duration
}

// bind binds all of these flags.
func (f *clusterAddFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.admin.bind(cmd, "member cluster")
	f.admin.bindServer(cmd)
	flags.StringVar(&f.consumerServer, "consumer-server", "", "URL at which consumers reach the cluster's API server, if it is not the one that Sluice uses")
	f.bindDescription(cmd)
	f.bindSale(cmd)
	bindManifest(cmd, &f.manifest, &f.driver)
	f.reader.bind(cmd)
	f.liqo.bind(cmd)
	f.exposure.bind(cmd)
	f.bindCapacity(cmd, "what the cluster has for instances, for instance cpu=8,memory=32Gi,pods=110; Sluice then neither reads its nodes nor gets the right to. "+
		"Of a management cluster (driver capi), which needs it, for instance sluice.dev/clusters=10,cpu=200,memory=800Gi")
	f.bindTrust(cmd)
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until the cluster is ready; 0 does not wait")
}

// bindDescription binds the flags that describe a cluster.
func (f *clusterAddFlags) bindDescription(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.provider, "provider", "", "organisation that runs the cluster")
	flags.StringVar(&f.region, "region", "", "region of the cluster")
	flags.StringVar(&f.zone, "zone", "", "zone within the region")
	f.bindTier(cmd)
	flags.StringToStringVarP(&f.labels, "label", "l", nil, "labels that selectors match, key=value")
	flags.StringArrayVar(&f.taints, "taint", nil, "taint that repels requests, key=value:NoSchedule (repeatable)")
	flags.StringVar(&f.currency, "currency", "EUR", "currency of --price, an ISO 4217 code")
	flags.StringToStringVar(&f.prices, "price", nil, "price of one unit for one hour by resource, for instance cpu=0.04,memory=0.005 (memory by the GiB)")
}

// bindSale binds the flags that say how much of a cluster is sold, and where it is.
func (f *clusterAddFlags) bindSale(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringToStringVar(&f.oversubscribe, "oversubscribe", nil, "factor by which a resource is oversubscribed, for instance cpu=1.5")
	flags.StringToStringVar(&f.sell, "sell", nil, "largest part of the cluster that is sold, in percent or by resource, for instance share=80,cpu=10; the rest is held back")
	flags.StringSliceVar(&f.hide, "hide", nil, "resources of the cluster that count as absent, for instance nvidia.com/gpu")
	flags.StringVar(&f.latitude, "latitude", "", "latitude of the cluster in decimal degrees, north positive")
	flags.StringVar(&f.longitude, "longitude", "", "longitude of the cluster in decimal degrees, east positive")
}

func (f *clusterAddFlags) bindCapacity(cmd *cobra.Command, usage string) {
	cmd.Flags().StringToStringVar(&f.capacity, "capacity", nil, usage)
}

func (f *clusterAddFlags) bindTrust(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.offering, "offering", "", "id of the service offering (Gaia-X) that the provider must prove for the cluster")
	flags.StringSliceVar(&f.requires, "requires", nil, "types of credentials that are required in addition to the offering's own, for instance LabelCredential")
	flags.DurationVar(&f.grace, "grace", 0, "how long claims stay valid after their credentials have expired")
}

func (f *clusterAddFlags) bindTier(cmd *cobra.Command) {
	bindChoice(cmd, &f.tier, "tier", "", "tier of the cluster", v1alpha1.TierCloud, v1alpha1.TierEdge)
}

// bindManifest binds the flags that decide which permissions and objects Sluice gets on a
// member cluster.
func bindManifest(cmd *cobra.Command, o *kube.ManifestOptions, driver *string) {
	bindChoice(cmd, driver, "driver", "",
		"use of the cluster: kube runs instances; liqo runs instances, and Liqo peers it with consumers' clusters; capi creates clusters with Cluster API. Install Liqo or Cluster API there first",
		v1alpha1.DriverKube, v1alpha1.DriverLiqo, v1alpha1.DriverCAPI)
	bindWithoutPolicies(cmd, o)
}

func bindWithoutPolicies(cmd *cobra.Command, o *kube.ManifestOptions) {
	cmd.Flags().BoolVar(&o.WithoutAdmissionPolicies, "without-admission-policies", false,
		"omit the admission policies, which need Kubernetes 1.30; without them, whoever has Sluice's token can reach all namespaces that Sluice created there")
}

// given reports whether any of the named flags is on the command line.
type given func(flags ...string) bool

func givenOf(cmd *cobra.Command) given {
	return func(flags ...string) bool { return slices.ContainsFunc(flags, cmd.Flags().Changed) }
}

// describe applies to a cluster only the flags on the command line, so that the rest of a
// registered cluster stays. A new cluster always gets a driver and a tier.
func (f *clusterAddFlags) describe(cluster *v1alpha1.MemberCluster, given given) error {
	spec := &cluster.Spec
	if isNew := cluster.UID == ""; isNew {
		spec.Driver, spec.Tier = f.driver, f.tier
	}
	for flag, field := range map[string]struct {
		of    *string
		value string
	}{
		"driver": {&spec.Driver, f.driver}, "consumer-server": {&spec.ConsumerServer, f.consumerServer},
		"provider": {&spec.Provider, f.provider}, "region": {&spec.Region, f.region}, "zone": {&spec.Zone, f.zone},
	} {
		if given(flag) {
			*field.of = field.value
		}
	}
	if given("tier") {
		spec.Tier = f.tier
	}
	if given("label") {
		cluster.Labels = maps.Clone(cluster.Labels)
		if cluster.Labels == nil {
			cluster.Labels = map[string]string{}
		}
		maps.Copy(cluster.Labels, f.labels)
	}
	if given("latitude", "longitude") {
		spec.Location = &v1alpha1.Location{Latitude: f.latitude, Longitude: f.longitude}
	}
	return errors.Join(f.describeTaints(spec, given), f.describeAmounts(spec, given), f.describeTrust(spec, given), f.liqo.describe(spec, given), f.exposure.describe(spec, given))
}

// describeTaints replaces the operator's own taints; a drain taint stays.
func (f *clusterAddFlags) describeTaints(spec *v1alpha1.MemberClusterSpec, given given) error {
	if !given("taint") {
		return nil
	}
	taints := slices.DeleteFunc(slices.Clone(spec.Taints), func(taint corev1.Taint) bool { return !v1alpha1.IsDrain(taint) })
	for _, text := range f.taints {
		taint, err := parseTaint(text)
		if err != nil {
			return err
		}
		taints = append(taints, taint)
	}
	spec.Taints = taints
	return nil
}

// describeAmounts writes capacity, oversubscription, sale limits and prices.
func (f *clusterAddFlags) describeAmounts(spec *v1alpha1.MemberClusterSpec, given given) (err error) {
	if given("capacity") {
		if spec.Capacity, err = amounts("--capacity", f.capacity, "0", "an amount, for instance 10 or 64Gi"); err != nil {
			return err
		}
	}
	if err := f.reader.describe(spec, given); err != nil {
		return err
	}
	if spec.Driver == v1alpha1.DriverCAPI && len(spec.Capacity) == 0 {
		return errors.New("--driver capi needs --capacity, for instance sluice.dev/clusters=10")
	}
	if given("oversubscribe") {
		if spec.Oversubscription, err = amounts("--oversubscribe", f.oversubscribe, "1", "a number of at least 1"); err != nil {
			return err
		}
	}
	if given("sell", "hide") {
		if err := f.describeSale(spec, given); err != nil {
			return err
		}
	}
	if !given("price", "currency") || len(f.prices) == 0 && spec.Prices == nil {
		return nil
	}
	prices := &v1alpha1.PriceList{Currency: f.currency}
	if spec.Prices != nil {
		prices = spec.Prices.DeepCopy()
	}
	if given("currency") {
		prices.Currency = f.currency
	}
	if given("price") {
		if prices.PerHour, err = amounts("--price", f.prices, "0", "an amount of money, for instance 0.04"); err != nil {
			return err
		}
		if err := prices.Check(); err != nil {
			return fmt.Errorf("--price: %w", err)
		}
	}
	spec.Prices = prices
	return nil
}

// describeTrust writes what the provider must prove; --offering "" removes the requirement.
func (f *clusterAddFlags) describeTrust(spec *v1alpha1.MemberClusterSpec, given given) error {
	if given("offering", "requires", "grace") {
		trust := spec.Trust.DeepCopy()
		if trust == nil {
			trust = &v1alpha1.TrustRequirements{}
		}
		if given("offering") {
			trust.Offering = f.offering
		}
		if given("requires") {
			trust.Types = f.requires
		}
		if given("grace") {
			trust.GraceSeconds = int64(f.grace / time.Second)
		}
		if trust.Offering == "" && given("requires", "grace") {
			return errors.New("--requires and --grace go with --offering")
		}
		if spec.Trust = trust; trust.Offering == "" {
			spec.Trust = nil
		}
	}
	if spec.Trust != nil && spec.Provider == "" {
		return errors.New("--offering needs --provider: whose credentials prove it")
	}
	return nil
}

// amounts reads a flag of amounts by resource, none of which may be below the least.
func amounts(flag string, texts map[string]string, least, want string) (map[corev1.ResourceName]resource.Quantity, error) {
	parsed := map[corev1.ResourceName]resource.Quantity{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		amount, err := resource.ParseQuantity(texts[name])
		if err != nil || amount.Cmp(resource.MustParse(least)) < 0 {
			return nil, fmt.Errorf("%s %s=%s: want %s", flag, name, texts[name], want)
		}
		if err := v1alpha1.CheckResource(corev1.ResourceName(name)); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		parsed[corev1.ResourceName(name)] = amount
	}
	return parsed, nil
}

// parseTaint parses key=value:Effect or key:Effect.
func parseTaint(text string) (corev1.Taint, error) {
	left, effect, found := strings.Cut(text, ":")
	key, value, _ := strings.Cut(left, "=")
	if !found || key == "" {
		return corev1.Taint{}, fmt.Errorf("--taint %q: want key=value:Effect or key:Effect", text)
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !slices.Contains(effects, corev1.TaintEffect(effect)) {
		return corev1.Taint{}, fmt.Errorf("--taint %q: the effect is NoSchedule, PreferNoSchedule or NoExecute", text)
	}
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}, nil
}
