package capi_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
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

// until calls a method of the driver until it no longer waits, and returns the waits.
func (f *fixture) until(d delivery.Delivery, call func(context.Context, delivery.Delivery) error) (waited []string, err error) {
	f.Helper()
	failed := wait.PollUntilContextTimeout(f.Context(), 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
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
	says := wait.PollUntilContextTimeout(f.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
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

// Add-ons are installed in order, upgraded when the plan changes, and continued after a kill.
// An add-on that cannot be installed reports why.
func addOns(f *fixture) {
	d := newDelivery("addons")
	greeter := v1alpha1.AddOn{Name: "first", Chart: "greeter", Namespace: "apps"}
	second := v1alpha1.AddOn{Name: "second", Chart: "greeter", Namespace: "apps", Values: &runtime.RawExtension{Raw: []byte(`{"replicas": 2}`)}}
	d.Placement.Shape.AddOns = []v1alpha1.AddOn{greeter, second}
	f.deliver(d)
	connection, err := f.driver.Connections.OfInstance(f.Context(), management, d.Instance.Name)
	must(f, err)
	kube := kubernetes.NewForConfigOrDie(connection.Config)
	ready := func(name string) int32 {
		deployment, err := kube.AppsV1().Deployments("apps").Get(f.Context(), name, metav1.GetOptions{})
		must(f, err)
		return deployment.Status.ReadyReplicas
	}
	if one, two := ready("first"), ready("second"); one != 1 || two != 2 {
		f.Errorf("%d and %d replicas are ready, want 1 and 2", one, two)
	}
	must(f, f.driver.Observe(f.Context(), d))

	// An add-on is waited for while its pods have no node to run on.
	schedulable := func(is bool) {
		nodes, err := kube.CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
		must(f, err)
		for i := range nodes.Items {
			patch := fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, !is)
			_, err := kube.CoreV1().Nodes().Patch(f.Context(), nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
			must(f, err)
		}
	}
	more := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	more.Placement.Shape.AddOns = append(more.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", Chart: "greeter", Namespace: "apps"})
	schedulable(false)
	failed := wait.PollUntilContextTimeout(f.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err = f.driver.Deliver(ctx, more)
		return err == nil || strings.Contains(err.Error(), "waiting: add-on third"), nil
	})
	if failed != nil || err == nil {
		f.Errorf("delivering an add-on that cannot run: %v", err)
	}
	schedulable(true)
	f.deliver(more)
	f.deliver(d) // which removes it again

	// An upgrade that was killed halfway: Helm itself would wait for it for ever.
	d.Placement.Shape.AddOns[0].Values = &runtime.RawExtension{Raw: []byte(`{"greeting": "good day"}`)}
	if err := f.driver.Observe(f.Context(), d); err == nil || !strings.Contains(err.Error(), "add-on first is not as it was installed") {
		f.Errorf("observing other values: %v", err)
	}
	interrupt(f, kube, "first")
	f.deliver(d)
	config, err := kube.CoreV1().ConfigMaps("apps").Get(f.Context(), "first", metav1.GetOptions{})
	must(f, err)
	if config.Data["greeting"] != "good day" {
		f.Errorf("it greets with %q", config.Data["greeting"])
	}

	for chart, says := range map[string]string{"broken": "colour is needed", "missing": "there is no chart missing", "..": "no chart"} {
		changed := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
		changed.Placement.Shape.AddOns = append(changed.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", Chart: chart, Namespace: "apps"})
		_, err := f.until(changed, f.driver.Deliver)
		if no := (*delivery.RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), says) {
			f.Errorf("chart %s: %v, want a refusal that says %q", chart, err, says)
		}
	}
	failHalfway(f, d, kube)
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// failHalfway adds an add-on of which the cluster accepts only a part. The error names the
// rejected object. Nothing of it remains once the previous add-ons are delivered again, nor of
// an add-on that is not wanted any more. Releases of the owner stay.
func failHalfway(f *fixture, d delivery.Delivery, kube kubernetes.Interface) {
	f.Helper()
	left := func() (names []string) {
		configs, err := kube.CoreV1().ConfigMaps("apps").List(f.Context(), metav1.ListOptions{})
		must(f, err)
		secrets, err := kube.CoreV1().Secrets("apps").List(f.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
		must(f, err)
		for i := range configs.Items {
			names = append(names, configs.Items[i].Name)
		}
		for i := range secrets.Items {
			names = append(names, secrets.Items[i].Labels["name"])
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "kube-root-ca.crt" })
		slices.Sort(names)
		return slices.Compact(names)
	}
	owners := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.owners.v1", Labels: map[string]string{"owner": "helm", "name": "owners"}}}
	_, err := kube.CoreV1().Secrets("apps").Create(f.Context(), owners, metav1.CreateOptions{})
	must(f, err)
	half := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	half.Placement.Shape.AddOns = append(half.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", Chart: "halfway", Namespace: "apps"})
	_, err = f.until(half, f.driver.Deliver)
	if no := (*delivery.RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), "add-on third: ") || !strings.Contains(err.Error(), "70000") {
		f.Errorf("an add-on of which a part is refused: %v", err)
	}
	if got := left(); !slices.Contains(got, "third") {
		f.Errorf("there are %v, want the half of third", got)
	}
	f.deliver(d)
	if got := left(); !slices.Equal(got, []string{"first", "owners", "second"}) {
		f.Errorf("after undoing there are %v", got)
	}
	d.Placement.Shape.AddOns = d.Placement.Shape.AddOns[:1]
	f.deliver(d)
	d.Placement.Shape.AddOns = nil
	f.deliver(d)
	if got := left(); !slices.Equal(got, []string{"owners"}) {
		f.Errorf("without add-ons there are %v", got)
	}
}

// A class that changes under a running cluster does not change the cluster. An update names the
// fault of the class, and works once that is repaired.
func classThatChanges(f *fixture) {
	class := func(of string, old, new string) {
		f.Helper()
		documents := strings.ReplaceAll(of, "kind: ClusterClass\nmetadata:\n  name: simulated", "kind: ClusterClass\nmetadata:\n  name: changing")
		if old != "" && !strings.Contains(documents, old) {
			f.Fatalf("the class has no %s", old)
		}
		must(f, f.bed.Apply(f.Context(), []byte(strings.ReplaceAll(documents, old, new))))
	}
	whole, _, _ := strings.Cut(string(testbed.Class), "\n---\n")
	const template = "kind: SimulatedConfigTemplate, name: simulated"
	class(whole, template, template)
	d := newDelivery("changes")
	d.Placement.Shape.Class = "changing"
	f.deliver(d)

	class(whole, template, "kind: SimulatedConfigTemplate, name: missing")
	grown := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	grown.Placement.Shape.Workers[0].Replicas = 2
	const why = "waiting: read ClusterClass default/changing on management: RefVersionsUpToDate is not true"
	var err error
	says := wait.PollUntilContextTimeout(f.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := f.driver.Observe(ctx, d); err != nil {
			return false, fmt.Errorf("what runs is not as it was delivered: %w", err)
		}
		err = f.driver.Deliver(ctx, grown)
		return err != nil && strings.Contains(err.Error(), why), nil
	})
	if says != nil {
		f.Errorf("%v, and it does not say that something is wrong with the class: %v", says, err)
	}
	if nodes := f.nodes(d); len(nodes) != 1 {
		f.Errorf("%d nodes while the class is wrong, want the one that there was", len(nodes))
	}

	class(whole, template, template)
	f.deliver(grown)
	if nodes := f.nodes(d); len(nodes) != 2 {
		f.Errorf("%d nodes once the class is right, want 2", len(nodes))
	}
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// interrupt leaves a release as a kill in the middle of its installation does.
func interrupt(f *fixture, kube kubernetes.Interface, name string) {
	f.Helper()
	secrets := kube.CoreV1().Secrets("apps")
	list, err := secrets.List(f.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=" + name})
	must(f, err)
	releases := storage.Init(driver.NewSecrets(secrets))
	newest, err := releases.Last(name)
	must(f, err)
	last := newest.(*release.Release)
	last.SetStatus(common.StatusPendingUpgrade, "killed")
	last.Version = len(list.Items) + 1
	must(f, releases.Create(last))
}
