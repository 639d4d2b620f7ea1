package kube_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestOnCluster shares one member cluster among tests that each have an instance
// of their own.
func TestOnCluster(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"deliver makes a namespace whose quota is in force", deliverMakesANamespace},
		{"deliver again changes nothing", deliverAgainChangesNothing},
		{"an update resizes in place", anUpdateResizesInPlace},
		{"an update below what is used is refused with numbers", anUpdateBelowUseIsRefused},
		{"a foreign namespace is left alone", aForeignNamespaceIsLeftAlone},
		{"observe names what was changed and deliver repairs it", observeNamesChanges},
		{"removal waits for finalizers and names what has them", removalWaitsForFinalizers},
		{"removal of what is not there succeeds", removalOfNothingSucceeds},
		{"deliver waits for the namespace of a former life", deliverWaitsForAFormerLife},
		{"the internet is out of reach unless allowed", theInternetIsOutOfReach},
		{"sluice may do no more than it needs", sluiceMayDoNoMore},
		{"tenants may do no more than they bought", tenantsMayDoNoMore},
		{"nobody escapes", nobodyEscapes},
		{"pods as they were agreed only", agreedPodsOnly},
		{"a cluster that does not enforce rules is seen", aClusterThatDoesNotEnforceRulesIsSeen},
		{"floods end", floodsEnd},
		{"removal ends what does not end", removalEndsWhatDoesNotEnd},
		{"registering again keeps the token", registeringAgainKeepsTheToken},
		{"the namespace carries its order", theNamespaceCarriesItsOrder},
		{"the collector reports and removes what lost its owner", theCollectorRemoves},
		{"the collector leaves what has its owner", theCollectorLeaves},
		{"the collector that is held removes nothing, and reports more", theCollectorThatIsHeld},
		{"the collector leaves what has found a new owner meanwhile", theCollectorLeavesTheAdopted},
		{"the collector that is off ends at once", theCollectorThatIsOffEnds},
		{"what is deleted comes back within two seconds", whatIsDeletedComesBack},
		{"what another hub sells is not sold twice", whatAnotherHubSellsIsNotSoldTwice},
		{"a workload runs, within its quota", aWorkloadRuns},
		{"a component that runs elsewhere keeps its name", aComponentRunsElsewhere},
		{"a chart runs, and what its values drop is deleted", aChartRuns},
		{"a workload changes in place, and what it drops is deleted", aWorkloadChanges},
		{"a workload that was changed is repaired", aWorkloadIsRepaired},
		{"a volume that has grown stays so, and the rest is rolled back", aGrownVolumeStays},
		{"volumes are deleted when the next version works, not before", volumesStayUntilTheNextWorks},
		{"a set has more claims than the quota counts by pods", aSetHasAllItsClaims},
		{"claims of templates are deleted with their pods", claimsOfTemplatesAreDeleted},
		{"claims of a set with an autoscaler stay until the update works", claimsStayUntilAScaledSetWorks},
		{"a set that was stopped starts again", aStoppedSetStartsAgain},
		{"volumes are kept until the update is committed", volumesAreKept},
		{"an update of a set that fails is undone", aSetIsUndone},
		{"an autoscaler that an update adds begins with the pods that there are", anAutoscalerTakesOver},
		{"claims of pods that somebody has added stay", claimsOfAddedPodsStay},
		{"a workload that makes no progress is refused, and says why", aWorkloadThatMakesNoProgressIsRefused},
		{"a workload that exceeds its quota says why", aRuntimeClassTakesMore},
		{"what is applied is not applied again", whatIsAppliedIsNotAppliedAgain},
		{"what the cluster refuses is refused, by component", whatTheClusterRefusesIsRefused},
		{"a workload takes no more than is reserved", aWorkloadTakesNoMoreThanReserved},
		{"a workload is copied while it is stopped", aWorkloadIsCopied},
		{"a copy that fails says why", aCopyThatFails},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, f)
		})
	}
}

