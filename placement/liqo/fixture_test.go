package liqo_test

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/tenant"
	"github.com/sluice-dev/sluice/test/controlplane"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	hubtest.Main(m)
}

const hubID = "hub-1"

var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	for gvk := range names.Scheme.AllKnownTypes() {
		if o, err := names.Scheme.New(gvk); err == nil && !scheme.Recognizes(gvk) {
			scheme.AddKnownTypeWithName(gvk, o)
		}
	}
}

// fixture is a hub and two real control planes with Liqo's resources. Each test has a pair of
// member clusters of its own on them: Liqo identifies a cluster by the ID in the namespace
// where Liqo is installed.
type fixture struct {
	hub         client.Client
	namespace   string
	keys        *seal.Keyset
	connections *member.Connections
	planes      [2]*plane
}

type plane struct {
	*controlplane.ControlPlane
	admin       client.Client
	watching    client.Client // reads what watches have brought, so costs the API server nothing
	changes     atomic.Int64  // of what it reads
	registering sync.Mutex
	kubeconfig  []byte // Sluice's
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	hub := hubtest.Start(t) // first, as it sets the logger that the other would be using
	f := &fixture{namespace: hubtest.Namespace(t), hub: newClient(t, hub.Config)}
	var err error
	if f.keys, err = seal.Open(filepath.Join(t.TempDir(), "keyset.json")); err != nil {
		t.Fatal(err)
	}
	f.connections = &member.Connections{
		Reader: f.hub, Namespace: f.namespace, Keys: f.keys, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
	for i := range f.planes {
		f.planes[i] = newPlane(t, []string{"consumers", "providers"}[i])
	}
	return f
}

// newPlane is a control plane with the resources of Liqo that Sluice knows.
func newPlane(t *testing.T, name string) *plane {
	t.Helper()
	cp := controlplane.Start(t, controlplane.Options{Name: name})
	p := &plane{ControlPlane: cp, admin: newClient(t, cp.Config())}
	liqotest.Install(t, p.admin, liqotest.Definitions...)
	must(t, p.admin.Create(t.Context(), liqotest.RemoteControlPlane(t)))
	p.watch(t)
	return p
}

// watch follows what a stand-in reads, until the test ends.
func (p *plane) watch(t *testing.T) {
	t.Helper()
	watched, err := cache.New(p.Config(), cache.Options{Scheme: scheme, Mapper: p.admin.RESTMapper(), ReaderFailOnMissingInformer: true})
	must(t, err)
	count := func(any) { p.changes.Add(1) }
	for _, o := range []client.Object{
		&authv1beta1.Identity{}, &authv1beta1.ResourceSlice{}, &authv1beta1.Tenant{}, &certificatesv1.CertificateSigningRequest{}, &corev1.Node{}, &corev1.Secret{},
		&ipamv1alpha1.IP{}, &liqov1beta1.ForeignCluster{}, &networkingv1beta1.Configuration{}, &networkingv1beta1.Connection{}, &networkingv1beta1.GatewayClient{},
		&networkingv1beta1.GatewayServer{}, &networkingv1beta1.PublicKey{}, &offloadingv1beta1.NamespaceOffloading{}, &offloadingv1beta1.VirtualNode{},
	} {
		informer, err := watched.GetInformer(t.Context(), o, cache.BlockUntilSynced(false))
		must(t, err)
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: count, UpdateFunc: func(any, any) { p.changes.Add(1) }, DeleteFunc: count,
		})
		must(t, err)
	}
	p.watching, err = client.New(p.Config(), client.Options{Scheme: scheme, Mapper: p.admin.RESTMapper(), Cache: &client.CacheOptions{Reader: watched}})
	must(t, err)
	ended := make(chan struct{})
	ctx, end := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = watched.Start(ctx)
	}()
	t.Cleanup(func() { end(); <-ended })
	if !watched.WaitForCacheSync(t.Context()) {
		t.Fatal("what a stand-in reads cannot be listed")
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// end is one cluster of a pair.
type end struct {
	*plane
	name, id, liqo string // as a member cluster, to Liqo, and where that is installed
	kubeconfig     []byte // Sluice's
}

// pair are two member clusters, with a stand-in for Liqo's controllers on both.
type pair struct {
	*testing.T
	*fixture
	consumer, provider *end
	clock              *testclock.FakePassiveClock
	controllers        *standIn
	peerings           *liqo.Peerings
}

func (f *fixture) pair(t *testing.T, name string) *pair {
	t.Helper()
	return f.between(t, f.join(t, name+"-own", f.planes[0]), f.join(t, name+"-eu", f.planes[1]))
}

func (f *fixture) between(t *testing.T, consumer, provider *end) *pair {
	t.Helper()
	p := &pair{T: t, fixture: f, clock: testclock.NewFakePassiveClock(time.Now()), consumer: consumer, provider: provider}
	p.controllers = startStandIn(t, p.consumer, p.provider)
	p.peerings = &liqo.Peerings{Client: f.hub, Live: f.hub, Connections: f.connections, Hub: hubID, Clock: p.clock}
	return p
}

// installed returns a cluster with as much of Liqo as Sluice reads to identify it.
func installed(t *testing.T, name string, on *plane) *end {
	t.Helper()
	e := &end{plane: on, name: name, id: name + "-id", liqo: "liqo-" + name}
	e.toLiqo().Identify(t, e.liqo)
	return e
}

// join registers a member cluster, as `sluice cluster add --driver liqo` does.
func (f *fixture) join(t *testing.T, name string, on *plane) *end {
	t.Helper()
	e := installed(t, name, on)
	e.kubeconfig = on.register(t, e.liqo)
	must(t, f.hub.Create(t.Context(), f.member(t, e, &v1alpha1.LiqoCluster{Namespace: e.liqo, GatewayService: corev1.ServiceTypeNodePort})))
	return e
}

// register gives Sluice its rights, and returns its kubeconfig. Most of them are in the whole cluster, and are there
// from the first time on.
func (p *plane) register(t *testing.T, liqoNamespace string) []byte {
	t.Helper()
	p.registering.Lock()
	defer p.registering.Unlock()
	o := liqo.Manifest(kube.ManifestOptions{}, liqoNamespace, true)
	if p.kubeconfig == nil {
		var err error
		p.kubeconfig, err = kube.Register(t.Context(), p.Config(), o)
		must(t, err)
		return p.kubeconfig
	}
	for _, power := range o.Powers {
		if in := power.GetNamespace(); in != nil && *in == liqoNamespace {
			must(t, tenant.ApplyTo(t.Context(), p.admin, power))
		}
	}
	return p.kubeconfig
}

// member is an end as a member cluster.
func (f *fixture) member(t *testing.T, e *end, how *v1alpha1.LiqoCluster) *v1alpha1.MemberCluster {
	t.Helper()
	sealed, err := f.keys.Seal(e.kubeconfig, member.Owner(f.namespace, e.name))
	must(t, err)
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: e.name}}
	cluster.Spec.Driver, cluster.Spec.Access.SealedKubeconfig, cluster.Spec.Liqo = v1alpha1.DriverLiqo, sealed, how
	return cluster
}

