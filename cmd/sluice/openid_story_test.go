package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
)

// issued is a Sluice whose platforms file lists an issuer.
type issued struct {
	*served
	issuer *openidtest.Issuer
	file   string
}

// list replaces the platforms file: "ci" has no credentials but these callers of the issuer.
func (s *issued) list(callers ...openid.ListedCaller) {
	s.Helper()
	document, err := json.Marshal(broker.PlatformsFile{
		Platforms: []broker.ListedPlatform{{Name: "ci"}, {Name: "first", Basic: []broker.BasicCredential{{Username: "first", Password: "first-password"}}}},
		OpenID:    []openid.Listed{s.issuer.Listed(callers...)},
	})
	if err == nil {
		err = os.WriteFile(s.file+".new", document, 0o600)
	}
	if err = errors.Join(err, os.Rename(s.file+".new", s.file)); err != nil {
		s.Fatal(err)
	}
}

// status returns how a request with a token is answered.
func (s *issued) status(token, path string) int {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("X-Broker-API-Version", "2.17")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// exchange exchanges a token of the issuer for one of the market, whose caller it checks.
func (s *issued) exchange(token, want string) string {
	s.Helper()
	response, err := http.PostForm(s.url+"/market/v1/tokens", url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {token},
		"subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"},
	})
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	var got map[string]any
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got["scope"] != want {
		s.Fatalf("got %s, %v, %v; want a token of %s", response.Status, got, err, want)
	}
	return got["access_token"].(string)
}

// TestCallersOfAnIssuer: whoever signs in at the issuer of the platforms file calls the OSB API and the market, for as
// long as the file names them.
func TestCallersOfAnIssuer(t *testing.T) {
	t.Parallel()
	s := &issued{served: serveAnother(t, "sluice"), issuer: openidtest.Start(t)}
	s.file = filepath.Join(s.dir, "platforms.yaml")
	s.must("provider", "add", "acme", "--did", "did:web:acme.example")
	callers := []openid.ListedCaller{
		{Is: "platform:ci", Claims: map[string]string{"sub": "pipeline"}},
		{Is: "provider:acme", Claims: map[string]string{"sub": "bert"}},
		{Is: "operator", Claims: map[string]string{"sub": "anna"}},
	}
	s.list(callers...)
	if list := s.must("platform", "list"); !strings.Contains(list, s.issuer.URL) {
		t.Errorf("listed as\n%s", list)
	}
	if _, err := s.sluice("platform", "show", "ci"); err == nil || !strings.Contains(err.Error(), "tokens of "+s.issuer.URL) {
		t.Errorf("shown as %v", err)
	}
	pipeline, bert, anna := s.issuer.SignIn("pipeline"), s.issuer.SignIn("bert"), s.issuer.SignIn("anna")
	s.until("the platform reads the catalog", func(context.Context) error {
		if status := s.status(pipeline, "/v2/catalog"); status != http.StatusOK {
			return fmt.Errorf("it is answered %d", status)
		}
		return nil
	})
	tokens := map[string]string{"platform:ci": s.exchange(pipeline, "platform:ci"), "provider:acme": s.exchange(bert, "provider:acme"), "operator": s.exchange(anna, "operator")}
	checks := func(when string, want map[string]int) {
		t.Helper()
		for _, row := range []struct{ who, token, path string }{
			{"the platform, by its own token", pipeline, "/v2/catalog"},
			{"the platform", tokens["platform:ci"], "/v2/catalog"},
			{"the provider", tokens["provider:acme"], "/market/v1/offerings"},
			{"the operator", tokens["operator"], "/market/v1/clusters"},
		} {
			if got := s.status(row.token, row.path); got != want[row.who] {
				t.Errorf("%s, %s is answered %d, want %d", when, row.who, got, want[row.who])
			}
		}
	}
	const ok, no = http.StatusOK, http.StatusUnauthorized
	checks("at first", map[string]int{"the platform, by its own token": ok, "the platform": ok, "the provider": ok, "the operator": ok})
	for _, token := range []string{bert, anna} {
		if got := s.status(token, "/v2/catalog"); got != no {
			t.Errorf("somebody who is no platform is answered %d", got)
		}
	}
	s.list(callers[0], callers[2])
	checks("without the provider", map[string]int{"the platform, by its own token": ok, "the platform": ok, "the provider": no, "the operator": ok})
	s.list(callers[0], callers[1])
	checks("without the operator", map[string]int{"the platform, by its own token": ok, "the platform": ok, "the provider": ok, "the operator": no})
	s.issuer.Instead(http.NotFound)
	checks("while the issuer is down", map[string]int{"the platform, by its own token": ok, "the platform": ok, "the provider": ok, "the operator": no})
	callers[0].Claims = map[string]string{"sub": "another"}
	s.list(callers...)
	checks("with another pipeline", map[string]int{"the platform, by its own token": no, "the platform": no, "the provider": ok, "the operator": ok})
}
