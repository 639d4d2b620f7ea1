package kube_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// simulatedDriver stands for a driver of Dynamic Resource Allocation: the test publishes its slices.
	simulatedDriver = "gpu.simulated.example"
	large           = corev1.ResourceName("large-gpu.deviceclass.resource.k8s.io/devices")
)

// TestDevices sells the devices of a DeviceClass of a real cluster, whose scheduler allocates them.
func TestDevices(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "DRAExtendedResource=true")
	f.publish(t)
	others := f.claim(t, "others", 1)

	plan := &v1alpha1.ResourcesPlan{
		Limits:     amounts("cpu", "1", "memory", "1Gi", "pods", "10", string(large), "2"),
		LargestPod: amounts(string(large), "2"), Clusters: 1,
	}
	d := f.managedPlan(t, "hub-devices", plan)
	ns := namespaceOf(d)
	cluster := &v1alpha1.MemberCluster{}
	has := func(what string, is func() bool) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) (bool, error) {
			err := f.hub.Get(ctx, key(d.Instance.Namespace, clusterName), cluster)
			return is(), err
		})
	}
	of := func(list corev1.ResourceList, name corev1.ResourceName) int64 { q := list[name]; return q.Value() }
	has("the claim of others counts", func() bool { return of(cluster.Status.ForeignUse, large) == 1 })
	// Two classes select the small ones.
	if got := of(cluster.Status.Allocatable, large); got != 4 {
		t.Errorf("%d large devices are allocatable, want 4", got)
	}
	for _, class := range cluster.Status.DeviceClasses {
		if want := "2 of its devices overlap with those of "; class.Name != "large-gpu" && !strings.HasPrefix(class.Uncounted, want) || class.Name == "large-gpu" && class.Uncounted != "" {
			t.Errorf("class %s: %q", class.Name, class.Uncounted)
		}
	}

	f.awaitDefaultAccount(t, ns)
	c := f.consumer(t, ns)
	refusedWith(t, "a claim of three devices", c.Create(t.Context(), deviceClaim(ns, "three", "large-gpu", 3)), "exceeded quota: sluice, requested: "+string(large)+"=3")
	refusedWith(t, "a claim of all devices", c.Create(t.Context(), deviceClaim(ns, "all", "large-gpu", 0)), "exceeded quota")
	refusedWith(t, "a claim of a class that was not bought", c.Create(t.Context(), deviceClaim(ns, "small", "small-gpu", 1)), "exceeded quota")
	refusedWith(t, "a pod with three devices", c.Create(t.Context(), devicePod(ns, "three", "example.com/large-gpu", "3")), "exceeded quota")
	alternatives := deviceClaim(ns, "alternatives", "large-gpu", 1)
	alternatives.Spec.Devices.Requests[0] = resourcev1.DeviceRequest{Name: "gpus", FirstAvailable: []resourcev1.DeviceSubRequest{
		{Name: "first", DeviceClassName: "large-gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
		{Name: "second", DeviceClassName: "unknown", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
	}}
	refusedWith(t, "a class that the quota does not name", c.Create(t.Context(), alternatives), "devices of this class are not for sale here")
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: alternatives.ObjectMeta, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: deviceClaim(ns, "", "unknown", 1).Spec}}
	refusedWith(t, "a template of such a class", c.Create(t.Context(), template), "devices of this class are not for sale here")
	administered, tolerant := deviceClaim(ns, "administered", "large-gpu", 1), deviceClaim(ns, "tolerant", "large-gpu", 1)
	administered.Spec.Devices.Requests[0].Exactly.AdminAccess = ptr.To(true)
	tolerant.Spec.Devices.Requests[0].Exactly.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
	refusedWith(t, "a claim with admin access", c.Create(t.Context(), administered), "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label")
	refusedWith(t, "a claim of tainted devices", c.Create(t.Context(), tolerant), "tainted devices are not for sale")
	if namespace := (&corev1.Namespace{}); f.admin.Get(t.Context(), key("", ns), namespace) != nil || namespace.Labels[resourcev1.DRAAdminNamespaceLabelKey] != "" {
		t.Errorf("the namespace allows admin access: %v", namespace.Labels)
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+resourcev1.DRAAdminNamespaceLabelKey+`":"true"}}}`))
	refusedWith(t, "the label for admin access", c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, label), "cannot patch resource")

	// The scheduler makes a claim for a pod that takes devices by an extended resource, and the quota counts that, too.
	f.must(t, c.Create(t.Context(), devicePod(ns, "by-name", "example.com/large-gpu", "1")))
	var claims resourcev1.ResourceClaimList
	eventually(t, "the pod's device is allocated", func(ctx context.Context) (bool, error) {
		err := c.List(ctx, &claims, client.InNamespace(ns))
		return len(claims.Items) == 1 && claims.Items[0].Status.Allocation != nil, err
	})
	refusedWith(t, "a claim of two devices beside it", c.Create(t.Context(), deviceClaim(ns, "two", "large-gpu", 2)), "exceeded quota")
	f.must(t, c.Create(t.Context(), deviceClaim(ns, "one", "large-gpu", 1)))
	f.must(t, c.Create(t.Context(), devicePod(ns, "third", "example.com/large-gpu", "1")))
	f.tried(t, ns, "third", false)
	// This version of Kubernetes runs a pod with the resource that is named after a class, and gives it no device.
	if err := c.Create(t.Context(), devicePod(ns, "third-by-class", "deviceclass.resource.kubernetes.io/small-gpu", "1")); err == nil {
		f.tried(t, ns, "third-by-class", true)
	}
	f.must(t, c.List(t.Context(), &claims, client.InNamespace(ns)))
	if len(claims.Items) != 2 {
		t.Errorf("%d claims, want 2: %+v", len(claims.Items), claims.Items)
	}
	f.must(t, c.Create(t.Context(), claimingPod(ns, "claiming", "one")))
	has("the devices of the instance leave their node's hole", func() bool {
		return cluster.Status.Holes != nil && of(cluster.Status.Holes.Free, large) == 1
	})
	if got := of(cluster.Status.ForeignUse, large); got != 1 {
		t.Errorf("others use %d, want 1", got)
	}

	f.must(t, f.admin.Delete(t.Context(), others))
	has("what others give back is free", func() bool { return of(cluster.Status.ForeignUse, large) == 0 })
}

