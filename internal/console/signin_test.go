package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

// trust lists an issuer at which people sign in.
func (c *consoleOf) trust(issuer *openidtest.Issuer, callers ...openid.ListedCaller) {
	c.Helper()
	listed := issuer.Listed(callers...)
	listed.SignIn = &openid.ListedSignIn{ClientID: openidtest.Audience, ClientSecret: openidtest.ClientSecret}
	shop := broker.ListedPlatform{Name: "shop", Basic: []broker.BasicCredential{{Username: "shop", Password: "secret"}}}
	document, err := json.Marshal(broker.PlatformsFile{Platforms: []broker.ListedPlatform{shop}, OpenID: []openid.Listed{listed}})
	if err == nil {
		err = os.WriteFile(c.platforms+".new", document, 0o600)
	}
	if err = errors.Join(err, os.Rename(c.platforms+".new", c.platforms)); err != nil {
		c.Fatal(err)
	}
}

// TestPeopleSignInAtAnIssuer: a session is the caller's that the platforms file names, and ends with that entry.
func TestPeopleSignInAtAnIssuer(t *testing.T) {
	c, issuer := newConsole(t), openidtest.Start(t)
	issuer.Register(c.server.URL + Root + "signed-in")
	listed := []openid.ListedCaller{
		{Is: "operator", Claims: map[string]string{"sub": "anna"}}, {Is: "platform:shop", Claims: map[string]string{"sub": "carl"}},
		{Is: "provider:acme", Claims: map[string]string{"sub": "bert"}}, {Is: "provider:absent", Claims: map[string]string{"sub": "dora"}},
	}
	c.trust(issuer, listed...)
	begins := func(browser *http.Client, next string) string {
		t.Helper()
		page := c.send(browser, Root+"login?next="+url.QueryEscape(next), nil)
		at := Root + "sign-in?" + url.Values{"issuer": {issuer.URL}, "next": {localPath(next)}}.Encode()
		if !strings.Contains(page.body, strings.ReplaceAll(at, "&", "&amp;")) {
			t.Fatalf("no link to %s in\n%s", at, page.body)
		}
		got := c.send(browser, at, nil)
		if got.StatusCode != http.StatusSeeOther || !strings.HasPrefix(got.Header.Get("Location"), issuer.URL+"/authorize?") {
			t.Fatalf("answered %d, %s", got.StatusCode, got.Header)
		}
		return got.Header.Get("Location")
	}
	for _, row := range []struct{ name, next, page, other string }{
		{"anna", "/console/fleet", "fleet", "market"},
		{"carl", "https://evil.example/", "market", "fleet"},
		{"bert", "/console/supply", "supply", "fleet"},
	} {
		c.console.logins = callers.NewCalls(loginsPerSecond, loginBurst, clock.RealClock{}) // which TestTooManyLogins is about
		browser := c.as(access.Caller{})
		came := issuer.Authorize(begins(browser, row.next), row.name)
		if got := c.send(c.as(access.Caller{}), came.RequestURI(), nil); got.StatusCode != http.StatusForbidden {
			t.Errorf("in another browser, %s is answered %d", row.name, got.StatusCode)
		}
		got := c.send(browser, came.RequestURI(), nil)
		if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != localPath(row.next) {
			t.Fatalf("%s is answered %d, %s: %s", row.name, got.StatusCode, got.Header, got.body)
		}
		for page, want := range map[string]int{row.page: http.StatusOK, row.other: http.StatusForbidden} {
			if got := c.send(browser, Root+page, nil); got.StatusCode != want {
				t.Errorf("%s, %s is answered %d", row.name, page, got.StatusCode)
			}
		}
		if got := c.send(browser, came.RequestURI(), nil); got.StatusCode != http.StatusForbidden {
			t.Errorf("%s comes back twice: %d", row.name, got.StatusCode)
		}
		c.trust(issuer, openid.ListedCaller{Is: "operator", Claims: map[string]string{"sub": "successor"}})
		if got := c.send(browser, Root+row.page, nil); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s is not listed any more, and is answered %d", row.name, got.StatusCode)
		}
		c.trust(issuer, listed...)
	}
	for _, name := range []string{"nobody", "dora"} {
		browser := c.as(access.Caller{})
		if got := c.send(browser, issuer.Authorize(begins(browser, ""), name).RequestURI(), nil); got.StatusCode != http.StatusForbidden || !strings.Contains(got.body, "You are not signed in") {
			t.Errorf("%s is answered %d", name, got.StatusCode)
		}
	}
	browser := c.as(access.Caller{})
	if got := c.send(browser, Root+"sign-in?issuer=https://evil.example", nil); got.StatusCode != http.StatusNotFound {
		t.Errorf("an issuer that is not listed: %d", got.StatusCode)
	}
}
