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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	// fresh receives when a connection comes that is due.
	fresh chan struct{}

	mu   sync.Mutex
	conn *connection // the newest, which may have ended; nil if there was none
	// due is the start of the pod that was asked for at since, and has not answered yet; empty if there is none.
	due   string
	since time.Time
	// problem of the last question; nil if it was answered.
	problem error
}

func newTarget(s *Server, instance *v1alpha1.ServiceInstance) *target {
	here := make(chan struct{})
	t := &target{Server: s, cluster: instance.MeasuredCluster(), fresh: make(chan struct{}, 1), here: here, came: sync.OnceFunc(func() { close(here) })}
	t.ctx, t.end = context.WithCancel(s.leading)
	return t
}

// expect times a new pod from now on, instead of one that has not come. After an update that was taken back, its pod may be
// connected already.
func (t *target) expect(start string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn != nil && t.conn.start == start {
		start = ""
	}
	t.due, t.since = start, time.Now()
}

// replace makes a connection the one that is measured, and ends the one before. A pod that is being replaced does not
// come back once its successor, with the newest start, is connected.
func (t *target) replace(with *connection, newest string) {
	t.mu.Lock()
	before := t.conn
	if before != nil && before.start == newest && with.start != newest && !before.hasEnded() {
		t.mu.Unlock()
		go with.close(websocket.StatusPolicyViolation, "a newer pod of this probe is connected")
		return
	}
	t.conn = with
	isDue := t.due != "" && with.start == t.due
	t.mu.Unlock()
	if isDue {
		select {
		case t.fresh <- struct{}{}:
		default:
		}
	}
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

// connection returns what Server.Connection does.
func (t *target) connection() (state metav1.ConditionStatus, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.conn != nil && !t.conn.hasEnded():
		return metav1.ConditionTrue, "its probe is connected"
	case t.conn == nil && t.problem == nil:
		return metav1.ConditionUnknown, "" // it has had no time to come
	case t.conn == nil:
		return metav1.ConditionFalse, "its probe has never connected to this replica; its log on the cluster says why"
	case t.problem != nil && !errors.Is(t.problem, errAway):
		return metav1.ConditionFalse, "its probe's connection was ended: " + t.problem.Error()
	}
	return metav1.ConditionFalse, "its probe's connection has ended"
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
		t.giveUp()
		if t.ping() && time.Since(transferred) >= transferEvery && t.transfer() {
			transferred = time.Now()
		}
		for waits := true; waits; {
			select {
			case <-t.ctx.Done():
				return
			case <-t.fresh:
				t.start()
			case <-tick.C:
				waits = false
			}
		}
	}
}

// awaited returns the start of the pod that is due, and since when; empty if there is none.
func (t *target) awaited() (due string, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.due, t.since
}

// start times the pod that is due, once it has answered. One that does not answer has to come again.
func (t *target) start() {
	c := t.current()
	due, since := t.awaited()
	if due == "" || c.start != due {
		return
	}
	t.ask(c, pingBytes, pingPatience, func(_ string, _ time.Time, _ time.Duration, err error) {
		if err == nil {
			took := time.Since(since)
			t.Logger.Info("a new pod of a probe has started", "cluster", t.cluster, "after", took.Round(time.Millisecond))
			t.started(due, min(took, StartPatience))
		}
	})
}

// giveUp counts a pod that has not come in time as one that took that long.
func (t *target) giveUp() {
	due, since := t.awaited()
	if due != "" && time.Since(since) >= StartPatience {
		t.started(due, StartPatience)
	}
}

// started reports how long the pod took, unless another one is due by now.
func (t *target) started(due string, took time.Duration) {
	t.mu.Lock()
	isDue := t.due == due
	if isDue {
		t.due = ""
	}
	t.mu.Unlock()
	if isDue {
		t.Results.Started(t.cluster, time.Now(), took)
	}
}

// ping times the answer to a few bytes, and reports whether it came.
func (t *target) ping() bool {
	return t.ask(t.current(), pingBytes, min(t.Every, pingPatience), t.Results.Pinged)
}

// transfer times the answer to many bytes. It returns false if nothing was sent, because others take the way.
func (t *target) transfer() bool {
	select {
	case t.transfers <- struct{}{}:
	default:
		return false
	}
	t.ask(t.current(), TransferBytes, transferPatience, t.Results.Transferred)
	<-t.transfers
	return true
}

// ask times the answer over a connection to a number of bytes, and reports whether it came. A connection that ends meanwhile has not
// answered, also if another one replaces it: otherwise a probe that is slow would only have to come again.
func (t *target) ask(c *connection, size int, patience time.Duration, result func(string, time.Time, time.Duration, error)) bool {
	at := time.Now()
	took, err := time.Duration(0), errAway
	if c != nil {
		took, err = c.ask(t.ctx, size, patience)
	}
	if t.ctx.Err() != nil {
		return false // this replica has ended it
	}
	t.mu.Lock()
	if err == nil || t.problem == nil || !errors.Is(err, errAway) {
		t.problem = err // being away follows from what was before
	}
	t.mu.Unlock()
	if err != nil && c != nil {
		go c.close(websocket.StatusPolicyViolation, err.Error()) // no late answer counts for another question
	}
	result(t.cluster, at, took, err)
	return err == nil
}

// connection is a WebSocket to a probe.
type connection struct {
	*websocket.Conn
	// start is the text with which the probe says that it was started.
	start string
	// ended is closed when nothing can be read any more.
	ended chan struct{}
	// asked is set while an answer is due, which answers receives.
	asked   atomic.Bool
	answers chan []byte
}

// newConnection reads what the probe sends, until the connection ends. A message that is not due ends it.
func newConnection(conn *websocket.Conn, start string) *connection {
	c := &connection{Conn: conn, start: start, ended: make(chan struct{}), answers: make(chan []byte, 1)}
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

func (c *connection) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// leave ends the connection because this replica does not measure it any more.
func (c *connection) leave() { c.close(websocket.StatusGoingAway, "it is not measured here any more") }

func (c *connection) close(code websocket.StatusCode, reason string) {
	_ = c.Close(code, reason) // the probe may have gone
	_ = c.CloseNow()
}
