package bindings_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/test/controlplane"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	hubtest.Main(m)
}

const hubID = "hub-1"

// clusters of the fixture, in the order of every decision.
var clusters = []string{"cluster-a", "cluster-b"}

// fixture is a hub with a running binding controller and two member clusters.
type fixture struct {
	client.Client               // of the hub
	cached        client.Reader // as the controller sees it
	namespace     string
	scheme        *runtime.Scheme
	keys          *seal.Keyset
	connections   *member.Connections
	admin         map[string]client.Client
	planes        map[string]*controlplane.ControlPlane
	keyset        string // the file of keys
	refresh       time.Duration
	lookups       *atomic.Int64 // how often Sluice has listed pods
	unseen        *sync.RWMutex // while it is locked, the controller learns nothing about bindings
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOf(t, clusters, usualRights, 0)
}

// usualRights returns the rights of the driver kube, created for each cluster: applying an object
// writes the cluster's answer into it.
func usualRights() kube.ManifestOptions { return kube.ManifestOptions{} }

// newFixtureOf returns a fixture with other member clusters and other rights of Sluice
// there, whose controller checks endpoints more often.
func newFixtureOf(t *testing.T, names []string, rights func() kube.ManifestOptions, refresh time.Duration, nodes ...controlplane.Node) *fixture {
	t.Helper()
	f := &fixture{
		namespace: hubtest.Namespace(t), scheme: runtime.NewScheme(), refresh: refresh,
		admin: map[string]client.Client{}, planes: map[string]*controlplane.ControlPlane{}, lookups: &atomic.Int64{}, unseen: &sync.RWMutex{},
	}
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme, ipamv1alpha1.AddToScheme, networkingv1beta1.AddToScheme,
	} {
		if err := add(f.scheme); err != nil {
			t.Fatal(err)
		}
	}
	hub := hubtest.Start(t).Config
	f.Client = f.newClient(t, hub)
	var err error
	f.keyset = filepath.Join(t.TempDir(), "keyset.json")
	if f.keys, err = seal.Open(f.keyset); err != nil {
		t.Fatal(err)
	}
	f.connections = &member.Connections{Reader: f.Client, Namespace: f.namespace, Keys: f.keys, Wrap: func(next http.RoundTripper) http.RoundTripper {
		return countingPods{next, f.lookups}
	}}
	for _, name := range names {
		cp := controlplane.Start(t, controlplane.Options{Name: name, Nodes: nodes})
		f.admin[name], f.planes[name] = f.newClient(t, cp.Config()), cp
		kubeconfig, err := kube.Register(t.Context(), cp.Config(), rights())
		if err != nil {
			t.Fatal(err)
		}
		f.addCluster(t, name, kubeconfig)
	}
	f.run(t, hub)
	return f
}

func (f *fixture) newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: f.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) addCluster(t *testing.T, name string, kubeconfig []byte) *v1alpha1.MemberCluster {
	t.Helper()
	sealed, err := f.keys.Seal(kubeconfig, member.Owner(f.namespace, name))
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: sealed}},
	}
	if err := f.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// run runs the controller until the test ends.
func (f *fixture) run(t *testing.T, hub *rest.Config) {
	t.Helper()
	late := rest.CopyConfig(hub)
	late.Wrap(func(next http.RoundTripper) http.RoundTripper { return lateBindings{next, f.unseen} })
	manager, err := ctrl.NewManager(late, ctrl.Options{
		Scheme: f.scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{f.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // tests are repeated in one process
	})
	if err != nil {
		t.Fatal(err)
	}
	f.cached = manager.GetClient()
	controller := &bindings.Controller{Client: manager.GetClient(), Live: f.Client, Connections: f.connections, Keys: f.keys, Hub: hubID, Refresh: f.refresh}
	if err := manager.GetFieldIndexer().IndexField(t.Context(), &v1alpha1.ServiceBinding{}, v1alpha1.FieldInstanceName, func(o client.Object) []string {
		return []string{o.(*v1alpha1.ServiceBinding).Spec.InstanceName}
	}); err != nil {
		t.Fatal(err)
	}
	if err := controller.SetupWithManager(manager); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- manager.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// instance commits an instance of the test's own, not delivered yet.
func (f *fixture) instance(t *testing.T) *v1alpha1.ServiceInstance {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: v1alpha1.InstanceName("platform-1", t.Name()), Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform-1", InstanceID: t.Name(), ServiceID: "service-1", Desired: v1alpha1.InstanceState{PlanID: "plan-1"},
		},
	}
	if err := f.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	return instance
}

// deliver creates the instance's namespaces and records them.
func (f *fixture) deliver(t *testing.T, instance *v1alpha1.ServiceInstance) *v1alpha1.ServiceInstance {
	t.Helper()
	var placements []v1alpha1.Placement
	for _, name := range clusters {
		placements = append(placements, v1alpha1.Placement{Cluster: name})
	}
	return f.deliverTo(t, instance, placements...)
}

