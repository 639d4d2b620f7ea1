package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestHistories plays random histories on the reconciler itself. Instances come, change and go;
// clusters shrink, are lost, drained and come back; drivers fail; status writes are lost before
// or after they took effect; reads are stale; the clock jumps; Sluice is killed between any two
// steps. After each step an audit, by the hub and the clusters' content alone, adds everything
// up. In the end all faults stop, and every instance must come to rest with nothing left over.
//
// The hub is a fake (controller-runtime's, with optimistic concurrency): a real API server
// would allow a hundredth of the histories. test/crash kills the real thing.
func TestHistories(t *testing.T) {
	plans := testCatalog(t)
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, plans)
		actions := []struct {
			name   string
			weight int
			do     func()
		}{
			{"pass", 12, h.passes},
			{"provision", 4, h.provision},
			{"update", 2, h.update},
			{"deprovision", 1, h.deprovision},
			{"kill", 1, h.kill},
			{"disturb a cluster", 4, h.disturb},
			{"disturb a driver", 2, h.fail},
			{"let time go by", 3, h.wait},
			{"ask to leave", 1, h.leave},
		}
		var drawn []int
		for i, a := range actions {
			for range a.weight {
				drawn = append(drawn, i)
			}
		}
		for range rapid.IntRange(10, 60).Draw(t, "steps") {
			action := actions[rapid.SampledFrom(drawn).Draw(t, "action")]
			h.did = action.name
			action.do()
			h.tell()
			h.audit()
		}
		h.did = "rest"
		h.rest()
	})
}

// history is a world without an API server.
type history struct {
	*rapid.T
	did        string
	plans      *catalog.Snapshot
	scheme     *runtime.Scheme
	hub        client.Client // the fake itself
	clock      *testclock.FakePassiveClock
	driver     *rememberingDriver
	inventory  *placement.Inventory
	reconciler *instanceReconciler
	// faults are injected into the reconciler's reads and writes.
	faults bool
	// seen are the versions of each instance since the last start, which a cache may still show.
	seen     map[string][]*v1alpha1.ServiceInstance
	clusters []string
	made     int
	// shrunk clusters had more reserved than they now have.
	shrunk map[string]bool
	// preempts is which instances the classes displace; empty if no class is declared.
	preempts v1alpha1.Preempts
	// victims of all preemptions so far.
	victims map[string]bool
	// counted returns what an instance's status has sold.
	counted func(*v1alpha1.ServiceInstance) map[string]placement.Resources
	// killed reports that a Sluice was killed, with what it had not recorded; lives are the recorders of all.
	killed bool
	lives  []*journal.Recorder
	// metered adds up what each instance has had, by name.
	metered map[string]*metered
	// signed lists the deliveries that were seen of each instance, in order, by name.
	signed map[string][]string
	// plans and parameters that instances are ordered with.
	ordered, parameters []string
}

const historyNamespace = "sluice"

// planEach has one cluster in each region.
const planEach = "plan-each"

func newHistory(t *rapid.T, plans *catalog.Snapshot) *history {
	h := &history{
		T: t, plans: plans, scheme: runtime.NewScheme(), clock: testclock.NewFakePassiveClock(historyStart), driver: newRememberingDriver(),
		shrunk: map[string]bool{}, victims: map[string]bool{}, metered: map[string]*metered{}, signed: map[string][]string{}, faults: true,
		counted: func(instance *v1alpha1.ServiceInstance) map[string]placement.Resources {
			return placement.Ledger(&instance.Status)
		},
		ordered:    []string{"plan-2", "plan-4", "plan-8", "plan-application", planEach},
		parameters: []string{"", `{"clusters":1}`, `{"clusters":2}`, `{"clusters":3}`},
	}
	h.must(v1alpha1.AddToScheme(h.scheme))
	h.hub = fake.NewClientBuilder().WithScheme(h.scheme).
		WithStatusSubresource(&v1alpha1.ServiceInstance{}, &v1alpha1.MemberCluster{}, &v1alpha1.ServiceBinding{}).
		WithIndex(&v1alpha1.ServiceBinding{}, v1alpha1.FieldInstanceName, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ServiceBinding).Spec.InstanceName}
		}).
		WithIndex(&v1alpha1.Journal{}, "spec.name", func(o client.Object) []string { return []string{o.(*v1alpha1.Journal).Spec.Name} }).Build()
	for i := range rapid.IntRange(2, 4).Draw(t, "clusters") {
		name := fmt.Sprintf("cluster-%d", i)
		h.clusters = append(h.clusters, name)
		mc := placementtest.Cluster{Name: name, Has: placementtest.Quantities(fmt.Sprintf("cpu=%d", rapid.IntRange(4, 16).Draw(t, "cores")))}.MemberCluster()
		mc.Namespace = historyNamespace
		mc.Spec.Region = fmt.Sprintf("region-%d", i%2)
		h.must(h.hub.Create(context.Background(), mc))
	}
	h.preempts = rapid.SampledFrom([]v1alpha1.Preempts{"", v1alpha1.PreemptsSameConsumer, v1alpha1.PreemptsAnyConsumer}).Draw(t, "preempts")
	if h.preempts != "" {
		h.must(h.hub.Create(context.Background(), placementtest.PriorityClasses(historyNamespace, h.preempts)))
	}
	h.start()
	return h
}

