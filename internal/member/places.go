package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Places limits how much is done on each member cluster at a time, so that one hanging cluster
// never occupies all workers of a controller. A caller that gets no place returns its worker,
// and is woken when a place is free.
//
// After a timeout on a cluster its limit is halved, to no less than one, and each further
// timeout makes a longer pause. When all work there is done in time, the limit grows by one
// again. It is safe for concurrent use.
type Places struct {
	// Most is the limit of a cluster that answers in time.
	Most int
	// Wake is called with a waiting caller's name when there may be a place. It must not block,
	// nor call Enter.
	Wake func(name string)

	mu       sync.Mutex
	clusters map[string]*crowd
}

// crowd is the callers at one cluster.
type crowd struct {
	inside, limit int
	waiting       []string
	// pause is until when nobody may enter, after a timeout; zero means no pause.
	pause time.Duration
	until time.Time
}

// Pauses after timeouts on a cluster.
const (
	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// turn is how long a place is kept for the caller that was woken for it.
const turn = time.Second

// BusyError means that there is no place on a cluster now. The caller is woken when there is
// one.
type BusyError struct {
	Cluster string
	Inside  int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("waiting for a turn on member cluster %s, on which %d operations are in progress", e.Cluster, e.Inside)
}

// Enter takes a place on a cluster for the caller of that name, who must end it by calling
// leave with the result. It returns *BusyError if there is none. A nil Places always has one.
func (p *Places) Enter(cluster, name string) (leave func(error), err error) {
	if p == nil {
		return func(error) {}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.clusters[cluster]
	if !ok {
		if p.clusters == nil {
			p.clusters = map[string]*crowd{}
		}
		c = &crowd{limit: p.Most}
		p.clusters[cluster] = c
	}
	if c.inside >= c.limit || time.Now().Before(c.until) {
		if !slices.Contains(c.waiting, name) {
			c.waiting = append(c.waiting, name)
		}
		return nil, &BusyError{Cluster: cluster, Inside: c.inside}
	}
	c.waiting = slices.DeleteFunc(c.waiting, func(waits string) bool { return waits == name })
	c.inside++
	return func(err error) { p.leave(cluster, c, err) }, nil
}

// leave releases a place.
func (p *Places) leave(cluster string, c *crowd, err error) {
	p.mu.Lock()
	c.inside--
	switch {
	case !isTimeout(err):
		c.limit, c.pause, c.until = min(c.limit+1, p.Most), 0, time.Time{}
	case c.limit > 1:
		c.limit /= 2
	default:
		c.pause = min(max(2*c.pause, shortestPause), longestPause)
		c.until = time.Now().Add(c.pause)
		time.AfterFunc(c.pause, func() { p.next(c) })
	}
	if c.inside == 0 && len(c.waiting) == 0 && c.limit == p.Most {
		delete(p.clusters, cluster)
	}
	p.mu.Unlock()
	p.next(c)
}

// next wakes as many waiting callers as there are places. A woken caller may have nothing to do
// there any more: a moment later its place goes to the next one.
func (p *Places) next(c *crowd) {
	p.mu.Lock()
	var woken []string
	if free := min(c.limit-c.inside, len(c.waiting)); free > 0 && !time.Now().Before(c.until) {
		woken = slices.Clone(c.waiting[:free])
		if c.waiting = c.waiting[free:]; len(c.waiting) > 0 {
			time.AfterFunc(turn, func() { p.next(c) })
		}
	}
	p.mu.Unlock()
	for _, name := range woken {
		p.Wake(name)
	}
}

// isTimeout reports whether err means that a cluster did not answer in time.
func isTimeout(err error) bool {
	var silent net.Error
	return errors.As(err, &silent) && silent.Timeout() || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
