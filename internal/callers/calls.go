package callers

import (
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

// mostCallers is how many addresses are remembered: the last that called. One that is forgotten
// is allowed one more burst.
const mostCallers = 10_000

// Calls counts how often each address calls.
type Calls struct {
	perSecond rate.Limit
	burst     int
	clock     clock.PassiveClock

	mu     sync.Mutex
	limits *simplelru.LRU[netip.Addr, *rate.Limiter]
}

// NewCalls returns a counter that allows each address perSecond calls a second, and burst at
// once.
func NewCalls(perSecond float64, burst int, c clock.PassiveClock) *Calls {
	limits, _ := simplelru.NewLRU[netip.Addr, *rate.Limiter](mostCallers, nil) // an error is about the size
	return &Calls{perSecond: rate.Limit(perSecond), burst: burst, clock: c, limits: limits}
}

// Seconds returns a wait in whole seconds, rounded up.
func Seconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// RetryAfter sets the header Retry-After (RFC 9110, section 10.2.3): whole seconds, rounded up. A wait of zero sets none.
func RetryAfter(h http.Header, wait time.Duration) {
	if wait > 0 {
		h.Set("Retry-After", strconv.Itoa(Seconds(wait)))
	}
}

// Count counts a call. It returns 0 if the call is allowed, and otherwise how long to wait
// before the next.
func (c *Calls) Count(from netip.Addr) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, ok := c.limits.Get(from)
	if !ok {
		limit = rate.NewLimiter(c.perSecond, c.burst)
		c.limits.Add(from, limit)
	}
	now := c.clock.Now()
	r := limit.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait
	}
	return 0
}

// Wait returns what Count would return, without counting a call.
func (c *Calls) Wait(from netip.Addr) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, ok := c.limits.Peek(from)
	if !ok {
		return 0
	}
	missing := 1 - limit.TokensAt(c.clock.Now())
	return time.Duration(max(missing, 0) / float64(c.perSecond) * float64(time.Second))
}

// Address returns the address that a request comes from, or the zero address if that is not
// known.
func Address(r *http.Request) netip.Addr { return addressOf(r.RemoteAddr) }

func addressOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	from := at.Addr().Unmap()
	if from.Is6() {
		prefix, _ := from.Prefix(64)
		from = prefix.Addr()
	}
	return from
}
