package kube_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/placement/delivery"
)

// members is a StatefulSet with a claim for each pod.
const members = `
parameters: {replicas: {type: integer, default: 3}, name: {type: string, default: db}}
components:
- name: db
  manifests:
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: "${parameters.name}"}
    spec:
      serviceName: db
      replicas: ${parameters.replicas}
      selector: {matchLabels: {app: "${parameters.name}"}}
      template:
        metadata: {labels: {app: "${parameters.name}"}}
        spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /data}], resources: {limits: {cpu: 10m, memory: 16Mi}}}]}
      volumeClaimTemplates:
      - {metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: members, resources: {requests: {storage: 1Mi}}}}
`

// The quota counts all claims of a workload, also if there are several for each pod.
func aSetHasAllItsClaims(t *testing.T, f *fixture) {
	for i := range 18 {
		f.volumeOf(t, fmt.Sprintf("many-%d", i), "many")
	}
	d := withWorkload(t, `
components:
- name: db
  manifests:
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: db}
    spec:
      serviceName: db
      replicas: 6
      selector: {matchLabels: {app: db}}
      template:
        metadata: {labels: {app: db}}
        spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 10m, memory: 16Mi}}}]}
      volumeClaimTemplates:
      - {metadata: {name: data}, spec: &claim {accessModes: [ReadWriteOnce], storageClassName: many, resources: {requests: {storage: 1Mi}}}}
      - {metadata: {name: logs}, spec: *claim}
      - {metadata: {name: keys}, spec: *claim}
`, "")
	f.runs(t, d)
}

// Fewer replicas, another name of the set, and a set that is gone: in each case the claims that no pod has any more are
// deleted once the rest works, and stay if it does not, also if the set's own policy deletes them with their pods.
func claimsOfTemplatesAreDeleted(t *testing.T, f *fixture) {
	members := strings.Replace(members, "      replicas:", "      persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}\n      replicas:", 1)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		f.volumeOf(t, "members-"+name, "members")
	}
	first := withWorkload(t, members, "")
	f.runs(t, first)
	uid := func(name string) string {
		t.Helper()
		var claim corev1.PersistentVolumeClaim
		if f.get(t, first, name, &claim); !claim.DeletionTimestamp.IsZero() {
			t.Errorf("%s is being deleted", name)
		}
		return string(claim.UID)
	}
	was := map[string]string{}
	for _, name := range []string{"data-db-0", "data-db-1", "data-db-2"} {
		was[name] = uid(name)
	}
	stays := func(what string) {
		t.Helper()
		for name := range was {
			if uid(name) != was[name] {
				t.Errorf("%s: %s is another claim", what, name)
			}
		}
	}
	other := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(first), Name: "data-db-9"}}

	f.pendingOn(t, running(t, first, members+stuck, `{"replicas": 1}`), "Unschedulable")
	stays("fewer replicas")
	var set appsv1.StatefulSet
	f.get(t, first, "db", &set)
	if policy := set.Spec.PersistentVolumeClaimRetentionPolicy; policy == nil || policy.WhenScaled != appsv1.RetainPersistentVolumeClaimRetentionPolicyType {
		t.Errorf("the set's policy for claims is %+v, want Retain", policy)
	}
	f.runs(t, first)
	f.pendingOn(t, running(t, first, "components:"+stuck, ""), "Unschedulable")
	f.wantSetStopped(t, first)
	stays("no set")
	f.runs(t, first)
	stays("the rollback")

	f.runs(t, running(t, first, members, `{"replicas": 1}`))
	f.gone(t, first, "data-db-1", other)
	f.gone(t, first, "data-db-2", other)
	if uid("data-db-0") != was["data-db-0"] {
		t.Error("data-db-0 is another claim")
	}
	f.runs(t, running(t, first, members, `{"replicas": 1, "name": "sql"}`))
	f.gone(t, first, "data-db-0", other)
	f.gone(t, first, "db", &appsv1.StatefulSet{})
	uid("data-sql-0")
	f.runs(t, running(t, first, "components: [{name: extra, manifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: extra}}]}]", ""))
	f.gone(t, first, "data-sql-0", other)
	f.gone(t, first, "sql", &appsv1.StatefulSet{})
}

// aStoppedSetStartsAgain although its autoscaler, which leaves sets without pods alone, decides on their number.
func aStoppedSetStartsAgain(t *testing.T, f *fixture) {
	f.volumeOf(t, "stopped-a", "stopped")
	scaled := strings.ReplaceAll(strings.Replace(members, "      replicas: ${parameters.replicas}\n", "", 1), "members", "stopped") + autoscaler("2")
	first := withWorkload(t, scaled, "")
	f.runs(t, first)
	f.pendingOn(t, running(t, first, "components:"+stuck, ""), "Unschedulable")
	f.wantSetStopped(t, first)
	f.runs(t, first)
	var set appsv1.StatefulSet
	if f.get(t, first, "db", &set); set.Status.ReadyReplicas != 1 {
		t.Errorf("%d pods are ready, want 1", set.Status.ReadyReplicas)
	}
	f.runs(t, first)
}

