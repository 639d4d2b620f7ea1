package market

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
)

const (
	// mediaForm is the media type of a token exchange (RFC 8693, section 2.1).
	mediaForm = "application/x-www-form-urlencoded"
	// maxExchange is the longest form that is read, in bytes.
	maxExchange = 64 << 10

	grantExchange   = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
	typeIDToken     = "urn:ietf:params:oauth:token-type:id_token"
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
)

// Codes of errors of a token exchange (RFC 6749, section 5.2; RFC 8693, section 2.2.2).
const (
	oauthInvalid     = "invalid_request"
	oauthGrant       = "unsupported_grant_type"
	oauthScope       = "invalid_scope"
	oauthTarget      = "invalid_target"
	oauthUnavailable = "temporarily_unavailable"
)

func oauthError(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: code, Description: fmt.Sprintf(format, args...), OAuth: true}
}

// parseForm reads the form in a body.
func (c *call) parseForm() error {
	c.Body = http.MaxBytesReader(c.ResponseWriter, c.Body, maxExchange)
	err := c.ParseForm()
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestTooLarge", Description: "Body: longer than 64 KiB."}
	}
	if err != nil {
		return oauthError(oauthInvalid, "Body: it is no form.")
	}
	return nil
}

// exchangedBody has a token that was exchanged for another (RFC 8693, section 2.2.1).
type exchangedBody struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int64  `json:"expires_in"`
	Scope           string `json:"scope"`
}

// exchange issues a token for the token of an OpenID Connect issuer (RFC 8693). Of several callers that it identifies,
// scope chooses one, or else the first is it.
func (s *server) exchange(c *call) error {
	if err := checkExchange(c.PostForm); err != nil {
		return err
	}
	proofs, err := s.Platforms.Identify(c.Context(), c.PostForm.Get("subject_token"))
	switch {
	case errors.Is(err, access.ErrRefused):
		return oauthError(oauthInvalid, "subject_token: %s.", err)
	case errors.Is(err, openid.ErrUnavailable):
		s.Logger.WarnContext(c.Context(), "a token cannot be exchanged", "error", err)
		return &Error{Status: http.StatusServiceUnavailable, Code: oauthUnavailable, OAuth: true, RetryAfter: openid.Patience,
			Description: "subject_token: " + openid.ErrUnavailable.Error() + "; repeat the request."}
	case err != nil:
		return err
	}
	chosen := 0
	if scope := c.PostForm.Get("scope"); scope != "" {
		chosen = slices.IndexFunc(proofs, func(p access.Proof) bool { return p.String() == scope })
	}
	if chosen < 0 {
		return oauthError(oauthScope, "scope: the token identifies no such caller; want operator, platform:NAME or provider:NAME as the platforms file lists it, or none.")
	}
	proven := proofs[chosen]
	token, err := s.Tokens.IssueFor(c.Context(), proven, tokenLifetime)
	if errors.Is(err, access.ErrUnknown) {
		return oauthError(oauthInvalid, "subject_token: it is %s's, whom this broker does not have.", proven)
	}
	if err != nil {
		return err
	}
	s.Logger.InfoContext(c.Context(), "issued a token for another", "caller", proven.String())
	c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	writeJSON(c.ResponseWriter, http.StatusOK, exchangedBody{
		AccessToken: token, IssuedTokenType: typeAccessToken, TokenType: "Bearer", ExpiresIn: int64(tokenLifetime.Seconds()), Scope: proven.String(),
	})
	return nil
}

// checkExchange checks everything of a form except the token in it.
func checkExchange(form map[string][]string) error {
	for name, values := range form {
		if len(values) > 1 {
			return oauthError(oauthInvalid, "%.64q: want it once.", name)
		}
	}
	accepted := func(code, name string, values ...string) error {
		got := ""
		if there := form[name]; len(there) == 1 {
			got = there[0]
		}
		if slices.Contains(values, got) {
			return nil
		}
		if len(values) == 1 && values[0] == "" {
			return oauthError(code, "%s: leave it out.", name)
		}
		return oauthError(code, "%s: want one of %q.", name, values)
	}
	for _, err := range []error{
		accepted(oauthGrant, "grant_type", grantExchange),
		accepted(oauthInvalid, "subject_token_type", typeIDToken, typeJWT, typeAccessToken),
		accepted(oauthInvalid, "requested_token_type", "", typeAccessToken, typeJWT),
		accepted(oauthInvalid, "actor_token", ""),
		accepted(oauthTarget, "resource", ""),
		accepted(oauthTarget, "audience", ""),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
