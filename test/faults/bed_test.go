package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/registration"
	"github.com/sluice-dev/sluice/test/controlplane"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	_ = flag.Set("test.parallel", "32") // lives mostly wait
	hubtest.Main(m)
}

// Member clusters of the bed: one behind a proxy, and one that is always well.
const (
	faulty  = "faulty"
	healthy = "healthy"
)

// bed is a Sluice in this process, the OSB API included, with member clusters.
type bed struct {
	hub       client.WithWatch
	scheme    *runtime.Scheme
	keys      *seal.Keyset
	namespace string
	url       string
	inventory *placement.Inventory
	proxy     *Proxy
	admin     *kubernetes.Clientset // of the faulty one, not through the proxy
}

// newBed returns a bed with the two member clusters.
func newBed(t *testing.T) *bed {
	t.Helper()
	b := emptyBed(t)
	b.admin = kubernetes.NewForConfigOrDie(b.join(t, faulty, v1alpha1.MemberClusterSpec{}, func(cp *controlplane.ControlPlane, kubeconfig []byte) []byte {
		b.proxy = Start(t, cp.Config())
		through, err := b.proxy.Through(kubeconfig)
		must(t, err)
		return through
	}).Config())
	b.join(t, healthy, v1alpha1.MemberClusterSpec{}, func(_ *controlplane.ControlPlane, kubeconfig []byte) []byte { return kubeconfig })
	b.run(t)
	eventually(t, "both clusters are ready", func(ctx context.Context) (bool, error) {
		return b.ready(ctx, faulty) && b.ready(ctx, healthy), nil
	})
	return b
}

// emptyBed returns a bed without member clusters, which does not run yet.
func emptyBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{namespace: hubtest.Namespace(t), inventory: placement.NewInventory(), scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		must(t, add(b.scheme))
	}
	var err error
	b.hub, err = client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: b.scheme})
	must(t, err)
	b.keys, err = seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	must(t, err)
	return b
}

// join starts a cluster, registers it with the rights that its spec asks for, and adds it to the hub. through
// returns the kubeconfig for Sluice.
func (b *bed) join(t *testing.T, name string, spec v1alpha1.MemberClusterSpec, through func(*controlplane.ControlPlane, []byte) []byte) *controlplane.ControlPlane {
	t.Helper()
	cp := controlplane.Start(t, controlplane.Options{Name: name, Nodes: []controlplane.Node{{Name: name + "-node", CPU: "64", Memory: "256Gi", Pods: "1000"}}})
	spec.Driver = v1alpha1.DriverKube
	mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{"which": name}}, Spec: spec}
	o, err := registration.Permissions(kube.ManifestOptions{}, mc)
	must(t, err)
	kubeconfig, err := kube.Register(t.Context(), cp.Config(), o)
	must(t, err)
	mc.Spec.Access.SealedKubeconfig, err = b.keys.Seal(through(cp, kubeconfig), member.Owner(b.namespace, name))
	must(t, err)
	must(t, b.hub.Create(t.Context(), mc))
	return cp
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs the controllers and the OSB API until the test ends.
func (b *bed) run(t *testing.T) {
	t.Helper()
	scheme, live, keys := b.scheme, b.hub, b.keys
	mgr, err := ctrl.NewManager(hubtest.Start(t).Config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{b.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	must(t, err)
	served := &catalog.Catalog{}
	served.Replace(sold(t))
	const hubID = "hub-of-faults"
	connections := &member.Connections{Reader: live, Namespace: b.namespace, Keys: keys}
	must(t, controller.SetupWithManager(mgr, controller.Options{
		Namespace: b.namespace, HubID: hubID, Catalog: served, Inventory: b.inventory, Connections: connections,
		Drivers:    map[string]delivery.Driver{v1alpha1.DriverKube: &kube.Driver{Connections: connections, Hub: hubID}},
		Rules:      registration.Rules,
		ProbeEvery: time.Second,
	}))
	must(t, (&bindings.Controller{Client: mgr.GetClient(), Live: live, Connections: connections, Keys: keys, Hub: hubID}).SetupWithManager(mgr))
	file := filepath.Join(t.TempDir(), "platforms.yaml")
	must(t, os.WriteFile(file, []byte("platforms: [{name: p, basic: [{username: p, password: password-of-p}]}]"), 0o600))
	platforms, err := broker.LoadPlatforms(file)
	must(t, err)
	osb, err := broker.New(broker.Options{
		Client: live, Namespace: b.namespace, Catalog: served, Platforms: platforms, Keys: keys,
		Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	server := httptest.NewServer(osb)
	b.url = server.URL
	ended := make(chan error)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

// sold are a small and a larger plan on each of the clusters.
func sold(t *testing.T) *catalog.Snapshot {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "s", Name: "s", Description: "Cores.", Bindable: true, PlanUpdateable: true}
	for _, cluster := range []string{faulty, healthy} {
		for size, pods := range map[string]string{"small": "2", "large": "4"} {
			spec.Plans = append(spec.Plans, v1alpha1.Plan{
				ID: cluster + "-" + size, Name: cluster + "-" + size, Description: size, Kind: v1alpha1.PlanKindResources,
				Resources: &v1alpha1.ResourcesPlan{
					Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourcePods: resource.MustParse(pods)},
					Clusters: 1, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"which": cluster}},
				},
			})
		}
	}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	must(t, err)
	return snapshot
}

func (b *bed) ready(ctx context.Context, cluster string) bool {
	var mc v1alpha1.MemberCluster
	err := b.hub.Get(ctx, client.ObjectKey{Namespace: b.namespace, Name: cluster}, &mc)
	return err == nil && meta.IsStatusConditionTrue(mc.Status.Conditions, v1alpha1.ConditionReady)
}

// object is a JSON document.
type object = map[string]any

// call makes an OSB request.
func (b *bed) call(ctx context.Context, method, path string, body object) (code int, answer object, err error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, b.url+path, bytes.NewReader(encoded))
	if err != nil {
		return 0, nil, err
	}
	request.SetBasicAuth("p", "password-of-p")
	request.Header.Set("X-Broker-API-Version", "2.17")
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, nil, fmt.Errorf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return response.StatusCode, answer, nil
}

// accepted makes an OSB request that begins something, or finds it done.
func (b *bed) accepted(t *testing.T, method, path string, body object) {
	t.Helper()
	code, answer, err := b.call(t.Context(), method, path+"?accepts_incomplete=true&service_id=s&plan_id="+faulty+"-small", body)
	if err != nil || code != 200 && code != 201 && code != 202 {
		t.Fatalf("%s %s: %d %v, %v", method, path, code, answer, err)
	}
}

// ends waits for the end of an operation: "succeeded", or "gone" after a deletion.
func (b *bed) ends(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, path+" is "+want, func(ctx context.Context) (bool, error) {
		code, answer, err := b.call(ctx, "GET", path+"/last_operation", nil)
		if err != nil {
			return false, err
		}
		state := answer["state"]
		if code == http.StatusGone || code == http.StatusNotFound { // polled without a token
			state = "gone"
		}
		if state == "failed" {
			return false, fmt.Errorf("it failed: %v", answer)
		}
		return state == want, nil
	})
}

func order(plan string) object {
	return object{"service_id": "s", "plan_id": plan, "organization_guid": "o", "space_guid": "s", "context": object{}}
}

// eventually waits for a condition for at most two minutes, and asks less often the longer it takes.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := controlplane.Until(t.Context(), 50*time.Millisecond, 300*time.Millisecond, 2*time.Minute, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