// deliverTo creates the namespaces of placements and records them.
func (f *fixture) deliverTo(t *testing.T, instance *v1alpha1.ServiceInstance, placements ...v1alpha1.Placement) *v1alpha1.ServiceInstance {
	t.Helper()
	decision := v1alpha1.Decision{Generation: instance.Generation, Considered: 2}
	for _, one := range placements {
		one.Reserved = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		decision.Placements = append(decision.Placements, one)
		there := v1alpha1.Placement{Cluster: one.NamespaceCluster(), Reserved: one.Reserved}
		if there.Cluster == "" {
			continue
		}
		driver := &kube.Driver{Connections: f.connections, Hub: hubID}
		eventually(t, "delivery to "+there.Cluster, func(ctx context.Context) (bool, error) {
			return driver.Deliver(ctx, delivery.Delivery{Instance: instance, Placement: there}) == nil, nil
		})
	}
	instance.Status.Delivered = &v1alpha1.DeliveredState{State: instance.Spec.Desired, Decision: decision}
	if err := f.Status().Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	return instance
}

// bind commits a binding.
func (f *fixture) bind(t *testing.T, instance *v1alpha1.ServiceInstance, id, role string) *v1alpha1.ServiceBinding {
	t.Helper()
	b := newBinding(f.namespace, instance, id, role)
	if err := f.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return b
}

func newBinding(namespace string, instance *v1alpha1.ServiceInstance, id, role string) *v1alpha1.ServiceBinding {
	return &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: v1alpha1.BindingName("platform-1", instance.Spec.InstanceID, id), Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.ServiceBindingSpec{
			Platform: "platform-1", InstanceName: instance.Name, InstanceID: instance.Spec.InstanceID, BindingID: id,
			ServiceID: "service-1", PlanID: "plan-1",
			Credentials: v1alpha1.CredentialsPolicy{LifetimeSeconds: 3600, RenewBeforeSeconds: 300, Role: role},
		},
	}
}

// until waits for a binding's status.
func (f *fixture) until(t *testing.T, b *v1alpha1.ServiceBinding, what string, condition func(*v1alpha1.ServiceBinding) bool) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) (bool, error) {
		err := f.Get(ctx, client.ObjectKeyFromObject(b), b)
		return err == nil && condition(b), err
	})
}

func in(state v1alpha1.OperationState) func(*v1alpha1.ServiceBinding) bool {
	return func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.Operation != nil && b.Status.Operation.State == state && b.Status.ObservedGeneration == b.Generation
	}
}

func (f *fixture) bound(t *testing.T, b *v1alpha1.ServiceBinding) *v1alpha1.ServiceBinding {
	t.Helper()
	f.until(t, b, "bind succeeds", in(v1alpha1.StateSucceeded))
	return b
}

// unbound deletes a binding and waits until it is gone.
func (f *fixture) unbound(t *testing.T, b *v1alpha1.ServiceBinding) {
	t.Helper()
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.gone(t, b)
}

func (f *fixture) gone(t *testing.T, b *v1alpha1.ServiceBinding) {
	t.Helper()
	eventually(t, "unbind succeeds", func(ctx context.Context) (bool, error) {
		err := f.Get(ctx, client.ObjectKeyFromObject(b), b)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// credentials are the OSB credentials object as a consumer decodes it.
type credentials struct {
	Kubeconfig           string `json:"kubeconfig"`
	Server               string `json:"server"`
	Namespace            string `json:"namespace"`
	Token                string `json:"token"`
	CertificateAuthority string `json:"certificate_authority"`
	Clusters             []struct {
		Name                 string `json:"name"`
		Server               string `json:"server"`
		Namespace            string `json:"namespace"`
		Token                string `json:"token"`
		CertificateAuthority string `json:"certificate_authority"`
	} `json:"clusters"`
}

func (f *fixture) open(t *testing.T, b *v1alpha1.ServiceBinding) credentials {
	t.Helper()
	plaintext, err := f.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	var out credentials
	if err := json.Unmarshal(plaintext.Reveal(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// consumer returns a client that uses one context of the credentials' kubeconfig; the empty
// name means the current one.
func (f *fixture) consumer(t *testing.T, c credentials, context string) client.Client {
	t.Helper()
	kubeconfig, err := clientcmd.Load([]byte(c.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, context, nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return f.newClient(t, access)
}

// lateBindings holds back what a watch of bindings tells.
type lateBindings struct {
	http.RoundTripper
	unseen *sync.RWMutex
}

func (l lateBindings) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") && strings.HasSuffix(r.URL.Path, "/servicebindings") {
		answer.Body = lateBody{answer.Body, l.unseen}
	}
	return answer, err
}

type lateBody struct {
	io.ReadCloser
	unseen *sync.RWMutex
}

func (b lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.unseen.RLock()
	defer b.unseen.RUnlock()
	return n, err
}

// countingPods counts the requests that list pods.
type countingPods struct {
	http.RoundTripper
	lookups *atomic.Int64
}

func (l countingPods) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
		l.lookups.Add(1)
	}
	return l.RoundTripper.RoundTrip(r)
}

// eventually waits for a condition for at most half a minute, and asks less often the longer it takes.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := controlplane.Until(t.Context(), 10*time.Millisecond, 200*time.Millisecond, 30*time.Second, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
