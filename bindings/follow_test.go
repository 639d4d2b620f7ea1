package bindings_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
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

// Credentials whose account was deleted on the cluster are dead: others are issued. What is there stays as it is.
func TestAnAccountThatIsLostIsMadeAnew(t *testing.T) {
	f := newFixtureOf(t, clusters[:1], usualRights, 0)
	instance := f.deliverTo(t, f.instance(t), v1alpha1.Placement{Cluster: clusters[0]})
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	controller := &bindings.Controller{Client: f.Client, Live: f.Client, Connections: f.connections, Keys: f.keys, Hub: hubID, Clock: clock.RealClock{}, Patience: time.Minute, Refresh: time.Minute}
	looks := func() credentials {
		t.Helper()
		if _, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
			t.Fatal(err)
		}
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
			t.Fatal(err)
		}
		return f.open(t, b)
	}
	before := f.open(t, b)
	if looks().Token != before.Token {
		t.Error("other credentials are issued although nothing is lost")
	}
	meta := metav1.ObjectMeta{Namespace: before.Namespace, Name: b.Name}
	for what, o := range map[string]client.Object{"account": &corev1.ServiceAccount{ObjectMeta: meta}, "role": &rbacv1.RoleBinding{ObjectMeta: meta}} {
		before := f.open(t, b)
		if err := f.admin[clusters[0]].Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		after := looks()
		if after.Token == before.Token {
			t.Errorf("the %s is lost, and no other credentials are issued", what)
		}
		if err := listPods(t.Context(), f.consumer(t, after, ""), after.Namespace); err != nil {
			t.Errorf("after the %s was lost: %v", what, err)
		}
	}
}
