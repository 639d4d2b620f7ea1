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

// Places bound how much is done on each member cluster at a time, so that one that hangs
// holds a share of a controller's workers and never all of them. Who finds no place gives
// its worker back, and is woken when there is one.
//
// A cluster on which something has timed out takes half as much at a time, at last one, and
// pauses longer and longer in between; with everything that is done there in time it takes
// one more again. It is safe for concurrent use.
type Places struct {
	// Most is done on a cluster at a time.
	Most int
	// Wake tells somebody that there may be a place. It must not block, nor call Enter.
	Wake func(name string)

	mu       sync.Mutex
	clusters map[string]*crowd
}

// crowd is who is at one cluster.
type crowd struct {
	inside, limit int
	waiting       []string
	// pause until which nobody is let in, after the last one timed out; zero means none.
	pause time.Duration
	until time.Time
}

// Pauses of a cluster on which nothing is done in time.
const (
	shortestPause = time.Second
	longestPause  = 30 * time.Second
)

// turn is how long a place is left to who was woken for it.
const turn = time.Second

// BusyError says that there is no place on a cluster now. Who gets it is woken.
type BusyError struct {
	Cluster string
	Inside  int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("waiting for a turn on member cluster %s: %d operations are in hand there", e.Cluster, e.Inside)
}

// Enter takes a place on a cluster for somebody, who must leave it by calling leave with how
// it went; *BusyError where there is none. A nil Places always has one.
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

// leave gives a place back.
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

// next wakes as many as there are places. Who is woken may have nothing to do there any
// more, and the place is then another's: that is looked at a moment later.
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

// isTimeout reports whether a cluster did not do something in time.
func isTimeout(err error) bool {
	var silent net.Error
	return errors.As(err, &silent) && silent.Timeout() || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
