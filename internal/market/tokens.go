package market

import (
	"crypto/sha256"
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

// Platforms authenticates platforms by their credentials.
type Platforms interface {
	// Prove returns the name of the platform that sent a request, and a digest of its credentials.
	Prove(r *http.Request) (name string, credential [sha256.Size]byte, ok bool)
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

// token issues a token: to a provider for a presentation in the body, and to a platform for its credentials.
func (s *server) token(c *call) error {
	var caller access.Caller
	var token string
	var err error
	if kind, _, _ := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); kind == mediaPresentation {
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
	name, credential, ok := s.Platforms.Prove(c.Request)
	if !ok {
		return access.Caller{}, "", &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized,
			Description: "Authorization: want the credentials of a platform, or a provider's presentation as body, of type " + mediaPresentation + "."}
	}
	token, err := s.Tokens.IssueFor(c.Context(), name, credential, tokenLifetime)
	return access.Caller{Role: access.Platform, Name: name}, token, err
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
