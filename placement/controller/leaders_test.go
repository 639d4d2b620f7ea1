package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestLeadersThatSleep plays random histories with several replicas that all regard themselves
// as the leader. A pass of one stops before any of its reads and writes. Others take over,
// place, deliver and remove. Then the stopped one continues with its old state, and its writes
// arrive that late. At no instant may a cluster carry more than it has, and in the end every
// instance is placed or refused, with nothing left over.
//
// Half of the histories fence writes by the clock, so that a write can only be late if it was
// under way; there, a pass may stop before any write. In the others the clock has stood still,
// as on a machine that was paused as a whole, and no write is refused; there, a pass does not
// stop between the confirmation of the lead and the call of a driver.
func TestLeadersThatSleep(t *testing.T) {
	plans := testCatalog(t)
	rapid.Check(t, func(t *rapid.T) {
		h := &leaders{history: newHistory(t, plans)}
		h.faults, h.killed = false, true // replicas end in the middle of a pass, and count nothing here: they would count each other's events
		h.metered = nil                  // a replica may write long after it has looked at the clock
		h.fenced = rapid.Bool().Draw(t, "fenced")
		h.counted = h.counts
		h.ordered = []string{"plan-2", "plan-4", "plan-8"}
		h.parameters = []string{""} // one cluster each, so that a pass is in one place
		h.takeOver()
		actions := []func(){
			h.step, h.step, h.step, h.step, h.step, h.step, h.step, h.order, h.order, h.update, h.deprovision, h.takeOver, h.drain, h.wait,
		}
		names := []string{
			"step", "step", "step", "step", "step", "step", "step", "order", "order", "update", "deprovision", "take over", "drain", "let time go by",
		}
		for range rapid.IntRange(10, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, len(actions)-1).Draw(t, "action")
			h.did = names[i]
			actions[i]()
			h.tell()
			h.audit()
			h.auditCarried()
		}
		h.did = "rest"
		for _, r := range h.replicas {
			r.end()
		}
		h.takeOver()
		h.rest()
		h.auditCarried()
	})
}

// leaders is a history of several replicas on one hub.
type leaders struct {
	*history
	fenced   bool
	replicas []*replica
	terms    int
	drained  map[string]bool
}

// holder of the Lease.
func (h *leaders) holder() *replica { return h.replicas[len(h.replicas)-1] }

// takeOver elects a new replica. The earlier ones do not notice.
func (h *leaders) takeOver() {
	h.terms++
	r := &replica{leaders: h, term: fmt.Sprintf("replica-%d/%d", h.terms, h.terms)}
	if len(h.replicas) > 2 {
		h.replicas[0].end() // enough of them
		h.replicas = h.replicas[1:]
	}
	h.replicas = append(h.replicas, r)
	r.start()
	h.reconciler, h.inventory = r.reconciler, r.reconciler.inventory
}

// order provisions an instance that has not been reconciled yet.
func (h *leaders) order() {
	reconciler := h.reconciler
	defer func() { h.reconciler = reconciler }()
	h.reconciler = &instanceReconciler{recovery: &recovery{reader: failingReader{}, clock: h.clock}}
	h.provision()
}

type failingReader struct{ client.Reader }

func (failingReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("fake: not now")
}

// step starts a pass of one replica, or resumes the current one, for some of its reads and
// writes or until it ends.
func (h *leaders) step() {
	r := rapid.SampledFrom(h.replicas).Draw(h.T, "replica")
	if r.resume == nil {
		instance := h.any()
		if instance == nil {
			return
		}
		r.begin(instance.Name)
	}
	r.run(rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 8, 1000}).Draw(h.T, "for"))
}

// drain evicts all instances from a cluster, or allows them back.
func (h *leaders) drain() {
	name := rapid.SampledFrom(h.clusters).Draw(h.T, "cluster")
	if h.drained == nil {
		h.drained = map[string]bool{}
	}
	h.drained[name] = !h.drained[name]
	before := h.inventory
	h.change(name, func(mc *v1alpha1.MemberCluster) {
		mc.Spec.Unschedulable, mc.Spec.Taints = false, nil
		if h.drained[name] {
			drain(mc)
		}
	})
	for _, r := range h.replicas { // all have seen it
		if r.reconciler.recovery.done && r.reconciler.inventory != before {
			mc := &v1alpha1.MemberCluster{}
			h.must(h.hub.Get(context.Background(), client.ObjectKey{Namespace: historyNamespace, Name: name}, mc))
			r.reconciler.inventory.UpsertCluster(placement.ClusterOf(mc, h.clock.Now()))
		}
	}
}

