package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/contracts"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/internal/identity"
	"github.com/sluice-dev/sluice/internal/identity/identitytest"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestContractsAreSigned: an operator signs what was agreed, also after the end, and whoever has the broker's keys verifies
// it without the broker, notices each change of it, and can verify with the former keys what was signed before a
// rotation; a restored hub has the same contracts.
func TestContractsAreSigned(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	dir, away := filepath.Dir(h.Kubeconfig), t.TempDir()
	in := func(name, content string) string {
		path := filepath.Join(away, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	i := deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	began := time.Now().Add(-time.Hour)
	i.Status.Contracts = contracts.Next(i, nil, nil, i.Status.Delivered, began)
	i.Status.Usage = []v1alpha1.UsagePeriod{{Cluster: "eu", Provider: "acme", From: metav1.NewTime(began)}}
	if err := c.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if _, err := operator("instance", "contract", "si-1", "-o", "jwt"); err == nil || !strings.Contains(err.Error(), "--keyset") {
		t.Errorf("signed without a keyset: %v", err)
	}
	keys, err := seal.Open(filepath.Join(dir, "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	// published writes the keys of the broker as they are published.
	published := func(name string) string {
		id := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: v1alpha1.IdentityName}}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(id), id); err != nil {
			t.Fatal(err)
		}
		all, err := identity.PublicKeys(id)
		if err != nil {
			t.Fatal(err)
		}
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: all[:1]})
		if err != nil {
			t.Fatal(err)
		}
		return in(name, string(set))
	}
	identitytest.Rotate(t, c, h.Namespace, keys, "did:web:broker.example", "1")
	first, before := in("first.jwt", must("instance", "contract", "si-1", "-o", "jwt")), published("before.json")
	if out := mustSluice(t, "sd", "verify", first, "--keys", before); !strings.Contains(out, "sluice-contract+jwt of did:web:broker.example") {
		t.Errorf("verified: %s", out)
	}
	used := in("usage.jwt", must("usage", "--by", "provider", "--provider", "acme", "-o", "jwt"))
	if out := mustSluice(t, "sd", "show", used) + mustSluice(t, "sd", "verify", used, "--keys", before); !strings.Contains(out, `"provider": "acme"`) {
		t.Errorf("the usage is %s", out)
	}
	if out := mustSluice(t, "sd", "show", in("none.jwt", must("usage", "--by", "provider", "--provider", "rival", "-o", "jwt"))); strings.Contains(out, "acme") {
		t.Errorf("another provider's usage is %s", out)
	}
	identitytest.Rotate(t, c, h.Namespace, keys, "did:web:broker.example", "2")
	after := published("after.json")
	mustSluice(t, "sd", "verify", in("second.jwt", must("instance", "contract", "si-1", "--platform", "cf", "--number", "1", "-o", "jwt")), "--keys", after)
	mustSluice(t, "sd", "verify", first, "--keys", before)
	if out, err := sluice(t, "sd", "verify", first, "--keys", after); err == nil {
		t.Errorf("verified by another key: %s", out)
	}

	read := func(run func(...string) string) (all []contracts.Agreement) {
		t.Helper()
		if err := json.Unmarshal([]byte(run("instance", "contract", "si-1", "-o", "json")), &all); err != nil || len(all) != 1 {
			t.Fatalf("%v: %+v", err, all)
		}
		return all
	}
	was := read(must)[0]
	i.Status.Contracts = contracts.Next(i, i.Status.Contracts, i.Status.Delivered, nil, time.Now())
	v1alpha1.AddEvent(&i.Status.Events, v1alpha1.Event{Type: v1alpha1.EventRemoved, At: metav1.NowMicro()})
	if err := (&journal.Journals{Client: c, Live: c}).End(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	if is := read(must)[0]; is.Digest != was.Digest || is.EndedAt == nil || was.EndedAt != nil {
		t.Errorf("it was %+v and is %+v", was, is)
	}
	if out := must("instance", "contract", "si-1"); !strings.Contains(out, "service-1/plan-1") || !strings.Contains(out, "2 cpu") {
		t.Errorf("printed is %s", out)
	}
	ended := must("instance", "contract", "si-1", "-o", "jwt")
	mustSluice(t, "sd", "verify", in("ended.jwt", ended), "--keys", after)
	parts := strings.Split(ended, ".")
	other := strings.Split(must("usage", "-o", "jwt"), ".")
	parts[1] = other[1]
	if out, err := sluice(t, "sd", "verify", in("forged.jwt", strings.Join(parts, ".")), "--keys", after); err == nil || !strings.Contains(out, "✗ signature") {
		t.Errorf("a forged one is verified: %v, %s", err, out)
	}

	key, elsewhere := filepath.Join(away, "backup.key"), filepath.Join(away, "data")
	public := in("backup.pub", mustSluice(t, "hub", "key", key))
	if err := writeDefaultPlatform(platformsPath(dir)); err != nil {
		t.Fatal(err)
	}
	must("hub", "backup", filepath.Join(away, "hub.backup"), "--key", public)
	mustSluice(t, "hub", "restore", filepath.Join(away, "hub.backup"), "--key", key, "--data-dir", elsewhere)
	again, err := hub.Start(t.Context(), hub.Options{DataDir: elsewhere})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })
	there := func(args ...string) string { return mustSluice(t, append(args, "--data-dir", elsewhere)...) }
	if is := read(there)[0]; is.Digest != was.Digest || is.EndedAt == nil {
		t.Errorf("restored is %+v", is)
	}
	mustSluice(t, "sd", "verify", in("restored.jwt", there("instance", "contract", "si-1", "-o", "jwt")), "--keys", after)
	if _, err := operator("instance", "contract", "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("of nobody: %v", err)
	}
}
