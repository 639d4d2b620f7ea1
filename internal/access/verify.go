package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/identity"
)

// ErrRefused is in the error of a token or a ticket that does not hold. Other errors say that it could not be judged.
var ErrRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// Verify returns the caller that a token was issued for. The error contains ErrRefused if it does not hold, and says
// why, without quoting it.
func (t *Tokens) Verify(ctx context.Context, token string) (Caller, error) {
	_, caller, err := t.verify(ctx, typeToken, "the token", token)
	return caller, err
}

// verify reads what is called so in messages, and checks that it stands.
func (t *Tokens) verify(ctx context.Context, kind, called, compact string) (*claims, Caller, error) {
	id, err := t.identity(ctx, t.Hub)
	if errors.Is(err, identity.ErrNoKey) {
		return nil, Caller{}, refuse("%s: %s", called, err)
	}
	if err != nil {
		return nil, Caller{}, err
	}
	got, caller, err := t.read(id, kind, compact)
	if err != nil {
		return nil, Caller{}, fmt.Errorf("%s: %w", called, err)
	}
	if err := t.stand(ctx, caller, got.Grounds); err != nil {
		return nil, Caller{}, fmt.Errorf("%s of %s: %w", called, caller, err)
	}
	return got, caller, nil
}

// read checks everything except the grounds.
func (t *Tokens) read(id *v1alpha1.Identity, kind, compact string) (*claims, Caller, error) {
	if len(compact) > maxBytes {
		return nil, Caller{}, refuse("it is longer than %d bytes", maxBytes)
	}
	parsed, err := jwt.ParseSigned(compact, []jose.SignatureAlgorithm{algorithm})
	if err != nil || len(parsed.Headers) != 1 {
		return nil, Caller{}, refuse("it is not a JWT in compact serialisation, signed with %s", algorithm)
	}
	header := parsed.Headers[0]
	if typ := header.ExtraHeaders[jose.HeaderType]; typ != kind {
		return nil, Caller{}, refuse("its type is not %s", kind)
	}
	keys, err := identity.PublicKeys(id)
	if err != nil {
		return nil, Caller{}, err
	}
	i := slices.IndexFunc(keys, func(k jose.JSONWebKey) bool { return k.KeyID == header.KeyID && k.Algorithm == string(algorithm) })
	if i < 0 {
		return nil, Caller{}, refuse("no key of the broker has signed it, or that key is retired")
	}
	got := &claims{}
	if err := parsed.Claims(keys[i], got); err != nil {
		return nil, Caller{}, refuse("its signature is not the broker's")
	}
	now := t.now()
	switch {
	case got.Issuer != name(id):
		return nil, Caller{}, refuse("it was issued by another broker")
	case len(got.Audience) != 1 || got.Audience[0] != name(id):
		return nil, Caller{}, refuse("it is for another audience")
	case got.Expiry == nil || got.IssuedAt == nil || got.ID == "":
		return nil, Caller{}, refuse("exp, iat and jti: want all of them")
	case !now.Before(got.Expiry.Time()):
		return nil, Caller{}, refuse("it has expired")
	case got.IssuedAt.Time().After(now.Add(skew)):
		return nil, Caller{}, refuse("it is from the future; compare the clocks")
	case got.Expiry.Time().Sub(got.IssuedAt.Time()) > lifetimes[kind]:
		return nil, Caller{}, refuse("it is valid for longer than %s", lifetimes[kind])
	}
	caller, err := ParseCaller(got.Subject)
	if err != nil {
		return nil, Caller{}, refuse("sub: %s", err)
	}
	return got, caller, nil
}

// lifetimes are the longest ones, by type.
var lifetimes = map[string]time.Duration{typeToken: MaxLifetime, typeTicket: TicketLifetime, typeInvitation: InvitationLifetime}

// stand checks that what a token was issued for is still there.
func (t *Tokens) stand(ctx context.Context, caller Caller, grounds string) error {
	standing, mark, isMarked := strings.Cut(grounds, beforeMark)
	if caller.Role == Platform {
		isMarked = true
	} else {
		now, err := t.grounds(ctx, caller)
		if errors.Is(err, ErrUnknown) {
			return refuse("%s", err)
		}
		if err == nil && now != standing {
			err = refuse("it was revoked")
		}
		if err != nil {
			return err
		}
	}
	if isMarked {
		return t.standMarked(caller, mark)
	}
	return nil
}

// standMarked does so for a token that was issued for an entry of the platforms file: the caller still has it.
func (t *Tokens) standMarked(caller Caller, encoded string) error {
	mark, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || t.Platforms == nil {
		return refuse("the platforms file is not known here")
	}
	for _, credential := range t.Platforms.CredentialsOf(caller) {
		if t.Seal.Marked(marked(caller, credential), mark) {
			return nil
		}
	}
	return refuse("the credentials that it was issued for are not in the platforms file any more")
}
