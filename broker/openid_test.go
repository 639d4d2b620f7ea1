package broker

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

// openIDFile is a platforms file that changes.
type openIDFile struct {
	*testing.T
	path   string
	issuer *openidtest.Issuer
}

// write lists two platforms: "static" with a password, and "ci", which these callers of the issuer are.
func (f *openIDFile) write(platforms string, callers ...openid.ListedCaller) {
	f.Helper()
	file := PlatformsFile{}
	if len(callers) > 0 {
		file.OpenID = []openid.Listed{f.issuer.Listed(callers...)}
	}
	for name := range strings.FieldsSeq(platforms) {
		file.Platforms = append(file.Platforms, ListedPlatform{Name: name, Basic: []BasicCredential{{Username: name, Password: "password-of-" + name}}})
		if name == "ci" {
			file.Platforms[len(file.Platforms)-1].Basic = nil
		}
	}
	document, err := json.Marshal(file) // which is YAML too
	if err == nil {
		err = os.WriteFile(f.path+".new", document, 0o600)
	}
	if err == nil {
		err = os.Rename(f.path+".new", f.path)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// TestPlatformsOfAnIssuer: a platform calls with the tokens of an issuer, beside those with passwords; whatever is
// wrong with a token is answered alike, and logged.
func TestPlatformsOfAnIssuer(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	file := &openIDFile{T: t, path: filepath.Join(t.TempDir(), "platforms.yaml"), issuer: openidtest.Start(t)}
	ci := openid.ListedCaller{Is: "platform:ci", Claims: map[string]string{"sub": "ci"}}
	operator := openid.ListedCaller{Is: "operator", Claims: map[string]string{"groups": "operators"}}
	file.write("static ci", operator, ci)
	platforms, err := LoadPlatforms(file.path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, func(o *Options) { o.Platforms, o.Clock = platforms, now })
	bearer := func(token string) sending { return header("Authorization", "Bearer "+token) }
	token := func(changes map[string]any) sending { return bearer(file.issuer.Token(changes)) }
	right := bearer(file.issuer.SignIn("ci"))

	// The issuer is down before its keys were read: that is said, and counts as no guess.
	file.issuer.Instead(http.NotFound)
	for range wrongBurst + 1 {
		got := f.refused(http.StatusServiceUnavailable, "Unavailable", "GET", "/v2/catalog", nil, right)
		if got.header.Get("Retry-After") != "10" || strings.Contains(string(got.raw), file.issuer.URL) {
			t.Fatalf("got %s, %v", got.raw, got.header)
		}
	}
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, func(r *http.Request) { r.SetBasicAuth("static", "password-of-static") })
	file.issuer.Instead(nil)
	if platforms, err = LoadPlatforms(file.path); err != nil { // has asked nobody within ten seconds
		t.Fatal(err)
	}
	f = newFixture(t, func(o *Options) { o.Platforms, o.Clock = platforms, now })

	f.want(http.StatusOK, "GET", "/v2/catalog", nil, right)
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, token(map[string]any{"sub": "ci", "groups": "operators"}))
	plain := f.refused(http.StatusUnauthorized, "Unauthorized", "GET", "/v2/catalog", nil, bearer("hush-hush"))
	for why, how := range map[string]sending{
		"identifies no platform":   token(map[string]any{"groups": "operators"}),
		"no caller that":           token(map[string]any{"sub": "another"}),
		"it has expired":           token(map[string]any{"sub": "ci", "exp": 1}),
		"it is for another":        token(map[string]any{"sub": "ci", "aud": "other"}),
		"its issuer is none":       bearer(openidtest.Start(t).Token(map[string]any{"sub": "ci"})),
		"no key of its issuer has": bearer(file.issuer.Token(map[string]any{"sub": "ci"}) + "x"),
	} {
		got := f.refused(http.StatusUnauthorized, "Unauthorized", "GET", "/v2/catalog", nil, how)
		if string(got.raw) != string(plain.raw) || strings.Join(got.header["Www-Authenticate"], ", ") != `Basic realm="sluice", charset="UTF-8", Bearer realm="sluice"` {
			t.Errorf("%s: answered %s, %v", why, got.raw, got.header)
		}
		if !strings.Contains(f.log.String(), why) {
			t.Errorf("it is not logged that %s:\n%s", why, f.log)
		}
	}

	fetched := file.issuer.KeyFetches.Load()
	file.write("static") // the platform is removed
	f.refused(http.StatusUnauthorized, "Unauthorized", "GET", "/v2/catalog", nil, right)
	file.write("static ci", openid.ListedCaller{Is: "platform:ci", Claims: map[string]string{"sub": "successor"}})
	f.refused(http.StatusUnauthorized, "Unauthorized", "GET", "/v2/catalog", nil, right)
	file.write("static ci") // cannot be used: ci has no credentials
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, token(map[string]any{"sub": "successor"}))
	file.write("static ci", ci)
	f.want(http.StatusOK, "GET", "/v2/catalog", nil, right)
	if n := file.issuer.KeyFetches.Load(); n != fetched {
		t.Errorf("the keys were fetched %d times more, for changes of the file", n-fetched)
	}
}