// publish makes classes and slices, as an administrator and a driver would.
func (f *fixture) publish(t *testing.T) {
	t.Helper()
	class := func(name, expression string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: "device.driver == '" + simulatedDriver + "' && " + expression}}},
		}}
	}
	const memory = "device.capacity['" + simulatedDriver + "'].memory.compareTo(quantity('40Gi'))"
	gpus := class("large-gpu", memory+" >= 0")
	gpus.Spec.ExtendedResourceName = ptr.To("example.com/large-gpu")
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "node-1-gpus"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: simulatedDriver, NodeName: ptr.To("node-1"), Pool: resourcev1.ResourcePool{Name: "node-1", Generation: 1, ResourceSliceCount: 1},
	}}
	for name, size := range map[string]string{"large-0": "80Gi", "large-1": "80Gi", "large-2": "80Gi", "large-3": "80Gi", "small-0": "16Gi", "small-1": "16Gi"} {
		device := resourcev1.Device{Name: name, Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse(size)}}}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	for _, o := range []client.Object{gpus, class("small-gpu", memory+" < 0"), class("other-small-gpu", memory+" < 0"), slice} {
		f.must(t, f.admin.Create(t.Context(), o))
	}
}

// claim makes a namespace with a pod to which devices are allocated, and returns the namespace.
func (f *fixture) claim(t *testing.T, ns string, count int64) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	f.must(t, f.admin.Create(t.Context(), namespace))
	f.awaitDefaultAccount(t, ns)
	f.must(t, f.admin.Create(t.Context(), deviceClaim(ns, "claimed", "large-gpu", count)))
	f.must(t, f.admin.Create(t.Context(), claimingPod(ns, "pod", "claimed")))
	eventually(t, "devices are allocated in "+ns, func(ctx context.Context) (bool, error) {
		var claim resourcev1.ResourceClaim
		err := f.admin.Get(ctx, key(ns, "claimed"), &claim)
		return claim.Status.Allocation != nil, err
	})
	return namespace
}

// tried waits until the scheduler has tried to place a pod, which runs without devices, or not at all.
func (f *fixture) tried(t *testing.T, ns, name string, runs bool) {
	t.Helper()
	var p corev1.Pod
	eventually(t, "the scheduler tries to place "+name, func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, key(ns, name), &p)
		return p.Spec.NodeName != "" || slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		}), err
	})
	if placed := p.Spec.NodeName != ""; placed && !runs || p.Status.ExtendedResourceClaimStatus != nil {
		t.Errorf("pod %s is on node %q, with %+v", name, p.Spec.NodeName, p.Status.ExtendedResourceClaimStatus)
	}
}

// deviceClaim asks for a number of devices of a class, or for all.
func deviceClaim(ns, name, class string, count int64) *resourcev1.ResourceClaim {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	if count == 0 {
		exactly.AllocationMode = resourcev1.DeviceAllocationModeAll
	}
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpus", Exactly: exactly}}},
	}}
}

// devicePod takes devices by an extended resource.
func devicePod(ns, name string, extended corev1.ResourceName, count string) *corev1.Pod {
	return pod(ns, name, "cpu", "10m", "memory", "16Mi", string(extended), count)
}

// claimingPod takes the devices of a claim.
func claimingPod(ns, name, claim string) *corev1.Pod {
	p := pod(ns, name, "cpu", "10m", "memory", "16Mi")
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &claim}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
	return p
}