// counts returns what an instance's status has sold. It leaves out an undelivered decision of
// another term, whether it is the current one or was replaced since: the instance leaves its
// clusters without ever having been there.
func (h *leaders) counts(instance *v1alpha1.ServiceInstance) map[string]placement.Resources {
	status := instance.Status.DeepCopy()
	if d := status.Decision; d != nil && d.Term != h.holder().term {
		status.Decision = nil
	}
	status.Left = slices.DeleteFunc(status.Left, func(left v1alpha1.LeftPlacement) bool {
		return h.driver.carried[left.Cluster][instance.Name] == 0
	})
	return placement.Ledger(status)
}

// auditCarried adds up the content of the clusters.
func (h *leaders) auditCarried() {
	for _, name := range h.clusters {
		mc := &v1alpha1.MemberCluster{}
		h.must(h.hub.Get(context.Background(), client.ObjectKey{Namespace: historyNamespace, Name: name}, mc))
		carried := int64(0)
		for _, cores := range h.driver.carried[name] {
			carried += cores
		}
		if room := mc.Status.Allocatable.Cpu().Value(); carried > room {
			h.Fatalf("after %s: oversold: %s carries %d of %d cores: %v", h.did, name, carried, room, h.driver.carried[name])
		}
	}
}

// replica is a Sluice that was elected once.
type replica struct {
	*leaders
	term       string
	reconciler *instanceReconciler
	// resume lets the current pass continue. parked reports that it has stopped or, with false,
	// ended. Both are nil without a pass.
	resume chan bool
	parked chan bool
	dead   bool
}

// Term and Confirm implement Leadership.
func (r *replica) Term() string { return r.term }

func (r *replica) Confirm(context.Context) error {
	if !r.park() || r.holder() != r {
		return errors.New("fake: another one leads")
	}
	return nil
}

// fence is an error if the replica knows that it may not lead any more.
func (r *replica) fence() error {
	if r.dead || r.fenced && r.holder() != r {
		return errors.New("fake: the lease was not renewed in time")
	}
	return nil
}

// begin starts a pass, stopped before its first read.
func (r *replica) begin(instance string) {
	r.resume, r.parked = make(chan bool), make(chan bool)
	parked := r.parked
	go func() {
		defer func() { parked <- false }()
		r.sleep()
		_, _ = r.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: historyNamespace, Name: instance}})
	}()
	<-r.parked
}

// run lets the current pass continue for some reads and writes.
func (r *replica) run(steps int) {
	for range steps {
		r.resume <- true
		if !<-r.parked {
			r.resume = nil
			return
		}
	}
}

// end kills the replica.
func (r *replica) end() {
	r.dead = true
	if r.resume != nil {
		r.resume <- false
		<-r.parked
		r.resume = nil
	}
}

// park stops the current pass until the replica is scheduled again; false means that it was
// killed instead. Passes of the history itself do not stop.
func (r *replica) park() bool {
	if r.dead || r.resume == nil {
		return !r.dead
	}
	r.parked <- true
	return <-r.resume
}

// sleep is park for the goroutine of the pass, which ends when the replica is killed.
func (r *replica) sleep() {
	if !r.park() {
		runtime.Goexit()
	}
}

// sleepyDriver is the driver in memory, as one replica calls it.
type sleepyDriver struct {
	*rememberingDriver
	*replica
}

func (d sleepyDriver) Deliver(ctx context.Context, delivery delivery.Delivery) error {
	if d.fenced {
		d.park()
	}
	if err := d.fence(); err != nil {
		return err
	}
	return d.rememberingDriver.Deliver(ctx, delivery)
}

func (d sleepyDriver) Remove(ctx context.Context, delivery delivery.Delivery) error {
	if err := d.fence(); err != nil {
		return err
	}
	return d.rememberingDriver.Remove(ctx, delivery)
}

// start returns the reconciler of a replica that has just been elected.
func (r *replica) start() {
	hub := interceptor.NewClient(r.hub.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			r.sleep()
			return c.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			r.sleep()
			return c.List(ctx, list, options...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if err := r.fence(); err != nil {
				return err
			}
			r.sleep() // it is under way
			return c.SubResource(sub).Update(ctx, object, options...)
		},
	})
	inventory := placement.NewInventory()
	r.reconciler = &instanceReconciler{
		hub: hub, live: hub, bindings: []client.Reader{hub}, plan: r.plans.Plan, inventory: inventory, leadership: r,
		recovery: &recovery{reader: hub, namespace: historyNamespace, inventory: inventory, clock: r.clock},
		drivers:  map[string]delivery.Driver{v1alpha1.DriverKube: sleepyDriver{r.driver, r}},
		clock:    r.clock, metrics: newMetrics(), moves: &moves{most: 2},
	}
}
