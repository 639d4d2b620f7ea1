package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// polling is maximum_polling_duration of the plans; an operation has to fail six seconds before
// its end.
const polling = time.Minute

// world is a hub, a reconciler of instances whose passes the test makes one by one, and a
// driver that keeps its state in memory.
type world struct {
	*testing.T
	hub       client.Client
	namespace string
	inventory *placement.Inventory
	driver    *rememberingDriver
	kube      delivery.Driver // the driver, or what stands before it
	searches  atomic.Int32    // of bindings on the hub, by the running controllers
	clock     *testclock.FakePassiveClock
	// woken are the instances that the inventory woke, in order.
	woken []string
	// writes counts status updates.
	writes int
	// onWrite, if set, is called instead of a status update; really does the update.
	onWrite    func(really func() error) error
	reconciler *instanceReconciler
	// restarted changes each new reconciler; may be nil.
	restarted func(*instanceReconciler)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	direct, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, namespace: hubtest.Namespace(t), driver: newRememberingDriver(), clock: testclock.NewFakePassiveClock(time.Now())}
	w.hub = interceptor.NewClient(direct, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			w.writes++
			really := func() error { return c.SubResource(sub).Update(ctx, object, options...) }
			if w.onWrite != nil {
				return w.onWrite(really)
			}
			return really()
		},
	})
	w.start()
	return w
}

// start returns a Sluice that has just started, without any state.
func (w *world) start() {
	w.inventory = placement.NewInventory()
	w.inventory.OnWake(func(instance string) { w.woken = append(w.woken, instance) })
	w.reconciler = w.newReconciler()
	if w.restarted != nil {
		w.restarted(w.reconciler)
	}
}

func (w *world) newReconciler() *instanceReconciler {
	return &instanceReconciler{
		hub: w.hub, live: w.hub, bindings: []client.Reader{w.hub}, plan: testCatalog(w.T).Plan, inventory: w.inventory, leadership: soleWriter{},
		recovery: &recovery{reader: w.hub, namespace: w.namespace, inventory: w.inventory, clock: w.clock},
		drivers:  map[string]delivery.Driver{v1alpha1.DriverKube: w.driver},
		clock:    w.clock, metrics: newMetrics(), moves: &moves{most: 2, wake: func(instance string) { w.woken = append(w.woken, instance) }},
	}
}

// planDivided sells two replicas of 2 cores.
const planDivided = "plan-divided"

func hubConfig(w *world) *rest.Config { return hubtest.Start(w).Config }

