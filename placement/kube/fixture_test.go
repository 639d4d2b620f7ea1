package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
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

// clusterName is the name of the member cluster on the hub.
const clusterName = "cluster-a"

// fixture is a hub with one member cluster, on which Sluice has been registered.
type fixture struct {
	hub, admin, sluice client.Client
	hubNamespace       string
	connections        *member.Connections
	adminConfig        *rest.Config
	kubeconfig         []byte
	charts             chartstest.Charts
}

// newFixture starts a control plane with these feature gates of Kubernetes, in addition to the defaults.
func newFixture(t *testing.T, gates ...string) *fixture {
	t.Helper()
	hub := hubtest.Start(t) // first, as it sets the logger that the other would be using
	cp := controlplane.Start(t, controlplane.Options{Name: clusterName, Nodes: []controlplane.Node{{Name: "node-1", Pods: "220"}}, FeatureGates: strings.Join(gates, ",")})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{hubNamespace: hubtest.Namespace(t), adminConfig: cp.Config(), charts: webChart(t)}
	f.hub = newClient(t, hub.Config, scheme)
	f.admin = newClient(t, cp.Config(), scheme)
	if f.kubeconfig, err = kube.Register(t.Context(), cp.Config(), kube.ManifestOptions{}); err != nil {
		t.Fatal(err)
	}
	sealed, err := keys.Seal(f.kubeconfig, member.Owner(f.hubNamespace, clusterName))
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.hubNamespace, Name: clusterName},
		Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: sealed}},
	}
	if err := f.hub.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.StorageClasses = []string{"fast"}
	cluster.Status.Allocatable = amounts("cpu", "8", "memory", "32Gi", "nvidia.com/gpu", "2")
	if err := f.hub.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	f.connections = &member.Connections{Reader: f.hub, Namespace: f.hubNamespace, Keys: keys}
	connection, err := f.connections.Get(t.Context(), clusterName)
	if err != nil {
		t.Fatal(err)
	}
	f.sluice = connection.Client
	return f
}

func newClient(t *testing.T, config *rest.Config, scheme *runtime.Scheme) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (f *fixture) driver() *kube.Driver {
	return &kube.Driver{Connections: f.connections, Hub: "hub-1", Charts: f.charts}
}

// newDelivery returns that of a new instance.
func newDelivery(t *testing.T, reserved ...string) delivery.Delivery {
	return delivery.Delivery{
		Instance: &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.InstanceName("platform-1", t.Name()), UID: types.UID("uid of " + t.Name()),
		}},
		Placement: v1alpha1.Placement{Cluster: clusterName, Reserved: amounts(reserved...)},
	}
}

func namespaceOf(d delivery.Delivery) string { return v1alpha1.MemberNamespace(d.Instance.Name) }

func (f *fixture) deliver(t *testing.T, d delivery.Delivery) {
	t.Helper()
	if err := f.driver().Deliver(t.Context(), d); err != nil {
		t.Fatalf("deliver: %v", err)
	}
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// pod has one container with limits, and ends at once when deleted.
func pod(namespace, name string, limits ...string) *corev1.Pod {
	grace := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/app",
				Resources: corev1.ResourceRequirements{Limits: amounts(limits...)},
			}},
		},
	}
}

// eventually waits for a condition for at most a minute: Kubernetes checks a namespace that is
// blocked only about every eight seconds.
func eventually(t *testing.T, what string, condition func(context.Context) (bool, error)) {
	t.Helper()
	if err := until(t, 10*time.Millisecond, time.Minute, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// until waits for a condition, and asks less often the longer it takes: at first after a delay, later about twice a second.
func until(t *testing.T, delay, patience time.Duration, condition func(context.Context) (bool, error)) error {
	t.Helper()
	return controlplane.Until(t.Context(), delay, 500*time.Millisecond, patience, condition)
}

// awaitDefaultAccount waits for the namespace's default ServiceAccount, without which no pod
// is admitted.
func (f *fixture) awaitDefaultAccount(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the default ServiceAccount of "+namespace, func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// refusedWith fails the test unless err is a refusal that mentions text.
func refusedWith(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got %v, want a refusal with %q", what, err, text)
	}
}

func key(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// versions returns the resource versions of Sluice's objects in a namespace. That of the quota is its content, and when it was
// written, without its status: the cluster writes that, too, when it counts what it has created in the namespace itself.
func (f *fixture) versions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, list := range ownedLists() {
		if err := f.admin.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelInstance}); err != nil {
			t.Fatal(err)
		}
		eachItem(t, list, func(o client.Object) {
			version := o.GetResourceVersion()
			if quota, ok := o.(*corev1.ResourceQuota); ok {
				written := slices.DeleteFunc(quota.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" })
				content, err := json.Marshal([]any{quota.UID, quota.Spec, quota.Labels, quota.Annotations, written})
				if err != nil {
					t.Fatal(err)
				}
				version = string(content)
			}
			out[fmt.Sprintf("%T %s", o, o.GetName())] = version
		})
	}
	return out
}
