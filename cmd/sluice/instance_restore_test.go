package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestRestore asks for restores as an operator does. What cannot be done changes nothing.
func TestRestore(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	eu := readyCluster(t, c, h.Namespace, "eu", 4)
	us := readyCluster(t, c, h.Namespace, "us", 4)
	deliveredInstance(t, c, h.Namespace, "si-plain", "eu")
	db := deliveredInstance(t, c, h.Namespace, "si-db", "eu")
	write := func(object client.Object, change func()) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		change()
		if err := c.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	asked := func() *v1alpha1.RestoreRequest {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(db), db); err != nil {
			t.Fatal(err)
		}
		request, err := v1alpha1.ParseRestoreRequest(db.RestoreAsked())
		if err != nil && db.RestoreAsked() != "" {
			t.Fatal(err)
		}
		return request
	}
	write(db, func() {
		at := metav1.NewTime(time.Now().Add(-2 * time.Hour))
		db.Status.Backups = []v1alpha1.Backup{{ID: "b1", Cluster: "eu", At: &at}, {ID: "b2", Cluster: "eu", FailedAt: &at, Failure: "exit code 1"}}
		hook := &v1alpha1.WorkloadHook{WorkloadProcess: v1alpha1.WorkloadProcess{Image: "tool"}}
		for _, d := range []*v1alpha1.Decision{db.Status.Decision, &db.Status.Delivered.Decision} {
			d.Placements[0].Reserved["fast.storageclass.storage.k8s.io/requests.storage"] = resource.MustParse("1Gi")
			d.Workload = &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "db", Container: &v1alpha1.WorkloadContainer{
				WorkloadProcess: v1alpha1.WorkloadProcess{Image: "db"}, Volumes: []v1alpha1.WorkloadVolume{{Name: "data"}}, Backup: hook, Restore: hook,
			}}}}
		}
	})
	write(us, func() {
		v1alpha1.SetCondition(&us.Status.Conditions, 1, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Lost", "connection refused")
	})

	for _, row := range []struct {
		name, because string
		args          []string
	}{
		{"no backup named", "--from: name a backup; `sluice instance describe si-db` lists them", []string{"si-db"}},
		{"no instance", `no instance "si-x"; ` + "`sluice instance list` shows them all, and `sluice events` what happened to one that is gone", []string{"si-x", "--from", "b1"}},
		{"no backups in its plan", "instance si-plain: its plan has no backups of its volumes", []string{"si-plain", "--from", "b1"}},
		{"a backup that failed", "instance si-db: there is no complete backup b2; it has b1 (120m ago)", []string{"si-db", "--from", "b2"}},
		{"no such cluster", "instance si-db: --cluster: there is no member cluster mars; `sluice cluster list` shows them all", []string{"si-db", "--from", "b1", "--cluster", "mars"}},
		{"a cluster that does not answer", "instance si-db: --cluster: us does not answer", []string{"si-db", "--from", "b1", "--cluster", "us"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := operator(append([]string{"instance", "restore"}, row.args...)...); err == nil || err.Error() != row.because {
				t.Errorf("got  %v\nwant %s", err, row.because)
			}
			if asked() != nil {
				t.Error("something is asked for")
			}
		})
	}

	restore := []string{"instance", "restore", "si-db", "--from", "b1"}
	end := func(result v1alpha1.Restored) (out string, err error) {
		t.Helper()
		ended := make(chan error)
		go func() {
			before := db.Annotations[v1alpha1.AnnotationRestore]
			ended <- wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				if err := c.Get(ctx, client.ObjectKeyFromObject(db), db); err != nil || db.Annotations[v1alpha1.AnnotationRestore] == before {
					return false, err
				}
				result.Request = db.Annotations[v1alpha1.AnnotationRestore]
				db.Status.Restored = &result
				return true, c.Status().Update(ctx, db)
			})
		}()
		out, err = operator(restore...)
		if failed := <-ended; failed != nil {
			t.Fatal(failed)
		}
		return out, err
	}
	now := metav1.Now()
	out, err := end(v1alpha1.Restored{Backup: "b1", Cluster: "eu", At: &now})
	if err != nil || !strings.Contains(out, "instance si-db: backup b1 is being restored on eu\n") || !strings.HasSuffix(out, "instance si-db: runs on eu with the data of backup b1\n") {
		t.Errorf("it says %v:\n%s", err, out)
	}
	if _, err := end(v1alpha1.Restored{Backup: "b1", Cluster: "eu", FailedAt: &now, Failure: "exit code 1"}); err == nil || err.Error() != "instance si-db: not restored: exit code 1" {
		t.Errorf("got %v", err)
	}
	if out := must("instance", "describe", "si-db"); !strings.Contains(out, "b1 of eu, 120m ago") || !strings.Contains(out, "b2 of eu, 120m ago: exit code 1") || !strings.Contains(out, "Not restored") {
		t.Errorf("describe shows\n%s", out)
	}

	write(eu, func() {
		v1alpha1.SetCondition(&eu.Status.Conditions, 1, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Lost", "connection refused")
	})
	if out := must(append(restore, "--wait", "0")...); !strings.Contains(out, "is being restored on another cluster") || asked().Cluster != v1alpha1.ElsewhereCluster {
		t.Errorf("its cluster is lost, and it says\n%s", out)
	}
	write(db, func() { db.Status.Operation.State = v1alpha1.StateInProgress })
	if _, err := operator(restore...); err == nil || !strings.Contains(err.Error(), "an operation or a move is in progress") {
		t.Errorf("got %v", err)
	}
}
