package bindings_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/bindings"
)

// The broker may accept a binding while the last objects of its instance are being removed.
func TestABindingDoesNotOutliveItsInstanceForEver(t *testing.T) {
	f := newFixtureOf(t, nil, usualRights, 0)
	gone := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("platform-1", t.Name())}}
	b := f.bind(t, gone, "binding-1", "edit")
	f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
	clock := testclock.NewFakePassiveClock(time.Now())
	later := &bindings.Controller{Client: f.Client, Live: f.Client, Clock: clock, Patience: 10 * time.Minute}
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}

	clock.SetTime(time.Now().Add(9 * time.Minute))
	result, err := later.Reconcile(t.Context(), request)
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > 2*time.Minute {
		t.Fatalf("while the platform may ask: %+v, %v", result, err)
	}
	if f.until(t, b, "the binding is there", in(v1alpha1.StateFailed)); !b.DeletionTimestamp.IsZero() {
		t.Fatal("it is deleted before the platform can know")
	}
	clock.SetTime(time.Now().Add(11 * time.Minute))
	if _, err := later.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	f.gone(t, b)
}
