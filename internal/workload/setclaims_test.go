package workload

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A StatefulSet that makes a claim for each pod, and its autoscaler.
const (
	claimingSet = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 2, ordinals: {start: 1}, selector: {matchLabels: {app: db}},
		volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}],
		template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi}}}]}}}}`
	claimingScaler = `, {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: db}, spec: {maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}}}`
)

func TestSetClaims(t *testing.T) {
	for _, test := range []struct {
		name, objects, claim, app string
		made, used                bool
	}{
		{"of the first pod", claimingSet, "data-db-1", "db", true, true},
		{"of the last pod", claimingSet, "data-db-2", "db", true, true},
		{"below the first", claimingSet, "data-db-0", "db", true, false},
		{"above the last", claimingSet, "data-db-3", "db", true, false},
		{"of a pod that the autoscaler may make", claimingSet + claimingScaler, "data-db-4", "db", true, true},
		{"above the most of the autoscaler", claimingSet + claimingScaler, "data-db-5", "db", true, false},
		{"of another template", claimingSet, "logs-db-3", "db", false, false},
		{"of another set", claimingSet, "data-web-3", "db", false, false},
		{"with other labels", claimingSet, "data-db-3", "web", false, false},
		{"with a number that Kubernetes does not write", claimingSet, "data-db-03", "db", false, false},
		{"without a number", claimingSet, "data-db-x", "db", false, false},
		{"without anything", claimingSet, "data", "db", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, err := AllSetClaims(rendered(t, test.objects))
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

// rendered returns the objects of a plan that has them as its manifests.
func rendered(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := planOrder(t, manifest(manifests)).Render(nil, Cluster{}, "n")
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestClaimCount(t *testing.T) {
	const claim = `, {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}`
	logs := strings.Replace(claimingSet, "volumeClaimTemplates: [", "volumeClaimTemplates: [{metadata: {name: logs}, spec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}}, ", 1)
	for manifests, want := range map[string]int64{
		claimingSet: 2, claimingSet + claim: 3, claimingSet + claimingScaler: 4, logs + claimingScaler + claim: 9,
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}": 0,
	} {
		if got, err := ClaimCount(rendered(t, manifests)); got != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", manifests, got, err, want)
		}
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
