package bindings_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// TestWhatAPoolIsAskedFor: an inner binding has what the outer one was ordered with, and hidden parameters sealed for itself.
func TestWhatAPoolIsAskedFor(t *testing.T) {
	p := newPooled(t)
	const given = `{"key":"hunter2","size":1}`
	b := p.bound(func(b *v1alpha1.ServiceBinding) {
		stored, err := workload.BindingParametersOf(b, p.keys).Sealed([]string{"key"}, []byte(given))
		if err != nil {
			t.Fatal(err)
		}
		raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
		b.Spec.Parameters, b.Spec.AppGUID, b.Spec.PredecessorBindingID = raw(string(stored)), "app", "old"
		b.Spec.BindResource, b.Spec.Context = raw(`{"route":"r"}`), raw(`{"platform":"p"}`)
		b.Spec.OriginatingIdentity = &v1alpha1.OriginatingIdentity{Platform: "p", Value: *raw(`{"user":"u"}`)}
		b.Spec.Credentials = v1alpha1.CredentialsPolicy{LifetimeSeconds: 60, Role: "view"}
	})
	inner := p.inner()
	opened, err := workload.BindingParametersOf(inner, p.keys).Opened(inner.Spec.Raw())
	if err != nil || string(opened) != given || strings.Contains(string(inner.Spec.Raw()), "hunter2") {
		t.Errorf("parameters are %s, opened %s, %v", inner.Spec.Raw(), opened, err)
	}
	want := b.Spec
	want.Platform, want.InstanceName, want.InstanceID = v1alpha1.PlatformSelf, "si-inner", v1alpha1.PoolInstanceID("pool-1", "si-1")
	want.BindingID, want.PredecessorBindingID, want.Parameters = b.Name, v1alpha1.BindingName("p", "one", "old"), inner.Spec.Parameters
	if !reflect.DeepEqual(inner.Spec, want) || !slices.Equal(inner.Finalizers, []string{v1alpha1.Finalizer}) || inner.Labels[v1alpha1.LabelBinding] != b.Name {
		t.Errorf("it is %+v\n%v, want\n%+v", inner.ObjectMeta, inner.Spec, want)
	}
}

// TestAPoolThatFails: a bind fails in the words of the inner one. Once there are credentials these stay, and the inner binding
// is made anew, though not at once.
func TestAPoolThatFails(t *testing.T) {
	p := newPooled(t)
	b := p.order(nil)
	p.passes(b)
	if want := "waiting for the pool to bind the instance"; b.Status.Operation.Description != want || !in(v1alpha1.StateInProgress)(b) {
		t.Errorf("it says %q, want %q", b.Status.Operation.Description, want)
	}
	p.ends(v1alpha1.StateFailed, "the bind hook failed: exit code 1", "")
	p.passes(b)
	if !in(v1alpha1.StateFailed)(b) || b.Status.Operation.Description != "the bind hook failed: exit code 1" {
		t.Errorf("it is %+v", b.Status.Operation)
	}

	p = newPooled(t)
	b = p.bound(nil)
	p.ends(v1alpha1.StateFailed, "no", "")
	p.passes(b)
	p.clock.SetTime(p.clock.Now().Add(29 * time.Second))
	if p.passes(b); !p.inner().DeletionTimestamp.IsZero() {
		t.Error("it is made anew at once")
	}
	p.clock.SetTime(p.clock.Now().Add(2 * time.Second))
	p.passes(b)
	p.goes()
	if p.passes(b); p.inner() == nil || p.inner().Status.Operation != nil || p.opened(b) != `{"token":"first"}` || !in(v1alpha1.StateSucceeded)(b) {
		t.Errorf("it is %+v", b.Status)
	}
	p.ends(v1alpha1.StateSucceeded, "", "second")
	if p.passes(b); p.opened(b) != `{"token":"second"}` {
		t.Errorf("it has %s", p.opened(b))
	}
}

// TestWordsOfInnerBindings: what an inner binding waits for, and why it fails, names the pool instead of its clusters. The
// outer one takes over the latter.
func TestWordsOfInnerBindings(t *testing.T) {
	p := newPooled(t)
	var own v1alpha1.ServiceInstance
	if err := p.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "si-inner"}, &own); err != nil {
		t.Fatal(err)
	}
	own.Spec.Pool = &v1alpha1.PoolOrder{Pool: "pool-1", Instance: "si-1"}
	own.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{
		Cluster: "member", Peering: &v1alpha1.PlacementPeering{Consumer: "own", Hub: "front", Node: "member-1"},
	}}}}
	if err := p.hub.Update(t.Context(), &own); err != nil {
		t.Fatal(err)
	}
	b := p.order(nil)
	p.passes(b)
	inner := p.inner()
	for minutes, want := range []string{"waiting for cluster pool-1 to issue credentials", "credentials could not be issued in time: waiting for cluster pool-1 to issue credentials"} {
		p.after(b, 11*minutes)
		_, _ = p.pass(inner), p.pass(inner) // the front is not in the inventory
		if inner.Status.Operation.Description != want || !slices.Equal(inner.Status.Clusters, []string{"front"}) {
			t.Errorf("the inner one says %q, want %q", inner.Status.Operation.Description, want)
		}
	}
	if p.passes(b); !in(v1alpha1.StateFailed)(b) || b.Status.Operation.Description != inner.Status.Operation.Description {
		t.Errorf("it is %+v", b.Status.Operation)
	}
}

