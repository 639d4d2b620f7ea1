package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
)

// printed runs commands in a folder with policy.yaml, and checks that they print these texts.
func (s *served) printed(t *testing.T, commands, policy string, environment []string, want ...string) {
	t.Helper()
	told := s.runs(t, []byte("```sh\n"+commands+"\n```\n"), map[string]string{"policy.yaml": policy}, environment...)
	for _, text := range want {
		if !strings.Contains(told, text) {
			t.Errorf("%s prints no %q:\n%s", commands, text, told)
		}
	}
}

func policyFile(name, rule string) string {
	return fmt.Sprintf("apiVersion: sluice.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: %s}\nspec: {require: [{name: who, expression: \"%s\"}]}\n", name, rule)
}

// saysWhatItAccepts: a platform checks, applies and removes policies, by the commands of docs/market.md as they are
// printed. They decide which plans it is offered, and nobody else.
func saysWhatItAccepts(t *testing.T, s *served) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "market.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What a platform accepts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	as := []string{envURL + "=" + s.url, envUsername + "=first", envPassword + "=first-password"}
	told := s.runs(t, []byte(strings.ReplaceAll(section, "platform.default.", "platform.first.")), nil, as...)
	for _, text := range []string{
		"policy platform.first.european: in force, 1 requirement and 1 preference\n", "platform.first.european  yes", "certified (50)", "    name: platform.first.european\n", "policy platform.first.european: removed\n",
	} {
		if !strings.Contains(strings.ReplaceAll(told, "\n  name:", "\n    name:"), text) {
			t.Errorf("the page's commands do not print %q:\n%s", text, told)
		}
	}
	own := policyFile("platform.first.dear", "cluster.provider == 'dear'")
	s.printed(t, `sluice policy check -f policy.yaml --to "$SLUICE_URL"
		sluice policy apply -f policy.yaml --to "$SLUICE_URL"
		sluice policy apply -f policy.yaml --to "$SLUICE_URL"`, own, as, "of cheap", "cheap/small", "no cluster is left for cheap/small", "policy platform.first.dear: in force, 1 requirement")
	s.cheapest(t, "dear-small")
	s.printed(t, `! sluice policy show platform.first.dear --to "$SLUICE_URL"`, "", []string{envURL + "=" + s.url, envToken + "=wrong"}, "get a token for the market: Authorization")
	s.printed(t, `! sluice policy apply -f policy.yaml --to "$SLUICE_URL"`, policyFile("platform.second.x", "true"), as, "is not first's, whose ids are platform.first.NAME")
	s.printed(t, `! sluice policy apply -f policy.yaml --to "$SLUICE_URL"`, policyFile("platform.first.x", "cluster.name == 'x'"), as, "reads cluster.name, which is the operator's")
	s.printed(t, `! sluice policy list --to "$SLUICE_URL" | grep dear`, "", []string{envURL + "=" + s.url, envUsername + "=second", envPassword + "=second-password"})
	s.printed(t, `sluice __complete policy remove --to "$SLUICE_URL" ""
		sluice policy show platform.first.dear --to "$SLUICE_URL" -o json
		sluice policy remove platform.first.dear --to "$SLUICE_URL"`, "", as, "platform.first.dear\n:4", `"expression": "cluster.provider == 'dear'"`, "policy platform.first.dear: removed")
	s.cheapest(t, "cheap-small")
}

// managesItsPolicies: a provider does the same, with the token of its login.
func managesItsPolicies(t *testing.T, s *served, v *vendor) {
	t.Helper()
	as := []string{envURL + "=" + s.url, envToken + "=" + v.token}
	s.printed(t, `! sluice policy check -f policy.yaml --to "$SLUICE_URL"
		sluice policy check -f policy.yaml --to "$SLUICE_URL" --platform first -o jsonpath='{.unserved[0].cluster}'
		sluice policy apply -f policy.yaml --to "$SLUICE_URL"
		sluice policy check cheap.friends --to "$SLUICE_URL" --platform second
		sluice policy list --to "$SLUICE_URL"
		sluice policy remove cheap.friends --to "$SLUICE_URL"
		! sluice policy remove cheap.friends --to "$SLUICE_URL"`, policyFile("cheap.friends", "consumer.platform != 'first'"), as,
		"consumer.platform: want a value", "cheap-1", "policy cheap.friends: in force, 1 requirement", "cheap.friends  yes    cheap", "policy cheap.friends: removed", "There is no policy cheap.friends")
	s.cheapest(t, "cheap-small")
}

// followsBySocket: the whole of what serves --listen lets a WebSocket through, and says its end before it ends.
func followsBySocket(t *testing.T, s *served, token string) {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), s.url+"/market/v1/changes", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(1 << 20)
	if _, first, err := conn.Read(t.Context()); err != nil || !strings.HasPrefix(string(first), `{"event":"plans","id":`) {
		t.Errorf("the first message is %.200s, %v", first, err)
	}
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, _, err = conn.Read(t.Context())
	}
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("it ends with %v", err)
	}
}

// TestMarketClient: waits as long as it is told, and passes its token on to nobody.
func TestMarketClient(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch asked++; {
		case r.URL.Path == "/market/v1/elsewhere":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case r.URL.Path == "/market/v1/no-market":
			_, _ = w.Write([]byte("<html>"))
		case asked == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"description": "Too many."}`))
		default:
			_, _ = w.Write([]byte(`{"by": "` + r.Header.Get("Authorization") + `"}`))
		}
	}))
	t.Cleanup(server.Close)
	m, err := newMarketClient(server.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	m.token = "mine"
	var got struct{ By string }
	if err := m.call(t.Context(), http.MethodGet, "policies", nil, nil, &got); err != nil || got.By != "Bearer mine" || asked != 2 {
		t.Errorf("got %+v after %d requests, %v", got, asked, err)
	}
	for path, why := range map[string]string{"elsewhere": "redirect", "no-market": "not the answer of a broker with a market"} {
		if err := m.call(t.Context(), http.MethodGet, path, nil, nil, &got); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, args := range [][]string{{"policy", "list", "--to", "ftp://x"}, {"policy", "check", "x"}, {"policy", "check", "--to", "http://x"}} {
		if out, err := sluice(t, args...); err == nil {
			t.Errorf("sluice %v prints %s", args, out)
		}
	}
}
