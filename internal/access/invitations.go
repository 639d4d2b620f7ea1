package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// Invitation lets whoever has its token add one cluster for a provider.
type Invitation struct {
	// Provider that has made it.
	Provider string
	// ID by which the hub knows it. Whether it was used or withdrawn is written there, and not known here.
	ID string
	// Token is the invitation itself; empty in the answer of Invited.
	Token string
	// ExpiresAt is its expiry.
	ExpiresAt time.Time
}

// Invite returns a new invitation of a provider, valid for InvitationLifetime. It ends earlier with the tokens of the
// provider.
func (t *Tokens) Invite(ctx context.Context, provider string) (*Invitation, error) {
	caller := Caller{Role: Provider, Name: provider}
	grounds, err := t.grounds(ctx, caller)
	if err != nil {
		return nil, fmt.Errorf("issue an invitation of %s: %w", caller, err)
	}
	id, err := t.identity(ctx, t.Hub)
	if err != nil {
		return nil, err
	}
	made := &Invitation{Provider: provider, ID: rand.Text(), ExpiresAt: t.now().Add(InvitationLifetime)}
	if made.Token, err = t.sign(id, typeInvitation, made.ID, caller, grounds, InvitationLifetime); err != nil {
		return nil, err
	}
	return made, nil
}

// Invited returns the invitation with a token. The error contains ErrRefused if the token does not hold, and says why,
// without quoting it.
func (t *Tokens) Invited(ctx context.Context, token string) (*Invitation, error) {
	got, caller, err := t.verify(ctx, typeInvitation, "the invitation", token)
	if err != nil {
		return nil, err
	}
	if caller.Role != Provider {
		return nil, fmt.Errorf("the invitation: %w", refuse("it is not a provider's"))
	}
	return &Invitation{Provider: caller.Name, ID: got.ID, ExpiresAt: got.Expiry.Time()}, nil
}
