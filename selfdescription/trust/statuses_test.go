package trust

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/selfdescription"
)

// shelf is a host that publishes one text at all of its URLs.
type shelf struct {
	text  string
	asked int
}

func (h *shelf) RoundTrip(*http.Request) (*http.Response, error) {
	h.asked++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(h.text))}, nil
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
	got, err := s.StatusList(t.Context(), fmt.Sprintf("https://provider.example/lists/%d", n))
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
	for n := range last + 1 {
		h.ask(t, s, n)
	}
	kept := 0
	for _, list := range s.lists.Values() {
		kept += len(list.compact)
	}
	if kept > 64<<20 || kept < 60<<20 {
		t.Errorf("%d lists of %d MiB together are kept", s.lists.Len(), kept>>20)
	}
	h.asked = 0
	h.ask(t, s, last)
	if h.ask(t, s, 0); h.asked != 1 {
		t.Errorf("of the last and the first, %d are fetched again", h.asked)
	}
}
