package server

import (
	"math"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
)

const (
	// perSecond and burst are what one address may ask for; a provider's whole set is
	// one request.
	perSecond = 5
	burst     = 20
	// mostCallers are remembered; when they are more, all are forgotten, which lets each
	// of them have one burst again.
	mostCallers = 10_000
)

// callers counts how often each address called.
type callers struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	limits map[netip.Addr]*rate.Limiter
}

func newCallers(c clock.PassiveClock) *callers {
	return &callers{clock: c, limits: map[netip.Addr]*rate.Limiter{}}
}

// wait counts a call, and returns 0, or how long to wait before the next if it was
// one too many.
func (c *callers) wait(from netip.Addr) time.Duration {
	from = from.Unmap()
	if from.Is6() {
		prefix, _ := from.Prefix(64) // an IPv6 customer has that many addresses
		from = prefix.Addr()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	limit, ok := c.limits[from]
	if !ok {
		if len(c.limits) >= mostCallers {
			clear(c.limits)
		}
		limit = rate.NewLimiter(perSecond, burst)
		c.limits[from] = limit
	}
	now := c.clock.Now()
	r := limit.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait
	}
	return 0
}

// seconds of a Retry-After header, rounded up.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