func deliverMakesANamespace(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi", "pods", "4")
	f.deliver(t, d)
	ns := namespaceOf(d)

	var namespace corev1.Namespace
	if err := f.admin.Get(t.Context(), key("", ns), &namespace); err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		v1alpha1.LabelHub: "hub-1", v1alpha1.LabelInstance: d.Instance.Name,
		"app.kubernetes.io/managed-by": "sluice", "pod-security.kubernetes.io/enforce": "baseline",
	} {
		if got := namespace.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	f.awaitDefaultAccount(t, ns)
	// At once: Deliver returns only when the quota is enforced.
	refusedWith(t, "a pod above the quota", f.admin.Create(t.Context(), pod(ns, "big", "cpu", "2", "memory", "1Gi")), "exceeded quota")
	refusedWith(t, "a pod without limits that count", f.admin.Create(t.Context(), pod(ns, "zero", "cpu", "0", "memory", "0")), "minimum cpu usage")
	refusedWith(t, "a device that was not bought", f.admin.Create(t.Context(), pod(ns, "gpu", "nvidia.com/gpu", "1")), "exceeded quota")
	privileged := pod(ns, "privileged")
	privileged.Spec.HostNetwork = true
	refusedWith(t, "a pod in its node's network", f.admin.Create(t.Context(), privileged), "PodSecurity")
	refusedWith(t, "storage that was not bought", f.admin.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: amounts("storage", "1Gi")},
		},
	}), "exceeded quota")
	refusedWith(t, "a node port", f.admin.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}), "exceeded quota")
	for _, name := range []string{"small-1", "small-2", "small-3", "small-4"} {
		if err := f.admin.Create(t.Context(), pod(ns, name)); err != nil {
			t.Errorf("pod %s without requests: %v", name, err)
		}
	}
	refusedWith(t, "one pod more", f.admin.Create(t.Context(), pod(ns, "small-5")), "exceeded quota")
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Errorf("observe: %v", err)
	}
}

func ownedLists() []client.ObjectList {
	return []client.ObjectList{
		&rbacv1.RoleBindingList{}, &corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{}, &corev1.ResourceQuotaList{},
	}
}

func eachItem(t *testing.T, list client.ObjectList, do func(client.Object)) {
	t.Helper()
	err := meta.EachListItem(list, func(o runtime.Object) error {
		do(o.(client.Object))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func deliverAgainChangesNothing(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	before := f.versions(t, namespaceOf(d))
	f.deliver(t, d)
	if after := f.versions(t, namespaceOf(d)); len(before) != 5 || !maps.Equal(before, after) {
		t.Errorf("objects were %v and are %v, want the same five", before, after)
	}
}

func (f *fixture) quota(t *testing.T, namespace string) corev1.ResourceQuota {
	t.Helper()
	var quota corev1.ResourceQuota
	if err := f.admin.Get(t.Context(), key(namespace, "sluice"), &quota); err != nil {
		t.Fatal(err)
	}
	return quota
}

func anUpdateResizesInPlace(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "1")
	f.deliver(t, d)
	for _, size := range []string{"4", "2"} {
		d.Placement.Reserved = amounts("cpu", size, "memory", size+"Gi")
		f.deliver(t, d)
		quota := f.quota(t, namespaceOf(d))
		got := []string{}
		for _, name := range []corev1.ResourceName{"requests.cpu", "limits.cpu", "requests.memory", "limits.memory", "requests.nvidia.com/gpu"} {
			inForce := quota.Status.Hard[name]
			got = append(got, inForce.String())
		}
		if want := []string{size, size, size + "Gi", size + "Gi", "0"}; !slices.Equal(got, want) {
			t.Errorf("quota in force is %q, want %q", got, want)
		}
	}
}

func anUpdateBelowUseIsRefused(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "4", "memory", "4Gi")
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	web := pod(ns, "web", "cpu", "3", "memory", "1Gi")
	if err := f.admin.Create(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	// Admission counts the pod at once, but the quota's controller, which counts again for each new object, may not know it yet.
	eventually(t, "the pod runs and is counted", func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(web), web)
		used := f.quota(t, ns).Status.Used["requests.cpu"]
		return web.Status.Phase == corev1.PodRunning && used.Value() == 3, err
	})
	before := f.versions(t, ns)
	d.Placement.Reserved = amounts("cpu", "2", "memory", "4Gi")
	err := f.driver().Deliver(t.Context(), d)
	var refused *delivery.RefusedError
	if !errors.As(err, &refused) {
		t.Fatalf("deliver: %v, want it refused", err)
	}
	for _, text := range []string{"uses 3 of requests.cpu", "allows 2", clusterName, "delete workloads"} {
		if !strings.Contains(refused.Error(), text) {
			t.Errorf("refusal %q does not mention %q", refused, text)
		}
	}
	if after := f.versions(t, ns); !maps.Equal(before, after) {
		t.Errorf("objects were %v and are %v, want nothing changed", before, after)
	}
}

