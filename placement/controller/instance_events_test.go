package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// TestTransitionsAreLogged: each transition of an instance is one line, with who, what, where and how long.
func TestTransitionsAreLogged(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 5, 0, time.UTC)
	r := &instanceReconciler{
		clock: clocktesting.NewFakePassiveClock(now),
	}
	onEU := v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{{Cluster: "eu"}}}
	onUS := v1alpha1.Decision{Generation: 1, Placements: []v1alpha1.Placement{{Cluster: "us"}}, Leaving: []v1alpha1.Departure{{Cluster: "eu", Reason: "it is drained", At: metav1.NewTime(now.Add(-time.Second))}}}
	for _, row := range []struct {
		name   string
		write  writeKind
		change func(*scope)
		want   []string // in the line; none if nothing is logged
	}{
		{"placed", writePlaced, func(s *scope) { s.recordDecision(&onEU) }, []string{`"Placed"`, `"clusters"="eu"`, `"after"="5s"`}},
		{"placed, near a quota", writePlaced, func(s *scope) { s.recordDecision(&onEU); s.warnings = []string{"policy small"} }, []string{`"NearQuota"`, `"why"="policy small"`}},
		{"delivered", writeDelivered, func(s *scope) { s.recordDecision(&onEU); s.recordDelivered() }, []string{`"Delivered"`, `"clusters"="eu"`, `"after"="5s"`}},
		{"moved", writeDelivered, func(s *scope) {
			s.recordDecision(&onEU)
			s.recordDelivered()
			s.recordDecision(onUS.DeepCopy())
			s.recordDelivered()
		}, []string{`"Moved"`, `"clusters"="us"`, `"why"="from eu: it is drained"`, `"after"="1s"`}},
		{"failed", writeFailure, func(s *scope) { s.failing = "nothing fits"; s.recordFailure(s.failing) }, []string{`"Failed"`, `"why"="nothing fits"`}},
		{"progress", writeProgress, func(s *scope) { s.describe("waiting") }, nil},
		{"removed too late", writeLate, func(s *scope) { s.describe("eu does not answer"); s.finish(v1alpha1.StateFailed) }, []string{`"Failed"`, `"operation"="provision"`, `"why"="eu does not answer"`, `"after"="5s"`}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &scope{now: now, ServiceInstance: &v1alpha1.ServiceInstance{
				ObjectMeta: metav1.ObjectMeta{Generation: 1},
				Spec:       v1alpha1.ServiceInstanceSpec{Platform: "cf", InstanceID: "first", Desired: v1alpha1.InstanceState{PlanID: "plan-1"}},
			}}
			s.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, Generation: 1, State: v1alpha1.StateInProgress, StartedAt: metav1.NewTime(now.Add(-5 * time.Second))}
			s.asRead()
			row.change(s)
			r.recorder = journal.NewRecorder((&catalog.Catalog{}).Names) // the plan is not in the catalog any more
			var lines []string
			logger := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			r.recordTransition(s, row.write, now)
			r.recorder.Written(log.IntoContext(context.Background(), logger), s, nil)
			if row.want == nil {
				if len(lines) > 0 {
					t.Errorf("logged %q", lines)
				}
				return
			}
			if len(lines) != 1+len(s.warnings) {
				t.Fatalf("logged %q", lines)
			}
			for _, want := range append(row.want, `"instance"="first"`, `"platform"="cf"`, `"plan"="plan-1"`) {
				if last := lines[len(lines)-1]; !strings.Contains(last, want) {
					t.Errorf("no %s in %s", want, last)
				}
			}
		})
	}
}

// A delivery that takes its time counts from its end on: its event, the usage and the contract that it begins say the same
// second, so that whoever adds up events gets what is billed.
func TestADeliveryAndItsUsageHaveOneTime(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.onDeliver = func(delivery.Delivery) { w.clock.SetTime(w.clock.Now().Add(1500 * time.Millisecond)) }
	w.provision("si-a", "plan-2", "")
	i := w.passes("si-a")
	at := time.Time{}
	for n, e := range i.Status.Events {
		if e.Type == v1alpha1.EventDelivered {
			at = e.At.Time
		}
		if n > 0 && e.At.Before(&i.Status.Events[n-1].At) {
			t.Errorf("event %d is before the one that it follows: %+v", e.Sequence, i.Status.Events)
		}
	}
	if !at.Equal(w.clock.Now().Truncate(time.Microsecond)) {
		t.Errorf("it is delivered at %s, by its event at %s", w.clock.Now(), at)
	}
	if from := i.Status.Usage[0].From; !from.Time.Equal(at.Truncate(time.Second)) || !i.Status.Contracts[0].From.Equal(&from) {
		t.Errorf("delivered at %s, it is used from %s on, and agreed from %s on", at, from, i.Status.Contracts[0].From)
	}
}

// A leader decides once more what the one before it had begun. What comes out is told only if it is another decision.
func TestALeaderThatDecidesTheSameTellsItOnce(t *testing.T) {
	w := newWorld(t)
	w.cluster("eu", 4)
	w.driver.fail("deliver eu", &delivery.PendingError{Step: "create namespace", Detail: "the one before it is being deleted"})
	w.provision("si-a", "plan-2", "")
	w.restarted = func(r *instanceReconciler) { r.leadership = leader("second") }
	_, err := w.pass("si-a")
	w.must(err)
	w.start()
	_, err = w.pass("si-a")
	w.must(err)
	i := w.instance("si-a")
	if i.Status.Decision.Term != "second" {
		t.Errorf("the decision is of the term %q", i.Status.Decision.Term)
	}
	placed := 0
	for _, e := range i.Status.Events {
		if e.Type == v1alpha1.EventPlaced {
			placed++
		}
	}
	if placed != 1 {
		t.Errorf("%d events say where it was placed, want one: %+v", placed, i.Status.Events)
	}
}

// leader leads in one term.
type leader string

func (l leader) Term() string                { return string(l) }
func (leader) Confirm(context.Context) error { return nil }
