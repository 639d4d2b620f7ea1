package bindings_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
)

// byHand returns a controller that runs only when the test calls it, in a namespace of the
// hub that the running controller does not watch, on the same member clusters. It calls
// write before every status write.
func (f *fixture) byHand(t *testing.T, write func() error) (*bindings.Controller, *fixture) {
	t.Helper()
	withWatch, err := client.NewWithWatch(hubtest.Start(t).Config, client.Options{Scheme: f.scheme})
	if err != nil {
		t.Fatal(err)
	}
	intercepted := interceptor.NewClient(withWatch, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, subResource string, o client.Object, options ...client.SubResourceUpdateOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.SubResource(subResource).Update(ctx, o, options...)
		},
	})
	return f.byHandOn(t, intercepted, f.Client, f.connections)
}

// byHandOn is byHand with other clients of the hub and connections to the member clusters.
func (f *fixture) byHandOn(t *testing.T, cached, live client.Client, connections *member.Connections) (*bindings.Controller, *fixture) {
	t.Helper()
	other := *f
	other.namespace = hubtest.Namespace(t)
	return &bindings.Controller{
		Client: cached, Live: live, Connections: connections, Keys: f.keys, Hub: hubID, Clock: clock.RealClock{}, Patience: 1 << 40,
	}, &other
}

func bindWritesStatusTwice(t *testing.T, f *fixture) {
	var writes atomic.Int32
	controller, other := f.byHand(t, func() error { writes.Add(1); return nil })
	b := other.bind(t, other.deliver(t, other.instance(t)), "binding-1", "edit")
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
	for range 2 { // the second finds nothing to do
		if _, err := controller.Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	other.bound(t, b)
	if got := writes.Load(); got != 2 {
		t.Errorf("status was written %d times, want once for the clusters and once for the rest", got)
	}
}

// bindSurvivesALostWrite simulates a kill between the tokens' issue and the write of the
// credentials.
func bindSurvivesALostWrite(t *testing.T, f *fixture) {
	lost := errors.New("killed")
	var writes atomic.Int32
	controller, other := f.byHand(t, func() error {
		if writes.Add(1) == 2 {
			return lost
		}
		return nil
	})
	b := other.bind(t, other.deliver(t, other.instance(t)), "binding-1", "edit")
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
	if _, err := controller.Reconcile(t.Context(), request); !errors.Is(err, lost) {
		t.Fatalf("first try: %v, want the write lost", err)
	}
	other.until(t, b, "the clusters are named", func(b *v1alpha1.ServiceBinding) bool { return len(b.Status.Clusters) == len(clusters) })
	if len(b.Status.SealedCredentials) != 0 {
		t.Error("the lost write is there")
	}
	if _, err := controller.Reconcile(t.Context(), request); err != nil {
		t.Fatalf("second try: %v", err)
	}
	c := other.open(t, other.bound(t, b))
	if err := listPods(t.Context(), f.consumer(t, c, ""), c.Namespace); err != nil {
		t.Errorf("the second token: %v", err)
	}
	for _, name := range clusters {
		var accounts corev1.ServiceAccountList
		if err := f.admin[name].List(t.Context(), &accounts, client.InNamespace(c.Namespace), client.HasLabels{v1alpha1.LabelBinding}); err != nil {
			t.Fatal(err)
		}
		if len(accounts.Items) != 1 {
			t.Errorf("%d accounts on %s, want one", len(accounts.Items), name)
		}
	}
}
