package capi_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/capi"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	testbed "github.com/sluice-dev/sluice/test/capi"
	"github.com/sluice-dev/sluice/test/controlplane"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	hubtest.Main(m)
}

const management = "management"

// fixture is a hub with one management cluster, on which Sluice has been registered.
type fixture struct {
	*testing.T
	hub       client.Client
	namespace string
	bed       *testbed.Bed
	driver    *capi.Driver
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	hub := hubtest.Start(t)
	bed := testbed.Start(t, testbed.Options{})
	must(t, bed.Apply(t.Context(), testbed.Class))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		must(t, add(scheme))
	}
	c, err := client.New(hub.Config, client.Options{Scheme: scheme})
	must(t, err)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	must(t, err)
	kubeconfig, err := kube.Register(t.Context(), bed.Config(), kube.ManifestOptions{Rules: capi.Rules(), TenantRules: capi.TenantRules()})
	must(t, err)
	namespace := hubtest.Namespace(t)
	sealed, err := keys.Seal(kubeconfig, member.Owner(namespace, management))
	must(t, err)
	must(t, c.Create(t.Context(), &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: management},
		Spec: v1alpha1.MemberClusterSpec{
			Driver: v1alpha1.DriverCAPI, Capacity: placement.Resources{v1alpha1.ResourceClusters: 5}.List(),
			Access: v1alpha1.ClusterAccess{SealedKubeconfig: sealed},
		},
	}))
	return &fixture{t, c, namespace, bed, &capi.Driver{Hub: "hub-1", Charts: &store.Store{Folder: "../../internal/charts/store/testdata/charts"}, Connections: &member.Connections{Reader: c, Namespace: namespace, Keys: keys}}}
}

// TestDriver runs the following tests side by side, on one management cluster.
func TestDriver(t *testing.T) {
	f := newFixture(t)
	for name, test := range map[string]func(*fixture){
		"life": life, "infrastructure that fails": infrastructureThatFails, "removed while it is made": removedWhileMade,
		"control plane of machines": controlPlaneOfMachines, "add-ons": addOns, "class that changes": classThatChanges,
		"variables that consumers set": variablesThatConsumersSet,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&fixture{t, f.hub, f.namespace, f.bed, f.driver})
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newDelivery returns the delivery of an instance of that name: one worker of the class simulated.
func newDelivery(name string) delivery.Delivery {
	return delivery.Delivery{
		Instance: &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("platform", name), UID: types.UID("uid of " + name)}},
		Placement: v1alpha1.Placement{Cluster: management, Shape: &v1alpha1.ClusterShape{
			Class: "simulated", ClassNamespace: "default", Version: "v1.34.4",
			Workers: []v1alpha1.WorkerReplicas{{Name: "pool", Class: "worker", Replicas: 1}},
		}},
	}
}

// again waits for a condition, and asks less often the longer it takes: at least three times a second, so that it
// sees every stage.
func (f *fixture) again(patience time.Duration, condition wait.ConditionWithContextFunc) error {
	f.Helper()
	return controlplane.Until(f.Context(), 100*time.Millisecond, 300*time.Millisecond, patience, condition)
}

// until calls a method of the driver until it no longer waits, and returns the waits.
func (f *fixture) until(d delivery.Delivery, call func(context.Context, delivery.Delivery) error) (waited []string, err error) {
	f.Helper()
	failed := f.again(3*time.Minute, func(ctx context.Context) (bool, error) {
		err = call(ctx, d)
		pending := (*delivery.PendingError)(nil)
		if errors.As(err, &pending) {
			if n := len(waited); n == 0 || waited[n-1] != err.Error() {
				waited = append(waited, err.Error())
			}
			return false, nil
		}
		return true, nil
	})
	if failed != nil {
		f.Fatalf("still: %v", err)
	}
	return waited, err
}

func (f *fixture) deliver(d delivery.Delivery) []string {
	f.Helper()
	waited, err := f.until(d, f.driver.Deliver)
	must(f, err)
	return waited
}

// nodes of the created cluster.
func (f *fixture) nodes(d delivery.Delivery) []corev1.Node {
	f.Helper()
	connection, err := f.driver.Connections.OfInstance(f.Context(), management, d.Instance.Name)
	must(f, err)
	nodes, err := kubernetes.NewForConfigOrDie(connection.Config).CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
	must(f, err)
	return nodes.Items
}

func (f *fixture) wantGone(d delivery.Delivery) {
	f.Helper()
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	err := f.bed.Client.Get(f.Context(), client.ObjectKey{Name: v1alpha1.MemberNamespace(d.Instance.Name)}, namespace)
	if !apierrors.IsNotFound(err) {
		f.Errorf("its namespace is left: %v", err)
	}
	if f.bed.Workload(v1alpha1.MemberNamespace(d.Instance.Name), v1alpha1.InstanceClusterName(d.Instance.Name)) != nil {
		f.Error("its control plane is left")
	}
}

