package bindings

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
)

// today is the time of the passes, a minute after the binding was made.
var today = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func hubScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// hubOf is a hub with these objects; nil ones are left out. It counts the writes of a binding's status.
func hubOf(t *testing.T, writes *int, objects ...client.Object) client.Client {
	t.Helper()
	there := slices.DeleteFunc(objects, func(o client.Object) bool { i, ok := o.(*v1alpha1.ServiceInstance); return ok && i == nil })
	return fake.NewClientBuilder().WithScheme(hubScheme(t)).WithStatusSubresource(&v1alpha1.ServiceBinding{}).WithObjects(there...).
		WithIndex(&v1alpha1.ServiceBinding{}, byInstance, func(o client.Object) []string { return []string{o.(*v1alpha1.ServiceBinding).Spec.InstanceName} }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
			*writes++
			return c.SubResource(sub).Update(ctx, o, options...)
		}}).Build()
}

// made a minute ago, of instance si-1.
func bindingOf(state v1alpha1.OperationState, change func(*v1alpha1.ServiceBinding)) *v1alpha1.ServiceBinding {
	b := &v1alpha1.ServiceBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "sb-1", UID: "uid-1", Generation: 1, CreationTimestamp: metav1.NewTime(today.Add(-time.Minute)), Finalizers: []string{v1alpha1.Finalizer}},
		Spec:       v1alpha1.ServiceBindingSpec{InstanceName: "si-1"},
	}
	if state != "" {
		b.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationBind, Generation: 1, State: state}
	}
	if change != nil {
		change(b)
	}
	return b
}

func leaving(i *v1alpha1.ServiceInstance) *v1alpha1.ServiceInstance {
	i.DeletionTimestamp, i.Finalizers = &metav1.Time{Time: today}, []string{v1alpha1.Finalizer}
	return i
}

