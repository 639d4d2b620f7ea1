package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// backedUp is a world in which the instance has one backup, of eu.
func backedUp(t *testing.T) (c *carrying, backup string) {
	t.Helper()
	c = newCarryingWorldOf(t, "plan-nightly")
	c.after(24 * time.Hour)
	kept := c.settle("si-kept")
	c.wantSteps("backup eu", "run eu")
	if len(kept.Status.Backups) != 1 || !kept.Status.Backups[0].IsComplete() {
		t.Fatalf("the backups are %+v", kept.Status.Backups)
	}
	return c, kept.Status.Backups[0].ID
}

// restore asks for what `sluice instance restore` asks for.
func (c *carrying) restore(backup, cluster string) {
	c.Helper()
	instance := c.instance("si-kept")
	request := v1alpha1.RestoreRequest{Backup: backup, Cluster: cluster, At: c.clock.Now()}
	metav1.SetMetaDataAnnotation(&instance.ObjectMeta, v1alpha1.AnnotationRestore, request.String())
	c.must(c.hub.Update(c.Context(), instance))
}

// loseForGood lets a cluster stop answering, for longer than any plan tolerates.
func (c *carrying) loseForGood(name string) {
	c.Helper()
	c.lose(name)
	c.after(v1alpha1.UnreachableSeconds * time.Second)
}

func (c *carrying) wantRestored(instance *v1alpha1.ServiceInstance, backup, cluster, failure string) {
	c.Helper()
	r := instance.Status.Restored
	if r == nil || r.Backup != backup || r.Cluster != cluster || r.Failure != failure || (r.At == nil) != (failure != "") || (r.FailedAt == nil) != (failure == "") {
		c.Errorf("the status has %+v, want backup %s on %s, failure %q", r, backup, cluster, failure)
	}
}

func TestBackupsBySchedule(t *testing.T) {
	c, first := backedUp(t)
	c.settle("si-kept")
	c.wantSteps()
	var ids []string
	for range 2 {
		c.after(24 * time.Hour)
		kept := c.settle("si-kept")
		c.wantSteps("backup eu", "run eu")
		if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" || kept.Status.Copying != nil {
			t.Errorf("it says %s, and has %+v to do", got, kept.Status.Copying)
		}
		ids = nil
		for _, b := range kept.Status.Backups {
			ids = append(ids, b.ID)
		}
	}
	if len(ids) != 2 || slices.Contains(ids, first) || !slices.Equal(c.backups, append([]string{first}, ids...)) {
		t.Errorf("it keeps %v of %v", ids, c.backups)
	}
	c.after(24 * time.Hour)
	c.failOn("backup eu", &delivery.PendingError{Step: "copy"})
	c.passes("si-kept")
	if !slices.Equal(c.expired, ids[:1]) {
		t.Errorf("the hook is told to drop %v, want %v", c.expired, ids[:1])
	}
}

// The pass before a backup is due says when to look again.
func TestBackupsComeInTime(t *testing.T) {
	c := newCarryingWorldOf(t, "plan-nightly")
	now := c.clock.Now().UTC()
	three := time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 0, 0, time.UTC)
	c.clock.SetTime(three.Add(-time.Minute))
	if c.instance("si-kept").CreationTimestamp.After(three.Add(-24 * time.Hour)) {
		c.reconcilerSays(time.Minute)
	}
	c.clock.SetTime(three)
	c.settle("si-kept")
	c.wantSteps("backup eu", "run eu")
}

// reconcilerSays checks that a pass changes nothing, and asks for the next one in time.
func (c *carrying) reconcilerSays(within time.Duration) {
	c.Helper()
	result, err := ctrl.Result{}, error(nil)
	for range 2 { // the first one may check the instance
		if result, err = c.pass("si-kept"); err != nil {
			c.Fatal(err)
		}
	}
	if c.wantSteps(); result.RequeueAfter <= 0 || result.RequeueAfter > within {
		c.Errorf("the next pass is after %s, want within %s", result.RequeueAfter, within)
	}
}

// Each step is on the hub before it begins: a Sluice that comes later goes on with it.
func TestBackupsGoOnAfterARestart(t *testing.T) {
	c := newCarryingWorldOf(t, "plan-nightly")
	c.after(24 * time.Hour)
	for _, step := range []string{"backup eu", "run eu"} {
		c.failOn(step, &delivery.PendingError{Step: "wait"})
		c.passes("si-kept")
		c.restart()
		c.steps = nil
		c.passes("si-kept")
		c.wantSteps(step)
	}
	c.failOn("", nil)
	if kept := c.settle("si-kept"); len(kept.Status.Backups) != 1 || len(c.backups) != 1 {
		t.Errorf("%d backups were made, %+v are kept", len(c.backups), kept.Status.Backups)
	}
}