// The life of a cluster: made, observed, grown, upgraded, refused what its class does
// not allow, and removed without a trace.
func life(f *fixture) {
	d := newDelivery("life")
	d.Placement.Shape.Variables = &runtime.RawExtension{Raw: []byte(`{"workerCPU": "3"}`)}

	waited := strings.Join(f.deliver(d), "\n")
	for _, stage := range []string{"control plane not initialised yet", "control plane initialised, 0 of 1 workers ready"} {
		if !strings.Contains(waited, stage) {
			f.Errorf("it never said %q; it said:\n%s", stage, waited)
		}
	}
	nodes := f.nodes(d)
	if len(nodes) != 1 || nodes[0].Status.Capacity.Cpu().Value() != 3 {
		f.Fatalf("the nodes are %v, want one of 3 cores", nodes)
	}
	if err := f.driver.Observe(f.Context(), d); err != nil {
		f.Errorf("observe: %v", err)
	}

	d.Placement.Shape.Workers[0].Replicas = 2
	if err := f.driver.Observe(f.Context(), d); err == nil || !strings.Contains(err.Error(), "replicas is 1, not 2") {
		f.Errorf("observing a size that was not delivered: %v", err)
	}
	f.deliver(d)
	if nodes := f.nodes(d); len(nodes) != 2 {
		f.Fatalf("%d nodes, want 2", len(nodes))
	}

	d.Placement.Shape.Version = "v1.35.0"
	f.deliver(d)
	for _, node := range f.nodes(d) {
		if node.Status.NodeInfo.KubeletVersion != "v1.35.0" {
			f.Errorf("node %s has version %s after the upgrade", node.Name, node.Status.NodeInfo.KubeletVersion)
		}
	}

	// An upgrade that is given up is not reverted, and leaves nothing broken.
	undone := delivery.Delivery{Instance: d.Instance.DeepCopy(), Placement: *d.Placement.DeepCopy()}
	undone.Placement.Shape.Version = "v1.34.4"
	undone.Instance.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{*undone.Placement.DeepCopy()}}}
	f.deliver(undone)
	must(f, f.driver.Observe(f.Context(), undone))
	for _, node := range f.nodes(d) {
		if node.Status.NodeInfo.KubeletVersion != "v1.35.0" {
			f.Errorf("node %s is back at version %s", node.Name, node.Status.NodeInfo.KubeletVersion)
		}
	}

	for _, refused := range []struct {
		what   string
		change func(*v1alpha1.ClusterShape)
		says   string
	}{
		{"an older version", func(s *v1alpha1.ClusterShape) { s.Version = "v1.34.4" }, "cannot be decreased"},
		{"a version that skips one", func(s *v1alpha1.ClusterShape) { s.Version = "v1.37.0" }, "cannot be increased"},
		{"a variable of the wrong type", func(s *v1alpha1.ClusterShape) { s.Variables = &runtime.RawExtension{Raw: []byte(`{"workerCPU": 3}`)} }, "must be of type string"},
		{"a variable that the class does not have", func(s *v1alpha1.ClusterShape) { s.Variables = &runtime.RawExtension{Raw: []byte(`{"colour": "red"}`)} }, "colour"},
		{"a class that is not there", func(s *v1alpha1.ClusterShape) { s.Class = "other" }, "ClusterClass default/other is not on management"},
	} {
		changed := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
		refused.change(changed.Placement.Shape)
		err := f.driver.Deliver(f.Context(), changed)
		if no := (*delivery.RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), refused.says) {
			f.Errorf("%s: got %v, want a refusal that says %q", refused.what, err, refused.says)
		}
	}
	if err := f.driver.Observe(f.Context(), d); err != nil {
		f.Errorf("what was refused has changed it: %v", err)
	}

	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
	must(f, f.driver.Remove(f.Context(), d)) // once more does nothing
}

// A cluster that never comes up reports the reason in Cluster API's own words, and is deleted
// like any other.
func infrastructureThatFails(f *fixture) {
	d := newDelivery("fails")
	d.Placement.Shape.Variables = &runtime.RawExtension{Raw: []byte(`{"fails": "out of machines in this zone"}`)}
	var err error
	says := f.again(time.Minute, func(ctx context.Context) (bool, error) {
		err = f.driver.Deliver(ctx, d)
		return err != nil && strings.Contains(err.Error(), "out of machines in this zone"), nil
	})
	if says != nil {
		f.Errorf("it does not say why: %v", err)
	}
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// Deleting a half-created cluster leaves nothing.
func removedWhileMade(f *fixture) {
	d := newDelivery("half")
	if err := f.driver.Deliver(f.Context(), d); err == nil {
		f.Fatal("it cannot be ready yet")
	}
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// Control plane machines are requested only if the plan has them. The simulated provider has
// none, and never reports any.
func controlPlaneOfMachines(f *fixture) {
	d := newDelivery("replicas")
	d.Placement.Shape.ControlPlane = ptr.To[int32](3)
	err := f.driver.Deliver(f.Context(), d)
	if no := (*delivery.RefusedError)(nil); err == nil || errors.As(err, &no) {
		f.Fatalf("deliver: %v", err)
	}
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
}
