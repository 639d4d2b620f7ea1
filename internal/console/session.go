package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/callers"
)

// A session is a token in a cookie that scripts cannot read. The server keeps nothing, so every replica knows it. Each
// log-in issues another token; one that the browser had before is never taken over.

// sessionLifetime is how long a session lasts after the log-in.
const sessionLifetime = access.MaxLifetime

// cookieName returns the name of the session's cookie. Over HTTPS it has the prefix by which browsers take it only from
// this very host (RFC 6265bis, section 4.1.3.2).
func (s *server) cookieName(r *http.Request) string {
	if s.isSecure(r) {
		return "__Host-sluice"
	}
	return "sluice"
}

func (s *server) isSecure(r *http.Request) bool { return s.Secure || r.TLS != nil }

// setSession gives the browser a token, or takes it away if it is empty.
func (s *server) setSession(c *call, token string, lifetime time.Duration) {
	cookie := &http.Cookie{
		Name: s.cookieName(c.Request), Value: token, Path: "/", HttpOnly: true, Secure: s.isSecure(c.Request), SameSite: http.SameSiteLaxMode,
		MaxAge: int(lifetime.Seconds()),
	}
	if token == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(c.w, cookie)
}

// identify reads the session of a request. One that has ended counts as none.
func (s *server) identify(c *call) error {
	cookie, err := c.Cookie(s.cookieName(c.Request))
	if err != nil || cookie.Value == "" {
		return nil
	}
	caller, err := s.Tokens.Verify(c.Context(), cookie.Value)
	switch {
	case err == nil:
		c.caller, c.token = caller, cookie.Value
	case !errors.Is(err, access.ErrRefused):
		return err
	}
	return nil
}

// localPath returns a path of the console, and the console's root for anything else.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, Root) || strings.ContainsAny(next, "\\\r\n") {
		return Root
	}
	return u.RequestURI()
}

// loginForm is the data of the page for logging in.
type loginForm struct {
	Next, User, Refused string
	// SignIns are the issuers at which people can log in instead.
	SignIns []signInAt
}

func (s *server) loginPage(c *call) (*page, error) {
	return s.askLogin(c, http.StatusOK, "")
}

// askLogin returns the page for logging in, which leads to the page that was asked for.
func (s *server) askLogin(c *call, status int, refused string) (*page, error) {
	next := c.FormValue("next")
	if c.Method == http.MethodGet && status == http.StatusUnauthorized {
		next = c.URL.RequestURI()
	}
	next = localPath(next)
	return &page{Title: "Log in", template: "login", status: status, Data: loginForm{next, c.PostFormValue("user"), refused, s.signIns(next)}}, nil
}

// login takes the user and password of a platform, as the OSB API takes them.
func (s *server) login(c *call) (*page, error) {
	if err := s.slow(c); err != nil {
		return nil, err
	}
	if c.ParseForm() != nil {
		return nil, errForm
	}
	credentials := (&http.Request{Method: http.MethodGet, Header: http.Header{}}).WithContext(c.Context())
	credentials.SetBasicAuth(c.PostFormValue("user"), c.PostFormValue("password"))
	proven, ok := s.Platforms.Prove(credentials)
	if !ok {
		return s.askLogin(c, http.StatusUnauthorized, "No platform has this user and password.")
	}
	token, err := s.Tokens.IssueFor(c.Context(), proven, sessionLifetime)
	if err != nil {
		return nil, fmt.Errorf("log in as %s: %w", proven, err)
	}
	s.setSession(c, token, sessionLifetime)
	return c.seeOther(localPath(c.PostFormValue("next")))
}

func (s *server) enterPage(*call) (*page, error) {
	return &page{Title: "Enter", template: "enter"}, nil
}

// enter takes a ticket, which is good once.
func (s *server) enter(c *call) (*page, error) {
	if err := s.slow(c); err != nil {
		return nil, err
	}
	if c.ParseForm() != nil {
		return nil, errForm
	}
	caller, err := s.Tokens.Redeem(c.Context(), strings.TrimSpace(c.PostFormValue("ticket")))
	if err != nil && !errors.Is(err, access.ErrRefused) && !errors.Is(err, access.ErrBusy) {
		return nil, err
	}
	if err != nil {
		return nil, &Error{Status: http.StatusUnauthorized, Title: "This ticket is not valid",
			Description: "A ticket is good once, and for a short time. Run `sluice console` again."}
	}
	token, err := s.Tokens.Issue(c.Context(), caller, sessionLifetime)
	if err != nil {
		return nil, err
	}
	s.setSession(c, token, sessionLifetime)
	return c.seeOther(Root)
}

func (s *server) logout(c *call) (*page, error) {
	s.setSession(c, "", 0)
	return c.seeOther(Root + "login")
}

// slow refuses an address that tries too often.
func (s *server) slow(c *call) error {
	from := callers.Address(c.Request)
	if wait := s.logins.Count(from); wait > 0 {
		return &Error{Status: http.StatusTooManyRequests, Title: "Too many attempts", Description: "Wait a moment before you try again.", retryAfter: cmp.Or(wait, time.Second)}
	}
	return nil
}
