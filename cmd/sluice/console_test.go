package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/access"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/identity/identitytest"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestConsoleLinks: a link has a ticket that Sluice takes once, for whom it was made; and a revocation ends what there
// is.
func TestConsoleLinks(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	dataDir := filepath.Dir(h.Kubeconfig)
	keys, err := seal.Open((&hubFlags{dataDir: dataDir}).keysetPath())
	if err != nil {
		t.Fatal(err)
	}
	must("provider", "add", "acme", "--did", "did:web:acme.example")
	if _, err := operator("console", "--url", "https://broker.example/"); err == nil || !strings.Contains(err.Error(), identity.ErrNoKey.Error()) {
		t.Errorf("before the broker has a key: %v", err)
	}
	identitytest.Rotate(t, c, h.Namespace, keys, "", "1")
	if err := writeBrokerURL(dataDir, "http://127.0.0.1:8080"); err != nil {
		t.Fatal(err)
	}
	tokens := &access.Tokens{Hub: c, Live: c, Writer: c, Namespace: h.Namespace, Seal: keys}
	for arguments, want := range map[string]access.Caller{
		"":                      {Role: access.Operator},
		"--as-platform default": {Role: access.Platform, Name: "default"},
		"--as-provider acme":    {Role: access.Provider, Name: "acme"},
	} {
		link := strings.TrimSpace(must(append([]string{"console"}, strings.Fields(arguments)...)...))
		ticket, ok := strings.CutPrefix(link, "http://127.0.0.1:8080/console/enter#ticket=")
		if !ok {
			t.Fatalf("%q is no link", link)
		}
		if got, err := tokens.Redeem(t.Context(), ticket); err != nil || got != want {
			t.Errorf("%s: got %q, %v", arguments, got, err)
		}
		if _, err := tokens.Redeem(t.Context(), ticket); err == nil {
			t.Errorf("%s: it works twice", arguments)
		}
	}
	for arguments, why := range map[string]string{
		"--as-provider nobody":                     "--as-provider nobody: there is none of this name",
		"--as-provider acme --as-platform a":       "none of the others can be",
		"--as-platform default --revoke":           "remove them there",
		"--keyset " + t.TempDir() + "/keyset.json": "--keyset",
	} {
		if _, err := operator(append([]string{"console"}, strings.Fields(arguments)...)...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v, want %s", arguments, err, why)
		}
	}
	for _, caller := range []access.Caller{{Role: access.Operator}, {Role: access.Provider, Name: "acme"}} {
		token, err := tokens.Issue(t.Context(), caller, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		arguments := []string{"console", "--revoke"}
		if caller.Role == access.Provider {
			arguments = append(arguments, "--as-provider", caller.Name)
		}
		must(arguments...)
		if _, err := tokens.Verify(t.Context(), token); err == nil {
			t.Errorf("the token of %s is still good", caller)
		}
	}
	acme := &v1alpha1.Provider{}
	must("provider", "add", "acme", "--did", "did:web:acme.example")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: "acme"}, acme); err != nil || acme.Spec.TokensRevoked != 1 {
		t.Errorf("adding the provider again takes the revocation back: %d, %v", acme.Spec.TokensRevoked, err)
	}
}
