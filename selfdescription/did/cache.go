package did

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// Bounds of a cache. Its keys and its failures count as bytes, too.
const (
	maxEntries = 16384
	maxBytes   = 64 << 20
	entryBytes = 512 // of an entry without key and value
)

// The fetches for one party may take atOnce, and after that share of the time.
const (
	atOnce = 2 * guarded.Timeout
	share  = 0.25
)

// Sized is a value that a cache can keep.
type Sized interface {
	// Size returns the bytes that the value takes in memory; 0 means that it is not to be kept.
	Size() int
}

// Cache keeps what was fetched from hosts that are not trusted. There is one fetch a key at a time, shared by its callers. A
// failure is remembered for half a minute. If the host cannot be reached, the last value is used until it is too old. A party
// whose hosts take too long waits, so that others do not. The zero value is an empty cache.
type Cache[T Sized] struct {
	loading singleflight.Group
	mu      sync.Mutex
	entries map[string]entry[T]
	bytes   int
	uses    int64
	// spent is the time that fetches have taken, in milliseconds, by party.
	spent map[string]*rate.Limiter
}

// entry is the last value of a key, if any, and the last failure since.
type entry[T Sized] struct {
	value    T
	loadedAt time.Time // zero: there is no value
	err      error
	failedAt time.Time
	bytes    int
	// use is the number of the last use of it.
	use int64
}

// Wanted describes a value of a cache.
type Wanted struct {
	Key string
	// Party that made others fetch the value, and can make them fetch any number of values.
	Party string
	// Fresh is how old the value may be; older, it is loaded again. As old as Most, it is not used even if that fails.
	Fresh, Most time.Duration
}

func (e *entry[T]) at(now time.Time, old time.Duration) bool {
	return !e.loadedAt.IsZero() && now.Sub(e.loadedAt) < old
}

// Get returns a value, and loads it if there is none of the wanted age. It returns when its own context ends; that does not stop a
// load that others share. The error is the one of load, or an *UnreachableError.
func (c *Cache[T]) Get(ctx context.Context, want Wanted, now time.Time, load func(context.Context) (T, error)) (T, error) {
	e, ok, waits := c.use(want)
	switch {
	case ok && e.at(now, want.Fresh):
		return e.value, nil
	case ok && e.err != nil && now.Sub(e.failedAt) < retryAfter:
	case waits:
		e.err = &UnreachableError{ID: clip(want.Key), Err: fmt.Errorf("what is fetched for %s has taken too long lately, and it has to wait", clip(want.Party))}
	default:
		loaded := c.loading.DoChan(want.Key, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*guarded.Timeout)
			defer cancel()
			began := time.Now()
			value, err := load(ctx)
			bytes := 0
			if err == nil {
				bytes = value.Size() // which may take a while
			}
			c.spend(want.Party, time.Since(began))
			return c.put(want.Key, now, value, bytes, err), nil
		})
		select {
		case <-ctx.Done():
			var none T
			return none, &UnreachableError{ID: clip(want.Key), Err: ctx.Err()}
		case result := <-loaded:
			e = result.Val.(entry[T])
		}
	}
	if e.err != nil && !e.at(now, want.Most) {
		var none T
		return none, e.err
	}
	return e.value, nil
}

// use returns the entry of a value, if there is one, and whether its party waits.
func (c *Cache[T]) use(want Wanted) (e entry[T], ok, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok = c.entries[want.Key]; ok {
		c.uses++
		e.use = c.uses
		c.entries[want.Key] = e
	}
	limit, has := c.spent[want.Party]
	return e, ok, has && limit.Tokens() <= 0
}

// put stores an outcome, and how many bytes a value takes. The old value stays only if the host could not be reached: any other
// answer comes from its owner.
func (c *Cache[T]) put(key string, now time.Time, value T, bytes int, err error) entry[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e entry[T]
	var unreachable *UnreachableError
	switch {
	case err == nil:
		e = entry[T]{value: value, loadedAt: now, bytes: bytes}
	case errors.As(err, &unreachable):
		e = c.entries[key]
		e.err, e.failedAt = err, now
	default:
		e = entry[T]{err: err, failedAt: now}
	}
	c.drop(key)
	if err == nil && e.bytes == 0 {
		return e
	}
	size := e.size(key)
	for len(c.entries) > 0 && (len(c.entries) >= maxEntries || c.bytes+size > maxBytes) {
		c.evict()
	}
	if c.entries == nil {
		c.entries = map[string]entry[T]{}
	}
	c.uses++
	e.use = c.uses
	c.entries[key], c.bytes = e, c.bytes+size
	return e
}

func (e *entry[T]) size(key string) int { return entryBytes + len(key) + e.bytes }

func (c *Cache[T]) drop(key string) {
	if e, ok := c.entries[key]; ok {
		delete(c.entries, key)
		c.bytes -= e.size(key)
	}
}

// evict drops a failure, or else the value that was not used for the longest time.
func (c *Cache[T]) evict() {
	victim, least := "", int64(math.MaxInt64)
	for key, e := range c.entries {
		use := e.use
		if e.loadedAt.IsZero() {
			use -= c.uses + 1 // before all values
		}
		if use < least {
			victim, least = key, use
		}
	}
	c.drop(victim)
}

// spend counts the time of a fetch. It forgets the parties that have not fetched for a while.
func (c *Cache[T]) spend(party string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := int(atOnce.Milliseconds())
	limit, ok := c.spent[party]
	if !ok {
		maps.DeleteFunc(c.spent, func(_ string, other *rate.Limiter) bool { return other.Tokens() >= float64(most) })
		if c.spent == nil {
			c.spent = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(share*1000, most)
		c.spent[party] = limit
	}
	limit.ReserveN(time.Now(), min(int(took.Milliseconds()), most)) // below zero, too
}
