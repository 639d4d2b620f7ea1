//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// whenGone are the points that a deprovision reaches only after a while. Before one
// of them is armed, stories that are in the background must have ended, or one of
// them would be killed there instead.
var whenGone = []string{
	"remove.before-finalizer", "remove.after-finalizer", "status.before-progress", "status.after-progress",
}

// maxFailedRows is how many rows may fail before the others are not tried any more.
const maxFailedRows = 5

func TestKillAtEveryCrashPoint(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	b := newBed(ctx, t, stop)
	audit := b.startAudit(ctx)
	failed := 0
	for i, r := range rows {
		t.Run(r.point+" during "+r.during, func(t *testing.T) {
			began := time.Now()
			if err := b.kill(ctx, fmt.Sprintf("instance-%02d", i), r.point, r.during); err != nil {
				t.Errorf("killed at %s during %q: %v", r.point, r.during, err)
				failed++
			}
			t.Logf("%d of %d, %s", i+1, len(rows), time.Since(began).Round(10*time.Millisecond))
		})
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		if failed > maxFailedRows {
			t.Fatalf("gave up after %d rows had failed", failed)
		}
	}
	t.Run("every story came to its end", func(t *testing.T) {
		b.tails.Wait()
		for _, err := range b.reported() {
			t.Error(err)
		}
	})
	t.Run("nothing is left behind", func(t *testing.T) {
		if err := b.empty(ctx); err != nil {
			t.Error(err)
		}
	})
	looks := audit()
	t.Logf("killed %d times; the auditor looked %d times", b.lives-1, looks)
}

// kill plays the story that has a step, with the crash point armed for that step.
// It returns when the process has died there and everything that is quick is done;
// the rest goes on in the background.
func (b *bed) kill(ctx context.Context, id, point, during string) error {
	s := b.story(id, during)
	rest, err := b.playUntilKilled(ctx, s.steps, point, during)
	if err != nil {
		b.disarm()
		s.end()
		return err
	}
	b.tails.Go(func() {
		defer s.end()
		if err := rest(); err != nil {
			b.report(fmt.Errorf("killed at %s during %q, later: %w", point, during, err))
		}
	})
	return nil
}

// playUntilKilled plays steps in the foreground, through the kill, until the first
// slow one, and returns how to play the rest.
func (b *bed) playUntilKilled(ctx context.Context, steps []step, point, during string) (rest func() error, err error) {
	killed := false
	for i, s := range steps {
		switch {
		case s.name == during:
			if slices.Contains(whenGone, point) {
				b.tails.Wait()
			}
			ended, err := b.killDuring(ctx, s, point)
			if err != nil {
				return nil, err
			}
			if s.slow {
				return func() error {
					if err := <-ended; err != nil {
						return err
					}
					return play(ctx, steps[i+1:])
				}, nil
			}
			if err := <-ended; err != nil {
				return nil, err
			}
			killed = true
		case s.slow && killed:
			return func() error { return play(ctx, steps[i:]) }, nil
		default:
			if err := s.play(ctx); err != nil {
				return nil, err
			}
		}
	}
	return func() error { return nil }, nil
}

// killDuring begins a step with the crash point armed, and returns when the process
// has died there. The step goes on, and its end is received from ended.
func (b *bed) killDuring(ctx context.Context, s step, point string) (ended chan error, err error) {
	if err := b.arm(point); err != nil {
		return nil, err
	}
	ended = make(chan error, 1)
	go func() { ended <- s.play(ctx) }()
	// What is visible from outside can be done before the point is reached.
	const grace = 20 * time.Second
	select {
	case <-b.died:
		return ended, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case err = <-ended:
		ended <- err
	}
	select {
	case <-b.died:
		return ended, nil
	case <-time.After(grace):
		return nil, errors.Join(fmt.Errorf("nothing reached the crash point within %s of the step's end", grace), err)
	}
}

func play(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := s.play(ctx); err != nil {
			return err
		}
	}
	return nil
}