// TestPasses: what a pass over a binding does that needs no cluster.
func TestPasses(t *testing.T) {
	displaced := deliveredTo()
	on := func(b *v1alpha1.ServiceBinding) { b.Status.Clusters, b.Status.Issued = []string{"a"}, []string{"a"} }
	old := func(b *v1alpha1.ServiceBinding) { b.CreationTimestamp = metav1.NewTime(today.Add(-time.Hour)) }
	for name, row := range map[string]struct {
		binding      *v1alpha1.ServiceBinding
		cached, live *v1alpha1.ServiceInstance
		state        v1alpha1.OperationState // empty if there is no operation
		description  string
		again        time.Duration
		writes       int
		gone         bool
		check        func(*v1alpha1.ServiceBinding) bool
	}{
		"a bind whose instance is gone": {binding: bindingOf("", nil), state: v1alpha1.StateFailed, description: "the service instance is gone", again: 10 * time.Minute, writes: 1},
		"a bind whose instance leaves":  {binding: bindingOf("", nil), cached: leaving(deliveredTo(plain("a"))), live: leaving(deliveredTo(plain("a"))), state: v1alpha1.StateFailed, description: "the service instance is being deprovisioned", again: 10 * time.Minute, writes: 1},
		"a bind before the delivery":    {binding: bindingOf("", nil), cached: &v1alpha1.ServiceInstance{}, live: &v1alpha1.ServiceInstance{}, state: v1alpha1.StateInProgress, description: "the service instance is not delivered yet", again: 9*time.Minute + time.Second, writes: 1},
		"a bind that goes on waiting": {binding: bindingOf(v1alpha1.StateInProgress, func(b *v1alpha1.ServiceBinding) {
			b.Status.Operation.Description = "the service instance is not delivered yet"
			v1alpha1.SetCondition(&b.Status.Conditions, 1, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "the service instance is not delivered yet")
		}), cached: &v1alpha1.ServiceInstance{}, live: &v1alpha1.ServiceInstance{}, state: v1alpha1.StateInProgress, description: "the service instance is not delivered yet", again: 9*time.Minute + time.Second},
		"a bind that has waited too long": {binding: bindingOf("", old), cached: &v1alpha1.ServiceInstance{}, live: &v1alpha1.ServiceInstance{}, state: v1alpha1.StateFailed, description: "the service instance is not delivered yet", again: 10 * time.Minute, writes: 1},

		"a failed one":                                 {binding: bindingOf(v1alpha1.StateFailed, nil), cached: deliveredTo(plain("a")), state: v1alpha1.StateFailed},
		"one whose instance leaves":                    {binding: bindingOf(v1alpha1.StateSucceeded, on), cached: leaving(deliveredTo(plain("b"))), state: v1alpha1.StateSucceeded, again: 10 * time.Minute},
		"one whose instance is gone":                   {binding: bindingOf(v1alpha1.StateSucceeded, on), state: v1alpha1.StateSucceeded, again: 9 * time.Minute},
		"one whose instance is gone for long":          {binding: bindingOf(v1alpha1.StateSucceeded, old), state: v1alpha1.StateSucceeded, check: func(b *v1alpha1.ServiceBinding) bool { return b.DeletionTimestamp != nil }},
		"one whose instance the cache has lost":        {binding: bindingOf(v1alpha1.StateSucceeded, old), live: deliveredTo(plain("a")), state: v1alpha1.StateSucceeded, check: func(b *v1alpha1.ServiceBinding) bool { return b.DeletionTimestamp == nil }},
		"one whose instance is displaced":              {binding: bindingOf(v1alpha1.StateSucceeded, on), cached: displaced, state: v1alpha1.StateSucceeded, writes: 1, check: func(b *v1alpha1.ServiceBinding) bool { return b.Status.Issued == nil && len(b.Status.Clusters) == 1 }},
		"one whose instance is displaced, and removed": {binding: bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) { b.Status.Clusters = []string{"a"} }), cached: displaced, state: v1alpha1.StateSucceeded, writes: 1, check: func(b *v1alpha1.ServiceBinding) bool { return b.Status.Clusters == nil }},
		"one whose instance is displaced for long":     {binding: bindingOf(v1alpha1.StateSucceeded, nil), cached: displaced, state: v1alpha1.StateSucceeded},
		"one on a cluster of its own": {binding: bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) {
			on(b)
			b.Status.ExpiresAt = &metav1.Time{Time: today.Add(time.Hour)}
		}), cached: deliveredTo(madeOn("a")), state: v1alpha1.StateSucceeded, again: time.Hour + time.Second, writes: 1},
		"one on a cluster of its own, from a former one too": {binding: bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) {
			b.Status.Clusters, b.Status.Issued = []string{"a", "b"}, []string{"a"}
		}), cached: deliveredTo(madeOn("a")), state: v1alpha1.StateSucceeded, writes: 2, check: func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Clusters, []string{"a"}) }},

		"one that is not there": {binding: bindingOf("", func(b *v1alpha1.ServiceBinding) { b.Name = "another" }), gone: true},
		"an unbind of nothing":  {binding: bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) { b.DeletionTimestamp = &metav1.Time{Time: today} }), gone: true},
		"an unbind that others keep": {binding: bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) {
			b.DeletionTimestamp, b.Finalizers = &metav1.Time{Time: today}, []string{"x/y"}
		}), state: v1alpha1.StateSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			for _, i := range []*v1alpha1.ServiceInstance{row.cached, row.live} {
				if i != nil {
					i.Namespace, i.Name, i.ResourceVersion = "sluice", "si-1", ""
				}
			}
			writes := 0
			c := &Controller{Client: hubOf(t, &writes, row.binding, row.cached), Live: hubOf(t, new(int), row.binding.DeepCopy(), row.live), Clock: clocktesting.NewFakePassiveClock(today), Patience: 10 * time.Minute, Refresh: time.Minute}
			key := client.ObjectKey{Namespace: "sluice", Name: "sb-1"}
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != row.again || writes != row.writes {
				t.Errorf("again in %v after %d writes, %v; want %v after %d", result.RequeueAfter, writes, err, row.again, row.writes)
			}
			var b v1alpha1.ServiceBinding
			if err := c.Client.Get(t.Context(), key, &b); (err != nil) != row.gone {
				t.Fatalf("it is gone: %v", err)
			} else if row.gone {
				return
			}
			var is v1alpha1.Operation
			if b.Status.Operation != nil {
				is = *b.Status.Operation
			}
			if is.State != row.state || is.Description != row.description || row.check != nil && !row.check(&b) {
				t.Errorf("it is %+v, want %s: %s", b.Status, row.state, row.description)
			}
			ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
			if row.writes > 0 && row.description != "" && (ready == nil || ready.Status != metav1.ConditionFalse || ready.Message != row.description) {
				t.Errorf("the condition is %+v", ready)
			}
		})
	}
}

