package lease

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// hub is a fake: a Lease, and a clock that the test sets.
type hub struct {
	resourcelock.Interface
	holder holder
	now    time.Duration
	// down is the error of writes.
	down error
	// reads announces each read; the test sends the result.
	reads chan chan error
}

func (h *hub) Identity() string { return "me" }

func (h *hub) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if h.down == nil {
		h.holder = holder{record.HolderIdentity, record.LeaderTransitions}
	}
	return h.down
}

func newLease() (*Lease, *hub) {
	h := &hub{reads: make(chan chan error)}
	return &Lease{
		Interface: h, renew: 7 * time.Second, clock: func() time.Duration { return h.now },
		read: func(context.Context) (holder, error) {
			answer := make(chan error)
			h.reads <- answer
			err := <-answer
			return h.holder, err
		},
	}, h
}

func hold(t *testing.T, l *Lease, identity string, transitions int) error {
	t.Helper()
	return l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaderTransitions: transitions})
}

// Others use the configuration too: a timeout in it would end each of their watches.
func TestNewLeavesTheConfigAlone(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	if _, err := New(config, "sluice", "sluice", Of(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 || config.UserAgent != "" {
		t.Errorf("the config has a timeout of %s and the user agent %q now", config.Timeout, config.UserAgent)
	}
}

// A leader may write until its last renewal is too old, counted from before the renewal,
// whatever it was doing meanwhile.
func TestFence(t *testing.T) {
	l, h := newLease()
	passed := 0
	fenced := http.Client{Transport: l.Fence(roundTripper(func(*http.Request) (*http.Response, error) {
		passed++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))}
	request := func(method string) error {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://hub/", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := fenced.Do(r)
		if err == nil {
			answer.Body.Close()
		}
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(when string) {
		t.Helper()
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			if err := request(method); !errors.Is(err, ErrNotLeading) {
				t.Fatalf("%s %s: %v, want ErrNotLeading", method, when, err)
			}
		}
		must(request(http.MethodGet))
	}
	refused("before the election")
	must(hold(t, l, "me", 3))
	h.now += 7*time.Second - 1
	must(request(http.MethodPost))
	h.now++ // it slept
	refused("after the lease was not renewed")
	h.down = errors.New("fake: no answer")
	if err := hold(t, l, "me", 3); err == nil {
		t.Fatal("renewed without an answer")
	}
	refused("after a renewal that failed")
	h.down = nil
	must(hold(t, l, "me", 3)) // nobody has led in between
	must(request(http.MethodDelete))
	must(hold(t, l, "", 3))
	refused("after it was released")
	if passed != 6 { // four reads and two writes
		t.Fatalf("%d requests passed, want 6", passed)
	}
	l.Fence(nil) // of no use, but no matter
	if (*Lease)(nil).Fence(http.DefaultTransport) != http.DefaultTransport {
		t.Fatal("the only replica is fenced")
	}
}

// A replica that led before does not become the leader again: its memory is from its first
// term.
func TestOneTerm(t *testing.T) {
	l, _ := newLease()
	if l.Term() != "" || l.leads() {
		t.Fatal("leads before the election")
	}
	if err := hold(t, l, "me", 3); err != nil || l.Term() != "me/3" || !l.leads() {
		t.Fatalf("elected: %v, term %q", err, l.Term())
	}
	if err := hold(t, l, "me", 5); !errors.Is(err, ErrNotLeading) {
		t.Fatalf("elected again: %v, want ErrNotLeading", err)
	}
}

// Confirm accepts only reads that began after it was called. Calls during another read share
// the next one.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := newLease()
		if err := hold(t, l, "me", 3); err != nil {
			t.Fatal(err)
		}
		confirm := func() chan error {
			done := make(chan error, 1)
			go func() { done <- l.Confirm(context.Background()) }()
			return done
		}
		first := confirm()
		reading := <-h.reads
		var later []chan error
		for range 20 {
			later = append(later, confirm())
		}
		synctest.Wait() // for all of them to wait
		reading <- nil
		if err := <-first; err != nil {
			t.Fatalf("confirm: %v", err)
		}
		h.holder = holder{"another", 4} // before the second read
		(<-h.reads) <- nil
		for _, done := range later {
			if err := <-done; !errors.Is(err, ErrNotLeading) {
				t.Fatalf("confirm after another took over: %v", err)
			}
		}
		last := confirm() // a read of its own, as the 20 have had one
		(<-h.reads) <- errors.New("fake: no answer")
		if err := <-last; err == nil {
			t.Fatal("confirmed without an answer")
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
