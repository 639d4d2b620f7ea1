package bindings_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// pooled is a hub with an instance on a pool. Passes over its bindings are made one by one, and the test plays the inner ones.
type pooled struct {
	*testing.T
	hub, fails client.WithWatch // fails is how the controller sees the hub
	keys       *seal.Keyset
	clock      *testclock.FakePassiveClock
	controller *bindings.Controller
	// write is called with each write of the controller to the hub, and carries it out.
	write func(do func() error) error
}

func newPooled(t *testing.T) *pooled {
	t.Helper()
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	sold := &v1alpha1.WorkloadPlan{Bindings: &v1alpha1.WorkloadBindings{Secrets: []v1alpha1.WorkloadSecret{{Name: "password"}}}}
	decision := v1alpha1.Decision{Workload: sold, Placements: []v1alpha1.Placement{{Cluster: "pool-1", Pool: &v1alpha1.PlacementPool{Instance: "si-inner"}}}}
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"},
		Status:     v1alpha1.ServiceInstanceStatus{Decision: &decision, Delivered: &v1alpha1.DeliveredState{Decision: decision}},
	}
	own := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-inner"}}
	pool := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "pool-1"}, Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverPool, Pool: &v1alpha1.ClusterPool{Front: "front"}}}
	p := &pooled{T: t, keys: keys, clock: testclock.NewFakePassiveClock(time.Now()), write: func(do func() error) error { return do() }}
	p.hub = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ServiceBinding{}).WithObjects(instance, own, pool).Build()
	p.fails = interceptor.NewClient(p.hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			o.SetUID(types.UID(fmt.Sprint("uid-", p.clock.Now().UnixNano()))) // as an API server does
			o.SetCreationTimestamp(metav1.NewTime(p.clock.Now()))
			return p.write(func() error { return c.Create(ctx, o, options...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return p.write(func() error { return c.Patch(ctx, o, patch, options...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			return p.write(func() error { return c.Delete(ctx, o, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, subResource string, o client.Object, options ...client.SubResourceUpdateOption) error {
			return p.write(func() error { return c.SubResource(subResource).Update(ctx, o, options...) })
		},
	})
	p.restart()
	return p
}

// restart replaces the controller by one that remembers nothing.
func (p *pooled) restart() {
	p.controller = &bindings.Controller{
		Client: p.fails, Live: p.hub, Connections: &member.Connections{Reader: p.hub, Namespace: "sluice"}, Keys: p.keys, Hub: hubID,
		Clock: p.clock, Patience: 10 * time.Minute, Refresh: time.Minute,
	}
}

// order creates a binding as the broker does.
func (p *pooled) order(change func(*v1alpha1.ServiceBinding)) *v1alpha1.ServiceBinding {
	p.Helper()
	b := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "sluice", Name: v1alpha1.BindingName("p", "one", "b"), UID: types.UID("uid-b"), Finalizers: []string{v1alpha1.Finalizer}, CreationTimestamp: metav1.NewTime(p.clock.Now()),
		},
		Spec: v1alpha1.ServiceBindingSpec{Platform: "p", InstanceName: "si-1", InstanceID: "one", BindingID: "b", ServiceID: "s", PlanID: "plan"},
	}
	if change != nil {
		change(b)
	}
	if err := p.hub.Create(p.Context(), b); err != nil {
		p.Fatal(err)
	}
	return b
}

// pass makes a pass over a binding, and reads it; its name is empty if it is gone.
func (p *pooled) pass(b *v1alpha1.ServiceBinding) error {
	p.Helper()
	key := client.ObjectKeyFromObject(b)
	_, failed := p.controller.Reconcile(p.Context(), reconcile.Request{NamespacedName: key})
	if err := p.hub.Get(p.Context(), key, b); apierrors.IsNotFound(err) {
		b.Name = ""
	} else if err != nil {
		p.Fatal(err)
	}
	return failed
}

// passes makes a few passes, none of which fails.
func (p *pooled) passes(b *v1alpha1.ServiceBinding) {
	p.Helper()
	for range 3 {
		if err := p.pass(b); err != nil && b.Name != "" {
			p.Fatal(err)
		}
	}
}

// after sets the clock to a number of minutes after the order of a binding.
func (p *pooled) after(b *v1alpha1.ServiceBinding, minutes int) {
	p.clock.SetTime(b.CreationTimestamp.Add(time.Duration(minutes) * time.Minute))
}

// inner reads the inner binding; nil if there is none.
func (p *pooled) inner() *v1alpha1.ServiceBinding {
	p.Helper()
	b := &v1alpha1.ServiceBinding{}
	name := v1alpha1.BindingName(v1alpha1.PlatformSelf, v1alpha1.PoolInstanceID("pool-1", "si-1"), v1alpha1.BindingName("p", "one", "b"))
	err := p.hub.Get(p.Context(), client.ObjectKey{Namespace: "sluice", Name: name}, b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		p.Fatal(err)
	}
	return b
}

// ends ends the bind of the inner binding.
func (p *pooled) ends(state v1alpha1.OperationState, description, token string) {
	p.Helper()
	b, now := p.inner(), metav1.NewTime(p.clock.Now())
	var err error
	if b.Status.SealedCredentials, err = p.keys.Seal([]byte(`{"token":"`+token+`"}`), seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID))); err != nil {
		p.Fatal(err)
	}
	b.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationBind, State: state, Description: description, FinishedAt: &now}
	if err := p.hub.Status().Update(p.Context(), b); err != nil {
		p.Fatal(err)
	}
}

// goes ends the unbind of the inner binding, if it was asked for.
func (p *pooled) goes() {
	p.Helper()
	if b := p.inner(); b != nil && !b.DeletionTimestamp.IsZero() {
		b.Finalizers = nil
		if err := p.hub.Update(p.Context(), b); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *pooled) opened(b *v1alpha1.ServiceBinding) string {
	p.Helper()
	object, err := p.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		p.Fatal(err)
	}
	return string(object.Reveal())
}

// bound returns a binding that has the credentials of its inner one.
func (p *pooled) bound(change func(*v1alpha1.ServiceBinding)) *v1alpha1.ServiceBinding {
	p.Helper()
	b := p.order(change)
	p.passes(b)
	p.ends(v1alpha1.StateSucceeded, "", "first")
	p.passes(b)
	if !in(v1alpha1.StateSucceeded)(b) || b.Status.SealedSecrets != nil || p.opened(b) != `{"token":"first"}` {
		p.Fatalf("it is %+v", b.Status.Operation)
	}
	return b
}
