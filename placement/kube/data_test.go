package kube_test

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// kept is a workload whose volume can be backed up.
const kept = `
components:
- name: web
  container: {image: sluice.dev/web:1, replicas: 2, resources: {cpu: 10m, memory: 16Mi}}
- name: db
  ports: [{name: sql, port: 5432}]
  container:
    image: sluice.dev/db:1
    volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Mi}]
    backup: {image: sluice.dev/tool:1, command: [BACKUP], env: {AS: "${target.username}:${target.password}", TO: "${target.url}/${backup.id}"}, resources: {cpu: 10m, memory: 16Mi}}
    restore: {image: sluice.dev/tool:1, command: ["true"], resources: {cpu: 10m, memory: 16Mi}}
    resources: {cpu: 10m, memory: 16Mi}
`

func aWorkloadIsCopied(t *testing.T, f *fixture) {
	f.volume(t, "a-workload-is-copied")
	d := withWorkload(t, strings.Replace(kept, "BACKUP", `"true"`, 1), "")
	f.runs(t, d)
	d.Data = &workload.Data{Step: v1alpha1.StepBackup, Backup: "b1", Run: "b1", Target: &workload.Target{
		URL: "https://target.example", Username: "ann", Password: "hush", Addresses: []string{"192.0.2.0/24"},
	}}
	if err := f.delivered(t, d); err != nil {
		t.Fatal(err)
	}
	f.wantStopped(t, d)
	var job batchv1.Job
	f.get(t, d, "db-backup-b1", &job)
	if v := job.Spec.Template.Spec.Volumes; job.Status.Succeeded != 1 || len(v) == 0 || v[0].PersistentVolumeClaim == nil || v[0].PersistentVolumeClaim.ClaimName != "db-data" {
		t.Errorf("the hook has succeeded %d times, with the volumes %+v", job.Status.Succeeded, v)
	}
	var secret corev1.Secret
	f.get(t, d, "db-backup-b1", &secret)
	if as, to := string(secret.Data["env.AS"]), string(secret.Data["env.TO"]); as != "ann:hush" || to != "https://target.example/b1" {
		t.Errorf("the hook writes to %s as %s", to, as)
	}
	if err := f.delivered(t, d); err != nil {
		t.Errorf("once more: %v", err)
	}
	d.Data.Step = v1alpha1.StepRestore
	if err := f.delivered(t, d); err != nil {
		t.Fatal(err)
	}
	f.get(t, d, "db-restore-b1", &job)
	f.wantStopped(t, d)

	d.Data = nil
	f.runs(t, d)
	for _, o := range []client.Object{&batchv1.Job{}, &corev1.Secret{}, &networkingv1.NetworkPolicy{}} {
		for _, name := range []string{"db-backup-b1", "db-restore-b1"} {
			if err := f.admin.Get(t.Context(), key(namespaceOf(d), name), o); !apierrors.IsNotFound(err) && o.GetDeletionTimestamp().IsZero() {
				t.Errorf("%T %s is left: %v", o, name, err)
			}
		}
	}
}

// wantStopped checks that nothing of the workload runs.
func (f *fixture) wantStopped(t *testing.T, d delivery.Delivery) {
	t.Helper()
	var db appsv1.StatefulSet
	var web appsv1.Deployment
	f.get(t, d, "db", &db)
	f.get(t, d, "web", &web)
	if *db.Spec.Replicas+*web.Spec.Replicas+db.Status.Replicas+web.Status.Replicas != 0 {
		t.Errorf("it runs: %d and %d pods", db.Status.Replicas, web.Status.Replicas)
	}
}

func aCopyThatFails(t *testing.T, f *fixture) {
	f.volume(t, "a-copy-that-fails")
	d := withWorkload(t, strings.Replace(kept, "BACKUP", `"false"`, 1), "")
	f.runs(t, d)
	d.Data = &workload.Data{Step: v1alpha1.StepBackup, Backup: "b2", Run: "b2", Target: &workload.Target{URL: "https://target.example"}}
	var refused *delivery.RefusedError
	if err := f.delivered(t, d); !errors.As(err, &refused) || refused.Reason != "Job db-backup-b2 on "+clusterName+" failed: exit code 1" {
		t.Errorf("got %v, want that the hook failed", err)
	}
	d.Data = nil
	f.runs(t, d)
}
