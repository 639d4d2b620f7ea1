package bindings_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func peeredMoves(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	before := b.Status.Services["web"]

	f.deliverTo(t, instance, peering(hubCluster, "", ""))
	service := f.service(t, hubCluster, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, hubCluster, namespace, "web", "worker")
	host := mapped(t, own, hubCluster, "external", f.addressFor(t, hubCluster, namespace, service.Spec.ClusterIP))
	f.until(t, b, "the Service is where the instance is", func(b *v1alpha1.ServiceBinding) bool {
		return reflect.DeepEqual(b.Status.Services, map[string][]string{"web": {"tcp://" + host + ":80"}}) && slices.Equal(b.Status.Issued, []string{hubCluster})
	})
	if len(before) != 1 || slices.Equal(before, b.Status.Services["web"]) {
		t.Errorf("web was at %v and is at %v", before, b.Status.Services["web"])
	}
	f.unbound(t, b)
}

func unbindTakesBack(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.service(t, provider, namespace, "web-2", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	first, second := f.bound(t, f.bind(t, instance, "binding-1", "edit")), f.bound(t, f.bind(t, instance, "binding-2", "edit"))
	for _, b := range []*v1alpha1.ServiceBinding{first, second} {
		if n := len(f.ownAddresses(t, provider, b)); n != 2 {
			t.Fatalf("%s has %d addresses, want one for each Service", b.Spec.BindingID, n)
		}
	}
	if err := f.admin[provider].Create(t.Context(), &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "somebody-elses"}, Spec: ipamv1alpha1.IPSpec{IP: "10.128.7.7"},
	}); err != nil {
		t.Fatal(err)
	}
	f.unbound(t, first)
	if left := f.ownAddresses(t, provider, first); len(left) > 0 {
		t.Errorf("unbound, %d addresses are left", len(left))
	}
	if left := f.ownAddresses(t, provider, second); len(left) != 2 {
		t.Errorf("the other binding has %d addresses, want both", len(left))
	}
	f.addressFor(t, provider, namespace, "10.128.7.7")
	f.unbound(t, second)
}

// killedBetween simulates a kill after Liqo was asked for addresses.
func killedBetween(t *testing.T, f *fixture) {
	lost, fail := errors.New("killed"), true
	controller, other := f.byHand(t, func() error {
		if fail {
			return lost
		}
		return nil
	})
	other.declarePeering(t, own, provider)
	instance := other.deliverTo(t, other.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := other.bind(t, instance, "binding-1", "edit")
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
	lose := func(when string, addresses int) {
		t.Helper()
		fail = true
		if _, err := controller.Reconcile(t.Context(), request); !errors.Is(err, lost) {
			t.Fatalf("%s: %v, want the write lost", when, err)
		}
		fail = false
		if n := len(f.ownAddresses(t, provider, b)); n != addresses {
			t.Fatalf("%s: %d addresses, want %d", when, n, addresses)
		}
	}
	lose("before the status says where", 0)
	b.Status.Clusters, b.Status.AddressClusters = []string{provider}, []string{provider}
	if err := f.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	lose("once Liqo was asked", 1)
	eventually(t, "bind succeeds", func(ctx context.Context) (bool, error) {
		if _, err := controller.Reconcile(ctx, request); err != nil {
			return false, err
		}
		err := f.Get(ctx, request.NamespacedName, b)
		return err == nil && in(v1alpha1.StateSucceeded)(b), err
	})
	if n := len(f.ownAddresses(t, provider, b)); n != 1 {
		t.Errorf("%d addresses, want one", n)
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	eventually(t, "unbind succeeds", func(ctx context.Context) (bool, error) {
		if _, err := controller.Reconcile(ctx, request); err != nil {
			return false, err
		}
		return f.Get(ctx, request.NamespacedName, b) != nil, nil
	})
	if n := len(f.ownAddresses(t, provider, b)); n > 0 {
		t.Errorf("unbound, %d addresses are left", n)
	}
}
