package workload

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSetClaims(t *testing.T) {
	const set = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 2, ordinals: {start: 1}, selector: {matchLabels: {app: db}},
		volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}],
		template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}}`
	const scaler = `, {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: db}, spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}}}`
	for _, test := range []struct {
		name, objects, claim, app string
		made, used                bool
	}{
		{"of the first pod", set, "data-db-1", "db", true, true},
		{"of the last pod", set, "data-db-2", "db", true, true},
		{"below the first", set, "data-db-0", "db", true, false},
		{"above the last", set, "data-db-3", "db", true, false},
		{"of a pod that the autoscaler may make", set + scaler, "data-db-4", "db", true, true},
		{"above the most of the autoscaler", set + scaler, "data-db-5", "db", true, false},
		{"of another template", set, "logs-db-3", "db", false, false},
		{"of another set", set, "data-web-3", "db", false, false},
		{"with other labels", set, "data-db-3", "web", false, false},
		{"with a number that Kubernetes does not write", set, "data-db-03", "db", false, false},
		{"without a number", set, "data-db-x", "db", false, false},
		{"without anything", set, "data", "db", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan := planOf(t, manifest(test.objects))
			parameters, err := withDefaults(plan, json.RawMessage(nil))
			if err != nil {
				t.Fatal(err)
			}
			objects, err := sampleBound(plan, parameters).Render(nil, Cluster{}, "n")
			if err != nil {
				t.Fatal(err)
			}
			all, err := AllSetClaims(objects)
			if err != nil || len(all) != 1 {
				t.Fatalf("got %v, %v", all, err)
			}
			made, used := all[0].Made(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: test.claim, Labels: map[string]string{"app": test.app, "more": "x"}}})
			if made != test.made || used != test.used {
				t.Errorf("made %t, used %t; want %t, %t", made, used, test.made, test.used)
			}
		})
	}
}

// A set that has more pods on a cluster than anybody has ordered has their claims, and one that was stopped all of them.
func TestSetClaimsAsRunning(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}}}
	for pods, used := range map[int32][]bool{1: {true, false, false}, 2: {true, true, false}, 0: {true, true, true}} {
		set.Spec.Replicas = &pods
		running := ClaimsOf(set, 0).AsRunning(set)
		for i, want := range used {
			if _, got := running.Made(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data-db-%d", i)}}); got != want {
				t.Errorf("%d pods: claim %d is used is %t", pods, i, got)
			}
		}
	}
}
