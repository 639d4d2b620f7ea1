package broker

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestFetchRenewsCredentials: a platform that fetches never gets credentials with less than
// half of their lifetime left, and a platform that never fetches is told when they end.
func TestFetchRenewsCredentials(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	f := newFixture(t, func(o *Options) { o.Clock = now })
	f.provisioned("i", planSmall)
	first := f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), binding(planSmall))
	expires := func(a answer) any { return a.body["metadata"].(object)["expires_at"] }

	now.SetTime(now.Now().Add(29 * time.Minute)) // the lifetime is an hour
	before := f.listing()
	if again := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil); !reflect.DeepEqual(again.body, first.body) {
		t.Errorf("before half of their life: %s, want %s", again, first)
	}
	if f.listing() != before {
		t.Error("something was written")
	}

	now.SetTime(now.Now().Add(2 * time.Minute))
	second := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil)
	if reflect.DeepEqual(second.body["credentials"], first.body["credentials"]) || expires(second) == expires(first) {
		t.Errorf("past half of their life: %s", second)
	}
	before = f.listing()
	if again := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil); !reflect.DeepEqual(again.body, second.body) || f.listing() != before {
		t.Errorf("again at once: %s, want %s, and nothing written", again, second)
	}

	t.Run("and so does the same bind, which is how some platforms fetch", func(t *testing.T) {
		f := f.in(t)
		now.SetTime(now.Now().Add(31 * time.Minute))
		third := f.want(http.StatusOK, "PUT", bindingPath("i", "b"), binding(planSmall))
		if expires(third) == expires(second) {
			t.Errorf("got %s", third)
		}
	})

	t.Run("where a cluster is away, those that there are are shown, and the wish stays", func(t *testing.T) {
		f := f.in(t)
		now.SetTime(now.Now().Add(31 * time.Minute))
		f.fake.does("b", hold)
		held := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil)
		if !f.bindingOf("i", "b").RenewalAsked() {
			t.Error("nobody will renew them")
		}
		f.fake.does("b", succeed)
		f.eventually("new credentials", func() (answer, bool) {
			a := f.do("GET", bindingPath("i", "b"), nil)
			return a, expires(a) != expires(held)
		})
	})
}
