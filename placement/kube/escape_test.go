package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/test/escape"
)

// consumer is a client with the rights of a binding with the role edit.
func (f *fixture) consumer(t *testing.T, namespace string) client.Client {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sb-consumer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.MemberRole("edit")},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "sb-consumer"}},
	}
	if err := f.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(f.adminConfig)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":sb-consumer"
	config.QPS, config.Burst = -1, -1
	c := newClient(t, config, f.admin.Scheme())
	eventually(t, "the binding's rights", func(ctx context.Context) (bool, error) {
		err := c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace))
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	return c
}

// prioritiesAreRefused: pods that name no class get the cluster's default one, and that is the only one they may have.
func (f *fixture) prioritiesAreRefused(t *testing.T, c client.Client, namespace string) {
	for name, isDefault := range map[string]bool{"usual": true, "gold": false} {
		f.must(t, f.admin.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, GlobalDefault: isDefault}))
	}
	for class, want := range map[string]string{"": "", "gold": "a pod has the cluster's default priority"} {
		eventually(t, "pods of the class "+class, func(ctx context.Context) (bool, error) {
			p := escape.Pod(namespace, "prior", "registry.example/app")
			p.Spec.PriorityClassName = class
			err := c.Create(ctx, p, client.DryRunAll)
			if want != "" {
				return err != nil && strings.Contains(err.Error(), want), nil
			}
			return p.Spec.PriorityClassName == "usual", err
		})
	}
}

