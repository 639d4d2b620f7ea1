package did

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// cache keeps what was fetched. Of one key there is one fetch at a time, which its
// callers share; a failure is remembered for retryAfter; what was fetched before
// stays while hosts cannot be reached, until it is too old.
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

// maxEntries bounds a cache; a provider needs one, and another for its chain.
const maxEntries = 16384

// age says how old a value may be: past fresh it is loaded again, and once it is as
// old as most it does not count even if that fails.
type age struct{ fresh, most time.Duration }

func (e entry[T]) at(now time.Time, old time.Duration) bool {
	return !e.loadedAt.IsZero() && now.Sub(e.loadedAt) < old
}

// get returns the value of a key, loading it if there is none of the age wanted. It
// leaves when its own context ends, which does not end a loading that others share.
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

// put remembers an outcome. Only a host that cannot be reached leaves the old value
// standing: any other answer is its owner's word.
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

// evict drops the entry that is missed least: a failure, or the oldest value.
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
