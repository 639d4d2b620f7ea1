package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/openid"
)

// platformsOf reads the platforms from a file with the document.
func platformsOf(t testing.TB, document string) (*Platforms, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "platforms.yaml")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadPlatforms(path)
}

func TestAuthenticate(t *testing.T) {
	platforms, err := platformsOf(t, platformsDocument)
	if err != nil {
		t.Fatal(err)
	}
	basic := func(username, password string) sending {
		return func(r *http.Request) { r.SetBasicAuth(username, password) }
	}
	certificate := func(name string, verified bool) sending {
		return func(r *http.Request) {
			chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}
			r.TLS = &tls.ConnectionState{PeerCertificates: chain}
			if verified {
				r.TLS.VerifiedChains = [][]*x509.Certificate{chain}
			}
		}
	}
	for name, row := range map[string]struct {
		how  []sending
		want string
	}{
		"a password":                      {[]sending{basic("cf", "password-in-use")}, "cf-eu"},
		"the password before":             {[]sending{basic("cf", "password-before")}, "cf-eu"},
		"another platform":                {[]sending{basic("k8s", "password-of-k8s")}, "k8s"},
		"a token":                         {[]sending{header("Authorization", "Bearer token-of-cf")}, "cf-eu"},
		"a token, in lower case":          {[]sending{header("Authorization", "bearer token-of-cf")}, "cf-eu"},
		"a verified certificate":          {[]sending{certificate("cf.example.com", true)}, "cf-eu"},
		"nothing":                         {nil, ""},
		"a certificate not verified":      {[]sending{certificate("cf.example.com", false)}, ""},
		"another certificate":             {[]sending{certificate("k8s.example.com", true)}, ""},
		"a certificate, a wrong password": {[]sending{certificate("cf.example.com", true), basic("cf", "x")}, ""},
		"user and password shifted":       {[]sending{basic("cfp", "assword-in-use")}, ""},
		"half a password":                 {[]sending{basic("cf", "password")}, ""},
		"an empty token":                  {[]sending{header("Authorization", "Bearer ")}, ""},
		"the certificate's name as token": {[]sending{header("Authorization", "Bearer cf.example.com")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequest("GET", "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range row.how {
				h(r)
			}
			got := ""
			if platform, _, err := platforms.identify(r); err == nil {
				got = platform.Name
			}
			if got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

// TestChallenges: a caller is told the ways to authenticate that some platform has.
func TestChallenges(t *testing.T) {
	const basic, bearer = `Basic realm="sluice", charset="UTF-8"`, `Bearer realm="sluice"`
	const password, token, certificate = "basic: [{username: a, password: long-enough-a}]", "bearer: [long-enough-token]", "clientCertificateNames: [a.example]"
	for how, want := range map[string][]string{
		password: {basic}, token: {bearer}, password + ", " + token: {basic, bearer}, certificate: {basic},
	} {
		platforms, err := platformsOf(t, "platforms: [{name: a, "+how+"}]")
		if err != nil {
			t.Fatal(err)
		}
		if got := platforms.challenges(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", how, got, want)
		}
	}
	platforms, err := platformsOf(t, `{platforms: [{name: a}], openid: [{issuer: "https://a.example", audiences: [b], callers: [{is: "platform:a", claims: {sub: c}}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := platforms.challenges(); !slices.Equal(got, []string{bearer}) {
		t.Errorf("tokens of an issuer: got %q", got)
	}
}

func TestPlatformsAreRefused(t *testing.T) {
	const secret = "hush-hush"
	for name, document := range map[string]string{
		"nothing":                      ``,
		"no platforms":                 `platforms: []`,
		"not YAML":                     `{platforms: ` + secret,
		"an unknown field":             `{platforms: [{name: a, basics: [{username: u, password: ` + secret + `}]}]}`,
		"no credentials":               `{platforms: [{name: a}]}`,
		"an empty password":            `{platforms: [{name: a, basic: [{username: u, password: ""}]}]}`,
		"an empty token":               `{platforms: [{name: a, bearer: [""]}]}`,
		"a colon in a name":            `{platforms: [{name: a, basic: [{username: "u:v", password: ` + secret + `}]}]}`,
		"a bad name":                   `{platforms: [{name: "A b", bearer: [` + secret + `]}]}`,
		"a name twice":                 `{platforms: [{name: a, bearer: [` + secret + `]}, {name: a, bearer: [x]}]}`,
		"a shared credential":          `{platforms: [{name: a, bearer: [` + secret + `]}, {name: b, bearer: [` + secret + `]}]}`,
		"an unknown answer":            `{platforms: [{name: a, bearer: [` + secret + `], deletedLastOperation: maybe}]}`,
		"no selector":                  `{platforms: [{name: a, bearer: [` + secret + `], reads: {fleet: "region in"}}]}`,
		"a caller that is no platform": `{platforms: [{name: a, bearer: [` + secret + `]}], openid: [{issuer: "https://a.example", audiences: [b], callers: [{is: "platform:b", claims: {sub: c}}]}]}`,
		"an issuer without https":      `{platforms: [{name: a, bearer: [` + secret + `]}], openid: [{issuer: "http://a.example", audiences: [b], callers: [{is: operator, claims: {sub: c}}]}]}`,
		"an operator only":             `{platforms: [{name: a}], openid: [{issuer: "https://a.example", audiences: [b], callers: [{is: operator, claims: {sub: c}}]}]}`,
		"the name of Sluice itself":    `{platforms: [{name: ` + v1alpha1.PlatformSelf + `, bearer: [` + secret + `]}]}`,
		"fewer than no instances":      `{platforms: [{name: a, bearer: [` + secret + `], limits: {instances: -1}}]}`,
		"fewer than no bytes":          `{platforms: [{name: a, bearer: [` + secret + `], limits: {bytes: "-1"}}]}`,
		"a list as a password":         `{platforms: [{name: a, basic: [{username: u, password: [` + secret + `]}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := platformsOf(t, document)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestPlatformsFollowTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "platforms.yaml")
	write := func(text string) {
		t.Helper()
		// Replaced as Kubernetes and editors do it: another file under the same name.
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadPlatforms(path); err == nil {
		t.Fatal("loaded without a file")
	}
	write(`{platforms: [{name: a, bearer: [first]}]}`)
	platforms, err := LoadPlatforms(path)
	if err != nil {
		t.Fatal(err)
	}
	admits := func(token string) bool {
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		_, _, err := platforms.identify(r)
		return err == nil
	}
	write(`{platforms: [{name: a, bearer: [first, second]}]}`)
	if !admits("first") || !admits("second") {
		t.Error("while both are valid, one is refused")
	}
	write(`{platforms: [{name: a, bearer: [second]}]}`)
	if admits("first") || !admits("second") {
		t.Error("the change is not followed")
	}
	write(`{platforms: `)
	if !admits("second") {
		t.Error("a broken file locks everybody out")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if !admits("second") {
		t.Error("a missing file locks everybody out")
	}
	write(`{platforms: [{name: a, bearer: [third]}]}`)
	if admits("second") || !admits("third") {
		t.Error("the file that came back is not read")
	}
}

// verifier knows tokens by their text.
type verifier map[string]access.Caller

func (v verifier) Verify(_ context.Context, token string) (access.Caller, error) {
	if caller, ok := v[token]; ok {
		return caller, nil
	}
	return access.Caller{}, access.ErrRefused
}

// TestPlatformsByToken: a platform's token is as good as its credentials, except to get another token.
func TestPlatformsByToken(t *testing.T) {
	platforms, err := platformsOf(t, "platforms: [{name: a, bearer: [static], deletedLastOperation: succeeded}, {name: b, bearer: [other]}]")
	if err != nil {
		t.Fatal(err)
	}
	platforms.AcceptTokens(verifier{
		"of-a": {Role: access.Platform, Name: "a"}, "of-nobody": {Role: access.Platform, Name: "c"},
		"operator": {Role: access.Operator}, "provider": {Role: access.Provider, Name: "a"},
	})
	for header, want := range map[string]struct{ authenticated, proven string }{
		"Bearer static": {"a", "a"}, "Bearer of-a": {"a", ""}, "bearer of-a": {"a", ""}, "Basic of-a": {}, "Bearer of-nobody": {},
		"Bearer operator": {}, "Bearer provider": {}, "Bearer unknown": {}, "": {},
	} {
		r, _ := http.NewRequest("GET", "/", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		got := ""
		if platform, _, err := platforms.identify(r); err == nil {
			got = platform.Name
		}
		proven, ok := platforms.Prove(r)
		if got != want.authenticated || proven.Name != want.proven || ok != (want.proven != "") {
			t.Errorf("%q: authenticated as %q, proven %q; want %v", header, got, proven, want)
		}
		if ok && !slices.Contains(platforms.CredentialsOf(proven.Caller), proven.Credential) {
			t.Errorf("%q: its digest is not among the platform's", header)
		}
	}
	if n := len(platforms.CredentialsOf(access.Caller{Role: access.Platform, Name: "c"})); n != 0 {
		t.Errorf("a platform that is not listed has %d credentials", n)
	}
}

func FuzzPlatforms(f *testing.F) {
	f.Add([]byte(platformsDocument))
	f.Add([]byte(`{platforms: [{name: a, bearer: [x]}]}`))
	f.Add([]byte(`{platforms: [{name: a}], openid: [{issuer: "https://a.example", audiences: [b], callers: [{is: "platform:a", claims: {sub: c}}]}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		r, err := parseRoster(document, new(openid.Connections))
		if err != nil {
			return
		}
		for _, c := range r.credentials {
			if c.platform == nil || !platformName.MatchString(c.platform.Name) {
				t.Errorf("accepted %q", document)
			}
		}
	})
}

// TestPlatformsFileFaults: errors name the field and line of a fault, without secrets; a
// file that others may read is refused.
func TestPlatformsFileFaults(t *testing.T) {
	for _, row := range []struct{ name, document, says string }{
		{"an unknown field", "platforms:\n- name: cf\n  pasword: hunter2\n", "line 3: platforms[0].pasword: unknown field"},
		{"a password that is a number", "platforms:\n- name: cf\n  basic:\n  - {username: cf, password: 8675309}\n", "line 4: platforms[0].basic[0].password: want a string, got a number"},
		{"a list that is none", "platforms: {name: hunter2}\n", "line 1: platforms: want a"},
		{"a key twice", "platforms:\n- name: cf\n  name: cf\n", "line 3"},
		{"no YAML", "platforms: [hunter2", "line 1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := platformsOf(t, row.document)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Fatalf("got %v, want %q", err, row.says)
			}
			for _, secret := range []string{"hunter2", "8675309"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("a secret is in the error: %v", err)
				}
			}
		})
	}
	file := filepath.Join(t.TempDir(), "platforms.yaml")
	if err := os.WriteFile(file, []byte("platforms: [{name: cf, bearer: [token]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := LoadPlatforms(file)
		if refused != (err != nil) || refused && !strings.Contains(err.Error(), "chmod 600 "+file) {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(file), "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPlatforms(file); err != nil {
		t.Errorf("a mounted Secret: %v", err)
	}
}

// TestLimitsAndReadsOfThePlatformsFile: what a platform is not given has a default.
func TestLimitsAndReadsOfThePlatformsFile(t *testing.T) {
	platforms, err := platformsOf(t, `platforms:
- {name: plain, bearer: [a]}
- {name: given, bearer: [b], deletedLastOperation: gone, limits: {instances: 0, bytes: 1Mi}, reads: {fleet: "region=eu", all: ""}}
- {name: half, bearer: [c], limits: {instances: 7}}`)
	if err != nil {
		t.Fatal(err)
	}
	known := platforms.file.Current().byName
	for name, want := range map[string]Limits{"plain": {defaultInstances, defaultHeldBytes}, "given": {0, 1 << 20}, "half": {7, defaultHeldBytes}} {
		if p := known[name]; p.Limits != want || p.DeletedLastOperation != DeletedGone {
			t.Errorf("%s has %+v and %s, want %+v", name, p.Limits, p.DeletedLastOperation, want)
		}
	}
	reads := known["given"].Reads
	for _, row := range []struct {
		name, region string
		want         bool
	}{{"fleet", "eu", true}, {"fleet", "us", false}, {"all", "us", true}} {
		if got := reads[row.name].Matches(labels.Set{"region": row.region}); got != row.want {
			t.Errorf("%s of region %s: %t", row.name, row.region, got)
		}
	}
	if len(reads) != 2 || known["plain"].Reads != nil {
		t.Errorf("they read %v and %v", reads, known["plain"].Reads)
	}
}
