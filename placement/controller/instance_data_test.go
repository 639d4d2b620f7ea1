package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

type fixedTarget struct{}

func (fixedTarget) Current() *workload.Target { return &workload.Target{URL: "https://target.example"} }

// carrying is a world with an instance on eu whose volumes can be backed up, room for it on us, and what was
// delivered since: "backup eu", "restore us", "run us".
type carrying struct {
	*world
	steps   []string
	backups []string
	// expired are the backups that the last hook was told to be no longer kept.
	expired []string
}

func newCarryingWorld(t *testing.T) *carrying { return newCarryingWorldOf(t, "plan-kept") }

func newCarryingWorldOf(t *testing.T, plan string) *carrying {
	t.Helper()
	c := &carrying{world: newWorkloadWorld(t)}
	c.clock.SetTime(c.clock.Now().Truncate(24 * time.Hour).Add(36 * time.Hour)) // noon: the next backup is not due for hours
	c.reconciler.target = fixedTarget{}
	c.cluster("eu", 8)
	c.provision("si-kept", plan, "")
	c.wantOn(c.passes("si-kept"), "eu")
	c.cluster("us", 8)
	c.driver.onDeliver = func(d delivery.Delivery) {
		step := "run"
		if d.Data != nil {
			step, c.expired = strings.ToLower(string(d.Data.Step)), d.Data.Expired
			if !slices.Contains(c.backups, d.Data.Backup) {
				c.backups = append(c.backups, d.Data.Backup)
			}
		}
		if step += " " + d.Placement.Cluster; len(c.steps) == 0 || c.steps[len(c.steps)-1] != step {
			c.steps = append(c.steps, step)
		}
	}
	return c
}

// restart starts another Sluice, which knows only what is on the hub.
func (c *carrying) restart() {
	keys := c.reconciler.keys
	c.start()
	c.reconciler.keys, c.reconciler.target = keys, fixedTarget{}
	c.sellWorkloads("1")
}

// failOn makes a step fail, for instance "restore us".
func (c *carrying) failOn(fails string, err error) {
	c.driver.failOn = func(d delivery.Delivery) error {
		step := "run "
		if d.Data != nil {
			step = strings.ToLower(string(d.Data.Step)) + " "
		}
		if step+d.Placement.Cluster == fails {
			return err
		}
		return nil
	}
}

func (c *carrying) wantSteps(want ...string) {
	c.Helper()
	if !slices.Equal(c.steps, want) {
		c.Errorf("the steps are %q, want %q", c.steps, want)
	}
	c.steps = nil
}

func (c *carrying) message(instance *v1alpha1.ServiceInstance, condition string) string {
	c.Helper()
	found := meta.FindStatusCondition(instance.Status.Conditions, condition)
	if found == nil {
		c.Fatalf("there is no condition %s", condition)
	}
	return fmt.Sprintf("%s: %s", found.Status, found.Message)
}

func TestADrainMovesDataFirst(t *testing.T) {
	c := newCarryingWorld(t)
	c.drain("eu")
	kept := c.settle("si-kept")
	c.wantOn(kept, "us")
	c.wantSteps("backup eu", "restore us", "run us")
	if b := kept.Status.LastBackup(); b == nil || b.At == nil || b.Cluster != "eu" || b.Target != "https://target.example" || b.FailedAt != nil || !slices.Equal(c.backups, []string{b.ID}) {
		t.Errorf("the status has the backup %+v; the steps had %v", b, c.backups)
	}
	if kept.Status.Decision.Data != nil || kept.Status.IsUndelivered() {
		t.Errorf("something is left to do: %+v", kept.Status.Decision.Data)
	}
	if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on us" {
		t.Errorf("it says %s", got)
	}
}

// Each step is on the hub before it begins: a leader that comes later goes on with it.
func TestDataMovesOnAfterARestart(t *testing.T) {
	c := newCarryingWorld(t)
	c.drain("eu")
	for _, step := range []struct {
		blocked, again string
		did            []string
	}{{"deliver eu", "backup eu", []string{"backup eu"}}, {"deliver us", "restore us", []string{"backup eu", "restore us"}}} {
		c.driver.fail(step.blocked, &delivery.PendingError{Step: "copy"})
		_, err := c.pass("si-kept")
		c.must(err)
		c.wantOn(c.instance("si-kept"), "eu")
		c.wantSteps(step.did...)
		c.restart()
		_, err = c.pass("si-kept")
		c.must(err)
		c.wantSteps(step.again)
		c.driver.fail(step.blocked, nil)
	}
	c.wantOn(c.settle("si-kept"), "us")
	c.wantSteps("restore us", "run us")
	if len(c.backups) != 1 {
		t.Errorf("it was backed up %d times", len(c.backups))
	}
}

// What fails leaves the instance where it was, and says why. Each try stops it, so that the next comes later.
func TestDataThatCannotMoveStays(t *testing.T) {
	for _, row := range []struct {
		fails string
		steps []string
	}{
		{"backup eu", []string{"backup eu", "run eu"}},
		{"restore us", []string{"backup eu", "restore us", "run eu"}},
		{"run us", []string{"backup eu", "restore us", "run us", "run eu"}},
	} {
		t.Run(row.fails, func(t *testing.T) {
			c := newCarryingWorld(t)
			c.failOn(row.fails, &delivery.RefusedError{Reason: "exit code 1"})
			c.drain("eu")
			kept := c.settle("si-kept")
			c.wantOn(kept, "eu")
			c.wantSteps(row.steps...)
			if c.driver.cores("us", "si-kept") != 0 {
				t.Error("something is left on us")
			}
			if b := kept.Status.LastBackup(); b == nil || b.FailedAt == nil || b.Failure != "exit code 1" || (b.At == nil) != (row.fails == "backup eu") {
				t.Errorf("the status has the backup %+v", b)
			}
			if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" {
				t.Errorf("it says %s", got)
			}
			if got := c.message(kept, v1alpha1.ConditionPlaced); !strings.HasPrefix(got, "False: ") || !strings.Contains(got, "exit code 1") {
				t.Errorf("it says %s", got)
			}
			c.after(dataPatience - time.Minute)
			c.settle("si-kept")
			c.wantSteps()
			c.driver.failOn = nil
			c.after(time.Minute)
			c.wantOn(c.settle("si-kept"), "us")
			c.wantSteps("backup eu", "restore us", "run us")
		})
	}
}

