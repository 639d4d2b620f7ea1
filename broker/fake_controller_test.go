package broker

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// behaviour is the fake controller's treatment of an instance or a binding.
type behaviour string

const (
	succeed behaviour = ""     // at once
	hold    behaviour = "hold" // report nothing and finish nothing
	fail    behaviour = "fail" // permanently
)

// internal is text for operators, which no platform may read.
const internal = "eu-1: 2 cpu free of 8: Get \"https://10.0.0.7:6443/api\": connection refused"

// fakeController stands in for the instance and the binding controller: it writes the same
// statuses, and touches no cluster.
type fakeController struct {
	*fixture
	mu         sync.Mutex
	behaviours map[string]behaviour // by instance or binding id as the platform chose it
	clock      clock.PassiveClock
	kick       chan struct{}
}

func startFakeController(t testing.TB, f *fixture, c clock.PassiveClock) *fakeController {
	t.Helper()
	fake := &fakeController{fixture: f, behaviours: map[string]behaviour{}, kick: make(chan struct{}, 1), clock: c}
	ctx, cancel := context.WithCancel(context.Background())
	instances, err := f.hub.Watch(ctx, &v1alpha1.ServiceInstanceList{}, client.InNamespace(f.namespace))
	if err != nil {
		t.Fatal(err)
	}
	bindings, err := f.hub.Watch(ctx, &v1alpha1.ServiceBindingList{}, client.InNamespace(f.namespace))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-instances.ResultChan():
			case <-bindings.ResultChan():
			case <-fake.kick:
			}
			fake.reconcile(ctx)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return fake
}

// does sets the behaviour for an id from now on.
func (fake *fakeController) does(id string, b behaviour) {
	fake.mu.Lock()
	defer fake.mu.Unlock()
	fake.behaviours[id] = b
	select {
	case fake.kick <- struct{}{}:
	default:
	}
}

func (fake *fakeController) with(id string) behaviour {
	fake.mu.Lock()
	defer fake.mu.Unlock()
	return fake.behaviours[id]
}

// reconcile handles all objects; conflicts come back with the next event.
func (fake *fakeController) reconcile(ctx context.Context) {
	var instances v1alpha1.ServiceInstanceList
	var bindings v1alpha1.ServiceBindingList
	for _, list := range []client.ObjectList{&instances, &bindings} {
		if err := fake.hub.List(ctx, list, client.InNamespace(fake.namespace)); err != nil {
			return
		}
	}
	for i := range instances.Items {
		fake.check(ctx, fake.instance(ctx, &instances.Items[i]))
	}
	for i := range bindings.Items {
		fake.check(ctx, fake.binding(ctx, &bindings.Items[i]))
	}
}

func (fake *fakeController) check(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		fake.t.Errorf("fake controller: %v", err)
	}
}

func (fake *fakeController) instance(ctx context.Context, i *v1alpha1.ServiceInstance) error {
	does := fake.with(i.Spec.InstanceID)
	if does == hold {
		return nil
	}
	if i.DeletionTimestamp != nil {
		controllerutil.RemoveFinalizer(i, v1alpha1.Finalizer)
		return fake.hub.Update(ctx, i)
	}
	if o := i.Status.Operation; o != nil && o.Generation == i.Generation && o.State != v1alpha1.StateInProgress {
		return nil
	}
	kind := v1alpha1.OperationProvision
	if i.Status.Delivered != nil {
		kind = v1alpha1.OperationUpdate
	}
	now := metav1.Now()
	operation := &v1alpha1.Operation{Type: kind, Generation: i.Generation, State: v1alpha1.StateSucceeded, StartedAt: now, FinishedAt: &now}
	i.Status.Operation, i.Status.ObservedGeneration = operation, i.Generation
	if does == fail {
		operation.State, operation.Description, operation.Summary = v1alpha1.StateFailed, internal, "no cluster has so much"
		if kind == v1alpha1.OperationUpdate {
			yes := true
			operation.InstanceUsable, operation.UpdateRepeatable = &yes, &yes
		}
		return fake.hub.Status().Update(ctx, i)
	}
	decision := v1alpha1.Decision{Generation: i.Generation, Placements: []v1alpha1.Placement{
		{Cluster: "eu-1", Reserved: corev1.ResourceList{}}, {Cluster: "eu-2", Reserved: corev1.ResourceList{}},
	}}
	i.Status.Decision = &decision
	i.Status.Delivered = &v1alpha1.DeliveredState{State: *i.Spec.Desired.DeepCopy(), Decision: decision}
	return fake.hub.Status().Update(ctx, i)
}

func (fake *fakeController) binding(ctx context.Context, b *v1alpha1.ServiceBinding) error {
	does := fake.with(b.Spec.BindingID)
	if does == hold {
		return nil
	}
	if b.DeletionTimestamp != nil {
		controllerutil.RemoveFinalizer(b, v1alpha1.Finalizer)
		return fake.hub.Update(ctx, b)
	}
	if b.Status.Operation != nil && !b.RenewalAsked() {
		return nil
	}
	now := metav1.NewTime(fake.clock.Now())
	operation := &v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: b.Generation, State: v1alpha1.StateSucceeded, StartedAt: now, FinishedAt: &now}
	b.Status.Operation = operation
	if does == fail {
		operation.State, operation.Description = v1alpha1.StateFailed, "cluster eu-1 does not answer"
		return fake.hub.Status().Update(ctx, b)
	}
	sealed, err := fake.keys.Seal([]byte(`{"token":"secret-of-`+string(b.UID)+b.Annotations[v1alpha1.AnnotationRenew]+`"}`), seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		return err
	}
	b.Status.SealedCredentials = sealed
	b.Status.Endpoints = []v1alpha1.Endpoint{{Host: "10.0.0.1", Ports: []string{"6443"}, Protocol: "tcp"}}
	expires, renew := metav1.NewTime(now.Add(time.Hour)), metav1.NewTime(now.Add(55*time.Minute))
	b.Status.IssuedAt, b.Status.ExpiresAt, b.Status.RenewBefore = &now, &expires, &renew
	return fake.hub.Status().Update(ctx, b)
}
