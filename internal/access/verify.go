package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
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
	id, err := t.identity(ctx, t.Hub)
	if errors.Is(err, identity.ErrNoKey) {
		return Caller{}, refuse("the token: %s", err)
	}
	if err != nil {
		return Caller{}, err
	}
	got, caller, err := t.read(id, typeToken, token)
	if err != nil {
		return Caller{}, fmt.Errorf("the token: %w", err)
	}
	if err := t.stand(ctx, caller, got.Grounds); err != nil {
		return Caller{}, fmt.Errorf("the token of %s: %w", caller, err)
	}
	return caller, nil
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
	caller, err := parseCaller(got.Subject)
	if err != nil {
		return nil, Caller{}, refuse("sub: %s", err)
	}
	return got, caller, nil
}

// lifetimes are the longest ones, by type.
var lifetimes = map[string]time.Duration{typeToken: MaxLifetime, typeTicket: TicketLifetime}

// stand checks that what a token was issued for is still there.
func (t *Tokens) stand(ctx context.Context, caller Caller, grounds string) error {
	if caller.Role == Platform {
		return t.standPlatform(caller.Name, grounds)
	}
	now, err := t.grounds(ctx, caller)
	if errors.Is(err, errGone) {
		return refuse("%s", err)
	}
	if err == nil && now != grounds {
		return refuse("it was revoked")
	}
	return err
}

// standPlatform does so for a platform's token: one of its credentials has the mark.
func (t *Tokens) standPlatform(platform, grounds string) error {
	mark, err := base64.RawURLEncoding.DecodeString(grounds)
	if err != nil || t.Platforms == nil {
		return refuse("the platform is not known")
	}
	for _, credential := range t.Platforms.CredentialsOf(platform) {
		if t.Seal.Marked(marked(platform, credential), mark) {
			return nil
		}
	}
	return refuse("the credentials that it was issued for are not in the platforms file any more")
}
