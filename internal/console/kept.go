package console

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// kept is a value that costs something to make, and is shown for a while to everybody who may see it. It is kept for
// ten times as long as it took, so that making it never takes more than a tenth of a core, and at least leastKept. That
// is less than livePause, so whoever looks because of a change sees it.
type kept[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

const leastKept = 300 * time.Millisecond

// mostKept bounds it. It is less than liveSettled.
const mostKept = 5 * time.Second

// get returns the value, and makes it if it is too old. Several callers wait for one.
func (k *kept[T]) get(ctx context.Context, c clock.PassiveClock, make func(context.Context) (T, error)) (T, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	began := c.Now()
	if began.Before(k.until) {
		return k.value, nil
	}
	made, err := make(ctx)
	if err != nil {
		return made, err
	}
	k.value = made
	k.until = c.Now().Add(min(max(leastKept, 10*c.Since(began)), mostKept))
	return made, nil
}