// testCatalog sells 2, 4 and 8 cores, on one cluster or more, in the priority classes bronze,
// silver and gold, which count if a policy declares them; 4 cores with a plan that waits
// for anything, and in two replicas; and an application of class gold with a component of 6 cores and one of 2.
func testCatalog(t *testing.T, edits ...func(*v1alpha1.ResourcesPlan)) *catalog.Snapshot {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-compute", Name: "compute", Description: "Cores.", Bindable: true, PlanUpdateable: true}
	for size, class := range map[string]string{"2": "bronze", "4": "silver", "8": "gold"} {
		spec.Plans = append(spec.Plans, v1alpha1.Plan{
			ID: "plan-" + size, Name: "cores-" + size, Description: size + " cores.", Kind: v1alpha1.PlanKindResources,
			MaximumPollingDurationSeconds: int32(polling.Seconds()),
			Resources:                     &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=" + size), Clusters: 1, MaxClusters: 3, PriorityClass: class},
		})
	}
	spec.Plans = append(spec.Plans, v1alpha1.Plan{
		ID: "plan-each", Name: "each", Description: "Two cores in each region.", Kind: v1alpha1.PlanKindResources,
		MaximumPollingDurationSeconds: int32(polling.Seconds()),
		Resources:                     &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=2"), Spread: &v1alpha1.Spread{By: []string{v1alpha1.LabelRegion}, Each: true}},
	})
	patient := spec.Plans[0]
	patient.ID, patient.Name, patient.WaitFor = "plan-patient", "patient", v1alpha1.WaitForAnything
	patient.Resources = &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=4"), Clusters: 1}
	divided := patient
	divided.ID, divided.Name, divided.WaitFor = planDivided, "divided", ""
	divided.Resources = &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=2"), Clusters: 1, Replicas: &v1alpha1.Replicas{Count: 2}}
	spec.Plans = append(spec.Plans, patient, divided, v1alpha1.Plan{
		ID: "plan-application", Name: "application", Description: "Two components.", Kind: v1alpha1.PlanKindResources,
		MaximumPollingDurationSeconds: int32(polling.Seconds()),
		Resources: &v1alpha1.ResourcesPlan{Limits: placementtest.Quantities("cpu=2"), PriorityClass: "gold", Components: []v1alpha1.Component{
			{Name: "db", Limits: placementtest.Quantities("cpu=6")}, {Name: "web"},
		}},
	})
	for i := range spec.Plans {
		spec.Plans[i].Resources.Score.Balance = 1 // so that the roomiest cluster is the best
		for _, edit := range edits {
			edit(spec.Plans[i].Resources)
		}
	}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// cluster adds a member cluster with some cores to hub and inventory.
func (w *world) cluster(name string, cores int) {
	w.Helper()
	mc := placementtest.Cluster{Name: name, Has: placementtest.Quantities(fmt.Sprintf("cpu=%d,memory=100Gi,pods=100", cores)), Classes: []string{"fast"}}.MemberCluster()
	mc.Namespace = w.namespace
	mc.Spec.Access.SecretRef = &v1alpha1.SecretKeyReference{Name: name}
	status := mc.Status
	w.must(w.hub.Create(w.Context(), mc))
	w.must(retry.RetryOnConflict(retry.DefaultRetry, func() error { // controllers may be writing it, too
		if err := w.hub.Get(w.Context(), client.ObjectKeyFromObject(mc), mc); err != nil {
			return err
		}
		mc.Status = status
		return w.hub.Status().Update(w.Context(), mc)
	}))
	w.writes = 0
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
}

// provision creates an instance as the broker does.
func (w *world) provision(name, plan, parameters string) {
	w.Helper()
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform", InstanceID: name, ServiceID: "service-compute",
			Desired: v1alpha1.InstanceState{PlanID: plan, Parameters: raw(parameters)},
		},
	}
	w.must(w.hub.Create(w.Context(), instance))
}

func raw(object string) *runtime.RawExtension {
	if object == "" {
		return nil
	}
	return &runtime.RawExtension{Raw: []byte(object)}
}

// update changes an instance as the broker does.
func (w *world) update(name string, change func(*v1alpha1.InstanceState)) {
	w.Helper()
	instance := w.instance(name)
	change(&instance.Spec.Desired)
	w.must(w.hub.Update(w.Context(), instance))
}

func (w *world) deprovision(name string) {
	w.Helper()
	w.must(w.hub.Delete(w.Context(), w.instance(name)))
}

func (w *world) instance(name string) *v1alpha1.ServiceInstance {
	w.Helper()
	instance := &v1alpha1.ServiceInstance{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, instance))
	return instance
}

func (w *world) gone(name string) bool {
	err := w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &v1alpha1.ServiceInstance{})
	return client.IgnoreNotFound(err) == nil && err != nil
}

// pass is one pass over an instance.
func (w *world) pass(name string) (ctrl.Result, error) {
	return w.reconciler.Reconcile(w.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}})
}

