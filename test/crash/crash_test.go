//go:build faults

package crash

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// story lists the steps of a platform and an operator, one after the other.
type story struct {
	name  string
	steps func(*bed) []step
}

// stories together take every path of a platform's requests and an operator's commands.
var stories = []story{
	{"an instance that is refused", func(b *bed) []step {
		i := b.instance("refused")
		return []step{
			{"provision where somebody else has its namespace", i.provisionRefused, killed},
			{"provision again", i.provision, killed},
			{"deprovision", i.deprovision, spared},
		}
	}},
	{"an instance on fewer clusters", func(b *bed) []step {
		i := b.instance("fewer")
		return []step{
			{"provision on two clusters", i.provisionOnTwo, spared},
			{"update to one cluster", i.shrink, killed},
			{"deprovision", i.deprovision, spared},
		}
	}},
	{"an instance", func(b *bed) []step {
		i := b.instance("instance")
		return []step{
			{"provision", i.provision, killed},
			{"bind", i.bind, killed},
			{"update to a larger plan and two clusters", i.update, killed},
			{"update the context", i.touch, killed},
			{"update to what fits nowhere", i.overreach, killed},
			{"rotate", i.rotate, killed},
			{"unbind", i.unbind, killed},
			{"use the token after unbind", i.first.refused, spared},
			{"deprovision with a binding left", i.deprovision, killed},
			{"use the token after deprovision", i.second.refused, spared},
		}
	}},
	{"a crowd of one more than fits", func(b *bed) []step {
		c := newCrowd(b)
		return []step{
			{"provision as many as fit", c.provisionTwo, spared},
			{"provision one more, which waits", c.provision, killed},
			{"deprovision one, and another takes its place", c.release, killed},
			{"deprovision the others", c.deprovision, spared},
		}
	}},
	{"an instance that moves", func(b *bed) []step {
		i := b.instance("mover")
		return []step{
			{"provision", i.provision, spared},
			{"bind", i.bind, spared},
			{"move as its operator asks", i.move, killed},
			{"deprovision", i.deprovision, spared},
		}
	}},
	{"an instance that runs a workload", func(b *bed) []step {
		a := b.application()
		return []step{
			{"sell version 1", a.sell("1.0.0"), spared},
			{"provision", a.provision, killed},
			{"bind, with a hook that returns a result", a.bind, killed},
			{"unbind, with a hook", a.unbind, killed},
			// The hook's Secrets go with its Job if Sluice, killed after it has deleted the Job, does not delete them before.
			{"bind again", a.bind, killedNew},
			{"update a parameter", a.scale, spared},
			{"sell version 2", a.sell("2.0.0"), spared},
			{"upgrade to version 2, which drops a component", a.upgrade, spared},
			{"sell version 3", a.sell("3.0.0"), spared},
			{"upgrade to version 3, which does not start", a.upgradeInVain, killed},
			{"deprovision with a binding left", a.deprovision, spared},
		}
	}},
	{"a cluster", func(b *bed) []step {
		return []step{{"register", b.register, killed}, {"unregister", b.unregister, killed}}
	}},
	{"an offering", func(b *bed) []step {
		return []step{{"publish", b.publish, killed}, {"withdraw", b.withdraw, killed}}
	}},
}

// TestKillAtEveryWrite plays each story while Sluice is killed after each of its
// writes: on three beds beside each other, because much of a kill is waiting, one of which has an embedded hub. In
// all it must have been killed at every write that a cluster has of it.
func TestKillAtEveryWrite(t *testing.T) {
	t.Parallel()
	var all record
	var every passed
	t.Run("stories", func(t *testing.T) {
		for _, part := range []struct {
			name    string
			hub     string
			more    []string // clusters
			stories []story
		}{
			{"embedded hub", embedded, nil, stories[:2]},
			{"a cluster as the hub", "eu-1", nil, stories[2:4]},
			{"another one", "eu-1", []string{spare}, stories[4:]},
		} {
			t.Run(part.name, func(t *testing.T) {
				t.Parallel()
				ctx, stop := context.WithCancelCause(t.Context())
				defer stop(nil)
				b := newBed(ctx, t, stop, part.hub, part.more...)
				b.passed = &every
				b.tell(ctx, t, part.stories)
				all.add(t, b)
			})
		}
	})
	all.wantEveryWriteKilled(t)
}

// tell plays stories, and checks what must hold meanwhile and afterwards.
func (b *bed) tell(ctx context.Context, t *testing.T, stories []story) {
	t.Helper()
	audit := b.startAudit(ctx)
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			for _, s := range story.steps(b) {
				began, before := time.Now(), len(b.deaths)
				if err := b.play(ctx, s); err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				t.Logf("%-50s killed %2d times, %4.1f s", s.name, len(b.deaths)-before, time.Since(began).Seconds())
			}
		})
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
	}
	if t.Failed() {
		return // what a story that broke off has made is still there
	}
	t.Run("nothing is left behind", func(t *testing.T) {
		if err := b.empty(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Run("everything is told, metered and agreed", func(t *testing.T) { b.reckon(ctx, t) })
	looks := audit()
	for _, err := range b.reported() {
		t.Error(err)
	}
	t.Logf("the auditor looked %d times", looks)
}

// reckon compares what subscribers, a meter and the parties of contracts have of the stories.
func (b *bed) reckon(ctx context.Context, t *testing.T) {
	began := time.Now()
	if err := b.everythingIsTold(ctx, t); err != nil {
		t.Fatal(err)
	}
	events, _ := b.told[len(b.told)-1].received()
	had, err := b.meter.periods(events)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.usageIsWhatTheyHad(ctx, had); err != nil {
		t.Error(err)
	}
	if err := b.contractsOutlive(ctx, t, had); err != nil {
		t.Error(err)
	}
	t.Logf("instances had something in %d periods; all was compared in %.1f s", len(had), time.Since(began).Seconds())
}

// play plays a step.
func (b *bed) play(ctx context.Context, s step) error {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	do := func() error { return s.do(ctx) }
	switch s.during {
	case killed:
		return b.killed(nil, do)
	case killedNew:
		return b.killed(b.deaths, do)
	}
	return do()
}

// instance returns one that its platform has not ordered yet.
func (b *bed) instance(id string) *instance {
	return &instance{bed: b, id: id, name: v1alpha1.InstanceName(platformName, id)}
}
