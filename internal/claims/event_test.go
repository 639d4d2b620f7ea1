package claims

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/client-go/tools/events"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestEvents: each transition of a claim is one Event, which warns of what somebody has to look at, and is as short as the
// API wants it. Another look at the same tells nothing.
func TestEvents(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	told := events.NewFakeRecorder(100)
	b.Events = told
	b.shop.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method != http.MethodPut {
			return false
		}
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"description": %q}`, strings.Repeat("€", 500))
		return true
	})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	for range 3 {
		b.serviceIs("Refused", "")
		b.bindingIs("ServiceNotReady", "")
	}
	b.shop.set(nil)
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = raw(`{"size": 2}`) })
	b.serviceIs("Ready", "")
	b.bindingIs("Ready", "")
	close(told.Events)
	var got []string
	for text := range told.Events {
		kind, rest, _ := strings.Cut(text, " ")
		reason, note, _ := strings.Cut(rest, " ")
		if reason != "InProgress" { // the broker may be as quick as it likes
			got = append(got, kind+" "+reason)
		}
		if len(note) > longestNote || !utf8.ValidString(note) || note == "" {
			t.Errorf("the note has %d bytes: %s", len(note), note)
		}
	}
	b.Events = nil
	slices.Sort(got)
	if want := []string{"Normal Ready", "Normal Ready", "Normal ServiceNotReady", "Warning Refused"}; !slices.Equal(got, want) {
		t.Errorf("the Events are %q, want %q", got, want)
	}
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
}
