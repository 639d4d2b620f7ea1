package broker

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/openid"
)

const (
	// wrongPerSecond and wrongBurst limit the wrong credentials that one address may send.
	wrongPerSecond = 1
	wrongBurst     = 20
	// mostFamiliar is the number of pairs of an address and its credentials that are remembered.
	mostFamiliar = 1024
	// refusalsLogged is the number of refused authentications that are logged one by one; after
	// that, one a second is logged.
	refusalsLogged = 100
)

// strangers slows callers that guess credentials. An address that has sent too many wrong
// ones must wait, even with right ones. Credentials that were right earlier from the same
// address still work, so that a legitimate caller behind the same proxy as a guesser is not
// blocked.
type strangers struct {
	wrong    *callers.Calls
	familiar *lru.Cache
	logged   rate.Sometimes
	unlogged atomic.Int64
}

// familiarity is a pair of an address and credentials that were right.
type familiarity struct {
	from        netip.Addr
	credentials [sha256.Size]byte
}

func newStrangers(c clock.PassiveClock) *strangers {
	return &strangers{
		wrong: callers.NewCalls(wrongPerSecond, wrongBurst, c), familiar: lru.New(mostFamiliar),
		logged: rate.Sometimes{First: refusalsLogged, Interval: time.Second},
	}
}

// Guarded returns a function that authenticates the requests of platforms as the OSB API does, with a limit of its own for
// wrong credentials from one address (Request.RemoteAddr). It is safe for concurrent use. Its error is an *Error: 401, 429
// with RetryAfter, or 503 if the issuer of a token cannot be asked.
func (p *Platforms) Guarded(c clock.PassiveClock) func(*http.Request) (*Platform, error) {
	s := newStrangers(c)
	return func(r *http.Request) (*Platform, error) { return s.authenticate(p, r) }
}

// authenticate returns the platform that sent a request, or an error if it is refused.
func (s *strangers) authenticate(platforms *Platforms, r *http.Request) (*Platform, error) {
	from := callers.Address(r)
	platform, credentials, err := platforms.identify(r)
	sent := familiarity{from, credentials}
	if err == nil {
		if _, familiar := s.familiar.Get(sent); familiar {
			return platform, nil
		}
	}
	if wait := s.wrong.Wait(from); wait > 0 {
		return nil, tooManyFailures(wait)
	}
	if errors.Is(err, openid.ErrUnavailable) {
		return nil, &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, RetryAfter: openid.Patience, Err: err,
			Description: "The issuer of the token cannot be asked for its keys right now."}
	}
	if err != nil {
		s.wrong.Count(from)
		refusal := *errUnauthorized
		refusal.Err = err
		return nil, &refusal
	}
	s.familiar.Add(sent, nil)
	return platform, nil
}

func tooManyFailures(wait time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: codeTooManyFailures, RetryAfter: wait,
		Description: "Too many wrong credentials came from this address; the header Retry-After says when to try again."}
}

// record logs a refusal, or only counts it if there are many.
func (s *strangers) record(attributes *[]slog.Attr, write func()) {
	s.unlogged.Add(1)
	s.logged.Do(func() {
		if more := s.unlogged.Swap(0) - 1; more > 0 {
			*attributes = append(*attributes, slog.Int64("more like this", more))
		}
		write()
	})
}
