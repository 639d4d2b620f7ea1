package market

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sluice-dev/sluice/internal/access"
)

const (
	// mostLogged bounds what a view keeps for followers that fell behind or come back, in bytes and in changes.
	mostLogged, mostChanges = 4 << 20, 256
	// heartbeat is how often a follower gets something, and its token is looked at.
	heartbeat = 15 * time.Second
	// patience is how long a follower may take for what was sent.
	patience = 30 * time.Second
	// farewell is how long the end of all followers may take.
	farewell = 5 * time.Second
	// mostFollowers bounds those of the process.
	mostFollowers = 20_480
)

// followers counts those that follow the market, by caller.
type followers struct {
	mu  sync.Mutex
	all int
	of  map[access.Caller]int
}

// enter counts a follower of a caller, and reports whether there is a place for it. A caller may have as many as are left free
// for all others, so that there is always one for those that have none.
func (f *followers) enter(caller access.Caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[caller] >= mostFollowers-f.all {
		return false
	}
	if f.of == nil {
		f.of = map[access.Caller]int{}
	}
	f.all++
	f.of[caller]++
	return true
}

func (f *followers) leave(caller access.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all--
	if f.of[caller]--; f.of[caller] == 0 {
		delete(f.of, caller)
	}
}

func (f *followers) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

// changeLog has the latest changes, as events.
type changeLog struct {
	events []*event
	bytes  int
}

func (l *changeLog) add(e *event) {
	l.events, l.bytes = append(l.events, e), l.bytes+len(e.message)
	for len(l.events) > mostChanges || l.bytes > mostLogged {
		l.bytes -= len(l.events[0].message)
		l.events = slices.Clone(l.events[1:])
	}
}

// since returns the events from one state to another; ok is false if they are not all there any more.
func (l *changeLog) since(number, now int64) (events []*event, ok bool) {
	missing := now - number
	if missing < 0 || missing > int64(len(l.events)) {
		return nil, false
	}
	return slices.Clone(l.events[len(l.events)-int(missing):]), true
}

// changeBody has the rows that are new or changed, and the ids of those that are gone.
type changeBody struct {
	Changed []json.RawMessage `json:"changed"`
	Removed []string          `json:"removed"`
}

func (v *view) changeEvent(s *state, changed []*row, removed []string) *event {
	if removed == nil {
		removed = []string{}
	}
	return v.event("change", s.number, changeBody{encodedRows(changed), removed})
}

// fullEvent has the whole list.
func (v *view) fullEvent(s *state) *event {
	return v.event("plans", s.number, map[string]any{"plans": encodedRows(s.rows)})
}

func encodedRows(rows []*row) []json.RawMessage {
	out := make([]json.RawMessage, len(rows))
	for i, r := range rows {
		out[i] = r.encoded
	}
	return out
}

func (v *view) event(name string, number int64, body any) *event {
	data, _ := json.Marshal(body) // made of encoded rows and strings
	return newEvent(name, fmt.Sprintf("%s-%d", v.life, number), data)
}

// numberOf returns the number of the state that a follower has by its Last-Event-ID; −1 if that is none of this process.
func (v *view) numberOf(lastEventID string) int64 {
	life, text, _ := strings.Cut(lastEventID, "-")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || life != v.life {
		return -1
	}
	return number
}

// after returns the events that lead from a state to the latest one, that one's number, and a channel that is closed
// by the next state.
func (v *view) after(number int64) (events []*event, now int64, next <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = make(chan struct{})
	}
	events, ok := v.log.since(number, v.state.number)
	if number < 0 || !ok {
		events = []*event{v.state.full()}
	}
	return events, v.state.number, v.next
}

// follow makes the view look for changes until the last follower leaves.
func (v *view) follow() {
	v.current()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.followers++; v.followers == 1 {
		v.stop = make(chan struct{})
		go v.watch(v.stop)
	}
}

func (v *view) unfollow() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.followers--; v.followers == 0 {
		close(v.stop)
	}
}

// watch looks whenever something has changed, as often as is allowed.
func (v *view) watch(stop <-chan struct{}) {
	for {
		v.current()
		v.mu.Lock()
		catalogChanged, inventoryChange, wait := v.catalogChanged, v.inventoryChange, v.due()
		v.mu.Unlock()
		if isClosed(catalogChanged) {
			catalogChanged = nil // the timer is for it
		}
		if isClosed(inventoryChange) {
			inventoryChange = nil
		}
		timer := time.NewTimer(max(wait, 0))
		select {
		case <-stop:
			timer.Stop()
			return
		case <-catalogChanged:
		case <-inventoryChange:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// changes sends the whole list and then each change, as server-sent events or over a WebSocket. With Last-Event-ID it
// goes on from there, or sends the whole list if it cannot. A follower holds nothing but its token and the number of the
// state that it has; over HTTP/1 not even the request, which ends here, while the connection goes on.
func (s *server) changes(c *call) error {
	if c.Method == http.MethodHead {
		eventStreamHeader(c)
		return nil
	}
	if !s.followers.enter(c.caller) {
		return &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, RetryAfter: s.Heartbeat,
			Description: fmt.Sprintf("Too many clients follow the market here, many of them as %s.", c.caller)}
	}
	open := openEventStream
	if asksForWebSocket(c.Request) {
		open = openWebSocket
	}
	out, err := open(c, s.Patience)
	if err != nil {
		s.followers.leave(c.caller)
		return err
	}
	v := s.views.of(c.caller)
	token, _ := bearer(c.Request, "") // it has been verified
	f := &follower{caller: c.caller, view: v, has: v.numberOf(c.Request.Header.Get("Last-Event-ID")), token: strings.Clone(token), out: out}
	if c.ProtoMajor > 1 {
		s.serve(f)
	} else {
		go s.serve(f)
	}
	return nil
}

// follower is one that follows a view.
type follower struct {
	caller access.Caller
	view   *view
	// has is the number of the state that it has; −1 if none.
	has   int64
	token string
	out   stream
}

// serve sends a follower what changes, until either ends.
func (s *server) serve(f *follower) {
	defer s.followers.leave(f.caller)
	f.view.follow()
	defer f.view.unfollow()
	f.out.end(s.sendChanges(f))
}

// sendChanges sends a follower what changes, and returns why that ends.
func (s *server) sendChanges(f *follower) ending {
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		events, now, next := f.view.after(f.has)
		if f.out.send(events) != nil {
			return followerGone
		}
		f.has = now
		for waiting := true; waiting; {
			select {
			case <-f.out.gone():
				return followerGone
			case <-s.ending:
				return brokerEnds
			case <-next:
				waiting = false
			case <-beat.C:
				if !s.mayFollow(f) {
					return tokenEnded
				}
				if f.out.beat() != nil {
					return followerGone
				}
			}
		}
	}
}

// mayFollow reports whether a follower's token still holds, as far as that can be known now.
func (s *server) mayFollow(f *follower) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.Patience)
	defer cancel()
	_, err := s.Tokens.Verify(ctx, f.token)
	return !errors.Is(err, access.ErrRefused)
}

// endFollowing ends all answers of changes, and waits a moment for it: the HTTP server does not wait for WebSockets.
func (s *server) endFollowing() {
	close(s.ending)
	_ = wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, min(farewell, s.Patience), true, func(context.Context) (bool, error) {
		return s.followers.count() == 0, nil
	}) // what has not ended by then ends with the process
}
