package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// target measures the probe of one instance.
type target struct {
	*Server
	cluster string
	// ctx ends with the instance, or with the lead of this replica.
	ctx context.Context
	end context.CancelFunc
	// came is closed by the first connection.
	came func()
	here <-chan struct{}

	mu   sync.Mutex
	conn *connection // the newest, which may have ended; nil if there was none
}

func newTarget(s *Server, instance *v1alpha1.ServiceInstance) *target {
	here := make(chan struct{})
	t := &target{Server: s, cluster: instance.MeasuredCluster(), here: here, came: sync.OnceFunc(func() { close(here) })}
	t.ctx, t.end = context.WithCancel(s.leading)
	return t
}

// replace makes a connection the one that is measured, and ends the one before.
func (t *target) replace(with *connection) {
	t.mu.Lock()
	before := t.conn
	t.conn = with
	t.mu.Unlock()
	t.came()
	if before != nil {
		go before.close(websocket.StatusPolicyViolation, "another connection of this probe came")
	}
	if t.ctx.Err() != nil {
		go with.leave()
	}
}

func (t *target) current() *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.conn
}

// errAway means that a probe is not connected.
var errAway = errors.New("the probe is not connected")

// measure pings the probe, and now and then transfers something to it, until t.ctx ends. It begins with the first
// connection, or at the end of the grace.
func (t *target) measure() {
	defer func() {
		if c := t.current(); c != nil {
			c.leave()
		}
	}()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-t.ctx.Done():
		return
	case <-t.here:
	case <-late.C:
	}
	tick := time.NewTicker(t.Every)
	defer tick.Stop()
	var transferred time.Time
	for {
		if t.ping() && time.Since(transferred) >= transferEvery && t.transfer() {
			transferred = time.Now()
		}
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ping times the answer to a few bytes, and reports whether it came.
func (t *target) ping() bool {
	return t.ask(pingBytes, min(t.Every, pingPatience), t.Results.Pinged)
}

// transfer times the answer to many bytes. It returns false if nothing was sent, because others take the way.
func (t *target) transfer() bool {
	select {
	case t.transfers <- struct{}{}:
	default:
		return false
	}
	t.ask(TransferBytes, transferPatience, t.Results.Transferred)
	<-t.transfers
	return true
}

// ask times the answer to a number of bytes, and reports whether it came. A connection that ends meanwhile has not
// answered, also if another one replaces it: otherwise a probe that is slow would only have to come again.
func (t *target) ask(size int, patience time.Duration, result func(string, time.Time, time.Duration, error)) bool {
	c := t.current()
	at := time.Now()
	took, err := time.Duration(0), errAway
	if c != nil {
		took, err = c.ask(t.ctx, size, patience)
	}
	if t.ctx.Err() != nil {
		return false // this replica has ended it
	}
	if err != nil && c != nil {
		go c.close(websocket.StatusPolicyViolation, err.Error()) // no late answer counts for another question
	}
	result(t.cluster, at, took, err)
	return err == nil
}

// connection is a WebSocket to a probe.
type connection struct {
	*websocket.Conn
	// ended is closed when nothing can be read any more.
	ended chan struct{}
	// asked is set while an answer is due, which answers receives.
	asked   atomic.Bool
	answers chan []byte
}

// newConnection reads what the probe sends, until the connection ends. A message that is not due ends it.
func newConnection(conn *websocket.Conn) *connection {
	c := &connection{Conn: conn, ended: make(chan struct{}), answers: make(chan []byte, 1)}
	c.SetReadLimit(sha256.Size)
	go func() {
		defer close(c.ended)
		for {
			_, message, err := c.Read(context.Background())
			if err != nil {
				return
			}
			if !c.asked.CompareAndSwap(true, false) {
				c.close(websocket.StatusPolicyViolation, "nothing was asked")
				return
			}
			c.answers <- message
		}
	}()
	return c
}

// ask sends random bytes, and returns the time until the probe has shown by their digest that it has them all: it cannot
// answer before. After an error nothing can be asked any more.
func (c *connection) ask(ctx context.Context, size int, patience time.Duration) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	writing, written := context.WithTimeout(context.WithoutCancel(ctx), patience) // a write that is cancelled closes the connection without a word
	defer written()
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails, by its documentation
	want := sha256.Sum256(data)
	c.asked.Store(true)
	began := time.Now()
	if err := c.Write(writing, websocket.MessageBinary, data); err != nil && ctx.Err() == nil {
		return 0, errAway
	}
	select {
	case got := <-c.answers:
		took = time.Since(began)
		if !bytes.Equal(got, want[:]) {
			return 0, errors.New("the answer is not the SHA-256 of what was sent")
		}
		return took, nil
	case <-c.ended:
		return 0, errAway
	case <-ctx.Done():
		return 0, errors.New("no answer in time")
	}
}

// leave ends the connection because this replica does not measure it any more.
func (c *connection) leave() { c.close(websocket.StatusGoingAway, "it is not measured here any more") }

func (c *connection) close(code websocket.StatusCode, reason string) {
	_ = c.Close(code, reason) // the probe may have gone
	_ = c.CloseNow()
}
