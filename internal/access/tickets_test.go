package access

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestATicketWorksOnce: on all replicas together, even at once.
func TestATicketWorksOnce(t *testing.T) {
	w := newWorld(t)
	w.provider("acme")
	for _, caller := range []Caller{operator, {Platform, "cf"}, {Provider, "acme"}} {
		ticket, err := w.Ticket(t.Context(), caller)
		must(t, err)
		w.refuses("a ticket is no token", ticket, "its type")
		var taken atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			replica := *w.Tokens
			all.Go(func() {
				got, err := replica.Redeem(t.Context(), ticket)
				switch {
				case err == nil && got == caller:
					taken.Add(1)
				case !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "has been used"):
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		all.Wait()
		if taken.Load() != 1 {
			t.Errorf("%d replicas took the ticket of %s", taken.Load(), caller)
		}
	}
}

// TestTicketsEnd: soon, and with a revocation; and what is kept of those that were used is bounded.
func TestTicketsEnd(t *testing.T) {
	w := newWorld(t)
	refuses := func(when, ticket, why string) {
		t.Helper()
		if got, err := w.Redeem(t.Context(), ticket); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), why) || got != (Caller{}) {
			t.Errorf("%s: got %q, %v; want it refused: %s", when, got, err, why)
		}
	}
	ticket := func() string {
		t.Helper()
		made, err := w.Ticket(t.Context(), operator)
		must(t, err)
		return made
	}
	refuses("a token is no ticket", w.issued(operator), "its type")
	revoked := ticket()
	must(t, w.Revoke(t.Context(), w.Client, operator))
	refuses("revoked", revoked, "revoked")
	late := ticket()
	w.clock.SetTime(w.clock.Now().Add(TicketLifetime))
	refuses("late", late, "has expired")

	for range maxUsedTickets {
		_, err := w.Redeem(t.Context(), ticket())
		must(t, err)
	}
	waiting := ticket()
	if _, err := w.Redeem(t.Context(), waiting); !errors.Is(err, ErrBusy) {
		t.Errorf("one more than are kept: %v", err)
	}
	w.clock.SetTime(w.clock.Now().Add(TicketLifetime + skew))
	if _, err := w.Redeem(t.Context(), ticket()); err != nil {
		t.Errorf("when the others have expired: %v", err)
	}
	if n := len(w.stored().Status.UsedTickets); n != 1 {
		t.Errorf("%d used tickets are kept", n)
	}
}
