package bindings_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestUnboundAtABrokerThatIsForsaken: a broker that is taken out of the inventory while it does not answer holds up no unbind,
// one that answers does until the binding is deleted there, and so does one that only does not answer.
func TestUnboundAtABrokerThatIsForsaken(t *testing.T) {
	for name, row := range map[string]struct{ answers, removed, goes bool }{
		"dead and taken out":   {removed: true, goes: true},
		"alive and taken out":  {answers: true, removed: true},
		"dead, and still here": {},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, false)
			b := u.order("b", "")
			u.pass(b, ended)
			u.probed(row.answers, row.removed)
			u.front = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}
			if err := u.hub.Delete(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			passes := 0
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool { passes++; return b.Name == "" || passes == 3 })
			if gone := b.Name == ""; gone != row.goes {
				t.Errorf("it is gone: %t, and %v", gone, u.err)
			}
		})
	}
}

// probed sets whether the broker answered the last time, and whether it is taken out of the inventory.
func (u *upstream) probed(answers, removed bool) {
	u.Helper()
	broker := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "eu"}}
	if err := u.hub.Get(u.Context(), client.ObjectKeyFromObject(broker), broker); err != nil {
		u.Fatal(err)
	}
	broker.Finalizers, broker.Status.Conditions = []string{v1alpha1.Finalizer}, nil
	v1alpha1.SetCondition(&broker.Status.Conditions, 1, v1alpha1.ConditionReachable, map[bool]metav1.ConditionStatus{false: metav1.ConditionFalse, true: metav1.ConditionTrue}[answers], "Probed", "")
	if err := u.hub.Update(u.Context(), broker); err != nil {
		u.Fatal(err)
	}
	if removed {
		if err := u.hub.Delete(u.Context(), broker); err != nil {
			u.Fatal(err)
		}
	}
}

// TestABindFailsAtABrokerThatIsForsaken: what a failed bind may have left at a broker holds up its end only while it can still be
// deleted there.
func TestABindFailsAtABrokerThatIsForsaken(t *testing.T) {
	for name, row := range map[string]struct{ answers, removed, left, fails bool }{
		"dead and taken out":   {removed: true, fails: true},
		"not there any more":   {removed: true, left: true, fails: true},
		"alive and taken out":  {answers: true, removed: true},
		"dead, and still here": {},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, false)
			u.front = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				w.WriteHeader(map[bool]int{true: http.StatusBadRequest, false: http.StatusBadGateway}[r.Method == http.MethodPut])
				return true
			}
			b := u.order("b", "")
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool {
				return b.Status.Upstream != nil && b.Status.Upstream.Failure != ""
			})
			u.probed(row.answers, row.removed)
			if row.left {
				broker := &v1alpha1.MemberCluster{}
				if err := u.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "eu"}, broker); err != nil {
					t.Fatal(err)
				}
				broker.Finalizers = nil
				if err := u.hub.Update(t.Context(), broker); err != nil {
					t.Fatal(err)
				}
			}
			passes := 0
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool { passes++; return ended(b) || passes == 3 })
			if ended(b) != row.fails {
				t.Errorf("it has ended: %t, and %v", ended(b), u.err)
			}
			if row.fails && (b.Status.Operation.State != v1alpha1.StateFailed || b.Status.Operation.Description != b.Status.Upstream.Failure) {
				t.Errorf("the operation is %+v, want it to fail by %q", b.Status.Operation, b.Status.Upstream.Failure)
			}
		})
	}
}
