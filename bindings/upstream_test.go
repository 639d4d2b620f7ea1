package bindings_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/osbclient/osbtest"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// upstream is an instance at another broker, with something in front of the broker. Passes over its bindings
// are made one by one.
type upstream struct {
	*testing.T
	hub        client.Client
	keys       *seal.Keyset
	controller *bindings.Controller
	// front handles a request instead of the broker if it returns true.
	front func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool

	mu    sync.Mutex
	there map[string]bool // bindings at the broker, by path

	result reconcile.Result // of the last pass
	err    error

	// dies is set by the broker's side: the process is another one after this pass, and has died.
	dies atomic.Bool
	died bool
}

func newUpstream(t *testing.T, async bool) *upstream {
	t.Helper()
	u := &upstream{T: t, there: map[string]bool{}}
	broker := &suitetest.Broker{AsyncBind: async}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.front == nil || !u.front(w, r, broker) {
			u.serve(w, r, broker)
		}
	}))
	t.Cleanup(server.Close)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	plan := v1alpha1.OfferedPlan{Service: "s", Plan: "small", ServiceID: suitetest.ServiceID, PlanID: "plan-small", BindingsRetrievable: true, BindingRotatable: true}
	decision := v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Upstream: &v1alpha1.PlacementUpstream{OfferedPlan: plan}}}}
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"},
		Spec:       v1alpha1.ServiceInstanceSpec{Platform: "p", InstanceID: "one", OrganizationGUID: "o", SpaceGUID: "s"},
		Status:     v1alpha1.ServiceInstanceStatus{Decision: &decision, Delivered: &v1alpha1.DeliveredState{Decision: decision}},
	}
	cluster, credentials := osbtest.Broker("eu", server.URL)
	u.hub = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ServiceBinding{}).WithObjects(instance, cluster, credentials).Build()
	u.keys = keys
	u.restart()
	ordered, err := u.controller.Brokers.Get(t.Context(), "eu")
	if err != nil {
		t.Fatal(err)
	}
	order := osbclient.Order{ServiceID: suitetest.ServiceID, PlanID: "plan-small", OrganizationGUID: "o", SpaceGUID: "s"}
	for accepted := (osbclient.Accepted{}); !accepted.Done; {
		if accepted, err = ordered.Provision(t.Context(), osbclient.InstanceID(hubID, "eu", "si-1"), order); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// restart replaces the controller by one that remembers nothing.
func (u *upstream) restart() {
	connections := &member.Connections{Reader: u.hub, Namespace: "sluice"}
	u.controller = &bindings.Controller{
		Client: u.hub, Live: u.hub, Connections: connections, Brokers: &osbclient.Brokers{Members: connections}, Keys: u.keys, Hub: hubID,
		Clock: clock.RealClock{}, Patience: time.Minute, Refresh: time.Minute,
	}
}

// serve lets the broker answer, and keeps which bindings exist by its answers.
func (u *upstream) serve(w http.ResponseWriter, r *http.Request, broker http.Handler) {
	answer := httptest.NewRecorder()
	broker.ServeHTTP(answer, r)
	u.mu.Lock()
	if strings.Contains(r.URL.Path, "service_bindings") {
		switch {
		case r.Method == http.MethodPut && answer.Code < 300:
			u.there[r.URL.Path] = true
		case r.Method == http.MethodDelete && (answer.Code == 200 || answer.Code == 410):
			delete(u.there, r.URL.Path)
		}
	}
	u.mu.Unlock()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

func (u *upstream) left() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.there)
}

// order creates a binding as the broker does; predecessor may be empty.
func (u *upstream) order(id, predecessor string) *v1alpha1.ServiceBinding {
	u.Helper()
	b := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "sluice", Name: v1alpha1.BindingName("p", "one", id), UID: types.UID(id), Finalizers: []string{v1alpha1.Finalizer}, CreationTimestamp: metav1.Now(),
		},
		Spec: v1alpha1.ServiceBindingSpec{Platform: "p", InstanceName: "si-1", InstanceID: "one", BindingID: id, PredecessorBindingID: predecessor},
	}
	if err := u.hub.Create(u.Context(), b); err != nil {
		u.Fatal(err)
	}
	return b
}

// pass makes passes over a binding until something holds; b is then as the hub has it.
func (u *upstream) pass(b *v1alpha1.ServiceBinding, until func(*v1alpha1.ServiceBinding) bool) {
	u.Helper()
	key := client.ObjectKeyFromObject(b)
	for range 3000 {
		u.result, u.err = u.controller.Reconcile(u.Context(), reconcile.Request{NamespacedName: key}) // errors come with back-off
		if u.dies.Swap(false) {
			u.died = true
			u.restart()
		}
		*b = v1alpha1.ServiceBinding{}
		err := u.hub.Get(u.Context(), key, b)
		if apierrors.IsNotFound(err) {
			b.Name = ""
		} else if err != nil {
			u.Fatal(err)
		}
		if until(b) {
			return
		}
	}
	u.Fatalf("it goes on for ever: %+v", b.Status)
}