func (h *history) must(err error) {
	if err != nil {
		h.Fatalf("%s: %v", h.did, err)
	}
}

// start returns a Sluice without any state.
func (h *history) start() {
	h.seen = map[string][]*v1alpha1.ServiceInstance{}
	h.inventory = placement.NewInventory()
	faulty := interceptor.NewClient(h.hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if err := c.Get(ctx, key, object, options...); err != nil {
				return err
			}
			if instance, ok := object.(*v1alpha1.ServiceInstance); ok {
				h.seen[key.Name] = append(h.seen[key.Name], instance.DeepCopy())
				if h.faults && rapid.IntRange(0, 5).Draw(h.T, "stale") == 0 {
					rapid.SampledFrom(h.seen[key.Name]).Draw(h.T, "version").DeepCopyInto(instance)
				}
			}
			return nil
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			really := func() error { return c.SubResource(sub).Update(ctx, object, options...) }
			if !h.faults {
				return really()
			}
			switch rapid.IntRange(0, 11).Draw(h.T, "write") {
			case 0:
				return errors.New("fake: the connection broke before the write")
			case 1:
				if err := really(); err != nil {
					return err
				}
				return errors.New("fake: the connection broke after the write")
			case 2:
				return apierrors.NewConflict(schema.GroupResource{Resource: "serviceinstances"}, object.GetName(), errors.New("fake"))
			}
			return really()
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			err := c.Update(ctx, object, options...)
			if err == nil && h.faults && rapid.IntRange(0, 3).Draw(h.T, "removal") == 0 {
				return errors.New("fake: the connection broke after the removal of the finalizer")
			}
			return err
		},
	})
	h.reconciler = &instanceReconciler{
		hub: faulty, live: h.hub, bindings: []client.Reader{faulty, h.hub}, plan: h.plans.Plan, inventory: h.inventory, leadership: soleWriter{},
		recovery: &recovery{reader: h.hub, namespace: historyNamespace, inventory: h.inventory, clock: h.clock},
		drivers:  map[string]delivery.Driver{v1alpha1.DriverKube: h.driver},
		recorder: journal.NewRecorder(h.names),
		clock:    h.clock, metrics: newMetrics(), moves: &moves{most: 2},
	}
	h.lives = append(h.lives, h.reconciler.recorder)
}

func (h *history) kill() {
	h.killed = true
	h.start()
}

// names returns those of an offering and a plan.
func (h *history) names(serviceID, planID string) (service, plan string) {
	served := &catalog.Catalog{}
	served.Replace(h.plans)
	return served.Names(serviceID, planID)
}

// instances returns those of the hub.
func (h *history) instances() []v1alpha1.ServiceInstance {
	var list v1alpha1.ServiceInstanceList
	h.must(h.hub.List(context.Background(), &list, client.InNamespace(historyNamespace)))
	return list.Items
}

// any returns one of them, nil if there is none.
func (h *history) any() *v1alpha1.ServiceInstance {
	all := h.instances()
	if len(all) == 0 {
		return nil
	}
	return &all[rapid.IntRange(0, len(all)-1).Draw(h.T, "instance")]
}

func (h *history) passes() {
	if instance := h.any(); instance != nil {
		h.pass(instance.Name)
	}
}

// pass may fail: the history tries again, like the work queue.
func (h *history) pass(name string) {
	_, _ = h.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: historyNamespace, Name: name}})
}

func (h *history) state() v1alpha1.InstanceState {
	plan := rapid.SampledFrom(h.ordered).Draw(h.T, "plan")
	if plan == planEach {
		return v1alpha1.InstanceState{PlanID: plan}
	}
	return v1alpha1.InstanceState{PlanID: plan, Parameters: raw(rapid.SampledFrom(h.parameters).Draw(h.T, "parameters"))}
}

func (h *history) provision() {
	h.made++
	name := fmt.Sprintf("si-%d", h.made)
	h.must(h.hub.Create(context.Background(), &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: historyNamespace, Name: name, UID: types.UID(name), Finalizers: []string{v1alpha1.Finalizer}, Generation: 1},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform", SpaceGUID: rapid.SampledFrom([]string{"space-1", "space-2"}).Draw(h.T, "space"),
			InstanceID: name, ServiceID: "service-compute", Desired: h.state(),
		},
	}))
	h.pass(name)
}

