package kube

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// A copy of data has failed only when none of its hooks runs any more: the next copy would write the same volumes.
func TestHooksThatRunBesideOneThatFailed(t *testing.T) {
	hook := func(name string, ended batchv1.JobConditionType) *unstructured.Unstructured {
		job := &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		if ended != "" {
			job.Status.Conditions = []batchv1.JobCondition{{Type: ended, Status: corev1.ConditionTrue, Message: "it ended"}}
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: object}
	}
	on := &target{
		Tenant: &tenant.Tenant{Namespace: "n", Connection: &member.Connection{Cluster: "eu", Client: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build()}},
		of: delivery.Delivery{
			Workload: &workload.Order{Plan: &v1alpha1.WorkloadPlan{}}, Data: &workload.Data{Step: v1alpha1.StepRestore, Target: &workload.Target{}},
		},
	}
	for name, row := range map[string]struct {
		first, second   batchv1.JobConditionType
		pending, failed bool
	}{
		"both run":                  {"", "", true, false},
		"one failed, the other not": {batchv1.JobFailed, "", true, false},
		"one failed, one is done":   {batchv1.JobComplete, batchv1.JobFailed, false, true},
		"both failed":               {batchv1.JobFailed, batchv1.JobFailed, false, true},
		"both are done":             {batchv1.JobComplete, batchv1.JobComplete, false, false},
	} {
		err := on.awaitHooks(t.Context(), []*unstructured.Unstructured{hook("a", row.first), hook("b", row.second)})
		pending, refused := (*delivery.PendingError)(nil), (*delivery.RefusedError)(nil)
		if errors.As(err, &pending) != row.pending || errors.As(err, &refused) != row.failed || err != nil && !row.pending && !row.failed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where only some containers of a workload state their ephemeral storage, the others get no default, which nobody has reserved.
func TestDefaultsOfContainers(t *testing.T) {
	aWorkload := &workload.Order{Plan: &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "db", Container: &v1alpha1.WorkloadContainer{}}}}}
	hard := list("limits.cpu", "2", "limits.memory", "4Gi", "limits.ephemeral-storage", "10Gi", "pods", "20")
	for name, row := range map[string]struct {
		order *workload.Order
		want  bool
	}{"of a namespace": {nil, true}, "of a workload": {aWorkload, false}} {
		on := &target{Tenant: tenant.Of(&member.Connection{}, "hub", &v1alpha1.ServiceInstance{}), of: delivery.Delivery{Workload: row.order}}
		limits := on.limitRangeObject(hard).Spec.Limits[0]
		_, byDefault := (*limits.Default)[corev1.ResourceEphemeralStorage]
		_, atLeast := (*limits.Min)[corev1.ResourceEphemeralStorage]
		if _, cpu := (*limits.Default)[corev1.ResourceCPU]; byDefault != row.want || atLeast != row.want || !cpu {
			t.Errorf("%s: by default %v, at least %v", name, *limits.Default, *limits.Min)
		}
	}
}

// Before the controller of a Deployment has seen it, no pods are asked for: there are none of its yet.
func TestPodsThatNobodyMakesYet(t *testing.T) {
	for name, row := range map[string]struct{ observed, lists int64 }{"not seen": {1, 0}, "seen": {2, 1}} {
		lists := int64(0)
		c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				lists++
				return nil
			},
		})
		on := &target{Tenant: &tenant.Tenant{Namespace: "n", Connection: &member.Connection{Cluster: "eu", Client: c}}}
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "generation": int64(2)},
			"spec": map[string]any{"replicas": int64(1)}, "status": map[string]any{"observedGeneration": row.observed, "replicas": int64(1)},
		}}
		if why, _, err := on.blocked(t.Context(), o); err != nil || why != "" || lists != row.lists {
			t.Errorf("%s: %d lists, want %d; %q, %v", name, lists, row.lists, why, err)
		}
	}
}
