package trust

import (
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/selfdescription"
)

// shelf is a host that publishes one text at all of its URLs.
type shelf struct {
	text   string
	status int // zero means 200
	asked  int
}

func (h *shelf) RoundTrip(*http.Request) (*http.Response, error) {
	h.asked++
	return &http.Response{StatusCode: cmp.Or(h.status, http.StatusOK), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(h.text))}, nil
}

func (h *shelf) statuses() *Statuses {
	return &Statuses{
		Client: &http.Client{Transport: h}, Hosts: func(string) bool { return true },
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)),
	}
}

// ask fetches the list with a number.
func (h *shelf) ask(t *testing.T, s *Statuses, n int) {
	t.Helper()
	got, err := s.StatusList(t.Context(), provider, fmt.Sprintf("https://provider.example/lists/%d", n))
	if err != nil || got != h.text {
		t.Fatalf("list %d: %d bytes: %v", n, len(got), err)
	}
}

// signedList returns a signed list in which the first bits are set at random.
func signedList(t *testing.T, random int) string {
	t.Helper()
	key, err := selfdescription.GenerateKey("EdDSA", provider+"#key-1")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	list, dice := selfdescription.NewStatusList(random), rand.New(rand.NewPCG(1, 2))
	for i := range random {
		if err := list.Set(i, dice.IntN(2) == 1); err != nil {
			t.Fatal(err)
		}
	}
	document := list.Document("https://provider.example/lists/1", selfdescription.PurposeRevocation)
	document.ValidFrom = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	compact, err := signer.Credential(document)
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

func TestAListIsKeptForAWhileAndAnythingElseIsNot(t *testing.T) {
	list := signedList(t, 8)
	for name, row := range map[string]struct {
		text string
		want int
	}{
		"a list":          {list, 1},
		"a page":          {"<html>" + strings.Repeat("a", 1<<20), 2},
		"a list cut away": {list[:len(list)/2], 2},
	} {
		h := &shelf{text: row.text}
		s := h.statuses()
		h.ask(t, s, 1)
		h.ask(t, s, 1)
		if h.asked != row.want {
			t.Errorf("%s, needed twice, is fetched %d times", name, h.asked)
		}
	}
}

func TestAListIsFetchedAgainAfterAWhile(t *testing.T) {
	h := &shelf{text: signedList(t, 8)}
	s := h.statuses()
	h.ask(t, s, 1)
	s.Clock = clocktesting.NewFakePassiveClock(s.Clock.Now().Add(statusFor))
	h.ask(t, s, 1)
	h.ask(t, s, 1)
	if h.asked != 2 {
		t.Errorf("it is fetched %d times", h.asked)
	}
}

// TestAListOfAnySizeIsKept: also one of the largest size that hardly compresses.
func TestAListOfAnySizeIsKept(t *testing.T) {
	h := &shelf{text: signedList(t, selfdescription.MaxStatusList)}
	if len(h.text) <= selfdescription.MaxCredential || len(h.text) > selfdescription.MaxStatusListToken {
		t.Fatalf("%d bytes", len(h.text))
	}
	s := h.statuses()
	h.ask(t, s, 1)
	if h.ask(t, s, 1); h.asked != 1 {
		t.Errorf("needed twice, it is fetched %d times", h.asked)
	}
}

// TestListsThatAreKeptAreBoundedByTheirBytes: each is nearly as large as a credential may be.
func TestListsThatAreKeptAreBoundedByTheirBytes(t *testing.T) {
	h := &shelf{text: signedList(t, 8*130<<10)}
	s := h.statuses()
	last := 64<<20/len(h.text) + 20
	kept := 0
	for n := range last + 1 {
		h.ask(t, s, n)
	}
	h.asked = 0
	h.ask(t, s, last)
	if h.ask(t, s, 0); h.asked != 1 {
		t.Errorf("of the last and the first, %d are fetched again", h.asked)
	}
	h.asked = 0
	for n := last; h.asked == 0 && n > 0; n-- {
		if h.ask(t, s, n); h.asked == 0 {
			kept += len(h.text)
		}
	}
	if kept > 64<<20 || kept < 60<<20 {
		t.Errorf("lists of %d MiB together are kept", kept>>20)
	}
}

// dead is a host that does not answer at some of its names.
type dead struct {
	shelf
	hangs string
}

func (h *dead) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == h.hangs {
		h.asked++
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.shelf.RoundTrip(r)
}

// A provider can sign any number of credentials, each of which names a list of its own at a host that does not answer.
func TestAnIssuerWhoseListsTakeTooLongHoldsUpNoOthers(t *testing.T) {
	list := signedList(t, 8)
	synctest.Test(t, func(t *testing.T) {
		h := &dead{shelf{text: list}, "rival.example"}
		s := &Statuses{Client: &http.Client{Transport: h, Timeout: guarded.Timeout}, Hosts: func(string) bool { return true }, Clock: clock.RealClock{}}
		needs := func(issuer, url string) error {
			_, err := s.StatusList(t.Context(), issuer, url)
			return err
		}
		begun := time.Now()
		for n := range 5000 {
			if err := needs("did:web:rival.example", fmt.Sprint("https://rival.example/lists/", n)); err == nil {
				t.Fatal("there is a list")
			}
		}
		if took := time.Since(begun); took > time.Minute || h.asked > 5 {
			t.Errorf("5000 lists take %s and %d requests", took, h.asked)
		}
		if err := needs("did:web:provider.example", "https://rival.example/lists/1"); err == nil || !strings.Contains(err.Error(), "deadline") {
			t.Errorf("another issuer at that host: %v", err)
		}
		for n, host := range []string{"provider.example", "rival.example"} {
			if err := needs("did:web:provider.example", fmt.Sprintf("https://%s/lists/of-%d", host, n)); (err == nil) != (host == "provider.example") {
				t.Errorf("another issuer at %s: %v", host, err)
			}
		}
		h.hangs = ""
		if err := needs("did:web:rival.example", "https://rival.example/lists/new"); err == nil || !strings.Contains(err.Error(), "what is fetched for did:web:rival.example has taken too long lately") {
			t.Errorf("at once: %v", err)
		}
		<-time.After(5 * time.Minute)
		if err := needs("did:web:rival.example", "https://rival.example/lists/new"); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

func TestAListThatCannotBeFetchedIsNotAskedForAtOnce(t *testing.T) {
	h := &shelf{status: http.StatusBadGateway, text: signedList(t, 8)}
	s := h.statuses()
	for range 3 {
		if _, err := s.StatusList(t.Context(), provider, "https://provider.example/lists/1"); err == nil || h.asked != 1 {
			t.Errorf("%v after %d requests", err, h.asked)
		}
	}
	h.status = http.StatusOK
	s.Clock = clocktesting.NewFakePassiveClock(s.Clock.Now().Add(30 * time.Second))
	h.ask(t, s, 1)
}

// Its DID's host may become one that may be asked at any time.
func TestAListThatMayNotBeFetchedIsAskedForOnceItMay(t *testing.T) {
	h := &shelf{text: signedList(t, 8)}
	s, known := h.statuses(), false
	s.Hosts = func(string) bool { return known }
	if _, err := s.StatusList(t.Context(), provider, "https://provider.example/lists/1"); err == nil || h.asked != 0 {
		t.Errorf("%v after %d requests", err, h.asked)
	}
	known = true
	h.ask(t, s, 1)
}
