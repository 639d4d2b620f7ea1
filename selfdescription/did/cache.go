package did

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// cache keeps fetched values. There is one fetch a key at a time, shared by its callers. A
// failure is remembered for retryAfter. If the host cannot be reached, the last value is used
// until it is too old.
type cache[T any] struct {
	loading singleflight.Group
	mu      sync.Mutex
	entries map[string]entry[T]
}

// entry is the last value of a key, if any, and the last failure since.
type entry[T any] struct {
	value    T
	loadedAt time.Time // zero: there is no value
	err      error
	failedAt time.Time
}

// maxEntries limits a cache; a provider needs one entry, and another for its chain.
const maxEntries = 16384

// age is how old a value may be. Older than fresh, it is loaded again. As old as most, it is
// not used even if that fails.
type age struct{ fresh, most time.Duration }

func (e entry[T]) at(now time.Time, old time.Duration) bool {
	return !e.loadedAt.IsZero() && now.Sub(e.loadedAt) < old
}

// get returns the value of a key, and loads it if there is none of the wanted age. It returns
// when its own context ends; that does not stop a load that others share.
func (c *cache[T]) get(ctx context.Context, key string, now time.Time, want age, load func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	e, ok := c.entries[key]
	c.mu.Unlock()
	if ok && e.at(now, want.fresh) {
		return e.value, nil
	}
	if !ok || e.err == nil || now.Sub(e.failedAt) >= retryAfter {
		loaded := c.loading.DoChan(key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*guarded.Timeout)
			defer cancel()
			value, err := load(ctx)
			return c.put(key, now, value, err), nil
		})
		select {
		case <-ctx.Done():
			var none T
			return none, &UnreachableError{ID: clip(key), Err: ctx.Err()}
		case result := <-loaded:
			e = result.Val.(entry[T])
		}
	}
	if e.err != nil && !e.at(now, want.most) {
		var none T
		return none, e.err
	}
	return e.value, nil
}

// put stores an outcome. The old value stays only if the host could not be reached: any other
// answer comes from its owner.
func (c *cache[T]) put(key string, now time.Time, value T, err error) entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e entry[T]
	var unreachable *UnreachableError
	switch {
	case err == nil:
		e = entry[T]{value: value, loadedAt: now}
	case errors.As(err, &unreachable):
		e = c.entries[key]
		e.err, e.failedAt = err, now
	default:
		e = entry[T]{err: err, failedAt: now}
	}
	if c.entries == nil {
		c.entries = map[string]entry[T]{}
	}
	if _, ok := c.entries[key]; !ok && len(c.entries) >= maxEntries {
		c.evict()
	}
	c.entries[key] = e
	return e
}

// evict drops a failure, or else the oldest value.
func (c *cache[T]) evict() {
	var victim string
	var oldest time.Time
	first := true
	for key, e := range c.entries {
		if first || e.loadedAt.Before(oldest) {
			victim, oldest, first = key, e.loadedAt, false
		}
	}
	delete(c.entries, victim)
}
