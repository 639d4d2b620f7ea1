package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/internal/podrules"
)

// TestEndOfPods: a pod that callers may be led to serves on before it ends, where the cluster knows how.
func TestEndOfPods(t *testing.T) {
	const ours = int64(7)
	most := int64(podrules.MaxGrace.Seconds())
	for name, row := range map[string]struct {
		kubernetes         string
		grace              *int64
		noPorts            bool
		wantSleep, wantEnd int64
	}{
		"the plan's time":        {kubernetes: "v1.34.4", grace: ptr.To(ours), wantSleep: servesOn, wantEnd: ours + servesOn},
		"the default":            {kubernetes: "v1.34.4", wantSleep: servesOn, wantEnd: corev1.DefaultTerminationGracePeriodSeconds + servesOn},
		"at once":                {kubernetes: "v1.34.4", grace: ptr.To[int64](0), wantSleep: servesOn, wantEnd: servesOn},
		"the most":               {kubernetes: "v1.34.4", grace: &most, wantSleep: servesOn, wantEnd: most},
		"a distribution's":       {kubernetes: "v1.30.2-eks-36c1415", grace: ptr.To(ours), wantSleep: servesOn, wantEnd: ours + servesOn},
		"an old cluster":         {kubernetes: "v1.29.14", grace: ptr.To(ours), wantEnd: ours},
		"a version not known":    {grace: ptr.To(ours), wantEnd: ours},
		"nobody is led to it":    {kubernetes: "v1.34.4", grace: ptr.To(ours), noPorts: true, wantEnd: ours},
		"nor with the default's": {kubernetes: "v1.34.4", noPorts: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := order(t, "testdata/render/application.yaml")
			c := &o.Plan.Components[0]
			c.Container.GracePeriodSeconds = row.grace
			if row.noPorts {
				c.Ports = nil
			}
			objects, err := o.Render(nil, Cluster{Name: "eu-1", Exposure: exposure, Kubernetes: row.kubernetes}, "sluice-si-1")
			if err != nil {
				t.Fatal(err)
			}
			pod := podOf(t, objects, c.Name)
			var sleep int64
			if l := pod.Containers[0].Lifecycle; l != nil {
				sleep = l.PreStop.Sleep.Seconds
			}
			if end := ptr.Deref(pod.TerminationGracePeriodSeconds, 0); sleep != row.wantSleep || end != row.wantEnd {
				t.Errorf("it serves on for %d s and ends within %d s, want %d and %d", sleep, end, row.wantSleep, row.wantEnd)
			}
		})
	}
}

// podOf returns the pod spec of a component's Deployment.
func podOf(t *testing.T, objects []*unstructured.Unstructured, component string) corev1.PodSpec {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == "Deployment" && o.GetName() == component {
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
			return d.Spec.Template.Spec
		}
	}
	t.Fatalf("%s has no Deployment", component)
	return corev1.PodSpec{}
}
