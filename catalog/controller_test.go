package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/store"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	hubtest.Main(m)
}

// running is a catalog controller and feed on a real hub.
type running struct {
	t         *testing.T
	hub       client.Client
	namespace string
	catalog   *Catalog
	archives  *archives
	clock     *testclock.FakePassiveClock
}

func run(t *testing.T) *running {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := hubtest.Start(t)
	r := &running{t: t, namespace: hubtest.Namespace(t), catalog: &Catalog{}}
	var err error
	if r.hub, err = client.New(hub.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	skip := true // controller names are global, and tests create several
	mgr, err := ctrl.NewManager(hub.Config, ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{r.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.archives, r.clock = &archives{}, testclock.NewFakePassiveClock(time.Now())
	kept := &store.Hub{Reader: r.hub, Namespace: r.namespace}
	if err := (&Controller{Client: mgr.GetClient(), Live: r.hub, Namespace: r.namespace, Charts: kept, Archives: r.archives, Clock: r.clock}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(&Feed{Cache: mgr.GetCache(), Namespace: r.namespace, Charts: kept, Catalog: r.catalog}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *running) create(o client.Object) {
	r.t.Helper()
	o.SetNamespace(r.namespace)
	if err := r.hub.Create(context.Background(), o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) get(name string) *v1alpha1.ServiceOffering {
	r.t.Helper()
	o := &v1alpha1.ServiceOffering{}
	err := r.hub.Get(context.Background(), client.ObjectKey{Namespace: r.namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// change edits an offering, and retries if the controller was faster.
func (r *running) change(name string, e edit) {
	r.t.Helper()
	r.eventually("the change of "+name, func() bool {
		o := r.get(name)
		e(o)
		err := r.hub.Update(context.Background(), o)
		if err != nil && !apierrors.IsConflict(err) {
			r.t.Fatal(err)
		}
		return err == nil
	})
}

func (r *running) eventually(what string, done func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			r.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// judged waits until the controller has judged an offering's present generation, and
// returns the reason and the message.
func (r *running) judged(name, wantReason string) string {
	r.t.Helper()
	message := ""
	r.eventually("the verdict "+wantReason+" on "+name, func() bool {
		o := r.get(name)
		ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != o.Generation || ready.Reason != wantReason {
			return false
		}
		message = ready.Message
		return true
	})
	return message
}

func (r *running) sells(serviceID, planID string) bool {
	_, err := r.catalog.Snapshot().Plan(serviceID, planID)
	return err == nil
}

// order creates an instance of a plan of the offering a.
func (r *running) order(planID string) *v1alpha1.ServiceInstance {
	r.t.Helper()
	instance := &v1alpha1.ServiceInstance{}
	instance.Name = "si-test"
	instance.Spec = v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: "i", ServiceID: "a-id", Desired: v1alpha1.InstanceState{PlanID: planID}}
	r.create(instance)
	return instance
}

func TestController(t *testing.T) {
	r := run(t)
	a := offering("a")
	r.create(&a)
	r.judged("a", "Ready")
	r.eventually("the catalog to sell it", func() bool { return r.sells("a-id", "a-large") })

	instance := r.order("a-large")

	// A plan in use cannot be removed, and is still served.
	withoutLarge := func(o *v1alpha1.ServiceOffering) { o.Spec.Plans = o.Spec.Plans[:1] }
	r.change("a", withoutLarge)
	contains(t, r.judged("a", ReasonInUse), "plan a-large (a-large) cannot be removed: 1 instance uses it")
	if accepted := r.get("a").Status.Accepted; len(accepted.Plans) != 2 || !r.sells("a-id", "a-large") {
		t.Error("a plan in use is no longer served")
	}

	// Another offering that claims its plan is refused and not served.
	thief := offering("b", func(o *v1alpha1.ServiceOffering) { o.Spec.Plans[0].ID = "a-large" })
	r.create(&thief)
	r.judged("b", ReasonConflict)
	if r.get("b").Status.Accepted != nil || r.sells("b-id", "b-large") {
		t.Error("an offering in conflict is served")
	}

	// Deleting the offering stops new provisions and waits for the instance.
	if err := r.hub.Delete(t.Context(), r.get("a")); err != nil {
		t.Fatal(err)
	}
	contains(t, r.judged("a", v1alpha1.ReasonDeleting), "plan a-large: 1 instance uses it")
	r.eventually("the offering to be retired", func() bool {
		return len(r.catalog.Snapshot().Offerings("cf")) == 0 && r.sells("a-id", "a-large")
	})

	// The end of the instance completes the deletion of the offering, which frees its ids for the
	// other one.
	if err := r.hub.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	r.eventually("the offering to be gone", func() bool { return r.get("a") == nil })
	r.judged("b", "Ready")
	r.eventually("the catalog to follow", func() bool { return !r.sells("a-id", "a-small") && r.sells("b-id", "a-large") })
}

func TestAnInstanceThatChangesPlanFreesTheOldOne(t *testing.T) {
	r := run(t)
	a := offering("a")
	r.create(&a)
	r.judged("a", "Ready")
	instance := r.order("a-large")
	r.change("a", func(o *v1alpha1.ServiceOffering) { o.Spec.Plans = o.Spec.Plans[:1] })
	r.judged("a", ReasonInUse)
	instance.Spec.Desired.PlanID = "a-small"
	if err := r.hub.Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	r.judged("a", "Ready")
	r.eventually("the catalog to follow", func() bool { return !r.sells("a-id", "a-large") })
}

// An offering that was never accepted goes at once, although instances of another one have its id.
func TestARefusedOfferingCanBeDeleted(t *testing.T) {
	r := run(t)
	a := offering("a")
	r.create(&a)
	r.judged("a", "Ready")
	r.order("a-large")
	b := offering("b", func(o *v1alpha1.ServiceOffering) { o.Spec.ID = "a-id" })
	r.create(&b)
	r.judged("b", ReasonConflict)
	if err := r.hub.Delete(t.Context(), r.get("b")); err != nil {
		t.Fatal(err)
	}
	r.eventually("the refused offering to go", func() bool { return r.get("b") == nil })
	if !r.sells("a-id", "a-small") {
		t.Error("the other offering is not sold any more")
	}
}

// TestTheFeedFollowsWhatSelectorsMatch: what is learnt of a cluster after it was registered counts, if selectors match it.
func TestTheFeedFollowsWhatSelectorsMatch(t *testing.T) {
	r := run(t)
	o := offering("a", func(o *v1alpha1.ServiceOffering) {
		o.Spec.Plans[0].Resources.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelArchStable: "arm64"}}
	})
	r.create(&o)
	r.judged("a", v1alpha1.ReasonReady)
	cluster := proven("rhein", "DE", "")
	cluster.Status = v1alpha1.MemberClusterStatus{}
	cluster.Spec.Access.SealedKubeconfig = []byte("sealed")
	r.create(&cluster)
	providers := func() []string {
		if places := r.catalog.Snapshot().Places("a-small"); places != nil {
			return places.Providers
		}
		return nil
	}
	r.eventually("the cluster to be known", func() bool { return r.catalog.Snapshot().Places("a-small") != nil })
	cluster.Status.Architectures = []string{"arm64"}
	r.writeStatus(&cluster)
	r.eventually("the places to follow", func() bool { return len(providers()) == 1 })
}

// TestFactsJoinTheCatalog: facts about a cluster are served as soon as they are proven, and
// not after they lapse.
func TestFactsJoinTheCatalog(t *testing.T) {
	r := run(t)
	o := offering("a")
	r.create(&o)
	credential, cluster := offeringOf(1, "rhein"), proven("rhein", "DE", "")
	credential.Spec.Credential = "a.b.c"
	cluster.Spec.Access.SealedKubeconfig = []byte("sealed")
	admitted := &cluster.Status.Conditions[0]
	admitted.Reason, admitted.LastTransitionTime = v1alpha1.ReasonReady, metav1.Now()
	// A create drops the status, so it is written afterwards.
	credentialStatus, clusterStatus := credential.Status, *cluster.Status.DeepCopy()
	r.create(&credential)
	r.create(&cluster)
	credential.Status, cluster.Status = credentialStatus, clusterStatus
	r.writeStatus(&credential)
	r.writeStatus(&cluster)
	r.eventually("the facts", func() bool {
		f := r.catalog.Snapshot().Facts("a-small")
		return f != nil && len(f.SelfDescriptions) == 1
	})
	cluster.Status.Conditions[0].Status = metav1.ConditionFalse
	r.writeStatus(&cluster)
	r.eventually("the facts to go with the admission", func() bool { return r.catalog.Snapshot().Facts("a-small") == nil })
}

func TestTheFeedFollowsTheClassesOfManagementClusters(t *testing.T) {
	r := run(t)
	o := offering("a", clusters)
	r.create(&o)
	r.judged("a", v1alpha1.ReasonReady)
	cluster := knows("eu", nil)
	status := knows("eu", map[string]string{"flavor": flavor}).Status
	cluster.Spec.Capacity = corev1.ResourceList{v1alpha1.ResourceClusters: resource.MustParse("5")}
	cluster.Spec.Access.SealedKubeconfig = []byte("sealed")
	r.create(&cluster)
	takes := func(parameters string) bool {
		plan, err := r.catalog.Snapshot().Plan("a-id", "a-small")
		return err == nil && plan.ValidateCreate([]byte(parameters)) == nil
	}
	const wrong = `{"variables":{"flavor":"m9"}}`
	r.eventually("any value while no schema is known", func() bool { return takes(wrong) })
	cluster.Status = status
	r.writeStatus(&cluster)
	r.eventually("what the class does not take is refused", func() bool { return !takes(wrong) && takes(`{"variables":{"flavor":"m1.large"}}`) })
	cluster.Status.Classes = nil
	r.writeStatus(&cluster)
	r.eventually("any value once the schema is gone", func() bool { return takes(wrong) })
}

func (r *running) writeStatus(object client.Object) {
	r.t.Helper()
	if err := r.hub.Status().Update(context.Background(), object); err != nil {
		r.t.Fatal(err)
	}
}

func TestAnOfferingThatCannotBeWrittenKeepsNoOtherFromBeingServed(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	direct, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	hub := interceptor.NewClient(direct, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, object client.Object, options ...client.SubResourceUpdateOption) error {
			if object.GetName() == "a" {
				return errors.New("the hub does not take it")
			}
			return c.SubResource(sub).Update(ctx, object, options...)
		},
	})
	namespace := hubtest.Namespace(t)
	for _, name := range []string{"a", "b"} {
		o := offering(name)
		o.Namespace = namespace
		if err := direct.Create(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
	}
	_, err = (&Controller{Client: hub, Live: hub, Namespace: namespace}).Reconcile(t.Context(), ctrl.Request{})
	b := &v1alpha1.ServiceOffering{}
	if err == nil || direct.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "b"}, b) != nil || b.Status.Accepted == nil {
		t.Errorf("b is %+v; error %v", b.Status, err)
	}
}

// What the schema of the hub refuses of ports, before any controller sees it.
func TestThePortsOfAWorkload(t *testing.T) {
	r := run(t)
	for ports, says := range map[string]string{
		"[{name: a, port: 80, reach: public, host: shop}, {name: b, port: 81}]":            "",
		"[{name: a, port: 80, reach: public}, {name: b, port: 81, reach: public}]":         "a component has at most one public port",
		"[{name: a, port: 80, reach: public, protocol: UDP}]":                              "a public port is TCP",
		"[{name: a, port: 80, host: shop}]":                                                "only a port with reach public has a host",
		"[{name: a, port: 80, reach: everyone}]":                                           `Unsupported value: "everyone"`,
		"[{name: a, port: 80, reach: public, host: \"" + strings.Repeat("x", 254) + "\"}]": "may not be more than 253",
	} {
		o := offering("with-ports", sells(t, "workload: {components: [{name: c, ports: "+ports+", container: {image: i, resources: {cpu: 1, memory: 1Gi}}}]}"))
		o.Namespace = r.namespace
		err := r.hub.Create(t.Context(), &o, client.DryRunAll)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: got %v, want %q", ports, err, says)
		}
	}
}