func ended(b *v1alpha1.ServiceBinding) bool {
	return b.Status.Operation != nil && b.Status.Operation.State != v1alpha1.StateInProgress
}

// unbind deletes a binding, and makes passes until it is gone.
func (u *upstream) unbind(b *v1alpha1.ServiceBinding) {
	u.Helper()
	if err := u.hub.Delete(u.Context(), b); err != nil {
		u.Fatal(err)
	}
	u.pass(b, func(b *v1alpha1.ServiceBinding) bool { return b.Name == "" })
	if u.left() > 0 {
		u.Errorf("left at the broker: %v", u.there)
	}
}

// TestBoundAtTheBroker: a binding has the broker's credentials, sealed, with its endpoints and expiry, whether
// the broker binds at once or later, and is deleted there. A rotation names its predecessor.
func TestBoundAtTheBroker(t *testing.T) {
	for _, async := range []bool{false, true} {
		u := newUpstream(t, async)
		b := u.order("b", "")
		u.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			var written v1alpha1.ServiceBinding
			if err := u.hub.Get(t.Context(), client.ObjectKeyFromObject(b), &written); err != nil || written.Status.Upstream == nil {
				t.Errorf("%s before the hub has what is asked for: %v", r.Method, err)
			}
			return false
		}
		u.pass(b, ended)
		u.front = nil
		object, err := u.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
		if b.Status.Operation.State != v1alpha1.StateSucceeded || err != nil || !strings.Contains(string(object.Reveal()), `"`) || strings.Contains(string(object.Reveal()), "kubeconfig") {
			t.Fatalf("async %t: %+v, %v", async, b.Status, err)
		}
		if len(b.Status.Endpoints) == 0 || b.Status.ExpiresAt == nil || b.WantsRenewal(b.Status.ExpiresAt.Time) {
			t.Errorf("async %t: endpoints %v, expiry %v", async, b.Status.Endpoints, b.Status.ExpiresAt)
		}
		if next := u.result.RequeueAfter; next <= 0 || next > 51*time.Minute {
			t.Errorf("async %t: the next pass is in %v; in 50 minutes the platform should ask for other credentials", async, next)
		}
		if !slices.ContainsFunc(b.Status.Events, func(e v1alpha1.Event) bool { return e.Type == v1alpha1.EventBound }) {
			t.Errorf("async %t: events %+v", async, b.Status.Events)
		}
		var rotates bool
		u.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if r.Method == http.MethodPut {
				sent := make([]byte, r.ContentLength)
				_, _ = r.Body.Read(sent)
				rotates = strings.Contains(string(sent), `"predecessor_binding_id":"`+b.Status.Upstream.BindingID)
				r.Body = http.NoBody
			}
			return false
		}
		next := u.order("next", "b")
		u.pass(next, func(*v1alpha1.ServiceBinding) bool { return true })
		u.front = nil
		if !rotates {
			t.Error("a rotation does not name its predecessor")
		}
		u.pass(next, ended)
		for _, one := range []*v1alpha1.ServiceBinding{next} {
			if err := u.hub.Delete(t.Context(), one); err != nil {
				t.Fatal(err)
			}
			u.pass(one, func(b *v1alpha1.ServiceBinding) bool { return b.Name == "" })
		}
		u.unbind(b)
	}
}

// TestUnboundBeforeItIsBound: a binding that is deleted before anything was asked of the broker just goes.
func TestUnboundBeforeItIsBound(t *testing.T) {
	u := newUpstream(t, false)
	u.unbind(u.order("b", ""))
}