// passes makes one pass that must not fail, and returns the instance after it.
func (w *world) passes(name string) *v1alpha1.ServiceInstance {
	w.Helper()
	if _, err := w.pass(name); err != nil {
		w.Fatal(err)
	}
	return w.instance(name)
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// wantOperation checks the operation's type and state, and text in its description.
func (w *world) wantOperation(instance *v1alpha1.ServiceInstance, kind v1alpha1.OperationType, state v1alpha1.OperationState, says string) {
	w.Helper()
	op := instance.Status.Operation
	if op == nil || op.Type != kind || op.State != state || op.Generation != instance.Generation || !strings.Contains(op.Description, says) {
		w.Fatalf("operation of generation %d is %+v, want %s %s saying %q", instance.Generation, op, kind, state, says)
	}
	if shown := forOperators.FindString(op.Summary); shown != "" || op.Summary == "" && state == v1alpha1.StateFailed {
		w.Fatalf("the consumer reads %q, with %q in it, of %q", op.Summary, shown, op.Description)
	}
}

// wantReserved checks the total of cores reserved on a cluster.
func (w *world) wantReserved(cluster string, cores int64) {
	w.Helper()
	var reserved int64
	for _, held := range w.inventory.Snapshot().Reservations(cluster) {
		reserved += held.Resources["cpu"]
	}
	if reserved != cores*1000 {
		w.Fatalf("%d thousandths of a core are reserved on %s, want %d cores", reserved, cluster, cores)
	}
}

// wantCarried checks what a cluster carries for an instance; zero means nothing.
func (w *world) wantCarried(cluster, instance string, cores int64) {
	w.Helper()
	if got := w.driver.cores(cluster, instance); got != cores {
		w.Fatalf("%s carries %d cores of %s, want %d", cluster, got, instance, cores)
	}
}

// rememberingDriver is a fake: it carries instances in memory and fails when told to.
type rememberingDriver struct {
	mu      sync.Mutex
	carried map[string]map[string]int64 // cores by cluster and instance
	calls   []string
	// failing holds errors to return instead of a result, by call and cluster, for instance
	// "deliver eu".
	failing map[string]error
	// failOn returns the error for a delivery; nil for none; may be nil itself.
	failOn func(delivery.Delivery) error
	// onDeliver is called with each delivery after its result is known; may be nil.
	onDeliver func(delivery.Delivery)
}

func newRememberingDriver() *rememberingDriver {
	return &rememberingDriver{carried: map[string]map[string]int64{}, failing: map[string]error{}}
}

func (d *rememberingDriver) Deliver(_ context.Context, delivery delivery.Delivery) error {
	return d.call("deliver", delivery, func(held map[string]int64) error {
		held[delivery.Instance.Name] = delivery.Placement.Reserved.Cpu().Value()
		return nil
	})
}

func (d *rememberingDriver) Observe(_ context.Context, delivery delivery.Delivery) error {
	return d.call("observe", delivery, func(held map[string]int64) error {
		if held[delivery.Instance.Name] != delivery.Placement.Reserved.Cpu().Value() {
			return errors.New("it carries something else")
		}
		return nil
	})
}

func (d *rememberingDriver) Remove(_ context.Context, delivery delivery.Delivery) error {
	return d.call("remove", delivery, func(held map[string]int64) error {
		delete(held, delivery.Instance.Name)
		return nil
	})
}

func (d *rememberingDriver) call(name string, delivery delivery.Delivery, do func(held map[string]int64) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	call := name + " " + delivery.Placement.Cluster
	d.calls = append(d.calls, call)
	err := d.failing[call]
	if d.failOn != nil && name == "deliver" && err == nil {
		err = d.failOn(delivery)
	}
	if d.onDeliver != nil && name == "deliver" {
		d.onDeliver(delivery)
	}
	if err != nil {
		return err
	}
	if d.carried[delivery.Placement.Cluster] == nil {
		d.carried[delivery.Placement.Cluster] = map[string]int64{}
	}
	return do(d.carried[delivery.Placement.Cluster])
}

func (d *rememberingDriver) cores(cluster, instance string) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.carried[cluster][instance]
}

// has reports whether a cluster carries something for an instance.
func (d *rememberingDriver) has(cluster, instance string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, carried := d.carried[cluster][instance]
	return carried
}

func (d *rememberingDriver) fail(call string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing[call] = err
}

// called returns the calls since the last time, sorted, because clusters are called
// all at once.
func (d *rememberingDriver) called() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	calls := d.calls
	d.calls = nil
	slices.Sort(calls)
	return calls
}

// isTrue reads an optional bool.
func isTrue(b *bool) bool { return ptr.Deref(b, false) }
