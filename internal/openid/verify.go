package openid

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"k8s.io/utils/clock"

	"github.com/sluice-dev/sluice/internal/access"
)

// maxBytes is the longest token that is read. Tokens with many groups have some KiB.
const maxBytes = 16 << 10

// algorithms that tokens may be signed with: the asymmetric ones of RFC 7518 and RFC 8037, and no others, whatever an
// issuer says of itself (RFC 8725, section 3.1).
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// types of tokens, in the header typ: id tokens, and access tokens (RFC 9068). Logout tokens, and others that issuers
// sign with the same keys, say that they are others.
var types = []string{"", "jwt", "at+jwt"}

// ErrUnavailable is in the error of a token that cannot be judged, because its issuer's keys cannot be had.
var ErrUnavailable = errors.New("its issuer cannot be asked for its keys right now")

// Patience is how long a caller waits before it sends a token again that could not be judged: the issuer is not asked
// any sooner.
const Patience = askEvery

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", access.ErrRefused, fmt.Sprintf(format, args...))
}

// Issuers verify tokens. They are safe for concurrent use.
type Issuers struct {
	byURL  map[string]*issuer
	listed []string // their URLs, in the order of the list
	rules  []rule
}

// issuer is one of them.
type issuer struct {
	audiences []string
	signIn    *ListedSignIn
	rules     []rule
	keys      *keys
	clock     clock.PassiveClock
}

// Identify returns the callers that a token identifies, at least one, in the order of the list. It may wait for the
// issuer. The error contains access.ErrRefused if the token does not hold or identifies nobody, and ErrUnavailable if
// that is not known; it says why, without quoting the token.
func (i *Issuers) Identify(ctx context.Context, token string) ([]access.Proof, error) {
	proofs, err := i.identify(ctx, token)
	if err != nil {
		return nil, fmt.Errorf("the token: %w", err)
	}
	return proofs, nil
}

func (i *Issuers) identify(ctx context.Context, token string) (proofs []access.Proof, err error) {
	if len(token) > maxBytes {
		return nil, refuse("it is longer than %d bytes", maxBytes)
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(parsed.Headers) != 1 {
		return nil, refuse("it is not a JWT in compact serialisation, signed with one of %v", algorithms)
	}
	kind, _ := parsed.Headers[0].ExtraHeaders[jose.HeaderType].(string)
	if !slices.Contains(types, strings.TrimPrefix(strings.ToLower(kind), "application/")) {
		return nil, refuse("it is neither an id token nor an access token, by its type")
	}
	var claimed struct {
		Issuer string `json:"iss"`
	}
	if parsed.UnsafeClaimsWithoutVerification(&claimed) != nil {
		return nil, refuse("its claims are no JSON object")
	}
	from := i.byURL[claimed.Issuer]
	if from == nil {
		return nil, refuse("its issuer is none that the platforms file lists")
	}
	claims, err := from.verify(ctx, claimed.Issuer, token, from.audiences)
	if err != nil {
		return nil, err
	}
	return from.callers(claims)
}

// callers returns those that claims identify, at least one.
func (i *issuer) callers(claims map[string]any) (proofs []access.Proof, err error) {
	for _, r := range i.rules {
		if r.matches(claims) {
			proofs = append(proofs, r.Proof)
		}
	}
	if len(proofs) == 0 {
		return nil, refuse("its claims are those of no caller that the platforms file lists under its issuer")
	}
	return proofs, nil
}

// keySet makes a function an oidc.KeySet.
type keySet func(ctx context.Context, token string) ([]byte, error)

func (f keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	return f(ctx, token)
}

// verify returns the claims of a token of this issuer for one of the audiences.
func (i *issuer) verify(ctx context.Context, name, token string, audiences []string) (claims map[string]any, err error) {
	var unsigned error
	signed := keySet(func(ctx context.Context, token string) (payload []byte, err error) {
		payload, unsigned = i.keys.verify(ctx, token) // the library's error does not contain it
		return payload, unsigned
	})
	config := &oidc.Config{SkipClientIDCheck: true, Now: i.clock.Now}
	for _, algorithm := range algorithms {
		config.SupportedSigningAlgs = append(config.SupportedSigningAlgs, string(algorithm))
	}
	got, err := oidc.NewVerifier(name, signed, config).Verify(ctx, token)
	expired := (*oidc.TokenExpiredError)(nil)
	switch {
	case unsigned != nil:
		return nil, unsigned
	case errors.As(err, &expired):
		return nil, refuse("it has expired, or has no expiry")
	case err != nil:
		return nil, refuse("%s", strings.TrimPrefix(err.Error(), "oidc: "))
	case !slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(got.Audience, a) }):
		return nil, refuse("it is for another audience; want %s", strings.Join(audiences, " or "))
	}
	var raw json.RawMessage
	if err := got.Claims(&raw); err != nil {
		return nil, refuse("its claims are no JSON object")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		return nil, refuse("its claims are no JSON object")
	}
	if claims["events"] != nil { // RFC 8417; some issuers give logout tokens no type of their own
		return nil, refuse("it reports events, and identifies nobody")
	}
	return claims, nil
}