// What fails changes nothing, and the next backup comes by the schedule.
func TestABackupThatFails(t *testing.T) {
	c, first := backedUp(t)
	c.failOn("backup eu", &delivery.RefusedError{Reason: "exit code 1"})
	c.after(24 * time.Hour)
	kept := c.settle("si-kept")
	c.wantSteps("backup eu", "run eu")
	if b := kept.Status.Backups; len(b) != 2 || b[0].ID != first || b[1].At != nil || b[1].FailedAt == nil || b[1].Failure != "exit code 1" {
		t.Errorf("the backups are %+v", b)
	}
	if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" {
		t.Errorf("it says %s", got)
	}
	c.after(time.Hour)
	c.settle("si-kept")
	c.wantSteps()
}

// A workload whose pods do not become ready after a backup is as if it had stopped by itself, and holds up nothing.
func TestAWorkloadThatDoesNotStartAfterABackup(t *testing.T) {
	c := newCarryingWorldOf(t, "plan-nightly")
	c.failOn("run eu", &delivery.PendingError{Step: "run"})
	c.after(24 * time.Hour)
	kept := c.passes("si-kept")
	c.wantSteps("backup eu", "run eu")
	c.after(workload.StartsWithin(kept.Status.Decision.Workload))
	if kept = c.passes("si-kept"); kept.Status.Copying != nil || len(c.reconciler.moves.inFlight) > 0 {
		t.Errorf("it has %+v to do, and %v move", kept.Status.Copying, c.reconciler.moves.inFlight)
	}
}

