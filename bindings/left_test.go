package bindings_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// unbindWaitsWhereTheInstanceWas: an account on a cluster that the instance has left is revoked as on others.
func unbindWaitsWhereTheInstanceWas(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	here, there := instance.Status.Delivered.Decision.Placements[0], instance.Status.Delivered.Decision.Placements[1]
	f.move(t, instance, nil, here)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	f.move(t, instance, []v1alpha1.LeftPlacement{{Placement: here, Since: metav1.Now()}}, there)
	f.until(t, b, "the binding is issued there", func(b *v1alpha1.ServiceBinding) bool {
		return len(b.Status.Issued) == 1 && b.Status.Issued[0] == there.Cluster
	})
	f.unbindHeld(t, b, here.Cluster)
}

// unbindLeavesASilentCluster: a cluster that the instance has left is waited for until the hub knows that it does not answer.
func unbindLeavesASilentCluster(t *testing.T, f *fixture) {
	b, down := f.touched(t, "cluster-left")
	reachable := func(status metav1.ConditionStatus) {
		t.Helper()
		v1alpha1.SetCondition(&down.Status.Conditions, down.Generation, v1alpha1.ConditionReachable, status, "Tested", "")
		if err := f.Status().Update(t.Context(), down); err != nil {
			t.Fatal(err)
		}
	}
	reachable(metav1.ConditionTrue)
	var instance v1alpha1.ServiceInstance
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: b.Spec.InstanceName}, &instance); err != nil {
		t.Fatal(err)
	}
	instance.Status.Left = []v1alpha1.LeftPlacement{{Placement: v1alpha1.Placement{Cluster: down.Name, Reserved: corev1.ResourceList{}}, Since: metav1.Now()}}
	if err := f.Status().Update(t.Context(), &instance); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the controller sees that the instance has left", func(ctx context.Context) (bool, error) {
		var seen v1alpha1.ServiceInstance
		err := f.cached.Get(ctx, client.ObjectKeyFromObject(&instance), &seen)
		return err == nil && len(seen.Status.Left) > 0, err
	})
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.until(t, b, "unbind says which cluster it waits for", func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.Operation != nil && b.Status.Operation.Description == "waiting for cluster cluster-left to revoke credentials"
	})
	reachable(metav1.ConditionFalse)
	f.gone(t, b)
}

// unbindHeld deletes a binding whose account on a cluster has a finalizer: that is waited for.
func (f *fixture) unbindHeld(t *testing.T, b *v1alpha1.ServiceBinding, cluster string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName), Name: b.Name}}
	hold := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
		if err := f.admin[cluster].Patch(t.Context(), account, patch); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["example.com/hold"]`)
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.until(t, b, "unbind names the finalizer", func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.Operation.Type == v1alpha1.OperationUnbind && in(v1alpha1.StateInProgress)(b) &&
			strings.Contains(b.Status.Operation.Description, "example.com/hold")
	})
	hold("null")
	f.gone(t, b)
}

// hooksWhereTheInstanceWas: the unbind hook on a cluster that the instance has left is waited for, and does not keep the
// account. One that fails there is not tried again.
func hooksWhereTheInstanceWas(t *testing.T, f *fixture) {
	before, after, _ := strings.Cut(withUsers, "  unbind:")
	for says, document := range map[string]string{"succeeds": withUsers, "fails": before + "  unbind:" + strings.Replace(after, `["true"]`, `["false"]`, 1)} {
		t.Run(says, func(t *testing.T) {
			h := f.deliverWorkload(t, document)
			b := f.bound(t, f.bind(t, h.instance, "1", "edit"))
			if err := f.Get(t.Context(), client.ObjectKeyFromObject(h.instance), h.instance); err != nil {
				t.Fatal(err)
			}
			was := h.instance.Status.Delivered.Decision.Placements[0]
			f.move(t, h.instance, []v1alpha1.LeftPlacement{{Placement: was, Since: metav1.Now()}}) // displaced
			f.until(t, b, "nothing is issued any more", func(b *v1alpha1.ServiceBinding) bool { return len(b.Status.Issued) == 0 })
			f.unbound(t, b)
			accounts := &corev1.ServiceAccountList{}
			if err := f.admin[h.cluster].List(t.Context(), accounts, client.InNamespace(h.namespaceThere()), client.MatchingLabels{v1alpha1.LabelBinding: b.Name}); err != nil || len(accounts.Items) > 0 {
				t.Errorf("unbound, it has %d accounts: %v", len(accounts.Items), err)
			}
			if n := h.ran("unbind"); n != 1 {
				t.Errorf("the unbind hook ran %d times", n)
			}
		})
	}
}