// TestDefectsOfBinds: what a broker does wrong fails the bind, in words for the consumer, and leaves nothing
// there.
func TestDefectsOfBinds(t *testing.T) {
	for name, row := range map[string]struct {
		method, path string
		status       int
		body, says   string
	}{
		"fails":               {"PUT", "", 500, `{"description": "no rights"}`, "the provider does not bind the instance: no rights"},
		"refuses":             {"PUT", "", 400, `{"description": "no app"}`, "the provider does not bind the instance: no app"},
		"no object":           {"PUT", "", 201, `{"credentials": "secret"}`, "the provider does not bind the instance"},
		"no JSON":             {"PUT", "", 202, `secret`, "the provider does not bind the instance"},
		"fails later":         {"GET", "last_operation", 200, `{"state": "failed", "description": "no room"}`, "the provider does not bind the instance: no room"},
		"shows no credential": {"GET", "service_bindings/" + osbclient.BindingID(hubID, "eu", v1alpha1.BindingName("p", "one", "b")), 200, `[]`, "the provider does not bind the instance"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, true)
			u.front = func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method != row.method || !strings.HasSuffix(r.URL.Path, row.path) {
					return false
				}
				u.serve(httptest.NewRecorder(), r, broker) // it does what it is asked for, and says something else
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(row.body))
				return true
			}
			b, failed := u.order("b", ""), ""
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool {
				if b.Status.Upstream == nil || b.Status.Upstream.Failure == "" || ended(b) {
					return ended(b)
				}
				// The broker deletes what it has made later.
				if u.err != nil || u.result.RequeueAfter != time.Second || failed != "" && failed != b.ResourceVersion {
					t.Errorf("while it is deleted: %v, the next pass is in %v, version %s after %s", u.err, u.result.RequeueAfter, b.ResourceVersion, failed)
				}
				failed = b.ResourceVersion
				return false
			})
			if b.Status.Operation.State != v1alpha1.StateFailed || b.Status.Operation.Description != row.says || u.left() > 0 {
				t.Errorf("it is %+v with %d left, want %q", b.Status.Operation, u.left(), row.says)
			}
			u.front = nil
			u.unbind(b)
		})
	}
}

// TestBindsKilledAtAnyWrite: a process that is killed before or after any request that changes something at the
// broker, and that remembers nothing afterwards, ends with one binding, and then with none.
func TestBindsKilledAtAnyWrite(t *testing.T) {
	for at, killed := 0, true; killed; at++ {
		for _, answered := range []bool{false, true} {
			u := newUpstream(t, true)
			writes := atomic.Int32{}
			u.front = func(_ http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodGet {
					return false
				}
				if int(writes.Add(1)) != at+1 {
					return false
				}
				if answered {
					u.serve(httptest.NewRecorder(), r, broker)
				}
				u.dies.Store(true)
				panic(http.ErrAbortHandler) // nobody hears the answer
			}
			b := u.order("b", "")
			u.pass(b, ended)
			if b.Status.Operation.State != v1alpha1.StateSucceeded || u.left() != 1 {
				t.Errorf("write %d, answered %t: %+v, %d at the broker", at, answered, b.Status.Operation, u.left())
			}
			u.unbind(b)
			killed = u.died
		}
	}
}

// TestWhatABrokerIsAskedFor: a bind hands on what the platform gave, and names its predecessor only to a broker that rotates.
func TestWhatABrokerIsAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		rotates     bool
		predecessor string
		want        bool // that the predecessor is named
	}{
		"a bind": {true, "", false}, "a rotation": {true, "old", true}, "a rotation where bindings are not rotated": {false, "old", false},
		"a rotation of nothing": {true, "gone", false}, "a rotation of one that failed": {true, "failed", false},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, false)
			var instance v1alpha1.ServiceInstance
			if err := u.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "si-1"}, &instance); err != nil {
				t.Fatal(err)
			}
			instance.Status.Delivered.Decision.Placements[0].Upstream.BindingRotatable = row.rotates
			if err := u.hub.Update(t.Context(), &instance); err != nil {
				t.Fatal(err)
			}
			u.pass(u.order("old", ""), ended)
			failed := u.order("failed", "")
			u.pass(failed, ended)
			failed.Status.Upstream.Failure = "no room"
			if err := u.hub.Status().Update(t.Context(), failed); err != nil {
				t.Fatal(err)
			}
			var sent map[string]any
			u.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if r.Method == http.MethodPut {
					_ = json.NewDecoder(r.Body).Decode(&sent)
					r.Body = http.NoBody
				}
				return false
			}
			b := u.order("b", row.predecessor)
			stored, err := workload.BindingParametersOf(b, u.keys).Sealed([]string{"key"}, []byte(`{"size":1,"key":"hunter2"}`))
			if err != nil {
				t.Fatal(err)
			}
			b.Spec.AppGUID, b.Spec.Parameters, b.Spec.BindResource = "app", &runtime.RawExtension{Raw: stored}, &runtime.RawExtension{Raw: []byte(`{"route":"r"}`)}
			if err := u.hub.Update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			u.pass(b, func(*v1alpha1.ServiceBinding) bool { return sent != nil })
			for field, want := range map[string]any{
				"app_guid": "app", "parameters": map[string]any{"size": 1.0, "key": "hunter2"}, "bind_resource": map[string]any{"route": "r"},
				"service_id": suitetest.ServiceID, "plan_id": "plan-small",
			} {
				if !reflect.DeepEqual(sent[field], want) {
					t.Errorf("%s is %v, want %v", field, sent[field], want)
				}
			}
			if before, named := sent["predecessor_binding_id"]; named != row.want || named && before != osbclient.BindingID(hubID, "eu", v1alpha1.BindingName("p", "one", "old")) {
				t.Errorf("the predecessor is %v, named %t", before, named)
			}
		})
	}
}
