package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/identity"
)

// maxUsedTickets is how many tickets may be used within the lifetime of one.
const maxUsedTickets = 128

// ErrBusy is in the error of Redeem when too many tickets were used just now. It is over within TicketLifetime.
var ErrBusy = errors.New("too many tickets were used within a minute; repeat it")

// Ticket returns a ticket with which somebody who has the hub lets a browser act as a caller. It is valid once, and
// for TicketLifetime. That the caller is known is checked when a token is issued for it.
func (t *Tokens) Ticket(ctx context.Context, caller Caller) (string, error) {
	id, err := t.identity(ctx, t.Hub)
	if err != nil {
		return "", err
	}
	return t.sign(id, typeTicket, rand.Text(), caller, operators(id), TicketLifetime)
}

// Redeem uses a ticket up, and returns the caller that it lets act. The error contains ErrRefused if the ticket does
// not hold or has been used, and ErrBusy if too many were.
//
// A use is written to the status of the Identity, with optimistic concurrency, before anything comes of it: of two
// replicas that are shown one ticket, the second one's write conflicts, and then finds the first. What is kept is
// bounded by the lifetime of a ticket. A kill after the write loses the ticket; make another.
func (t *Tokens) Redeem(ctx context.Context, ticket string) (caller Caller, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		id, err := t.identity(ctx, t.Live)
		if errors.Is(err, identity.ErrNoKey) {
			return refuse("%s", err)
		}
		if err != nil {
			return err
		}
		var got *claims
		if got, caller, err = t.read(id, typeTicket, ticket); err != nil {
			return err
		}
		if got.Grounds != operators(id) {
			return refuse("it was revoked")
		}
		return t.use(ctx, id, got)
	})
	if err != nil {
		return Caller{}, fmt.Errorf("the ticket: %w", err)
	}
	return caller, nil
}

// use writes down that a ticket is used.
func (t *Tokens) use(ctx context.Context, id *v1alpha1.Identity, ticket *claims) error {
	now := t.now()
	used := slices.DeleteFunc(id.Status.UsedTickets, func(u v1alpha1.UsedNonce) bool { return !now.Before(u.ExpiresAt.Time) })
	if slices.ContainsFunc(used, func(u v1alpha1.UsedNonce) bool { return u.ID == ticket.ID }) {
		return refuse("it has been used; make another")
	}
	if len(used) >= maxUsedTickets {
		return ErrBusy
	}
	// A replica whose clock is behind still finds it.
	id.Status.UsedTickets = append(used, v1alpha1.UsedNonce{ID: ticket.ID, ExpiresAt: metav1.NewTime(ticket.Expiry.Time().Add(skew).Truncate(time.Second))})
	if err := t.Writer.Status().Update(ctx, id); err != nil {
		return fmt.Errorf("write down that it is used: %w", err)
	}
	return nil
}

// Revoke ends all tokens that were issued to a caller: an operator's, with all tickets that were not used, or a
// provider's. A platform's end with its credentials.
func (t *Tokens) Revoke(ctx context.Context, hub client.Writer, caller Caller) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		switch caller.Role {
		case Operator:
			id, err := t.identity(ctx, t.Live)
			if err != nil {
				return err
			}
			id.Spec.TokensRevoked++
			return hub.Update(ctx, id)
		case Provider:
			p := &v1alpha1.Provider{}
			if err := t.Live.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: caller.Name}, p); err != nil {
				return err
			}
			p.Spec.TokensRevoked++
			return hub.Update(ctx, p)
		}
		return errors.New("its tokens end when its credentials are removed from the platforms file")
	})
	if err != nil {
		return fmt.Errorf("revoke the tokens of %s: %w", caller, err)
	}
	return nil
}
