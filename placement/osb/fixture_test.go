package osb

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/osbclient/osbtest"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// world is an instance, a driver, and a broker with something in front of it.
type world struct {
	*testing.T
	driver   *Driver
	instance *v1alpha1.ServiceInstance
	applied  string
	said     delivery.Said // of the last restore
	// front handles a request instead of the broker if it returns true.
	front func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool

	mu  sync.Mutex
	ids map[string]bool // of instances that were written at the broker
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, ids: map[string]bool{}}
	broker := &suitetest.Broker{}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			w.mu.Lock()
			w.ids[strings.Split(r.URL.Path, "/")[3]] = true
			w.mu.Unlock()
		}
		if w.front == nil || !w.front(out, r, broker) {
			broker.ServeHTTP(out, r)
		}
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cluster, credentials := osbtest.Broker("eu", server.URL)
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, credentials).Build()
	w.driver = &Driver{Brokers: &osbclient.Brokers{Members: &member.Connections{Reader: hub, Namespace: "sluice"}}, Hub: "hub"}
	w.instance = &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"},
		Spec:       v1alpha1.ServiceInstanceSpec{InstanceID: "one", OrganizationGUID: "o", SpaceGUID: "s"},
	}
	return w
}

// decide makes the decision for a plan and parameters, as the controller does before it calls the driver.
func (w *world) decide(plan, parameters string) {
	w.instance.Spec.Desired = v1alpha1.InstanceState{PlanID: "ours-" + plan, Parameters: &runtime.RawExtension{Raw: []byte(parameters)}}
	w.instance.Status.Decision = &v1alpha1.Decision{Generation: w.instance.Generation, Placements: []v1alpha1.Placement{{
		Cluster: "eu", Upstream: &v1alpha1.PlacementUpstream{
			OfferedPlan: v1alpha1.OfferedPlan{
				Service: "name-of-service", Plan: plan, ServiceID: suitetest.ServiceID, PlanID: "plan-" + plan, InstancesRetrievable: true,
				MaintenanceVersion: "1.2.0", PollingSeconds: 600,
			},
			Parameters: &runtime.RawExtension{Raw: []byte(`{"size": "${parameters.cores * 2}"}`)},
		},
	}}}
	w.instance.Status.Operation = &v1alpha1.Operation{State: v1alpha1.StateInProgress, StartedAt: metav1.Now()}
	w.instance.Generation++
	w.instance.Status.Decision.Generation = w.instance.Generation
}

// delivered records the decision as delivered, as the controller does.
func (w *world) delivered() {
	w.instance.Status.Delivered = &v1alpha1.DeliveredState{State: w.instance.Spec.Desired, Decision: *w.instance.Status.Decision}
	w.instance.Status.Operation.State = v1alpha1.StateSucceeded
}

// restore returns to the delivered decision, as the controller does when it undoes an operation.
func (w *world) restore() error {
	before := w.instance.Status.Delivered
	return w.until(func(d delivery.Delivery) error {
		d.Placement, d.State, d.Said = before.Decision.Placements[0], &before.State, &w.said
		return w.driver.Deliver(w.Context(), d)
	})
}

func (w *world) deliver() error {
	return w.until(func(d delivery.Delivery) error { return w.driver.Deliver(w.Context(), d) })
}

func (w *world) remove() error {
	return w.until(func(d delivery.Delivery) error {
		d.Placement, d.State = v1alpha1.Placement{Cluster: "eu"}, nil
		return w.driver.Remove(w.Context(), d)
	})
}

// until calls a driver's method until it ends, as the controller does: it goes on after errors that are not
// final, and keeps what a pending delivery says.
func (w *world) until(call func(delivery.Delivery) error) (err error) {
	for range 2000 {
		err = call(delivery.Delivery{Instance: w.instance, Placement: w.instance.Status.Decision.Placements[0], State: &w.instance.Spec.Desired, Applied: w.applied})
		w.applied = ""
		pending, refused := (*delivery.PendingError)(nil), (*delivery.RefusedError)(nil)
		switch {
		case errors.As(err, &pending):
			w.applied = pending.Applied
		case err == nil, errors.As(err, &refused):
			return err
		}
	}
	w.Fatalf("it goes on for ever: %v", err)
	return nil
}

// at returns what the broker has: plan and size, "" if there is no instance.
func (w *world) at() string {
	w.Helper()
	front := w.front
	w.front = nil
	defer func() { w.front = front }()
	client, err := w.driver.Brokers.Get(w.Context(), "eu")
	if err != nil {
		w.Fatal(err)
	}
	id := osbclient.InstanceID("hub", "eu", "si-1")
	exists, err := client.Exists(w.Context(), id, suitetest.ServiceID, "plan-small")
	if err != nil {
		w.Fatal(err)
	}
	if !exists {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ids) != 1 || !w.ids[id] {
		w.Fatalf("instances were ordered as %v, want %s alone", w.ids, id)
	}
	return "there"
}
