package controller

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// managed is a world with running controllers. Its member clusters are ready by their recorded
// status, and cannot be probed.
func managed(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.manage(false)
	return w
}

// manage runs the controllers, alone or as one of several replicas.
func (w *world) manage(alone bool) {
	t := w.T
	t.Helper()
	if w.kube == nil {
		w.kube = w.driver
	}
	counted := rest.CopyConfig(hubConfig(w))
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingSearches{next, &w.searches} })
	mgr, err := ctrl.NewManager(counted, ctrl.Options{
		Scheme: w.hub.Scheme(), Metrics: server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{w.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	w.must(err)
	sold := &catalog.Catalog{}
	sold.Replace(testCatalog(t))
	var leadership Leadership // nil where it is alone
	if !alone {
		leadership = soleWriter{}
	}
	w.must(SetupWithManager(mgr, Options{
		Namespace: w.namespace, HubID: "hub", Leadership: leadership, Catalog: sold, Inventory: w.inventory,
		Connections: &member.Connections{Reader: mgr.GetClient(), Namespace: w.namespace},
		Drivers:     map[string]delivery.Driver{v1alpha1.DriverKube: w.kube},
		ProbeEvery:  time.Hour, // one probe that fails changes nothing
	}))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
}

// countingSearches counts the lists of bindings by a field.
type countingSearches struct {
	next  http.RoundTripper
	count *atomic.Int32
}

func (c countingSearches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("fieldSelector") != "" && strings.HasSuffix(r.URL.Path, "/servicebindings") {
		c.count.Add(1)
	}
	return c.next.RoundTrip(r)
}

// An embedded hub is not searched for an instance's bindings: it would read all bindings that there are.
func TestBindingsAreLookedForInTheCache(t *testing.T) {
	for _, alone := range []bool{true, false} {
		w := newWorld(t)
		w.manage(alone)
		w.cluster("eu", 4)
		w.provision("si-bound", "plan-4", "")
		w.succeeds("si-bound")
		binding := &v1alpha1.ServiceBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "sb-a"},
			Spec:       v1alpha1.ServiceBindingSpec{Platform: "platform", InstanceName: "si-bound", InstanceID: "si-bound", BindingID: "b", ServiceID: "service-compute", PlanID: "plan-4"},
		}
		w.must(w.hub.Create(t.Context(), binding))
		w.deprovision("si-bound")
		eventually(t, "the instance goes", func() bool { return w.gone("si-bound") })
		if n := w.searches.Load(); alone != (n == 0) {
			t.Errorf("alone %t: the hub was searched %d times", alone, n)
		}
	}
}

// What was reserved before a restart is reserved after it, whether the hub is read live or, if
// nothing else writes to it, from the cache.
func TestRecovery(t *testing.T) {
	for name, alone := range map[string]bool{"one of several replicas": false, "alone": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.cluster("eu", 100)
			const many = 20
			for i := range many {
				name := fmt.Sprintf("si-%d", i)
				w.provision(name, "plan-2", "")
				w.passes(name)
				w.passes(name)
			}
			w.start()
			w.manage(alone)
			eventually(t, "all is reserved again", func() bool { return len(w.inventory.Snapshot().Reservations("eu")) == many })
			w.provision("si-after", "plan-2", "")
			w.succeeds("si-after")
		})
	}
}

func (w *world) succeeds(name string) {
	w.Helper()
	eventually(w.T, name+" succeeds", func() bool {
		op := w.instance(name).Status.Operation
		return op != nil && op.State == v1alpha1.StateSucceeded && op.Generation == w.instance(name).Generation
	})
}

func TestTheControllersCarryAnInstanceThroughItsLife(t *testing.T) {
	w := managed(t)
	w.cluster("eu", 4)
	w.provision("si-first", "plan-4", "")
	w.succeeds("si-first")

	w.provision("si-waiting", "plan-2", "")
	eventually(t, "the second waits", func() bool { return w.inventory.Waiting() == 1 })
	w.update("si-first", plan("plan-2"))
	w.succeeds("si-first")
	w.succeeds("si-waiting")

	for _, name := range []string{"si-first", "si-waiting"} {
		w.deprovision(name)
		eventually(t, name+" goes", func() bool { return w.gone(name) })
	}
	// Instances deleted from the hub are forgotten a moment later.
	eventually(t, "nothing is reserved", func() bool { return len(w.inventory.Snapshot().Reservations("eu")) == 0 })
	w.wantCarried("eu", "si-first", 0)
}