// nobodyEscapes tries, with a binding's rights in a namespace, everything that would reach the
// machines, the network or the other consumers there.
func nobodyEscapes(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "4", "memory", "4Gi", "pods", "20", "nvidia.com/gpu", "1")
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	c := f.consumer(t, ns)
	refused := func(name string, err error, by ...string) {
		t.Helper()
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			for _, text := range by {
				if strings.Contains(err.Error(), text) {
					return
				}
			}
		}
		t.Errorf("%s: got %v, want a refusal with one of %q", name, err, by)
	}
	for _, row := range escape.Pods() {
		p := escape.Pod(ns, "escape", "registry.example/app")
		row.Make(p)
		refused(row.Name, c.Create(t.Context(), p, client.DryRunAll), row.By, "violates PodSecurity")
	}
	for _, attempt := range escape.Objects(ns) {
		refused(attempt.Name, c.Create(t.Context(), attempt.Object, client.DryRunAll), attempt.By, "exceeded quota")
	}

	f.prioritiesAreRefused(t, c, ns)

	plain := escape.Pod(ns, "plain", "registry.example/app")
	plain.Spec.Volumes = []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}},
	}
	plain.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] = *ptr.To(amounts("g", "1")["g"])
	plain.Spec.Tolerations = []corev1.Toleration{
		{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}, {Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists},
	}
	plain.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	if err := c.Create(t.Context(), plain); err != nil {
		t.Fatalf("a pod that takes nothing but what was bought: %v", err)
	}
	// Pods without a node end at once, whatever their grace period.
	if err := f.admin.SubResource("binding").Create(t.Context(), plain.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plain"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
	}); err != nil {
		t.Fatal(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "held"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "held"}, Finalizers: []string{"example.com/hold"}}, Spec: escape.Pod("", "", "a").Spec},
	}}
	deployment.Spec.Template.Spec.TerminationGracePeriodSeconds = nil
	for name, test := range map[string]struct {
		try func(context.Context) error
		by  string
	}{
		"a finalizer by way of a template": {func(ctx context.Context) error { return c.Create(ctx, deployment) }, "templates may not have finalizers"},
		"a finalizer later": {func(ctx context.Context) error {
			return c.Patch(ctx, plain.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`)))
		}, "consumers may not set finalizers"},
		"tolerates everything, later": {func(ctx context.Context) error {
			return c.Patch(ctx, plain.DeepCopy(), client.RawPatch("application/json-patch+json", []byte(`[{"op":"add","path":"/spec/tolerations/-","value":{"operator":"Exists"}}]`)))
		}, "only tolerations of"},
		"deletes a pod, a year from now": {func(ctx context.Context) error {
			return c.Delete(ctx, plain.DeepCopy(), client.GracePeriodSeconds(escape.Year))
		}, "a pod ends within"},
		"evicts a pod, a year from now": {func(ctx context.Context) error {
			return c.SubResource("eviction").Create(ctx, plain.DeepCopy(), &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "plain"}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](escape.Year)},
			})
		}, "a pod ends within"},
		"blocks drains": {func(ctx context.Context) error {
			return c.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "block"}, Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{},
			}})
		}, "cannot create resource"},
		"runs in another namespace": {func(ctx context.Context) error {
			return c.Create(ctx, escape.Pod("default", "escape", "a"))
		}, "cannot create resource"},
		"updates its node": {func(ctx context.Context) error {
			return c.Update(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
		}, "cannot update resource"},
		"takes a volume of the provider's": {func(ctx context.Context) error {
			return c.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs"}, Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(""), VolumeName: "theirs", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "1Mi")},
			}})
		}, "a volume of the provider's is not for sale"},
	} {
		refused(name, test.try(t.Context()), test.by)
	}
	// Not even an administrator, or a controller, can create what blocks drains.
	refusedWith(t, "a PodDisruptionBudget", f.admin.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "block"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}), "exceeded quota")
}

// floodsEnd: the smallest plan's objects are limited in number and in size.
func floodsEnd(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi", "pods", "10")
	f.deliver(t, d)
	ns := namespaceOf(d)
	c := f.consumer(t, ns)
	var written, bytes int64
	var mutex sync.Mutex
	data := map[string]string{"a": strings.Repeat("x", 250<<10)}
	flood := func(make func(name string) client.Object) {
		var group sync.WaitGroup
		for worker := range 4 {
			group.Go(func() {
				for i := range 750 { // 3,000 in all
					err := c.Create(t.Context(), make(fmt.Sprintf("flood-%d-%d", worker, i)))
					switch {
					case err == nil:
						mutex.Lock()
						written++
						bytes += int64(len(data["a"]))
						mutex.Unlock()
					case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
						return
					case !apierrors.IsConflict(err):
						t.Errorf("after %d: %v", written, err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	flood(func(name string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}
	})
	configMaps := written
	flood(func(name string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, StringData: map[string]string{"a": data["a"][:180<<10]}}
	})
	t.Logf("a plan of ten pods wrote %d ConfigMaps and %d Secrets, %d MB", configMaps, written-configMaps, bytes/1e6)
	if configMaps >= 100 || bytes >= 50e6 {
		t.Errorf("a plan of ten pods could write %d ConfigMaps and %d MB in all, want less than 100 and 50", configMaps, bytes/1e6)
	}
	if configMaps == 0 || written == configMaps {
		t.Error("it could write nothing")
	}
}

// removalEndsWhatDoesNotEnd: objects that were admitted before there was a policy block a
// namespace for a limited time, and are named meanwhile.
func removalEndsWhatDoesNotEnd(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliver(t, d)
	ns := namespaceOf(d)
	f.awaitDefaultAccount(t, ns)
	// As before there was a policy: the namespace is not marked as an instance's while they
	// are created.
	label := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.LabelInstance, value)
		if err := f.admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	label("null")
	immortal := pod(ns, "immortal")
	immortal.Spec.TerminationGracePeriodSeconds, immortal.Spec.NodeName = ptr.To[int64](escape.Year), "node-1"
	immortal.Finalizers = []string{"example.com/hold"}
	eventually(t, "the policy leaves the namespace alone", func(ctx context.Context) (bool, error) {
		err := f.admin.Create(ctx, immortal)
		if apierrors.IsInvalid(err) {
			return false, nil
		}
		return err == nil, err
	})
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "held", Finalizers: []string{"example.com/hold"}}}
	if err := f.admin.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	label(strconv.Quote(d.Instance.Name))

	patient, impatient := f.driver(), f.driver()
	impatient.Patience = time.Millisecond
	says := func(details ...string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		eventually(t, fmt.Sprintf("removal says %q", details), func(ctx context.Context) (bool, error) {
			var pending *delivery.PendingError
			switch err := patient.Remove(ctx, d); {
			case err == nil:
				return false, errors.New("removal is not pending")
			case !errors.As(err, &pending):
				t.Log(err) // a request that took too long is made again
				return false, nil
			}
			last = pending.Detail
			for _, detail := range details {
				if !strings.Contains(pending.Detail, detail) {
					return false, nil
				}
			}
			return true, nil
		})
	}
	says("pod immortal has the finalizers example.com/hold; Sluice removes it by force after ", "configmap held keeps the finalizers example.com/hold; Sluice removes it by force after ")
	// It gets a shorter grace period at once.
	eventually(t, "the pod has half a minute at most", func(ctx context.Context) (bool, error) {
		_ = patient.Remove(ctx, d)
		if err := f.admin.Get(ctx, client.ObjectKeyFromObject(immortal), immortal); err != nil {
			return false, err
		}
		return ptr.Deref(immortal.DeletionGracePeriodSeconds, escape.Year) <= 30, nil
	})
	eventually(t, "removal by force ends", func(ctx context.Context) (bool, error) {
		err := impatient.Remove(ctx, d)
		return err == nil, nil
	})
	if err := f.admin.Get(t.Context(), key("", ns), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("namespace after removal: %v, want it gone", err)
	}
}
