package kube_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
)

// managed is a hub for one test, with running controllers, the fixture's cluster as its member,
// and an instance of three pods there.
func (f *fixture) managed(t *testing.T, hub string) delivery.Delivery {
	t.Helper()
	return f.managedPlan(t, hub, &v1alpha1.ResourcesPlan{Limits: amounts("pods", "3"), Clusters: 1})
}

// managedPlan is as managed, with an instance of another plan.
func (f *fixture) managedPlan(t *testing.T, hub string, plan *v1alpha1.ResourcesPlan) delivery.Delivery {
	t.Helper()
	namespace := hubtest.Namespace(t)
	sealed, err := f.connections.Keys.Seal(f.kubeconfig, member.Owner(namespace, clusterName))
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName},
		Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: sealed}},
	}
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-1", Name: "service", Description: "Pods.", Plans: []v1alpha1.Plan{{
		ID: "plan-1", Name: "pods", Description: "A plan.", Kind: v1alpha1.PlanKindResources,
		Resources: plan,
	}}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := &catalog.Catalog{}
	served.Replace(snapshot)

	mgr, err := ctrl.NewManager(hubtest.Start(t).Config, ctrl.Options{
		Scheme: f.hub.Scheme(), Metrics: server.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	connections := &member.Connections{Reader: f.hub, Namespace: namespace, Keys: f.connections.Keys}
	if err := controller.SetupWithManager(mgr, controller.Options{
		Namespace: namespace, HubID: hub, Catalog: served, Connections: connections, ProbeEvery: time.Second,
		Drivers: map[string]delivery.Driver{v1alpha1.DriverKube: &kube.Driver{Connections: connections, Hub: hub}},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	name := v1alpha1.InstanceName("platform-1", hub+" "+t.Name())
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform-1", InstanceID: name, ServiceID: "service-1", Desired: v1alpha1.InstanceState{PlanID: "plan-1"},
		},
	}
	if err := f.hub.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	// A quota bounds what the status says that the cluster has.
	eventually(t, "the cluster is read", func(ctx context.Context) (bool, error) {
		err := f.hub.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)
		return len(cluster.Status.Allocatable) > 0, err
	})
	if err := f.hub.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the instance is delivered", func(ctx context.Context) (bool, error) {
		err := f.hub.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		op := instance.Status.Operation
		return op != nil && op.State == v1alpha1.StateSucceeded, err
	})
	return delivery.Delivery{Instance: instance, Placement: instance.Status.Delivered.Decision.Placements[0]}
}

// whatIsDeletedComesBack without waiting for the next periodic check, five minutes later.
func whatIsDeletedComesBack(t *testing.T, f *fixture) {
	d := f.managed(t, "hub-repairs")
	ns := namespaceOf(d)
	const most = 20 * time.Second // less than a second on a machine that does nothing else
	for _, o := range []client.Object{
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sluice-deny"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
	} {
		key := client.ObjectKey{Name: o.GetName()}
		if _, whole := o.(*corev1.Namespace); !whole {
			key.Namespace = ns
		}
		if err := f.admin.Get(t.Context(), key, o); err != nil {
			t.Fatalf("%T: %v", o, err)
		}
		before := o.GetUID()
		if err := f.admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		took := f.back(t, o, before)
		t.Logf("%T is back after %s", o, took.Round(time.Millisecond))
		if took > most {
			t.Errorf("%T is back after %s, want it within %s", o, took, most)
		}
	}
	eventually(t, "the namespace has its quota again", func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, key(ns, "sluice"), &corev1.ResourceQuota{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// back waits until a deleted object exists anew, and returns how long that took after it was
// gone: the cluster takes some time to delete the content of a namespace.
func (f *fixture) back(t *testing.T, o client.Object, before types.UID) time.Duration {
	t.Helper()
	gone := time.Now()
	key := client.ObjectKeyFromObject(o)
	eventually(t, "it comes back", func(ctx context.Context) (bool, error) {
		now := o.DeepCopyObject().(client.Object)
		err := f.admin.Get(ctx, key, now)
		if err == nil && now.GetUID() == before {
			gone = time.Now()
		}
		return err == nil && now.GetUID() != before, client.IgnoreNotFound(err)
	})
	return time.Since(gone)
}

// whatAnotherHubSellsIsNotSoldTwice: two hubs may share a member cluster, and then see each
// other's reservations there.
func whatAnotherHubSellsIsNotSoldTwice(t *testing.T, f *fixture) {
	f.deliverFor(t, "hub-rival", newDelivery(t, "cpu", "1", "example.com/widget", "3", "pods", "1"))
	d := f.managed(t, "hub-second")
	cluster := &v1alpha1.MemberCluster{}
	eventually(t, "the other hub's reservation counts", func(ctx context.Context) (bool, error) {
		err := f.hub.Get(ctx, key(d.Instance.Namespace, clusterName), cluster)
		widgets := cluster.Status.ForeignUse["example.com/widget"]
		return widgets.Value() == 3, err
	})
}
