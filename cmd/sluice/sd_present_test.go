package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// askingBroker verifies presentations under a name, with the keys of a folder, and stores
// nothing.
func askingBroker(t *testing.T, name, dir string) *httptest.Server {
	t.Helper()
	known, err := readKeys(io.Discard, []string{filepath.Join(dir, "did.json")})
	if err != nil {
		t.Fatal(err)
	}
	verifier := &selfdescription.Verifier{Keys: &did.Resolver{Keys: func(name string) (*jose.JSONWebKeySet, bool) { set, ok := known[name]; return set, ok }}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.Method + " " + r.URL.Path {
		case "POST /selfdescriptions/challenges":
			answer = challenge{Nonce: "a-nonce", Audience: name}
		case "POST /selfdescriptions":
			if r.Header.Get("Content-Type") != "application/vp+jwt" {
				t.Errorf("content type %s", r.Header.Get("Content-Type"))
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			var found presented
			presentation, report := verifier.Presentation(r.Context(), string(body), selfdescription.Expect{Audience: name, Nonce: "a-nonce", Operation: selfdescription.OperationPresent})
			found.Report = report
			if presentation == nil {
				w.WriteHeader(http.StatusForbidden)
				answer = found
				break
			}
			for _, compact := range presentation.Credentials {
				_, report := verifier.Credential(r.Context(), compact)
				found.Credentials = append(found.Credentials, presentedCredential{
					Digest: selfdescription.DigestOf(compact).SRI(), State: string(report.State), Report: report,
				})
			}
			answer = found
		case "POST /market/v1/tokens":
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			presentation, report := verifier.Presentation(r.Context(), string(body), selfdescription.Expect{Audience: name, Nonce: "a-nonce", Operation: selfdescription.OperationLogin})
			if presentation == nil || len(presentation.Credentials) > 0 || r.Header.Get("Content-Type") != "application/vp+jwt" {
				w.WriteHeader(http.StatusUnprocessableEntity)
				answer = map[string]any{"error": "PresentationRefused", "description": report.Failed().Message}
				break
			}
			answer = map[string]any{"token": "token of " + presentation.Holder}
		default:
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestSDPresentHandsInEveryCredential(t *testing.T) {
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	server := askingBroker(t, "did:web:broker.example", dir)
	out := mustSluice(t, "sd", "present", "--dir", dir, "--to", server.URL, "--audience", "did:web:broker.example")
	if strings.Count(out, ", verified") != 5 || !strings.Contains(out, "credentials/offering-eu.jwt") {
		t.Errorf("want 5 credentials verified, by their files:\n%s", out)
	}
}

// TestSDPresentSignsForNobodyElse: a broker in the middle cannot obtain a presentation for
// another one.
func TestSDPresentSignsForNobodyElse(t *testing.T) {
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	server := askingBroker(t, "did:web:the-true-broker.example", dir)
	if _, err := sluice(t, "sd", "present", "--dir", dir, "--to", server.URL); err == nil || !strings.Contains(err.Error(), "--audience") {
		t.Errorf("it presented to a broker of another name: %v", err)
	}
}

func TestSDPresentSaysWhatWasRefused(t *testing.T) {
	dir, other := initialised(t), initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	server := askingBroker(t, "did:web:broker.example", other) // knows another key of the provider
	out, err := sluice(t, "sd", "present", "--dir", dir, "--to", server.URL, "--audience", "did:web:broker.example")
	if err == nil || !strings.Contains(out, "✗ signature") {
		t.Errorf("want the step that failed, got %v:\n%s", err, out)
	}
}

// TestSDLogin: a provider gets a token with its key alone; and hears why it gets none.
func TestSDLogin(t *testing.T) {
	dir, other := initialised(t), initialised(t)
	server := askingBroker(t, "did:web:broker.example", dir)
	if out := mustSluice(t, "sd", "login", "--dir", dir, "--to", server.URL, "--audience", "did:web:broker.example"); out != "token of did:web:provider.example\n" {
		t.Errorf("got %q", out)
	}
	if out, err := sluice(t, "sd", "login", "--dir", other, "--to", server.URL, "--audience", "did:web:broker.example"); err == nil || out != "" || !strings.Contains(err.Error(), "gave no token, with status 422: ") {
		t.Errorf("got %q, %v", out, err)
	}
}