// An update does not wait for a backup: it ends it, and starts the workload. The backup is made afterwards.
func TestAnUpdateEndsABackup(t *testing.T) {
	c := newCarryingWorldOf(t, "plan-nightly")
	c.after(24 * time.Hour)
	c.failOn("backup eu", &delivery.PendingError{Step: "copy"})
	c.passes("si-kept")
	c.update("si-kept", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
	c.wantOperation(c.passes("si-kept"), v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	c.wantSteps("backup eu", "run eu")
	c.failOn("", nil)
	c.settle("si-kept")
	c.wantSteps("backup eu", "run eu")
}

func TestRestoreInPlace(t *testing.T) {
	c, backup := backedUp(t)
	c.restore(backup, "eu")
	for _, step := range []string{"restore eu", "run eu"} {
		c.failOn(step, &delivery.PendingError{Step: "wait"})
		c.passes("si-kept")
		c.restart()
		c.steps = nil
		c.passes("si-kept")
		c.wantSteps(step)
	}
	c.failOn("", nil)
	kept := c.settle("si-kept")
	c.wantOn(kept, "eu")
	c.wantRestored(kept, backup, "eu", "")
	if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" {
		t.Errorf("it says %s", got)
	}
	c.steps = nil
	c.restart()
	c.settle("si-kept")
	c.wantSteps() // what was asked for once is done once
}

// Two restores never run at the same time: the second waits for the first.
func TestRestoresFollowEachOther(t *testing.T) {
	c, backup := backedUp(t)
	c.failOn("restore eu", &delivery.PendingError{Step: "wait"})
	c.restore(backup, "eu")
	first := c.passes("si-kept").Status.Copying
	c.after(time.Second)
	c.restore(backup, "eu")
	if second := c.passes("si-kept").Status.Copying; first == nil || second == nil || second.Run != first.Run {
		t.Errorf("after %+v it does %+v", first, second)
	}
	c.failOn("", nil)
	c.steps = nil
	kept := c.settle("si-kept")
	c.wantSteps("restore eu", "run eu", "restore eu", "run eu")
	if kept.RestoreAsked() != "" {
		t.Errorf("it is still asked for %s", kept.RestoreAsked())
	}
}

// What could not be restored has incomplete volumes: nothing runs with them, whatever else is asked for, until
// another restore succeeds.
func TestARestoreInPlaceThatFails(t *testing.T) {
	c, backup := backedUp(t)
	c.failOn("restore eu", &delivery.RefusedError{Reason: "exit code 1"})
	c.restore(backup, "eu")
	kept := c.settle("si-kept")
	c.wantSteps("restore eu")
	c.wantRestored(kept, backup, "eu", "exit code 1")
	if got := c.message(kept, v1alpha1.ConditionReady); !strings.HasPrefix(got, "False: stopped, because backup "+backup+" could not be restored: exit code 1; `sluice instance restore si-kept") {
		t.Errorf("it says %s", got)
	}
	c.update("si-kept", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
	c.wantOperation(c.settle("si-kept"), v1alpha1.OperationUpdate, v1alpha1.StateFailed, "could not be restored")
	c.lose("eu")
	c.settle("si-kept")
	c.comeBack("eu")
	c.restart()
	c.settle("si-kept")
	c.restore("b0", "eu")
	c.wantRestored(c.settle("si-kept"), "", "", "there is no complete backup b0")
	c.wantSteps()
	c.failOn("", nil)
	c.after(time.Second)
	c.restore(backup, "eu")
	c.wantRestored(c.settle("si-kept"), backup, "eu", "")
	c.wantSteps("restore eu", "run eu")
}

// The data of a lost cluster is restored elsewhere when an operator asks for it, and what that cluster has is
// deleted when it is back.
func TestRestoreElsewhere(t *testing.T) {
	c, backup := backedUp(t)
	c.lose("eu")
	c.settle("si-kept")
	c.comeBack("eu")
	if got := c.message(c.settle("si-kept"), v1alpha1.ConditionReady); got != "True: on eu" {
		t.Errorf("it says %s", got)
	}
	c.loseForGood("eu")
	kept := c.settle("si-kept")
	c.wantOn(kept, "eu")
	if got := c.message(kept, v1alpha1.ConditionReady); !strings.Contains(got, "waiting for the cluster that has its volumes: eu does not answer") ||
		!strings.Contains(got, "`sluice instance restore si-kept --from "+backup+"` starts it on another cluster") {
		t.Errorf("it says %s", got)
	}
	c.restore(backup, v1alpha1.ElsewhereCluster)
	for _, step := range []string{"restore us", "run us"} {
		c.failOn(step, &delivery.PendingError{Step: "wait"})
		c.passes("si-kept")
		c.restart()
		c.steps = nil
		c.must(c.reconciler.recovery.ensure(c.Context()))
		c.lose("eu")
		c.passes("si-kept")
		c.wantSteps(step)
	}
	c.failOn("", nil)
	kept = c.settle("si-kept")
	c.wantOn(kept, "us")
	c.wantRestored(kept, backup, "us", "")
	if left := kept.Status.LeftClusters(); !slices.Equal(left, []string{"eu"}) {
		t.Errorf("it has left %v", left)
	}
	c.comeBack("eu")
	c.settle("si-kept")
	c.wantCarried("eu", "si-kept", 0)
}

// A restore that fails elsewhere leaves the instance where it was, which says why.
func TestARestoreElsewhereThatFails(t *testing.T) {
	for _, fails := range []string{"restore us", "run us"} {
		t.Run(fails, func(t *testing.T) {
			c, backup := backedUp(t)
			c.loseForGood("eu")
			c.failOn(fails, &delivery.RefusedError{Reason: "exit code 1"})
			c.restore(backup, v1alpha1.ElsewhereCluster)
			kept := c.settle("si-kept")
			c.wantOn(kept, "eu")
			c.wantCarried("us", "si-kept", 0)
			c.wantRestored(kept, backup, "us", "exit code 1")
			if got := c.message(kept, v1alpha1.ConditionReady); !strings.HasPrefix(got, "False: ") {
				t.Errorf("it says %s", got)
			}
			c.comeBack("eu")
			if kept = c.settle("si-kept"); kept.Status.IsUndelivered() {
				t.Error("something is left to do")
			}
		})
	}
}

// With a cluster's name, the backup goes to that one, also while the instance's own answers.
func TestRestoreOnANamedCluster(t *testing.T) {
	c, backup := backedUp(t)
	c.cluster("asia", 8)
	c.restore(backup, "asia")
	kept := c.settle("si-kept")
	c.wantOn(kept, "asia")
	c.wantRestored(kept, backup, "asia", "")
	c.wantSteps("restore asia", "run asia")
}

// A cluster that is lost during a backup is left with an older one.
func TestRestoreOfAClusterThatWasBeingDrained(t *testing.T) {
	c, backup := backedUp(t)
	c.drain("eu")
	c.failOn("backup eu", &delivery.PendingError{Step: "copy"})
	c.passes("si-kept")
	c.loseForGood("eu")
	c.failOn("", nil)
	c.restore(backup, v1alpha1.ElsewhereCluster)
	kept := c.settle("si-kept")
	for range 3 {
		kept = c.settle("si-kept")
	}
	c.wantOn(kept, "us")
	c.wantRestored(kept, backup, "us", "")
}

// What cannot be done is refused, and changes nothing.
func TestRestoresRefused(t *testing.T) {
	for _, row := range []struct{ name, backup, cluster, because string }{
		{"a backup that is not there", "b0", "eu", "there is no complete backup b0"},
		{"elsewhere, although the cluster answers", "", v1alpha1.ElsewhereCluster, "eu answers again; to restore it nevertheless, name the cluster"},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, backup := backedUp(t)
			if row.backup != "" {
				backup = row.backup
			}
			c.restore(backup, row.cluster)
			kept := c.settle("si-kept")
			c.wantSteps()
			c.wantRestored(kept, "", "", row.because)
			if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" {
				t.Errorf("it says %s", got)
			}
		})
	}
}
