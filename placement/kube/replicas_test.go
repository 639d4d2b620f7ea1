package kube_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// anAutoscalerTakesOver: an update that leaves the number of pods to an autoscaler does not change it; one that states it
// again does.
func anAutoscalerTakesOver(t *testing.T, f *fixture) {
	plan := func(scale string) string {
		return "components: [{name: web, container: {image: i, " + scale + ", resources: {cpu: 10m, memory: 16Mi}}}]"
	}
	d := withWorkload(t, plan("replicas: 3"), "")
	f.runs(t, d)
	var before, web appsv1.Deployment
	f.get(t, d, "web", &before)
	scaled := plan("replicas: 1, autoscaling: {max: 4}")
	for range 2 {
		d = running(t, d, scaled, "")
		f.runs(t, d)
		if f.get(t, d, "web", &web); *web.Spec.Replicas != 3 || web.Generation != before.Generation {
			t.Errorf("there are %d pods, want the three from before; generation %d, before %d", *web.Spec.Replicas, web.Generation, before.Generation)
		}
	}
	d = running(t, d, plan("replicas: 2"), "")
	f.runs(t, d)
	if f.get(t, d, "web", &web); *web.Spec.Replicas != 2 {
		t.Errorf("there are %d pods, want two", *web.Spec.Replicas)
	}
}
