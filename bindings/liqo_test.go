package bindings_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
	"github.com/sluice-dev/sluice/placement/kube"
)

// The clusters here have Liqo's CRDs but not its controllers, which test/e2e tests on kind.
// The tests fill the statuses by hand as those controllers would.

// Roles of the clusters, which all have the same ranges.
const (
	own, provider, hubCluster = "own", "provider", "hub"

	podRange      = "10.128.0.0/16" // of every control plane's simulated pods
	externalRange = "10.70.0.0/16"
)

// seen are the mapped ranges of a cluster in another one: pods and external.
var seen = map[[2]string][2]string{
	{own, provider}:        {"10.11.0.0/16", "10.12.0.0/16"},
	{own, hubCluster}:      {"10.13.0.0/16", "10.14.0.0/16"},
	{hubCluster, provider}: {"10.15.0.0/16", "10.16.0.0/16"},
}

func liqoID(cluster string) string { return cluster + "-id" }

// liqoRights are the rights that bindings need in addition to those of the driver kube.
func liqoRights() kube.ManifestOptions {
	read := []string{"get", "list"}
	return kube.ManifestOptions{
		Rules: append(kube.Rules(v1alpha1.ReaderNodes), rbacv1.PolicyRule{
			APIGroups: []string{networkingv1beta1.GroupVersion.Group}, Resources: []string{"configurations", "connections"}, Verbs: read,
		}),
		TenantRules: append(kube.TenantRules(), rbacv1.PolicyRule{
			APIGroups: []string{ipamv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"ips"}, Verbs: append([]string{"create", "delete"}, read...),
		}),
		Powers: kube.ConsumerRoles(),
	}
}

// newLiqoFixture returns a fixture of three clusters that are peered with each other.
func newLiqoFixture(t *testing.T) *fixture {
	f := newFixtureOf(t, []string{own, provider, hubCluster}, liqoRights, 300*time.Millisecond)
	for _, cluster := range []string{own, provider, hubCluster} {
		liqotest.Install(t, f.admin[cluster], "ipam.liqo.io_ips", "networking.liqo.io_configurations", "networking.liqo.io_connections")
		f.giveAddresses(t, cluster)
	}
	for pair := range seen {
		f.peer(t, pair[0], pair[1])
	}
	return f
}

// peer creates the parts of a peering in force, on the hub and on both sides.
func (f *fixture) peer(t *testing.T, consumer, provider string) {
	t.Helper()
	f.declarePeering(t, consumer, provider)
	for _, side := range [][2]string{{consumer, provider}, {provider, consumer}} {
		here, there := side[0], side[1]
		namespace := liqo.TenantNamespace(liqoID(there))
		f.make(t, here, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		f.make(t, here, &networkingv1beta1.Connection{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-" + liqoID(there)},
			Spec:       networkingv1beta1.ConnectionSpec{Type: networkingv1beta1.ConnectionTypeClient},
		})
		f.connect(t, here, there, networkingv1beta1.Connected)
	}
	configuration := &networkingv1beta1.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: liqo.TenantNamespace(liqoID(provider)), Name: liqoID(provider)},
		Spec:       networkingv1beta1.ConfigurationSpec{Remote: rangesOf(podRange, externalRange)},
	}
	f.make(t, consumer, configuration)
	as := seen[[2]string{consumer, provider}]
	remote := rangesOf(as[0], as[1])
	configuration.Status.Remote = &remote
	meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{
		Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue, Reason: "NetworkCIDRsConfigured",
		ObservedGeneration: configuration.Generation,
	})
	if err := f.admin[consumer].Status().Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
}

// declarePeering creates a peering that is ready according to the hub.
func (f *fixture) declarePeering(t *testing.T, consumer, provider string) {
	t.Helper()
	peering := &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.PeeringName(consumer, provider)},
		Spec:       v1alpha1.PeeringSpec{Consumer: consumer, Provider: provider, Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleNetworking}},
	}
	if err := f.Create(t.Context(), peering); err != nil {
		t.Fatal(err)
	}
	f.setPeering(t, consumer, provider, metav1.ConditionTrue, "")
}

func rangesOf(pods, external string) networkingv1beta1.ClusterConfig {
	return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pods)}, External: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)},
	}}
}

func (f *fixture) make(t *testing.T, cluster string, o client.Object) {
	t.Helper()
	if err := f.admin[cluster].Create(t.Context(), o); err != nil {
		t.Fatalf("create %T on %s: %v", o, cluster, err)
	}
}

// setPeering sets whether a peering is ready, and the message.
func (f *fixture) setPeering(t *testing.T, consumer, provider string, status metav1.ConditionStatus, message string) {
	t.Helper()
	var peering v1alpha1.Peering
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.PeeringName(consumer, provider)}, &peering); err != nil {
		t.Fatal(err)
	}
	peering.Status.Consumer = &v1alpha1.LiqoNetwork{ClusterID: liqoID(consumer)}
	peering.Status.Provider = &v1alpha1.LiqoNetwork{ClusterID: liqoID(provider)}
	reason := v1alpha1.ReasonReady
	if status == metav1.ConditionFalse {
		reason = v1alpha1.ReasonInProgress
	}
	v1alpha1.SetCondition(&peering.Status.Conditions, peering.Generation, v1alpha1.ConditionReady, status, reason, message)
	if err := f.Status().Update(t.Context(), &peering); err != nil {
		t.Fatal(err)
	}
}

// connect sets the state that the gateway on one side reports of its connection to the
// other.
func (f *fixture) connect(t *testing.T, here, there string, value networkingv1beta1.ConnectionStatusValue) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(fmt.Sprintf(`{"status":{"value":%q}}`, value)))
	connection := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: liqo.TenantNamespace(liqoID(there)), Name: "gw-" + liqoID(there)}}
	if err := f.admin[here].Status().Patch(t.Context(), connection, patch); err != nil {
		t.Fatal(err)
	}
}

// releasing is the finalizer with which Liqo frees an address before its IP is deleted.
const releasing = "ipam.liqo.io/ip"

// giveAddresses acts as Liqo does on IP resources, until the test ends: it takes an address
// of the external range for each, and frees it again.
func (f *fixture) giveAddresses(t *testing.T, cluster string) {
	t.Helper()
	watched, err := cache.New(f.planes[cluster].Config(), cache.Options{
		Scheme: f.scheme, Mapper: f.admin[cluster].RESTMapper(), SyncPeriod: ptr.To(time.Second), // which repeats what failed
	})
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := watched.GetInformer(t.Context(), &ipamv1alpha1.IP{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	ctx, admin, last := t.Context(), f.admin[cluster], 5
	give := func(o any) {
		ip := o.(*ipamv1alpha1.IP).DeepCopy()
		switch {
		case !ip.DeletionTimestamp.IsZero():
			ip.Finalizers = slices.DeleteFunc(ip.Finalizers, func(name string) bool { return name == releasing })
			_ = admin.Update(ctx, ip)
		case len(ip.Finalizers) == 0:
			ip.Finalizers = []string{releasing}
			_ = admin.Update(ctx, ip)
		case ip.Status.IP == "":
			last++
			ip.Status = ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(fmt.Sprintf("10.70.0.%d", last)), CIDR: externalRange}
			_ = admin.Status().Update(ctx, ip)
		}
	}
	if _, err := addresses.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: give, UpdateFunc: func(_, o any) { give(o) }}); err != nil {
		t.Fatal(err)
	}
	go func() { _ = watched.Start(ctx) }()
}
