package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/selfdescription"
)

// startHub starts an embedded hub, and returns it with a client and its data folder.
func startHub(t *testing.T) (h *hub.Hub, c client.Client, dataDir string) {
	t.Helper()
	dataDir = t.TempDir()
	h, err := hub.Start(t.Context(), hub.Options{DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	if c, err = client.New(h.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return h, c, dataDir
}

// operatedHub starts an embedded hub and returns functions that run Sluice's commands on
// it.
func operatedHub(t *testing.T) (h *hub.Hub, c client.Client, operator func(args ...string) (string, error), must func(args ...string) string) {
	t.Helper()
	h, c, dataDir := startHub(t)
	operator = func(args ...string) (string, error) { return sluice(t, append(args, "--data-dir", dataDir)...) }
	must = func(args ...string) string {
		t.Helper()
		out, err := operator(args...)
		if err != nil {
			t.Fatalf("sluice %s: %v", strings.Join(args, " "), err)
		}
		return out
	}
	return h, c, operator, must
}

// TestOperatorOfTrust runs an operator's commands for providers and issuers on an embedded
// hub.
func TestOperatorOfTrust(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)

	t.Run("a provider with the keys it published", func(t *testing.T) {
		must("provider", "add", "acme", "--did", "did:web:provider.example", "--keys", filepath.Join(dir, "did.json"))
		must("provider", "add", "far", "--did", "did:web:far.example")
		for name, keys := range map[string]string{"acme": "given", "far": "fetched"} {
			if line := lineWith(must("provider", "list"), name); !strings.Contains(line, keys) {
				t.Errorf("%s: want keys %s in %q", name, keys, line)
			}
		}
	})
	t.Run("added again, it keeps what is not given", func(t *testing.T) {
		must("provider", "add", "lab", "--did", "did:web:provider.example", "--keys", filepath.Join(dir, "did.json"), "--clusters", "3", "--proven", "--requires", "LabelCredential")
		must("provider", "add", "lab", "--did", "did:web:provider.example", "--clusters", "4")
		lab := &v1alpha1.Provider{}
		get := func() v1alpha1.ProviderSpec {
			t.Helper()
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: h.Namespace, Name: "lab"}, lab); err != nil {
				t.Fatal(err)
			}
			return lab.Spec
		}
		if spec := get(); spec.Keys == nil || spec.Joins == nil || spec.Joins.AtMost != 4 || !spec.Joins.Proven || len(spec.Joins.Types) != 1 {
			t.Errorf("with more clusters it is %+v", spec)
		}
		must("provider", "add", "lab", "--did", "did:web:provider.example", "--keys", "", "--clusters", "0")
		if spec := get(); spec.Keys != nil || spec.Joins != nil {
			t.Errorf("without keys and clusters it is %+v", spec)
		}
		must("issuer", "add", "notary", "--did", "did:web:provider.example", "--type", "VatID", "--assurance", "notary", "--keys", filepath.Join(dir, "did.json"))
		must("issuer", "add", "notary", "--did", "did:web:provider.example", "--type", "VatID,LeiCode", "--assurance", "notary")
		if line := lineWith(must("issuer", "list"), "notary"); !strings.Contains(line, "given") || !strings.Contains(line, "LeiCode") {
			t.Errorf("the issuer is %q", line)
		}
		must("provider", "remove", "lab")
		must("issuer", "remove", "notary")
	})
	t.Run("a member cluster is cordoned and let in again", func(t *testing.T) {
		cluster := &v1alpha1.MemberCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "cordoned"},
			Spec:       v1alpha1.MemberClusterSpec{Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Region: "eu"},
		}
		if err := c.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		for verb, want := range map[string]bool{"cordon": true, "uncordon": false} {
			if out := must("cluster", verb, "cordoned", "--wait", "10ms"); !strings.Contains(out, "once Sluice sees it") {
				t.Errorf("%s: %q, and nobody acts on it", verb, out)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
				t.Fatal(err)
			}
			if cluster.Spec.Unschedulable != want || cluster.Spec.Region != "eu" {
				t.Errorf("after %s: %+v", verb, cluster.Spec)
			}
		}
		if _, err := operator("cluster", "cordon", "missing"); err == nil {
			t.Error("a cluster that is not there was cordoned")
		}
		if err := c.Delete(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("keys of another, or private ones, are refused", func(t *testing.T) {
		for _, keys := range []string{"did.json", "key.json"} {
			if _, err := operator("provider", "add", "other", "--did", "did:web:other.example", "--keys", filepath.Join(dir, keys)); err == nil {
				t.Errorf("%s was taken", keys)
			}
		}
		private, err := os.ReadFile(filepath.Join(dir, "key.json"))
		if err != nil {
			t.Fatal(err)
		}
		set := filepath.Join(t.TempDir(), "set.json")
		if err := os.WriteFile(set, []byte(`{"keys":[`+string(private)+`]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := operator("provider", "add", "acme", "--did", "did:web:provider.example", "--keys", set); err == nil || !strings.Contains(err.Error(), "private") {
			t.Errorf("a private key was taken: %v", err)
		}
	})
	t.Run("an issuer and what its word is worth", func(t *testing.T) {
		must("issuer", "add", "notary", "--did", "did:web:notary.example", "--type", "VatID,LeiCode", "--assurance", "notary")
		if line := lineWith(must("issuer", "list"), "notary"); !strings.Contains(line, "VatID, LeiCode") || !strings.Contains(line, "did:web:notary.example") {
			t.Errorf("listed as %q", line)
		}
		if _, err := operator("issuer", "add", "self", "--did", "did:web:self.example", "--type", "VatID", "--assurance", "self"); err == nil {
			t.Error("an issuer that is trusted with nothing was taken")
		}
	})
	t.Run("a credential of the hub is shown and revoked", func(t *testing.T) {
		file := filepath.Join(dir, "credentials/offering-eu.jwt")
		credential, err := readCredential(file)
		if err != nil {
			t.Fatal(err)
		}
		stored := &v1alpha1.SelfDescription{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: v1alpha1.SelfDescriptionName(credential.Digest)},
			Spec:       v1alpha1.SelfDescriptionSpec{Credential: credential.Compact, Presenter: v1alpha1.Presenter{Provider: "acme"}},
		}
		if err := c.Create(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		for _, digest := range []string{credential.Digest.SRI(), credential.Digest.String()} {
			if out := must("sd", "show", digest); !strings.Contains(out, `"ComputeServiceOffering"`) || !strings.Contains(out, "# state\npending") {
				t.Errorf("show %s:\n%s", digest, out)
			}
		}
		must("sd", "revoke", file, "--because", "sold")
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
			t.Fatal(err)
		}
		if !stored.Spec.Revoked || stored.Spec.RevokedBecause != "sold" {
			t.Errorf("it is not revoked: %v, because %q", stored.Spec.Revoked, stored.Spec.RevokedBecause)
		}
	})
	t.Run("a document is imported anew with a key, or for another provider", func(t *testing.T) {
		text := `{"a": "document"}`
		key := client.ObjectKey{Namespace: h.Namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(text))}
		imported := func(provider, keyID string) error {
			return storeImported(t.Context(), c, &v1alpha1.SelfDescription{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				Spec:       v1alpha1.SelfDescriptionSpec{Credential: text, Legacy: true, KeyID: keyID, Presenter: v1alpha1.Presenter{Provider: provider}},
			})
		}
		stored := &v1alpha1.SelfDescription{}
		for _, row := range []struct{ provider, key string }{
			{"acme", ""}, {"acme", ""}, {"acme", "did:web:provider.example#key-1"}, {"far", "did:web:provider.example#key-1"},
		} {
			before := stored.UID
			if err := imported(row.provider, row.key); err != nil {
				t.Fatal(err)
			}
			same := stored.Spec.Provider == row.provider && stored.Spec.KeyID == row.key
			if err := c.Get(t.Context(), key, stored); err != nil {
				t.Fatal(err)
			}
			if stored.Spec.Provider != row.provider || stored.Spec.KeyID != row.key {
				t.Errorf("for %s with key %q, it is of %q with key %q", row.provider, row.key, stored.Spec.Provider, stored.Spec.KeyID)
			}
			if same && stored.UID != before {
				t.Error("it was replaced although nothing changed")
			}
		}
		stored.Spec.Revoked, stored.Spec.RevokedBecause = true, "sold"
		if err := c.Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		for _, provider := range []string{"acme", "far"} {
			if err := imported(provider, ""); err == nil || !strings.Contains(err.Error(), "withdrawn here for good: sold") {
				t.Errorf("for %s, once it is withdrawn: %v", provider, err)
			}
		}
		if err := c.Delete(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("what is proven of a cluster", func(t *testing.T) {
		cluster := &v1alpha1.MemberCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "eu"},
			Spec: v1alpha1.MemberClusterSpec{
				Driver: v1alpha1.DriverKube, Provider: "acme", Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")},
				Trust: &v1alpha1.TrustRequirements{Offering: "https://provider.example/selfdescription/offering-eu#subject"},
			},
		}
		if err := c.Create(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		if line := lineWith(must("provider", "list"), "acme"); !strings.Contains(line, "eu (not admitted)") || !strings.Contains(line, "1 pending") {
			t.Errorf("before it is admitted, the provider is listed as %q", line)
		}
		until := metav1.NewTime(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC))
		cluster.Status.Claims = []v1alpha1.Claim{{
			Name: v1alpha1.ClaimDatacenterCountry, Value: "DE", Assurance: v1alpha1.AssuranceCertified,
			Issuer: "did:web:certifier.example", Credential: "sha256-x", ExpiresAt: &until,
		}}
		cluster.Status.Admission = []v1alpha1.VerificationStep{{Step: "binding", Result: v1alpha1.StepPassed, Message: "this very cluster"}}
		if err := c.Status().Update(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
		out := must("cluster", "claims", "eu")
		for _, want := range []string{"✓ binding", "datacenter.country", "DE", "certified", "did:web:certifier.example", "2027-02-01"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
	})
}

// lineWith returns the line of a table that begins with a name.
func lineWith(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+" ") {
			return line
		}
	}
	return ""
}
