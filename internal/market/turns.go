package market

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-dev/sluice/internal/access"
)

const (
	// writesPerSecond and writesAtOnce limit the writes of one caller.
	writesPerSecond = 2
	writesAtOnce    = 20
)

// roleInvitation is the role of an invitation's ID among the callers that write. Whoever has an invitation takes the
// turns of the invitation, and none of the provider that made it.
const roleInvitation access.Role = "invitation"

// callersWrites lets one write of each caller through at a time, so that its limits hold, and slows those that
// write too often.
type callersWrites struct {
	mu    sync.Mutex
	turns map[access.Caller]*turn
}

// turn is the right of one caller to write.
type turn struct {
	sync.Mutex
	limit *rate.Limiter
	// writers are the writes that have the turn or wait for it.
	writers int
}

// begin returns the function that ends a caller's turn. The error is an *Error if it has to wait.
func (w *callersWrites) begin(caller access.Caller, now time.Time) (end func(), err error) {
	t, wait := w.reserve(caller, now)
	if wait > 0 {
		by := caller.Name
		if caller.Role == roleInvitation {
			by = "this invitation"
		}
		return nil, &Error{Status: http.StatusTooManyRequests, Code: codeTooMany, RetryAfter: wait,
			Description: "Too many changes by " + by + "; the header Retry-After says when to try again."}
	}
	t.Lock()
	return func() {
		t.Unlock()
		w.mu.Lock()
		defer w.mu.Unlock()
		t.writers--
	}, nil
}

// reserve returns the turn of a caller, or how long it has to wait before it may ask again. It forgets the turns that
// nobody has and whose limits are untouched.
func (w *callersWrites) reserve(caller access.Caller, now time.Time) (*turn, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.turns, func(_ access.Caller, t *turn) bool { return t.writers == 0 && t.limit.TokensAt(now) >= writesAtOnce })
	if w.turns == nil {
		w.turns = map[access.Caller]*turn{}
	}
	t := w.turns[caller]
	if t == nil {
		t = &turn{limit: rate.NewLimiter(writesPerSecond, writesAtOnce)}
		w.turns[caller] = t
	}
	reserved := t.limit.ReserveN(now, 1)
	if wait := reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
		return nil, wait
	}
	t.writers++
	return t, 0
}