// toLiqo returns the cluster as Liqo knows it.
func (e *end) toLiqo() liqotest.Cluster { return liqotest.Cluster{Admin: e.admin, ID: e.id} }

// tenant is the namespace that this end keeps for the other one.
func (e *end) tenant(other *end) string { return names.TenantNamespace(other.id) }

// identityName is the Secret with the identity that this end has at the other one.
func (e *end) identityName(other *end) string { return "kubeconfig-controlplane-" + other.id }

func (e *end) has(t *testing.T, namespace, name string, o client.Object) bool {
	t.Helper()
	err := e.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// peer creates the Peering of two ends, as one that an operator keeps.
func (p *pair) peer(consumer, provider *end, modules []v1alpha1.LiqoModule) *v1alpha1.Peering {
	p.Helper()
	peering := &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.PeeringName(consumer.name, provider.name)},
		Spec:       v1alpha1.PeeringSpec{Consumer: consumer.name, Provider: provider.name, Modules: modules, Kept: true},
	}
	must(p.T, p.hub.Create(p.Context(), peering))
	return peering
}

// pass reconciles a peering once, and reads the result; false once it is gone.
func (p *pair) pass(ctx context.Context, peering *v1alpha1.Peering) bool {
	p.Helper()
	key := client.ObjectKeyFromObject(peering)
	_, err := p.peerings.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	if again := p.hub.Get(ctx, key, peering); apierrors.IsNotFound(again) {
		must(p.T, err)
		return false
	} else if again != nil {
		p.Fatal(again)
	}
	return true
}

