package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
)

// A sign-in at an issuer is kept in a cookie of the browser until it comes back, so that every replica can finish it.

// signInLifetime is how long somebody has to sign in.
const signInLifetime = 10 * time.Minute

// begun is the content of that cookie.
type begun struct {
	openid.Pending
	// Next is the page that was asked for.
	Next string `json:"next"`
}

func (s *server) signInCookie(r *http.Request) string { return s.cookieName(r) + "-sign-in" }

// setSignIn gives the browser a cookie, or takes it away if it is empty. It is Lax, because the browser comes back from
// another site.
func (s *server) setSignIn(c *call, value string) {
	cookie := &http.Cookie{
		Name: s.signInCookie(c.Request), Value: value, Path: "/", HttpOnly: true, Secure: s.isSecure(c.Request), SameSite: http.SameSiteLaxMode,
		MaxAge: int(signInLifetime.Seconds()),
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(c.w, cookie)
}

// base returns the URL of the broker, without a slash at its end.
func (s *server) base(c *call) string {
	if s.URL != "" {
		return s.URL
	}
	return map[bool]string{false: "http://", true: "https://"}[s.isSecure(c.Request)] + c.Host
}

// comeBack returns the URL to which issuers send browsers back.
func (s *server) comeBack(c *call) string { return s.base(c) + Root + "signed-in" }

// signInAt is a link to an issuer.
type signInAt struct{ Name, Path string }

// signIns returns the issuers at which people can sign in.
func (s *server) signIns(next string) (all []signInAt) {
	for _, issuer := range s.Platforms.Issuers().SignIns() {
		name := issuer
		if at, err := url.Parse(issuer); err == nil {
			name = at.Host
		}
		all = append(all, signInAt{name, Root + "sign-in?" + url.Values{"issuer": {issuer}, "next": {next}}.Encode()})
	}
	return all
}

// signIn sends the browser to an issuer.
func (s *server) signIn(c *call) (*page, error) {
	to, pending, err := s.Platforms.Issuers().Begin(c.Context(), c.FormValue("issuer"), s.comeBack(c))
	if errors.Is(err, access.ErrRefused) {
		return nil, errNoPage
	}
	if err != nil {
		return nil, s.notSignedIn(c, err)
	}
	content, err := json.Marshal(begun{pending, localPath(c.FormValue("next"))})
	if err != nil {
		return nil, err
	}
	s.setSignIn(c, base64.RawURLEncoding.EncodeToString(content))
	return c.seeOther(to)
}

// signedIn logs in whoever comes back from an issuer, as the first caller of the platforms file that they are.
func (s *server) signedIn(c *call) (*page, error) {
	if err := s.slow(c); err != nil {
		return nil, err
	}
	var began begun
	if cookie, err := c.Cookie(s.signInCookie(c.Request)); err == nil {
		content, _ := base64.RawURLEncoding.DecodeString(cookie.Value)
		_ = json.Unmarshal(content, &began) // what is no sign-in is refused below
	}
	s.setSignIn(c, "") // good once
	proofs, err := s.Platforms.Issuers().Finish(c.Context(), began.Pending, s.comeBack(c), c.URL.Query())
	if err != nil {
		return nil, s.notSignedIn(c, err)
	}
	token, err := s.Tokens.IssueFor(c.Context(), proofs[0], sessionLifetime)
	if errors.Is(err, access.ErrUnknown) {
		return nil, s.notSignedIn(c, fmt.Errorf("%w: %w", access.ErrRefused, err))
	}
	if err != nil {
		return nil, fmt.Errorf("log in as %s: %w", proofs[0], err)
	}
	s.setSession(c, token, sessionLifetime)
	return c.seeOther(localPath(began.Next))
}

// notSignedIn returns what to show of an error of an issuer, and logs it.
func (s *server) notSignedIn(c *call, err error) error {
	s.Logger.WarnContext(c.Context(), "a sign-in failed", "error", err)
	if errors.Is(err, openid.ErrUnavailable) {
		return &Error{Status: http.StatusServiceUnavailable, Title: "The issuer cannot be reached", Description: "Wait a moment, then sign in again. The cause is in the log of Sluice.", retryAfter: openid.Patience}
	}
	if errors.Is(err, access.ErrRefused) {
		return &Error{Status: http.StatusForbidden, Title: "You are not signed in", Description: "Sign in again from the page for logging in. If that does not help, the operator of Sluice has the cause in its log."}
	}
	return err
}
