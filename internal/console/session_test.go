package console

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/access"
)

// fill puts a value into a route's path.
func fill(path, name string) string {
	path = strings.TrimSuffix(path, "{$}")
	return Root + strings.ReplaceAll(path, "{name}", name)
}

// TestRoles: each role sees the pages that are for it, and no other.
func TestRoles(t *testing.T) {
	c := newConsole(t)
	for _, caller := range []access.Caller{{}, {Role: access.Operator}, {Role: access.Platform, Name: "shop"}, {Role: access.Provider, Name: "acme"}} {
		browser := c.as(caller)
		for _, r := range (&server{}).routes() {
			var form url.Values
			if r.method == http.MethodPost {
				form = url.Values{}
			}
			if len(r.roles) == 0 {
				continue
			}
			got := c.send(browser, fill(r.path, "absent"), form)
			var may bool
			for _, role := range r.roles {
				may = may || role == caller.Role
			}
			switch refused := got.StatusCode == http.StatusForbidden || got.StatusCode == http.StatusUnauthorized; {
			case caller == access.Caller{} && got.StatusCode != http.StatusUnauthorized:
				t.Errorf("nobody: %s %s is answered %d", r.method, r.path, got.StatusCode)
			case may && refused, !may && !refused, got.StatusCode >= http.StatusInternalServerError:
				t.Errorf("%s: %s %s is answered %d", caller.Role, r.method, r.path, got.StatusCode)
			}
		}
	}
}

// TestHeaders: every answer forbids what the console does not need, and is not kept.
func TestHeaders(t *testing.T) {
	c := newConsole(t)
	operator := c.as(access.Caller{Role: access.Operator})
	for _, path := range []string{"", "fleet", "clusters/absent", "login", "enter", "no/such/page", "live", "market"} {
		browser := operator
		if path == "live" {
			browser = c.as(access.Caller{}) // it has no end for somebody who may listen
		}
		h := c.send(browser, Root+path, nil).Header
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: no %s in %q", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
	}
	style := c.send(operator, Root+"assets/"+assetsDigest+"/console.css", nil)
	if style.StatusCode != http.StatusOK || !strings.Contains(style.Header.Get("Cache-Control"), "immutable") || !strings.HasPrefix(style.Header.Get("Content-Type"), "text/css") {
		t.Errorf("the style: %d %v", style.StatusCode, style.Header)
	}
}

// TestLogin: a platform logs in with its credentials, and gets the page that it asked for.
func TestLogin(t *testing.T) {
	c := newConsole(t)
	for name, row := range map[string]struct {
		user, password, next string
		status               int
		leads                string
	}{
		"right":                   {"shop", "secret", "/console/mine?text=a", http.StatusSeeOther, "/console/mine?text=a"},
		"wrong password":          {"shop", "another", "", http.StatusUnauthorized, ""},
		"nothing":                 {"", "", "", http.StatusUnauthorized, ""},
		"another site":            {"shop", "secret", "https://evil.example/console/", http.StatusSeeOther, Root},
		"another site in slashes": {"shop", "secret", "//evil.example/console/", http.StatusSeeOther, Root},
		"another site, backslash": {"shop", "secret", `/console/\evil.example`, http.StatusSeeOther, Root},
		"a script":                {"shop", "secret", "javascript:alert(1)", http.StatusSeeOther, Root},
		"elsewhere here":          {"shop", "secret", "/v2/catalog", http.StatusSeeOther, Root},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.send(c.as(access.Caller{}), Root+"login", url.Values{"user": {row.user}, "password": {row.password}, "next": {row.next}})
			if got.StatusCode != row.status || got.Header.Get("Location") != row.leads {
				t.Errorf("%d to %q", got.StatusCode, got.Header.Get("Location"))
			}
			if cookies := got.Cookies(); (len(cookies) > 0) != (row.status == http.StatusSeeOther) {
				t.Errorf("cookies: %v", cookies)
			} else if len(cookies) > 0 && (!cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode || cookies[0].Path != "/") {
				t.Errorf("the cookie is %v", cookies[0])
			}
			if strings.Contains(got.body, row.password) && row.password != "" {
				t.Error("the password is in the answer")
			}
		})
	}
}

