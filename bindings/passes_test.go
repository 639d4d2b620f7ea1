package bindings

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/seal"
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

// hubOf is a hub with these objects; nil ones are left out. It counts the writes of a binding's status. From less than zero,
// it counts to the write that fails.
func hubOf(t *testing.T, writes *int, objects ...client.Object) client.Client {
	t.Helper()
	there := slices.DeleteFunc(objects, func(o client.Object) bool { i, ok := o.(*v1alpha1.ServiceInstance); return ok && i == nil })
	return fake.NewClientBuilder().WithScheme(hubScheme(t)).WithStatusSubresource(&v1alpha1.ServiceBinding{}).WithObjects(there...).
		WithIndex(&v1alpha1.ServiceBinding{}, v1alpha1.FieldInstanceName, func(o client.Object) []string { return []string{o.(*v1alpha1.ServiceBinding).Spec.InstanceName} }).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if *writes++; *writes == 0 {
				return apierrors.NewInternalError(errors.New("lost"))
			}
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

		"a bind before an address": {binding: bindingOf("", nil), cached: running(true, components...), state: v1alpha1.StateInProgress, description: "component web has no address in the consumer's cluster yet", again: addressCheck, writes: 2},

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
			key := client.ObjectKey{Namespace: "sluice", Name: "sb-1"}
			controllerOf := func(writes *int) *Controller {
				return &Controller{
					Client: hubOf(t, writes, row.binding.DeepCopy(), row.cached.DeepCopy()), Live: hubOf(t, new(int), row.binding.DeepCopy(), row.live.DeepCopy()),
					Clock: clocktesting.NewFakePassiveClock(today), Patience: 10 * time.Minute, Refresh: time.Minute,
				}
			}
			for lost := range row.writes {
				writes := -lost - 1
				if _, err := controllerOf(&writes).Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !apierrors.IsInternalError(err) {
					t.Errorf("write %d of %d fails, and the error is %v", lost+1, row.writes, err)
				}
			}
			writes := 0
			c := controllerOf(&writes)
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
		{&clusterError{"front", "a", "issue credentials", errors.New("secret")}, "waiting for cluster a to issue credentials"},
		{&clusterError{"front", "a", "revoke credentials", &pendingError{detail: "kept by finalizers"}}, "kept by finalizers"},
		{&clusterError{"front", "a", "issue credentials", waitForHook(workload.HookBind)}, "waiting for the bind hook"},
		{&clusterError{"front", "a", "issue credentials", &hookError{workload.HookBind, "exit 1", "secret"}}, "the bind hook failed: exit 1"},
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

// The hub takes descriptions of a certain length only.
func TestALongReasonOfAFailureIsCut(t *testing.T) {
	b := bindingOf(v1alpha1.StateInProgress, nil)
	c := &Controller{Clock: clocktesting.NewFakePassiveClock(today)}
	for range 2 { // the same reason is no news
		c.recordWaiting(b, v1alpha1.OperationBind, strings.Repeat("ü", 2*v1alpha1.LongestText))
	}
	waiting := b.Status.Operation.Description
	c.finish(b, v1alpha1.StateFailed, strings.Repeat("ü", 2*v1alpha1.LongestText))
	if failed := b.Status.Operation.Description; failed != waiting || utf8.RuneCountInString(failed) != v1alpha1.LongestText {
		t.Errorf("%d and %d characters", utf8.RuneCountInString(waiting), utf8.RuneCountInString(failed))
	}
}

func TestDefaults(t *testing.T) {
	for _, given := range []*Controller{{}, {Clock: clocktesting.NewFakePassiveClock(today), Patience: 1, Refresh: 2}} {
		want := Controller{Clock: given.Clock, Patience: given.Patience, Refresh: given.Refresh}
		if want.Clock == nil {
			want.Clock, want.Patience, want.Refresh = clock.RealClock{}, 10*time.Minute, 30*time.Second
		}
		given.setDefaults()
		if given.Clock != want.Clock || given.Patience != want.Patience || given.Refresh != want.Refresh {
			t.Errorf("patience %v, refresh %v, clock %T", given.Patience, given.Refresh, given.Clock)
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

// The condition of a binding tells a bind that waits from an unbind that does.
func TestReasonsOfWaits(t *testing.T) {
	for kind, want := range map[v1alpha1.OperationType]string{v1alpha1.OperationBind: v1alpha1.ReasonInProgress, v1alpha1.OperationUnbind: v1alpha1.ReasonDeleting} {
		b, writes := bindingOf("", func(b *v1alpha1.ServiceBinding) { b.DeletionTimestamp = &metav1.Time{Time: today} }), 0
		hub := hubOf(t, &writes, b.DeepCopy())
		c := &Controller{Client: hub, Live: hub, Clock: clocktesting.NewFakePassiveClock(today)}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.wait(t.Context(), b, kind, "something"); err != nil {
				t.Fatal(err)
			}
		}
		ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
		if ready.Reason != want || ready.Message != "something" || b.Status.Operation.Type != kind || writes != 1 {
			t.Errorf("%s: %+v, %+v after %d writes", kind, ready, b.Status.Operation, writes)
		}
	}
}

// Nothing is revealed of an instance that is nowhere, and secrets that were sealed with other keys are an error.
func TestNothingToReveal(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, b := &Controller{Keys: keys}, bindingOf("", nil)
	if got, err := c.reveal(t.Context(), b, deliveredTo(), nil, nil, findings{}); err == nil {
		t.Errorf("revealed is %s", got)
	}
	i := running(false, components...)
	i.Status.Delivered.Decision.Workload.Bindings = &v1alpha1.WorkloadBindings{Secrets: []v1alpha1.WorkloadSecret{{Name: "password"}}}
	for _, isNew := range []bool{true, false} {
		if changed, err := c.secureBinding(b, i); err != nil || changed != isNew || b.Status.SealedSecrets == nil {
			t.Errorf("secrets are new is %t, %v; want %t", changed, err, isNew)
		}
	}
	b.Status.SealedSecrets = []byte("sealed with other keys")
	if changed, err := c.secureBinding(b, i); err == nil || changed {
		t.Errorf("secrets that cannot be read are replaced: %t, %v", changed, err)
	}
}

// What another broker gives replaces what it gave before.
func TestToldByABroker(t *testing.T) {
	hours := func(h int) time.Time { return today.Add(time.Duration(h) * time.Hour) }
	for name, row := range map[string]struct {
		bound          osbclient.Binding
		expires, renew time.Time
	}{
		"for ever":                     {},
		"an expiry":                    {osbclient.Binding{ExpiresAt: hours(2)}, hours(2), hours(2)},
		"an expiry, renewed before it": {osbclient.Binding{ExpiresAt: hours(2), RenewBefore: hours(1)}, hours(2), hours(1)},
		"an expiry, renewed after it":  {osbclient.Binding{ExpiresAt: hours(1), RenewBefore: hours(2)}, hours(1), hours(1)},
		"renewed":                      {osbclient.Binding{RenewBefore: hours(1)}, time.Time{}, hours(1)},
	} {
		old := &metav1.Time{Time: hours(9)}
		b := &v1alpha1.ServiceBinding{Status: v1alpha1.ServiceBindingStatus{IssuedAt: old, ExpiresAt: old, RenewBefore: old, Endpoints: []v1alpha1.Endpoint{{Host: "old"}}}}
		tellUpstream(&b.Status, &row.bound)
		at := func(t *metav1.Time) time.Time {
			if t == nil {
				return time.Time{}
			}
			return t.Time
		}
		if s := b.Status; s.IssuedAt != nil || s.Endpoints != nil || !at(s.ExpiresAt).Equal(row.expires) || !at(s.RenewBefore).Equal(row.renew) {
			t.Errorf("%s: expires %v, renew before %v, issued %v", name, s.ExpiresAt, s.RenewBefore, s.IssuedAt)
		}
	}
}

// An instance that the cache does not have and that cannot be read without it is not taken for one that is gone.
func TestAnInstanceThatCannotBeRead(t *testing.T) {
	for name, state := range map[string]v1alpha1.OperationState{"bind": "", "follow": v1alpha1.StateSucceeded} {
		b := bindingOf(state, func(b *v1alpha1.ServiceBinding) { b.CreationTimestamp = metav1.NewTime(today.Add(-time.Hour)) })
		writes := 0
		hub := hubOf(t, &writes, b)
		live := interceptor.NewClient(hubOf(t, new(int)).(client.WithWatch), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return apierrors.NewInternalError(errors.New("unreadable"))
			},
		})
		c := &Controller{Client: hub, Live: live, Clock: clocktesting.NewFakePassiveClock(today), Patience: 10 * time.Minute, Refresh: time.Minute}
		if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}); !apierrors.IsInternalError(err) {
			t.Errorf("%s: %v", name, err)
		}
		if now := (&v1alpha1.ServiceBinding{}); hub.Get(t.Context(), client.ObjectKeyFromObject(b), now) != nil || now.DeletionTimestamp != nil || writes != 0 {
			t.Errorf("%s: after %d writes, it is %+v", name, writes, now)
		}
	}
}