// TestAPoolThatIsSlow: a bind ends in time, later than the inner one would.
func TestAPoolThatIsSlow(t *testing.T) {
	p := newPooled(t)
	b := p.order(nil)
	p.after(b, 10)
	if p.passes(b); !in(v1alpha1.StateInProgress)(b) {
		t.Errorf("after 10 minutes it is %+v", b.Status.Operation)
	}
	p.after(b, 12)
	if p.passes(b); !in(v1alpha1.StateFailed)(b) {
		t.Errorf("after 12 minutes it is %+v", b.Status.Operation)
	}
}

// TestInnerBindingsOfOthers: one that was made for a former binding of the same name is replaced. One whose binding is gone,
// or another, goes.
func TestInnerBindingsOfOthers(t *testing.T) {
	p := newPooled(t)
	b := p.bound(nil)
	former := p.inner()
	former.Annotations[v1alpha1.AnnotationOwner] = "former"
	if err := p.hub.Update(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	p.passes(b)
	if p.inner().DeletionTimestamp.IsZero() {
		t.Error("that of a former one stays")
	}
	p.goes()
	if p.passes(b); p.inner() == nil || p.inner().Annotations[v1alpha1.AnnotationOwner] != "uid-b" {
		t.Fatal("it is not replaced")
	}
	p.ends(v1alpha1.StateSucceeded, "", "second")
	if _, err := p.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p.inner())}); err != nil || !p.inner().DeletionTimestamp.IsZero() {
		t.Errorf("one whose binding is there: %v, deleted at %v", err, p.inner().DeletionTimestamp)
	}
	b.Finalizers = nil // as somebody who does not want to wait
	if err := errors.Join(p.hub.Update(t.Context(), b), p.hub.Delete(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p.inner())}); err != nil || p.inner().DeletionTimestamp.IsZero() {
		t.Errorf("one whose binding is gone stays: %v", err)
	}
}

// TestUnboundWhileTheCacheIsBehind: an inner binding goes although the cache does not show it yet.
func TestUnboundWhileTheCacheIsBehind(t *testing.T) {
	p := newPooled(t)
	b := p.bound(nil)
	p.controller.Client = interceptor.NewClient(p.hub, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }})
	if err := p.hub.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if p.passes(b); b.Name == "" || p.inner().DeletionTimestamp.IsZero() || b.Status.Operation.Description != "waiting for the pool to unbind the instance" {
		t.Fatalf("it is %+v", b.Status.Operation)
	}
	p.goes()
	if p.passes(b); b.Name != "" || p.inner() != nil {
		t.Error("it is not gone")
	}
}

// TestPooledKilledAtAnyWrite: a process that is killed before or after any write to the hub, and remembers nothing afterwards,
// ends with one inner binding, and then with none.
func TestPooledKilledAtAnyWrite(t *testing.T) {
	killed := errors.New("killed")
	for at, died := 1, true; died; at++ {
		for _, written := range []bool{false, true} {
			p, writes := newPooled(t), 0
			died = false
			p.write = func(do func() error) error {
				if writes++; writes != at {
					return do()
				}
				died = true
				if written {
					if err := do(); err != nil {
						t.Fatal(err)
					}
				}
				return killed
			}
			b := p.order(nil)
			until := func(what string, holds func() bool) {
				t.Helper()
				for range 20 {
					if err := p.pass(b); errors.Is(err, killed) {
						p.restart()
					} else if err != nil && b.Name != "" {
						t.Fatal(err)
					}
					if holds() {
						return
					}
				}
				t.Fatalf("write %d, written %t: never %s: %+v", at, written, what, b.Status)
			}
			until("ordered", func() bool { return p.inner() != nil })
			if b.Status.Pool == nil || b.Status.Pool.Binding != p.inner().Name {
				t.Errorf("write %d, written %t: the status names %v before it is created", at, written, b.Status.Pool)
			}
			p.ends(v1alpha1.StateSucceeded, "", "first")
			until("bound", func() bool { return in(v1alpha1.StateSucceeded)(b) })
			if err := p.hub.Delete(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			until("unbound", func() bool { p.goes(); return b.Name == "" })
			if p.inner() != nil {
				t.Errorf("write %d, written %t: the inner binding is left", at, written)
			}
		}
	}
}