func (h *history) update() {
	if instance := h.any(); instance != nil && instance.DeletionTimestamp.IsZero() {
		instance.Spec.Desired = h.state()
		instance.Generation++ // as an API server does
		h.must(h.hub.Update(context.Background(), instance))
	}
}

func (h *history) deprovision() {
	if instance := h.any(); instance != nil {
		h.must(h.hub.Delete(context.Background(), instance))
	}
}

func (h *history) leave() {
	if instance := h.any(); instance != nil {
		instance.Annotations = map[string]string{
			v1alpha1.AnnotationLeave:  rapid.SampledFrom(h.clusters).Draw(h.T, "from"),
			v1alpha1.AnnotationMoveTo: rapid.SampledFrom(append([]string{""}, h.clusters...)).Draw(h.T, "to"),
		}
		h.must(h.hub.Update(context.Background(), instance))
	}
}

func (h *history) wait() {
	h.clock.SetTime(h.clock.Now().Add(time.Duration(rapid.SampledFrom([]int{-3, 1, 10, 70, 400}).Draw(h.T, "seconds")) * time.Second))
}

func (h *history) fail() {
	call := rapid.SampledFrom([]string{"deliver ", "remove ", "observe "}).Draw(h.T, "call") + rapid.SampledFrom(h.clusters).Draw(h.T, "of")
	h.driver.fail(call, rapid.SampledFrom([]error{
		nil, nil, &delivery.PendingError{Step: "wait"}, errors.New("fake: connection refused"), &delivery.RefusedError{Reason: "fake: no"},
	}).Draw(h.T, "failure"))
}

// disturb changes a member cluster, on the hub and, as its controller does, in the inventory.
func (h *history) disturb() {
	name := rapid.SampledFrom(h.clusters).Draw(h.T, "cluster")
	switch rapid.SampledFrom([]string{"lose", "back", "drain", "undrain", "resize", "cordon", "regroup"}).Draw(h.T, "how") {
	case "lose":
		h.change(name, func(mc *v1alpha1.MemberCluster) { h.reachable(mc, false) })
	case "back":
		h.change(name, func(mc *v1alpha1.MemberCluster) { h.reachable(mc, true) })
	case "drain":
		h.change(name, drain)
	case "undrain":
		h.change(name, func(mc *v1alpha1.MemberCluster) { mc.Spec.Unschedulable, mc.Spec.Taints = false, nil })
	case "cordon":
		h.change(name, func(mc *v1alpha1.MemberCluster) { mc.Spec.Unschedulable = true })
	case "regroup":
		region := rapid.SampledFrom([]string{"region-0", "region-1", "region-2", ""}).Draw(h.T, "region")
		h.change(name, func(mc *v1alpha1.MemberCluster) { mc.Spec.Region = region })
	case "resize":
		cores := rapid.IntRange(1, 16).Draw(h.T, "cores")
		h.change(name, func(mc *v1alpha1.MemberCluster) {
			mc.Status.Allocatable = placementtest.Quantities(fmt.Sprintf("cpu=%d", cores))
		})
	}
}

func drain(mc *v1alpha1.MemberCluster) {
	mc.Spec.Unschedulable = true
	mc.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
}

func (h *history) reachable(mc *v1alpha1.MemberCluster, is bool) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&mc.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReachable, Status: status, Reason: "Fake", Message: "fake", LastTransitionTime: metav1.NewTime(h.clock.Now()),
	})
}

func (h *history) change(name string, change func(*v1alpha1.MemberCluster)) {
	mc := &v1alpha1.MemberCluster{}
	h.must(h.hub.Get(context.Background(), client.ObjectKey{Namespace: historyNamespace, Name: name}, mc))
	change(mc)
	status := mc.Status.DeepCopy()
	h.must(h.hub.Update(context.Background(), mc))
	mc.Status = *status
	h.must(h.hub.Status().Update(context.Background(), mc))
	if h.reconciler.recovery.done { // otherwise it reads the hub first
		h.inventory.UpsertCluster(placement.ClusterOf(mc, h.clock.Now()))
	}
}

// tell prints the state, for debugging a failed history.
func (h *history) tell() {
	for _, i := range h.instances() {
		on := func(d *v1alpha1.Decision) string {
			if d == nil {
				return "-"
			}
			text := fmt.Sprint(d.Clusters())
			if len(d.Leaving) > 0 {
				text += fmt.Sprintf(" leaving %v", named(d.Leaving))
			}
			return text
		}
		var delivered *v1alpha1.Decision
		if i.Status.Delivered != nil {
			delivered = &i.Status.Delivered.Decision
		}
		s := scope{ServiceInstance: &i}
		h.Logf("after %s: %s generation %d operation %+v decision %s delivered %s left %v", h.did, i.Name, i.Generation, i.Status.Operation, on(i.Status.Decision), on(delivered), s.Status.LeftClusters())
	}
	h.Logf("carried %v", h.driver.carried)
}

// historyStart is when every history begins.
var historyStart = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
