package bindings

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// An unbind waits for its turn also on a cluster that the instance has left. It does not wait for such a cluster to answer.
func TestTurnsWhereTheInstanceWas(t *testing.T) {
	instance := deliveredTo()
	instance.Status.Left = []v1alpha1.LeftPlacement{{Placement: plain("a")}}
	b := bindingOf(v1alpha1.StateSucceeded, func(b *v1alpha1.ServiceBinding) {
		b.DeletionTimestamp, b.Status.Clusters = &metav1.Time{Time: today}, []string{"a"}
	})
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "a"}}
	hub := hubOf(t, new(int), b, instance, cluster)
	c := &Controller{
		Client: hub, Live: hub, Connections: &member.Connections{Reader: hub, Namespace: "sluice"}, Clock: clocktesting.NewFakePassiveClock(today),
		places: &member.Places{Most: 1, Wake: func(string) {}},
	}
	leave, err := c.places.Enter("a", "sluice/another")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		again time.Duration
		gone  bool
	}{{turnPatience, false}, {0, true}} {
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		if err != nil || result.RequeueAfter != row.again {
			t.Errorf("again in %v, %v; want %v", result.RequeueAfter, err, row.again)
		}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(b), &v1alpha1.ServiceBinding{}); (err != nil) != row.gone {
			t.Errorf("it is gone: %v, want %t", err, row.gone)
		}
		leave(nil)
		leave = func(error) {}
	}
}
