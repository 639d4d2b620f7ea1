package market

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/access"
)

const (
	// tokenLifetime is how long a token of the API is valid.
	tokenLifetime = time.Hour
	// mediaPresentation is the media type of a presentation (VC-JOSE-COSE, 6.1.2).
	mediaPresentation = "application/vp+jwt"
	// maxPresentation is the longest presentation that is read, in bytes. One for a token needs no credentials.
	maxPresentation = 64 << 10
)

// Platforms authenticates callers by the platforms file.
type Platforms interface {
	// Prove returns the platform that sent a request with its credentials.
	Prove(r *http.Request) (access.Proof, bool)
	// Identify returns the callers that the token of an OpenID Connect issuer identifies, at least one. The error
	// contains access.ErrRefused or openid.ErrUnavailable.
	Identify(ctx context.Context, token string) ([]access.Proof, error)
}

// callerBody names a caller.
type callerBody struct {
	Role access.Role `json:"role"`
	Name string      `json:"name,omitempty"`
}

// tokenBody has a new token.
type tokenBody struct {
	Token     string     `json:"token"`
	TokenType string     `json:"token_type"`
	ExpiresAt time.Time  `json:"expires_at"`
	Caller    callerBody `json:"caller"`
}

// token issues a token: to a provider for a presentation in the body, to a platform for its credentials, and to
// whomever the platforms file names for a token of an issuer.
func (s *server) token(c *call) error {
	var caller access.Caller
	var token string
	var err error
	kind, _, _ := mime.ParseMediaType(c.Request.Header.Get("Content-Type"))
	if kind == mediaForm {
		if err := c.parseForm(); err != nil {
			return err
		}
		if c.PostForm.Has("grant_type") {
			return s.exchange(c)
		}
	}
	if kind == mediaPresentation {
		caller, token, err = s.tokenOfProvider(c)
	} else {
		caller, token, err = s.tokenOfPlatform(c)
	}
	if err != nil {
		return err
	}
	s.Logger.InfoContext(c.Context(), "issued a token", "caller", caller.String())
	c.ResponseWriter.Header().Set("Cache-Control", "no-store")
	writeJSON(c.ResponseWriter, http.StatusCreated, tokenBody{
		Token: token, TokenType: "Bearer", ExpiresAt: s.Clock.Now().Add(tokenLifetime).UTC().Truncate(time.Second), Caller: callerBody{caller.Role, caller.Name},
	})
	return nil
}

func (s *server) tokenOfPlatform(c *call) (access.Caller, string, error) {
	proven, ok := s.Platforms.Prove(c.Request)
	if !ok {
		return access.Caller{}, "", &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized,
			Description: "Authorization: want the credentials of a platform, a provider's presentation as body, of type " + mediaPresentation +
				", or a form that exchanges a token (RFC 8693)."}
	}
	token, err := s.Tokens.IssueFor(c.Context(), proven, tokenLifetime)
	return proven.Caller, token, err
}

func (s *server) tokenOfProvider(c *call) (access.Caller, string, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.ResponseWriter, c.Body, maxPresentation))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return access.Caller{}, "", &Error{Status: http.StatusRequestEntityTooLarge, Code: "RequestTooLarge", Description: "Body: longer than 64 KiB; for a token, no credentials need be in the presentation."}
	}
	if err != nil {
		return access.Caller{}, "", badRequest("Body: cannot be read to its end.")
	}
	provider, err := s.Login(c.Context(), strings.TrimSpace(string(raw)))
	if err != nil {
		return access.Caller{}, "", err
	}
	caller := access.Caller{Role: access.Provider, Name: provider}
	token, err := s.Tokens.Issue(c.Context(), caller, tokenLifetime)
	return caller, token, err
}

// caller answers who calls.
func (s *server) caller(c *call) error {
	writeJSON(c.ResponseWriter, http.StatusOK, callerBody{c.caller.Role, c.caller.Name})
	return nil
}