// The bindings of an instance are looked at when it turns, as far as they have anything to do with that.
func TestConcernedBindings(t *testing.T) {
	done := func(b *v1alpha1.ServiceBinding) {
		b.Status.Clusters, b.Status.Issued, b.Status.AddressClusters = []string{"a"}, []string{"a"}, []string{"a"}
	}
	named := func(name string, state v1alpha1.OperationState, change func(*v1alpha1.ServiceBinding)) *v1alpha1.ServiceBinding {
		b := bindingOf(state, change)
		b.Name = name
		return b
	}
	hub := hubOf(t, new(int), named("done", v1alpha1.StateSucceeded, done), named("new", "", done), named("behind", v1alpha1.StateSucceeded, nil), named("failed", v1alpha1.StateFailed, nil),
		named("leaving", v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) { done(b); b.DeletionTimestamp = &metav1.Time{Time: today} }),
		named("another's", "", func(b *v1alpha1.ServiceBinding) { b.Spec.InstanceName = "si-2" }))
	for name, row := range map[string]struct {
		instance *v1alpha1.ServiceInstance
		want     []string
	}{
		"as it was": {deliveredTo(plain("a")), []string{"behind", "leaving", "new"}},
		"peered":    {deliveredTo(peeredWith("a", "", "")), []string{"behind", "done", "failed", "leaving", "new"}},
	} {
		var got []string
		for _, r := range (&Controller{Client: hub}).concernedBy(t.Context(), row.instance) {
			got = append(got, r.Name)
		}
		if slices.Sort(got); !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

func TestInstancesThatTurn(t *testing.T) {
	changed := func(change func(*v1alpha1.ServiceInstance)) *v1alpha1.ServiceInstance {
		i := deliveredTo(peeredWith("a", "", ""))
		change(i)
		return i
	}
	for name, row := range map[string]struct {
		change func(*v1alpha1.ServiceInstance)
		want   bool
	}{
		"nothing": {func(*v1alpha1.ServiceInstance) {}, false},
		"something else": {func(i *v1alpha1.ServiceInstance) {
			i.Status.ObservedGeneration = 7
			i.Labels = map[string]string{"a": "b"}
		}, false},
		"another cluster": {func(i *v1alpha1.ServiceInstance) { i.Status.Delivered.Decision.Placements[0].Cluster = "b" }, true},
		"another way":     {func(i *v1alpha1.ServiceInstance) { i.Status.Delivered.Decision.Placements[0].Peering = nil }, true},
		"not delivered":   {func(i *v1alpha1.ServiceInstance) { i.Status.Delivered = nil }, true},
		"restored": {func(i *v1alpha1.ServiceInstance) {
			i.Status.Restored = &v1alpha1.Restored{At: &metav1.Time{Time: today}}
		}, true},
		"a cluster is left": {func(i *v1alpha1.ServiceInstance) { i.Status.Left = []v1alpha1.LeftPlacement{{Placement: plain("c")}} }, true},
		"deleted":           {func(i *v1alpha1.ServiceInstance) { i.DeletionTimestamp = &metav1.Time{Time: today} }, true},
	} {
		if got := instanceTurned.Update(event.UpdateEvent{ObjectOld: deliveredTo(peeredWith("a", "", "")), ObjectNew: changed(row.change)}); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if instanceTurned.Create(event.CreateEvent{}) || instanceTurned.Generic(event.GenericEvent{}) {
		t.Error("an instance that is new turns")
	}
}

// What end users read of an obstacle has no messages of clusters.
func TestPublicReasons(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&clusterError{"a", "issue credentials", errors.New("secret")}, "waiting for cluster a to issue credentials"},
		{&clusterError{"a", "revoke credentials", &pendingError{"kept by finalizers"}}, "kept by finalizers"},
		{&clusterError{"a", "issue credentials", &hookPendingError{workload.HookBind}}, "waiting for the bind hook"},
		{&clusterError{"a", "issue credentials", &hookError{workload.HookBind, "exit 1", "secret"}}, "the bind hook failed: exit 1"},
		{errors.New("secret"), "waiting"},
	} {
		if got := publicReason(fmt.Errorf("pass: %w", row.err)); got != row.want {
			t.Errorf("%v: %q, want %q", row.err, got, row.want)
		}
	}
	for detail, want := range map[string]string{"": "the unbind hook failed: exit 1", "pod x": "the unbind hook failed: exit 1: pod x"} {
		if got := (&hookError{workload.HookUnbind, "exit 1", detail}).Error(); got != want {
			t.Errorf("operators read %q, want %q", got, want)
		}
	}
}

func TestDefaults(t *testing.T) {
	for _, given := range []*Controller{{}, {Clock: clocktesting.NewFakePassiveClock(today), Patience: 1, Refresh: 2, Concurrency: 3}} {
		want := Controller{Clock: given.Clock, Patience: given.Patience, Refresh: given.Refresh, Concurrency: given.Concurrency}
		if want.Clock == nil {
			want.Clock, want.Patience, want.Refresh, want.Concurrency = clock.RealClock{}, 10*time.Minute, 30*time.Second, 16
		}
		given.setDefaults()
		if given.Clock != want.Clock || given.Patience != want.Patience || given.Refresh != want.Refresh || given.Concurrency != want.Concurrency {
			t.Errorf("patience %v, refresh %v, concurrency %d, clock %T", given.Patience, given.Refresh, given.Concurrency, given.Clock)
		}
	}
}

// A cluster that is not in the inventory is an error, for an account and for a hook.
func TestUnknownClusters(t *testing.T) {
	c := &Controller{Connections: &member.Connections{Reader: hubOf(t, new(int)), Namespace: "sluice"}}
	b := bindingOf("", nil)
	if _, err := c.account(t.Context(), b, deliveredTo(plain("a")), "a"); !member.IsUnknown(err) {
		t.Errorf("an account: %v", err)
	}
	if _, err := c.hook(t.Context(), workload.HookBind, b, running(false, components...), "a"); !member.IsUnknown(err) {
		t.Errorf("a hook: %v", err)
	}
}
