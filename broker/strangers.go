package broker

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/sluice-dev/sluice/internal/callers"
)

const (
	// wrongPerSecond and wrongBurst are how many wrong credentials an address may send.
	wrongPerSecond = 1
	wrongBurst     = 20
	// mostFamiliar pairs of an address and its credentials are remembered.
	mostFamiliar = 1024
	// refusalsLogged of those who are not known are logged one by one; after that, one a
	// second is.
	refusalsLogged = 100
)

// strangers slows those who guess: an address that has sent too many wrong credentials is
// told to wait, whatever it sends. What it has sent rightly before stays right, so that who
// shares its address with a guesser, behind a proxy, goes on working.
type strangers struct {
	wrong    *callers.Calls
	familiar *lru.Cache
	logged   rate.Sometimes
	unlogged atomic.Int64
}

// familiarity is an address that has sent these credentials, which were right.
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

// authenticate returns the platform that sent a request, or why it is refused.
func (s *server) authenticate(r *http.Request) (*Platform, error) {
	from := callers.Address(r)
	platform, credentials, ok := s.Platforms.identify(r)
	sent := familiarity{from, credentials}
	if ok {
		if _, familiar := s.strangers.familiar.Get(sent); familiar {
			return platform, nil
		}
	}
	if wait := s.strangers.wrong.Wait(from); wait > 0 {
		return nil, tooManyFailures(wait)
	}
	if !ok {
		s.strangers.wrong.Count(from)
		return nil, errUnauthorized
	}
	s.strangers.familiar.Add(sent, nil)
	return platform, nil
}

func tooManyFailures(wait time.Duration) *Error {
	return &Error{Status: http.StatusTooManyRequests, Code: codeTooManyFailures, RetryAfter: wait,
		Description: "Too many wrong credentials came from this address; the header Retry-After says when to come again."}
}

// record has a refusal written to the log, or only counted where there are many.
func (s *strangers) record(attributes *[]slog.Attr, write func()) {
	s.unlogged.Add(1)
	s.logged.Do(func() {
		if more := s.unlogged.Swap(0) - 1; more > 0 {
			*attributes = append(*attributes, slog.Int64("more like this", more))
		}
		write()
	})
}
