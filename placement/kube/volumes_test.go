package kube_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	f.mayGrow(t, first)

	next := running(t, first, sized+broken, `{"size": "2Mi", "motto": "bye"}`)
	var refused *delivery.RefusedError
	if err := f.delivered(t, next); !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal", err)
	}
	f.wantSize(t, first, "2Mi")

	first.Said = &delivery.Said{}
	f.runs(t, first)
	f.wantSize(t, first, "2Mi")
	f.wantGrown(t, first, "1Mi")
	*first.Said = delivery.Said{}
	f.must(t, f.driver().Observe(t.Context(), first))
	f.wantGrown(t, first, "1Mi")
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
	f.wantGrown(t, grown, "0")
	less := running(t, first, sized, `{"size": "1Mi"}`)
	less.Former = grown.Workload
	wantRefused(t, f.delivered(t, less), "component db: PersistentVolumeClaim db-data is refused: Invalid")
}

// mayGrow waits until the API server, which refuses to enlarge claims of classes that it has not heard of yet, knows the
// class of the volume.
func (f *fixture) mayGrow(t *testing.T, d delivery.Delivery) {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	f.get(t, d, "db-data", &claim)
	larger := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Mi"}}}}`))
	eventually(t, "the API server knows the class of the volume", func(ctx context.Context) (bool, error) {
		err := f.admin.Patch(ctx, &claim, larger, client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return false, err
		}
		return strings.Contains(err.Error(), "exceeded quota"), nil // which is asked last
	})
}

func (f *fixture) wantSize(t *testing.T, d delivery.Delivery, want string) {
	t.Helper()
	var claim corev1.PersistentVolumeClaim
	f.get(t, d, "db-data", &claim)
	if got := claim.Spec.Resources.Requests[corev1.ResourceStorage]; got.String() != want {
		t.Errorf("the volume has %s, want %s", got.String(), want)
	}
}

// wantGrown checks what the driver has said that the volume has beyond its order.
func (f *fixture) wantGrown(t *testing.T, d delivery.Delivery, want string) {
	t.Helper()
	if got := d.Said.Grown[v1alpha1.StorageResource("growing")]; got.String() != want {
		t.Errorf("the volume has %s more than is ordered, want %s", got.String(), want)
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

// Until an update is committed, what it drops of volumes stays, and is said; no call lowers the quota and raises
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
