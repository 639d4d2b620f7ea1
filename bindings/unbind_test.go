package bindings_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func unbindRevokes(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	c := f.open(t, b)
	consumers := map[string]client.Client{}
	for _, name := range clusters {
		consumers[name] = f.consumer(t, c, name)
		if err := listPods(t.Context(), consumers[name], c.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	f.unbound(t, b)
	for _, name := range clusters {
		for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.RoleBinding{}} {
			if err := f.admin[name].Get(t.Context(), client.ObjectKey{Namespace: c.Namespace, Name: b.Name}, o); !apierrors.IsNotFound(err) {
				t.Errorf("%T on %s after unbind: %v, want it gone", o, name, err)
			}
		}
		began := time.Now()
		eventually(t, "the permissions on "+name+" end", func(ctx context.Context) (bool, error) {
			return listPods(ctx, consumers[name], c.Namespace) != nil, nil
		})
		if took := time.Since(began); took > 10*time.Second { // before the token is
			t.Errorf("permissions on %s ended after %s, want at once", name, took)
		}
		eventually(t, "the token on "+name+" is rejected", func(ctx context.Context) (bool, error) {
			return apierrors.IsUnauthorized(listPods(ctx, consumers[name], c.Namespace)), nil
		})
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the token on %s was rejected after %s, want at most 15 s", name, took)
		}
	}
}

func unbindWaitsForAFinalizer(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	f.unbindHeld(t, b, clusters[1])
}

func unbindWithoutNamespace(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberNamespace(instance.Name)}}
	for _, name := range clusters {
		if err := f.admin[name].Delete(t.Context(), namespace.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	// During its termination, when Sluice may lose its permissions there, and after.
	f.unbound(t, b)
	for _, name := range clusters {
		eventually(t, "the namespace on "+name+" is gone", func(ctx context.Context) (bool, error) {
			err := f.admin[name].Get(ctx, client.ObjectKeyFromObject(namespace), namespace.DeepCopy())
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	late := newBinding(f.namespace, instance, "binding-2", "edit")
	if err := f.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	f.until(t, late, "bind names its clusters", func(b *v1alpha1.ServiceBinding) bool { return len(b.Status.Clusters) == len(clusters) })
	f.unbound(t, late)
}

func unbindLeavesForeign(t *testing.T, f *fixture) {
	instance := f.instance(t)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberNamespace(instance.Name)}}
	if err := f.admin[clusters[0]].Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	b := f.bind(t, instance, "binding-1", "edit")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: foreign.Name, Name: b.Name}}
	if err := f.admin[clusters[0]].Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	f.touch(t, b, clusters[0])
	f.unbound(t, b)
	if err := f.admin[clusters[0]].Get(t.Context(), client.ObjectKeyFromObject(account), account); err != nil {
		t.Errorf("the account in the foreign namespace: %v, want it left alone", err)
	}
}

// touch records that the binding may be on a cluster, as a controller does before
// it is killed.
func (f *fixture) touch(t *testing.T, b *v1alpha1.ServiceBinding, cluster string) {
	t.Helper()
	eventually(t, "record "+cluster, func(ctx context.Context) (bool, error) {
		if err := f.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return false, err
		}
		b.Status.Clusters = append(b.Status.Clusters, cluster)
		err := f.Status().Update(ctx, b)
		return err == nil, ignoreConflict(err)
	})
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func unbindWaitsForCluster(t *testing.T, f *fixture) {
	b, down := f.touched(t, "cluster-down")
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.until(t, b, "unbind says which cluster it waits for", func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.Operation != nil && b.Status.Operation.Description == "waiting for cluster cluster-down to revoke credentials"
	})
	// After its removal from the inventory, Sluice can reach nothing on it.
	if err := f.Delete(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	f.gone(t, b)
}

// A cluster that is taken out of the inventory waits for the instances on it, and these for their bindings. So a binding does
// not wait for such a cluster if it does not answer.
func unbindLeavesAForsakenCluster(t *testing.T, f *fixture) {
	b, down := f.touched(t, "cluster-forsaken")
	down.Finalizers = []string{v1alpha1.Finalizer}
	if err := f.Update(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	if err := f.Delete(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	f.unbound(t, b)
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(down), down); err != nil {
		t.Fatal(err)
	}
	down.Finalizers = nil
	if err := f.Update(t.Context(), down); err != nil {
		t.Fatal(err)
	}
}

// touched returns a binding that may be on a cluster that does not answer.
func (f *fixture) touched(t *testing.T, cluster string) (*v1alpha1.ServiceBinding, *v1alpha1.MemberCluster) {
	t.Helper()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "a",
		Contexts:       map[string]*clientcmdapi.Context{"a": {Cluster: "a", AuthInfo: "a"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"a": {Server: "https://127.0.0.1:1"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"a": {Token: "token"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	down := f.addCluster(t, cluster, kubeconfig)
	b := f.bind(t, f.instance(t), "binding-1", "edit")
	f.touch(t, b, down.Name)
	return b, down
}