// TestSessions: a ticket opens a session, a token that the browser brings along is not taken over, and logging out ends
// it in the browser. What asks from another site changes nothing.
func TestSessions(t *testing.T) {
	c := newConsole(t)
	browser := c.as(access.Caller{})
	if got := c.send(browser, Root+"enter", url.Values{"ticket": {"wrong"}}); got.StatusCode != http.StatusUnauthorized || len(got.Cookies()) > 0 {
		t.Errorf("a wrong ticket: %d %v", got.StatusCode, got.Cookies())
	}
	at, _ := url.Parse(c.server.URL)
	browser.Jar.SetCookies(at, []*http.Cookie{{Name: "sluice", Value: "planted", Path: "/"}})
	used := c.ticket()
	got := c.send(browser, Root+"enter", url.Values{"ticket": {used}})
	if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != Root {
		t.Fatalf("a ticket: %d %q", got.StatusCode, got.Header.Get("Location"))
	}
	if again := c.send(c.as(access.Caller{}), Root+"enter", url.Values{"ticket": {used}}); again.StatusCode != http.StatusUnauthorized {
		t.Errorf("the ticket again: %d", again.StatusCode)
	}
	if cookies := browser.Jar.Cookies(at); len(cookies) != 1 || cookies[0].Value == "planted" {
		t.Errorf("the session is %v", cookies)
	}
	if got := c.send(browser, Root, nil); got.StatusCode != http.StatusOK {
		t.Errorf("with it: %d", got.StatusCode)
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.server.URL+Root+"logout", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if got := c.do(browser, r); got.StatusCode != http.StatusForbidden || len(got.Cookies()) > 0 {
		t.Errorf("from another site: %d %v", got.StatusCode, got.Cookies())
	}
	if got := c.send(browser, Root+"logout", url.Values{}); got.StatusCode != http.StatusSeeOther {
		t.Errorf("logging out: %d", got.StatusCode)
	}
	if got := c.send(browser, Root, nil); got.StatusCode != http.StatusUnauthorized || !strings.Contains(got.body, "<h1>Log in</h1>") {
		t.Errorf("after it: %d", got.StatusCode)
	}
}

// TestTooManyLogins: whoever guesses has to wait.
func TestTooManyLogins(t *testing.T) {
	c := newConsole(t)
	browser := c.as(access.Caller{})
	for range loginBurst {
		if got := c.send(browser, Root+"login", url.Values{"user": {"shop"}, "password": {"guess"}}); got.StatusCode != http.StatusUnauthorized {
			t.Fatalf("a guess is answered %d", got.StatusCode)
		}
	}
	got := c.send(browser, Root+"login", url.Values{"user": {"shop"}, "password": {"secret"}})
	if got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("after %d guesses: %d, Retry-After %q", loginBurst, got.StatusCode, got.Header.Get("Retry-After"))
	}
}

// TestOverHTTPS: the cookie is of this host alone.
func TestOverHTTPS(t *testing.T) {
	c := newConsole(t)
	c.server.Close()
	c.start(true)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := c.server.Client()
	browser.Jar, browser.CheckRedirect = jar, c.as(access.Caller{}).CheckRedirect
	got := c.send(browser, Root+"enter", url.Values{"ticket": {c.ticket()}})
	if len(got.Cookies()) != 1 || got.Cookies()[0].Name != "__Host-sluice" || !got.Cookies()[0].Secure {
		t.Fatalf("the cookie is %v", got.Cookies())
	}
	if got := c.send(browser, Root, nil); got.StatusCode != http.StatusOK {
		t.Errorf("with it: %d", got.StatusCode)
	}
}

// TestWhatIsNotTheConsoles: other paths go on to the next handler, and browsers find the console.
func TestWhatIsNotTheConsoles(t *testing.T) {
	c := newConsole(t)
	browser := c.as(access.Caller{})
	for path, want := range map[string]int{"/": http.StatusSeeOther, "/console": http.StatusSeeOther, "/consoles": http.StatusUnauthorized, "/v2/catalog": http.StatusUnauthorized} {
		if got := c.send(browser, path, nil); got.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, got.StatusCode, want)
		}
	}
	if got := c.send(c.as(access.Caller{}), "/console/../v2/catalog", nil); got.StatusCode == http.StatusOK {
		t.Errorf("a path that leaves the console is answered %d", got.StatusCode)
	}
}
