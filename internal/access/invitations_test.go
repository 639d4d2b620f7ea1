package access

import (
	"errors"
	"strings"
	"testing"
)

// TestInvitations: one is neither a token nor a ticket, and ends with its time and with the provider's tokens.
func TestInvitations(t *testing.T) {
	w := newWorld(t)
	w.provider("acme")
	invite := func() *Invitation {
		t.Helper()
		made, err := w.Invite(t.Context(), "acme")
		must(t, err)
		return made
	}
	refuses := func(when, token, why string) {
		t.Helper()
		if got, err := w.Invited(t.Context(), token); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), why) || got != nil {
			t.Errorf("%s: got %+v, %v; want it refused: %s", when, got, err, why)
		}
	}
	first := invite()
	got, err := w.Invited(t.Context(), first.Token)
	if err != nil || got.Provider != "acme" || got.ID != first.ID || !got.ExpiresAt.Equal(first.ExpiresAt) || invite().ID == first.ID {
		t.Errorf("got %+v, %v of %+v", got, err, first)
	}
	w.refuses("an invitation is no token", first.Token, "its type")
	if got, err := w.Redeem(t.Context(), first.Token); !errors.Is(err, ErrRefused) {
		t.Errorf("an invitation is a ticket of %q: %v", got, err)
	}
	refuses("a token is no invitation", w.issued(Caller{Provider, "acme"}), "its type")
	refuses("another's", first.Token[:len(first.Token)-8]+"AAAAAAAA", "signature")
	id := w.stored()
	forged, err := w.sign(id, typeInvitation, "x", operator, operators(id), InvitationLifetime)
	must(t, err)
	refuses("an operator's", forged, "not a provider's")
	must(t, w.Revoke(t.Context(), w.Client, Caller{Provider, "acme"}))
	refuses("revoked", first.Token, "revoked")
	late := invite()
	w.clock.SetTime(late.ExpiresAt)
	refuses("late", late.Token, "expired")
	if made, err := w.Invite(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody invites: %+v, %v", made, err)
	}
}