// advance reconciles a peering, if there is one, unless it is ready: then its controller leaves it alone for a while.
func (p *pair) advance(ctx context.Context, peering *v1alpha1.Peering) {
	p.Helper()
	if p.hub.Get(ctx, client.ObjectKeyFromObject(peering), peering) != nil {
		return
	}
	if c := ready(peering); c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == peering.Generation && peering.DeletionTimestamp.IsZero() {
		return
	}
	p.pass(ctx, peering)
}

func ready(peering *v1alpha1.Peering) *metav1.Condition {
	return meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
}

// untilReady reconciles until the peering is ready.
func (p *pair) untilReady(peering *v1alpha1.Peering) {
	p.Helper()
	p.eventually("the peering is ready", func(ctx context.Context) (bool, error) {
		return p.pass(ctx, peering) && ready(peering).Status == metav1.ConditionTrue && ready(peering).ObservedGeneration == peering.Generation, nil
	}, func() string { return ready(peering).Message })
}

// untilGone reconciles until the peering is gone. Until then the result must be a wait, not a
// failure.
func (p *pair) untilGone(peering *v1alpha1.Peering) {
	p.Helper()
	failed := map[string]bool{}
	p.eventually("the peering is gone", func(ctx context.Context) (bool, error) {
		if !p.pass(ctx, peering) {
			return true, nil
		}
		if c := ready(peering); c.ObservedGeneration == peering.Generation && c.Reason != v1alpha1.ReasonInProgress && !failed[c.Message] {
			failed[c.Message] = true
			p.Errorf("while it ends it says %s: %s", c.Reason, c.Message)
		}
		return false, nil
	}, func() string { return ready(peering).Message })
}

// eventually waits for a condition for at most two minutes: namespaces take their time. It asks less often while
// it waits, as a controller would: most conditions reconcile.
func (p *pair) eventually(what string, condition wait.ConditionWithContextFunc, last func() string) {
	p.Helper()
	if err := controlplane.Until(p.Context(), 100*time.Millisecond, time.Second, 2*time.Minute, condition); err != nil {
		p.Fatalf("%s: %v: %s", what, err, last())
	}
}

// wantNothingLeft checks both clusters.
func (p *pair) wantNothingLeft() {
	p.Helper()
	for _, side := range [][2]*end{{p.consumer, p.provider}, {p.provider, p.consumer}} {
		here, there := side[0], side[1]
		if here.has(p.T, "", here.tenant(there), &corev1.Namespace{}) {
			p.Errorf("the tenant namespace is left on %s", here.name)
		}
		if here.has(p.T, "", there.id, &liqov1beta1.ForeignCluster{}) {
			p.Errorf("the ForeignCluster is left on %s", here.name)
		}
	}
}

func amounts(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourcePods: resource.MustParse("7")}
}

// waits reports whether err is a *delivery.PendingError; any other error fails the test.
func (p *pair) waits(err error) bool {
	p.Helper()
	if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) {
		return true
	}
	must(p.T, err)
	return false
}
