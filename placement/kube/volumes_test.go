package kube_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// sized is a database with a volume of a class whose volumes may grow.
const sized = `
parameters: {size: {type: string, default: 1Mi}, motto: {type: string, default: hello}}
components:
- name: db
  container:
    image: sluice.dev/db:1
    env: {MOTTO: "${parameters.motto}"}
    volumes: [{name: data, mountPath: /data, storageClass: growing, size: "${parameters.size}"}]
    resources: {cpu: 10m, memory: 16Mi}
`

// broken is a component that the cluster refuses.
const broken = `
- name: bad
  manifests:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: bad}
    spec:
      selector: {matchLabels: {app: z}}
      template: {spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1m, memory: 4Mi}}}]}}
`

// stuck is a component that no node has room for.
const stuck = `
- name: big
  container: {image: i, deadlineSeconds: 600, resources: {cpu: 1000, memory: 16Mi}}
`

// An update grows a volume and then fails: the volume stays as it is, everything else is as before, and later changes work.
func aGrownVolumeStays(t *testing.T, f *fixture) {
	f.must(t, f.admin.Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "growing"}, Provisioner: "sluice.dev/none", AllowVolumeExpansion: ptr.To(true),
	}))
	f.volumeOf(t, "a-grown-volume", "growing")
	first := withWorkload(t, sized, "")
	first.Former = first.Workload
	f.runs(t, first)

	next := running(t, first, sized+broken, `{"size": "2Mi", "motto": "bye"}`)
	var refused *delivery.RefusedError
	if err := f.delivered(t, next); !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	f.wantSize(t, first, "2Mi")

	f.runs(t, first)
	f.wantSize(t, first, "2Mi")
	var secret corev1.Secret
	if f.get(t, first, "db", &secret); string(secret.Data["env.MOTTO"]) != "hello" {
		t.Errorf("the motto is %q after the rollback", secret.Data["env.MOTTO"])
	}
	var quota corev1.ResourceQuota
	f.get(t, first, "sluice", &quota)
	for _, name := range []corev1.ResourceName{v1alpha1.StorageResource("growing"), corev1.ResourceRequestsStorage} {
		if got := quota.Status.Hard[name]; got.String() != "2Mi" {
			t.Errorf("the quota allows %s of %s, want 2Mi", got.String(), name)
		}
	}

	next = running(t, first, sized, `{"motto": "bye"}`)
	next.Former = first.Workload
	f.runs(t, next)
	f.wantSize(t, first, "2Mi")

	grown := running(t, first, sized, `{"size": "3Mi"}`)
	grown.Former = next.Workload
	f.runs(t, grown)
	f.wantSize(t, first, "3Mi")
	less := running(t, first, sized, `{"size": "1Mi"}`)
	less.Former = grown.Workload
	wantRefused(t, f.delivered(t, less), "component db: PersistentVolumeClaim db-data is refused: Invalid")
}

func (f *fixture) wantSize(t *testing.T, d delivery.Delivery, want string) {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	f.get(t, d, "db-data", &claim)
	if got := claim.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != want {
		t.Errorf("the volume has %s, want %s", got.String(), want)
	}
}

// pendingOn delivers until a message for the consumer is waited for, and returns the delivery as it is made next.
func (f *fixture) pendingOn(t *testing.T, d delivery.Delivery, what string) delivery.Delivery {
	t.Helper()
	eventually(t, what, func(ctx context.Context) (bool, error) {
		err := f.driver().Deliver(ctx, d)
		var pending *delivery.PendingError
		if !errors.As(err, &pending) {
			return false, err
		}
		d.Applied = pending.Applied
		return strings.Contains(pending.Consumer, what), nil
	})
	return d
}

// An update that drops a volume and does not get to work is rolled back with the volume; one that works deletes it.
func volumesStayUntilTheNextWorks(t *testing.T, f *fixture) {
	f.volume(t, "volumes-stay")
	first := withWorkload(t, shop, "")
	f.runs(t, first)
	var was, is corev1.PersistentVolumeClaim
	f.get(t, first, "db-data", &was)

	smaller := shop[:strings.Index(shop, "- name: db")]
	smaller = strings.ReplaceAll(smaller, `DB: "${components.db.host}", `, "")
	next := f.pendingOn(t, running(t, first, smaller+stuck, ""), "big: 0 of 1 pods ready: Unschedulable")
	f.gone(t, next, "db", &appsv1.StatefulSet{})
	if f.get(t, first, "db-data", &is); is.UID != was.UID || !is.DeletionTimestamp.IsZero() {
		t.Error("the volume is deleted before the next version works")
	}
	f.runs(t, first)
	if f.get(t, first, "db-data", &is); is.UID != was.UID || !is.DeletionTimestamp.IsZero() {
		t.Error("after the rollback it is another volume")
	}

	renamed := strings.Replace(shop, "name: data,", "name: other,", 1)
	next = f.pendingOn(t, running(t, first, renamed, ""), "PersistentVolumeClaim db-other")
	if f.get(t, first, "db-data", &is); !is.DeletionTimestamp.IsZero() {
		t.Error("the volume is deleted before the next one is bound")
	}
	f.volume(t, "volumes-stay-other")
	f.runs(t, next)
	f.gone(t, first, "db-data", &is)
	var quota corev1.ResourceQuota
	f.get(t, first, "sluice", &quota)
	if got := quota.Status.Hard[corev1.ResourceRequestsStorage]; got.String() != "1Mi" {
		t.Errorf("the quota allows %s, want 1Mi", got.String())
	}
}

// While an update may fail on another cluster, what it drops of volumes stays, and is said; no call lowers the quota and raises
// it again.
func volumesAreKept(t *testing.T, f *fixture) {
	f.volume(t, "volumes-are-kept")
	first := withWorkload(t, shop, "")
	f.runs(t, first)
	smaller := strings.ReplaceAll(shop[:strings.Index(shop, "- name: db")], `DB: "${components.db.host}", `, "")
	next := running(t, first, smaller, "")
	next.KeepsVolumes, next.Said = true, &delivery.Said{}
	for range 2 {
		if err := f.delivered(t, next); err != nil || !next.Said.Kept {
			t.Fatalf("it is kept is %t, %v", next.Said.Kept, err)
		}
		var claim corev1.PersistentVolumeClaim
		var quota corev1.ResourceQuota
		f.get(t, first, "db-data", &claim)
		f.get(t, first, "sluice", &quota)
		if got := quota.Spec.Hard[corev1.ResourceRequestsStorage]; !claim.DeletionTimestamp.IsZero() || got.String() != "1Mi" {
			t.Errorf("the volume is deleted at %v, and the quota allows %s", claim.DeletionTimestamp, got.String())
		}
		next.Said = &delivery.Said{}
	}
	next.KeepsVolumes = false
	if f.runs(t, next); next.Said.Kept {
		t.Error("it is kept")
	}
	f.gone(t, first, "db-data", &corev1.PersistentVolumeClaim{})
}

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
	scaled := strings.ReplaceAll(strings.Replace(members, "      replicas: ${parameters.replicas}\n", "", 1), "members", "stopped") + `
  - apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: db}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}
      maxReplicas: 2
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`
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