// A decision that another leader has made, and that arrives when this one has found no room for the
// instance, is withdrawn at once: nothing else would make this one look again.
func TestADecisionOfAnotherLeaderThatIsLate(t *testing.T) {
	w := managed(t)
	w.cluster("eu", 4)
	w.provision("si-first", "plan-4", "")
	w.succeeds("si-first")
	w.provision("si-waiting", "plan-2", "")
	waits := func() bool {
		i := w.instance("si-waiting")
		return w.inventory.Waiting() == 1 && i.Status.Decision == nil && i.Status.Operation != nil
	}
	eventually(t, "the second waits", waits)
	late := w.instance("si-waiting")
	late.Status.Decision = w.instance("si-first").Status.Decision.DeepCopy()
	late.Status.Decision.Term, late.Status.Decision.Generation = "another", late.Generation
	late.Status.Operation.Description = "delivering to eu"
	w.must(w.hub.Status().Update(t.Context(), late))
	eventually(t, "it waits again", waits)
	w.wantCarried("eu", "si-waiting", 0)
}

// The time from the creation of an instance to its success, hub and work queue included, with a
// driver that takes no time.
func TestProvisioningAddsLittleToTheDriversTime(t *testing.T) {
	w := managed(t)
	w.cluster("eu", 100)
	w.provision("si-warm-up", "plan-2", "")
	w.succeeds("si-warm-up")
	const most = 300 * time.Millisecond
	fastest := time.Hour
	for i := range 5 {
		name := fmt.Sprintf("si-%d", i)
		start := time.Now()
		w.provision(name, "plan-2", "")
		w.succeeds(name)
		fastest = min(fastest, time.Since(start))
	}
	t.Logf("fastest of five: %s", fastest)
	if fastest > most {
		t.Errorf("the fastest of five provisions took %s, want at most %s", fastest, most)
	}
}

// hangingDriver delivers nothing to one cluster until it is healed: each call times out.
type hangingDriver struct {
	delivery.Driver
	cluster string
	healed  chan struct{}
	inside  atomic.Int32
}

func (d *hangingDriver) Deliver(ctx context.Context, delivery delivery.Delivery) error {
	if delivery.Placement.Cluster != d.cluster {
		return d.Driver.Deliver(ctx, delivery)
	}
	d.inside.Add(1)
	defer d.inside.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case <-ctx.Done():
		return fmt.Errorf("create namespace: %w", ctx.Err())
	case <-d.healed:
		return d.Driver.Deliver(ctx, delivery)
	}
}

// 200 operations hang on one member cluster; those on another are not slower.
func TestAClusterThatHangsKeepsNobodyElseWaiting(t *testing.T) {
	const hanging, most = 200, time.Second
	w := newWorld(t)
	hung := &hangingDriver{Driver: w.driver, cluster: "hung", healed: make(chan struct{})}
	w.kube = hung
	w.manage(true)
	w.cluster("eu", 12)
	provision := func(name string) time.Duration {
		start := time.Now()
		w.provision(name, "plan-2", "")
		w.succeeds(name)
		return time.Since(start)
	}
	var alone time.Duration
	for i := range 3 {
		alone = max(alone, provision(fmt.Sprintf("si-alone-%d", i)))
	}
	w.change("eu", func(c *placement.Cluster) { c.Cordoned = true })
	w.cluster("hung", 2*hanging)
	var names []string
	for i := range hanging {
		names = append(names, fmt.Sprintf("si-hung-%d", i))
		w.provision(names[i], "plan-2", "")
	}
	eventually(t, "all that fits is placed there", func() bool { return len(w.inventory.Snapshot().Reservations("hung")) == hanging })
	eventually(t, "calls hang", func() bool { return hung.inside.Load() > 0 })
	if inside := hung.inside.Load(); inside > 32 {
		t.Errorf("%d calls hang, want 32 at most", inside)
	}
	w.change("eu", func(c *placement.Cluster) { c.Cordoned = false })
	var beside []time.Duration
	for i := range 3 {
		beside = append(beside, provision(fmt.Sprintf("si-beside-%d", i)))
	}
	slices.Sort(beside)
	t.Logf("it took %s beside %d that hang, %s alone", beside, hanging, alone)
	if median := beside[1]; median > alone+most { // one may meet a pause of this machine's
		t.Errorf("it took %s beside %d that hang, %s alone", median, hanging, alone)
	}
	close(hung.healed)
	for _, name := range names {
		w.succeeds(name)
	}
}