func aForeignNamespaceIsLeftAlone(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	ns := namespaceOf(d)
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{
		v1alpha1.LabelHub: "hub-2", v1alpha1.LabelInstance: d.Instance.Name,
	}}}
	if err := f.admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	var refused *delivery.RefusedError
	if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &refused) {
		t.Errorf("deliver: %v, want it refused", err)
	}
	if err := f.driver().Observe(t.Context(), d); err == nil {
		t.Error("observe finds nothing wrong")
	}
	if err := f.driver().Remove(t.Context(), d); err != nil {
		t.Errorf("remove: %v, want it to count as gone", err)
	}
	var now corev1.Namespace
	if err := f.admin.Get(t.Context(), key("", ns), &now); err != nil {
		t.Fatal(err)
	}
	if now.UID != foreign.UID || !now.DeletionTimestamp.IsZero() || !maps.Equal(now.Labels, foreign.Labels) || len(f.versions(t, ns)) != 0 {
		t.Errorf("the foreign namespace was touched: %v", now)
	}
}

func observeNamesChanges(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	ns := namespaceOf(d)
	for _, test := range []struct {
		change func(context.Context) error
		names  string
	}{
		{func(ctx context.Context) error {
			return f.admin.Patch(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice"}}, client.RawPatch(
				types.MergePatchType, []byte(`{"spec":{"hard":{"requests.cpu":"64"}}}`)))
		}, ".spec.hard.requests.cpu is 64, not 1"},
		{func(ctx context.Context) error {
			return f.admin.Delete(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-deny"}})
		}, "NetworkPolicy sluice-deny"},
		{func(ctx context.Context) error {
			return f.admin.Delete(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice"}})
		}, "LimitRange sluice"},
		{func(ctx context.Context) error {
			return f.admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch(
				types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`)))
		}, "pod-security.kubernetes.io/enforce is privileged, not baseline"},
	} {
		if err := test.change(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("observe: %v, want it to name %q", err, test.names)
		}
		f.deliver(t, d)
		if err := f.driver().Observe(t.Context(), d); err != nil {
			t.Errorf("observe after deliver: %v", err)
		}
	}
}

func removalWaitsForFinalizers(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	heldPod := pod(ns, "held")
	heldData := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "held"}}
	for _, held := range []client.Object{heldPod, heldData} {
		held.SetFinalizers([]string{"example.com/hold"})
		if err := f.admin.Create(t.Context(), held); err != nil {
			t.Fatal(err)
		}
	}
	// Kubernetes deletes pods first and does not report them; Sluice does.
	for _, held := range []struct {
		client.Object
		detail string
	}{
		{heldPod, "pod held has the finalizers example.com/hold; Sluice removes it by force after "},
		{heldData, "NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"},
	} {
		var pending *delivery.PendingError
		eventually(t, "removal says: "+held.detail, func(ctx context.Context) (bool, error) {
			err := f.driver().Remove(ctx, d)
			if !errors.As(err, &pending) {
				return false, errors.Join(errors.New("removal is not pending"), err)
			}
			return strings.Contains(pending.Detail, held.detail), nil
		})
		if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &pending) {
			t.Errorf("deliver into a namespace that ends: %v, want it pending", err)
		}
		if err := f.admin.Patch(t.Context(), held.Object, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	f.removed(t, d)
}

// removed calls Remove until it returns nil, and checks that nothing is left.
func (f *fixture) removed(t *testing.T, d delivery.Delivery) {
	t.Helper()
	eventually(t, "removal ends", func(ctx context.Context) (bool, error) {
		err := f.driver().Remove(ctx, d)
		if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) {
			return false, nil
		}
		return err == nil, err
	})
	if err := f.admin.Get(t.Context(), key("", namespaceOf(d)), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace after removal: %v, want it gone", err)
	}
}

func removalOfNothingSucceeds(t *testing.T, f *fixture) {
	d := newDelivery(t)
	if err := f.driver().Remove(t.Context(), d); err != nil {
		t.Errorf("remove what was never delivered: %v", err)
	}
	d.Placement.Cluster = "cluster-that-left"
	if err := f.driver().Remove(t.Context(), d); err != nil {
		t.Errorf("remove from a cluster that left the inventory: %v", err)
	}
	if err := f.driver().Deliver(t.Context(), d); err == nil || !strings.Contains(err.Error(), "cluster-that-left") {
		t.Errorf("deliver to a cluster that left the inventory: %v, want an error that names it", err)
	}
}

func deliverWaitsForAFormerLife(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	var pending *delivery.PendingError
	if err := f.driver().Remove(t.Context(), d); !errors.As(err, &pending) {
		t.Fatalf("remove: %v, want it pending", err)
	}
	if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &pending) {
		t.Fatalf("deliver: %v, want it pending", err)
	}
	eventually(t, "deliver succeeds once the namespace is gone", func(ctx context.Context) (bool, error) {
		err := f.driver().Deliver(ctx, d)
		if errors.As(err, &pending) {
			return false, nil
		}
		return err == nil, err
	})
}