// claimsStayUntilAScaledSetWorks: an update lets an autoscaler have fewer pods, and their claims stay until it works, whatever
// the policy of the set says. Then they are deleted, and the policy holds again.
func claimsStayUntilAScaledSetWorks(t *testing.T, f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		f.volumeOf(t, "scaled-"+name, "scaled")
	}
	document := strings.ReplaceAll(strings.Replace(members, "      replicas: ${parameters.replicas}\n", "      persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}\n", 1), "members", "scaled") + autoscaler("${parameters.replicas}")
	first := withWorkload(t, document, "")
	first.Former = first.Workload
	f.runs(t, first)
	f.scaleSet(t, first, 3)
	uids := func() (all []types.UID) {
		t.Helper()
		for _, name := range []string{"data-db-0", "data-db-1", "data-db-2"} {
			var claim corev1.PersistentVolumeClaim
			if f.get(t, first, name, &claim); !claim.DeletionTimestamp.IsZero() {
				t.Errorf("%s is being deleted", name)
			}
			all = append(all, claim.UID)
		}
		return all
	}
	was := uids()
	next := running(t, first, document+stuck, `{"replicas": 1}`)
	next.Former = first.Workload
	f.pendingOn(t, next, "Unschedulable")
	f.scaleSet(t, first, 1)
	if now := uids(); !slices.Equal(now, was) {
		t.Errorf("before the update works, the claims are %v, and were %v", now, was)
	}
	f.runs(t, first)
	f.scaleSet(t, first, 3)
	if now := uids(); !slices.Equal(now, was) {
		t.Errorf("after the rollback the claims are %v, and were %v", now, was)
	}

	next = running(t, first, document, `{"replicas": 1}`)
	next.Former = first.Workload
	if err := f.delivered(t, next); err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	if f.get(t, first, "db", &set); set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		t.Errorf("the policy is %+v", set.Spec.PersistentVolumeClaimRetentionPolicy)
	}
	f.scaleSet(t, first, 1)
	f.gone(t, first, "data-db-1", &corev1.PersistentVolumeClaim{})
	f.gone(t, first, "data-db-2", &corev1.PersistentVolumeClaim{})
	f.must(t, f.driver().Observe(t.Context(), next))
}

// scaleSet gives the set a number of pods, as an autoscaler does, and returns once it has them.
func (f *fixture) scaleSet(t *testing.T, d delivery.Delivery, pods int32) {
	t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "db"}}
	f.must(t, f.admin.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(&autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: pods}})))
	eventually(t, fmt.Sprintf("the set has %d pods", pods), func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(set), set)
		return set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == pods && set.Status.ReadyReplicas == pods, err
	})
}

// The claims of pods that somebody else has added to a set stay, whatever an update changes.
func claimsOfAddedPodsStay(t *testing.T, f *fixture) {
	for _, name := range []string{"a", "b"} {
		f.volumeOf(t, "added-"+name, "added")
	}
	free := strings.ReplaceAll(strings.Replace(members, "      replicas: ${parameters.replicas}\n", "", 1), "members", "added")
	double := func(d delivery.Delivery) delivery.Delivery {
		for name, amount := range d.Placement.Reserved {
			amount.Add(amount)
			d.Placement.Reserved[name] = amount
		}
		return d
	}
	first := double(withWorkload(t, free, ""))
	f.runs(t, first)
	var set appsv1.StatefulSet
	f.get(t, first, "db", &set)
	set.Spec.Replicas = ptr.To(int32(2))
	f.must(t, f.admin.Update(t.Context(), &set))
	eventually(t, "the second pod is ready", func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, client.ObjectKeyFromObject(&set), &set)
		return set.Status.ReadyReplicas == 2, err
	})
	f.runs(t, double(running(t, first, strings.Replace(free, "image: i,", "image: j,", 1), "")))
	for _, name := range []string{"data-db-0", "data-db-1"} {
		var claim corev1.PersistentVolumeClaim
		if f.get(t, first, name, &claim); !claim.DeletionTimestamp.IsZero() {
			t.Errorf("%s of a pod that runs is deleted", name)
		}
	}
}

// wantSetStopped waits until the set is there without pods.
func (f *fixture) wantSetStopped(t *testing.T, d delivery.Delivery) {
	t.Helper()
	eventually(t, "the set runs nothing", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := f.admin.List(ctx, &pods, client.InNamespace(namespaceOf(d)), client.MatchingLabels{"app": "db"})
		return len(pods.Items) == 0, client.IgnoreNotFound(err)
	})
	var set appsv1.StatefulSet
	if f.get(t, d, "db", &set); *set.Spec.Replicas != 0 {
		t.Errorf("the set has %d replicas", *set.Spec.Replicas)
	}
}

// autoscaler is one of the set of members, with at most so many pods.
func autoscaler(most string) string {
	return strings.Replace(`
  - apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: db}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}
      maxReplicas: MOST
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`, "MOST", most, 1)
}