// A workload whose pods do not become ready where it comes to runs again where it was. Its deadline begins when its data is
// there, however long that took.
func TestAWorkloadThatDoesNotStartRunsWhereItWas(t *testing.T) {
	c := newCarryingWorld(t)
	deadline := workload.StartsWithin(c.instance("si-kept").Status.Decision.Workload)
	c.failOn("restore us", &delivery.PendingError{Step: "copy"})
	c.drain("eu")
	c.passes("si-kept")
	c.after(10 * deadline)
	c.passes("si-kept")
	c.failOn("run us", &delivery.PendingError{Step: "run", Detail: "db: 0 of 1 pods ready: CrashLoopBackOff"})
	c.passes("si-kept")
	c.wantSteps("backup eu", "restore us", "run us")
	c.after(deadline - time.Second)
	c.passes("si-kept")
	c.wantSteps("run us")
	c.after(time.Second)
	kept := c.passes("si-kept")
	c.wantOn(kept, "eu")
	c.wantSteps("run us", "run eu")
	if got := c.message(kept, v1alpha1.ConditionPlaced); kept.Status.IsMoving() || !strings.Contains(got, "not started in time") || !strings.Contains(got, "CrashLoopBackOff") {
		t.Errorf("it says %s", got)
	}
	if got := c.message(kept, v1alpha1.ConditionReady); got != "True: on eu" || len(c.reconciler.moves.inFlight) > 0 {
		t.Errorf("it says %s, and %v move", got, c.reconciler.moves.inFlight)
	}
	c.cluster("asia", 4)
	c.after(dataPatience)
	c.wantOn(c.settle("si-kept"), "asia")
}

func TestDataStaysWithoutATarget(t *testing.T) {
	c := newCarryingWorld(t)
	c.reconciler.target = nil
	c.drain("eu")
	kept := c.settle("si-kept")
	c.wantOn(kept, "eu")
	c.wantSteps()
	if got := c.message(kept, v1alpha1.ConditionPlaced); !strings.HasSuffix(got, "`sluice serve` has no --backup-target") {
		t.Errorf("it says %s", got)
	}
}

// Nothing of a cluster that is lost can be backed up.
func TestDataOfALostClusterWaits(t *testing.T) {
	c := newCarryingWorld(t)
	c.lose("eu")
	c.after(v1alpha1.UnreachableSeconds * time.Second)
	c.wantOn(c.settle("si-kept"), "eu")
	c.wantSteps()
}

// A cluster that is lost while it gets the data is replaced by another, which gets the same backup.
func TestDataGoesElsewhere(t *testing.T) {
	c := newCarryingWorld(t)
	c.drain("eu")
	c.driver.fail("deliver us", &delivery.PendingError{Step: "copy"})
	_, err := c.pass("si-kept")
	c.must(err)
	c.cluster("asia", 8)
	c.lose("us")
	c.after(v1alpha1.UnreachableSeconds * time.Second)
	c.wantOn(c.settle("si-kept"), "asia")
	c.wantSteps("backup eu", "restore us", "restore asia", "run asia")
	if len(c.backups) != 1 {
		t.Errorf("it was backed up %d times", len(c.backups))
	}
}

// An update comes first: the instance is changed where its data is, and moves afterwards.
func TestAnUpdateEndsAMoveWithData(t *testing.T) {
	c := newCarryingWorld(t)
	c.drain("eu")
	c.driver.fail("deliver us", &delivery.PendingError{Step: "copy"})
	_, err := c.pass("si-kept")
	c.must(err)
	c.wantSteps("backup eu", "restore us")
	c.update("si-kept", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"size": 2}`) })
	c.driver.fail("deliver us", errors.New("nothing may run there before its data does"))
	for range 3 {
		_, _ = c.pass("si-kept")
	}
	if slices.Contains(c.steps, "run us") {
		t.Errorf("it runs without its data: %q", c.steps)
	}
	c.wantOn(c.instance("si-kept"), "eu")
}

// Whose plan is a provider's has no backups: its hooks would get the credentials of the place for those of all consumers.
func TestDataOfAProvidersPlanStays(t *testing.T) {
	c := newCarryingWorld(t)
	sold := c.reconciler.plan
	c.reconciler.plan = func(serviceID, planID string) (*catalog.Plan, error) {
		plan, err := sold(serviceID, planID)
		if err != nil {
			return nil, err
		}
		theirs := *plan
		theirs.Offering = &catalog.Offering{ServiceOfferingSpec: &v1alpha1.ServiceOfferingSpec{Provider: "acme"}}
		return &theirs, nil
	}
	c.drain("eu")
	kept := c.settle("si-kept")
	c.wantOn(kept, "eu")
	c.wantSteps()
	if got := c.message(kept, v1alpha1.ConditionPlaced); !strings.HasSuffix(got, "its plan is a provider's, which gets no credentials of the place for backups") {
		t.Errorf("it says %s", got)
	}
}
