package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/draft"
)

// sluice runs a command in this process and returns what it printed.
func sluice(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func mustSluice(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sluice(t, args...)
	if err != nil {
		t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// apiServer serves as much of a cluster as clusterFacts reads. It returns the path of a
// kubeconfig and the digest of the server's public key.
func apiServer(t *testing.T, uid types.UID) (kubeconfig, keyHash string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid},
		})
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(server.Certificate().RawSubjectPublicKeyInfo)
	return kubeconfig, "sha256-" + base64.StdEncoding.EncodeToString(digest[:])
}

// initialised returns a folder after `sluice sd init` for one cluster.
func initialised(t *testing.T, more ...string) string {
	t.Helper()
	kubeconfig, _ := apiServer(t, "uid-of-the-cluster")
	dir := filepath.Join(t.TempDir(), "provider")
	mustSluice(t, append([]string{
		"sd", "init", "--dir", dir, "--did", "did:web:provider.example", "--name", "Provider GmbH", "--country", "DE",
		"--registration", "vatID=DE123456789", "--terms-url", "https://provider.example/terms.pdf", "--terms-sha256", strings.Repeat("8a", 32),
		"--cluster", "eu=" + kubeconfig,
	}, more...)...)
	return dir
}

func TestSDInitReadsUIDAndKeyOfTheCluster(t *testing.T) {
	kubeconfig, keyHash := apiServer(t, "uid-of-the-cluster")
	dir := initialised(t, "--cluster", "us="+kubeconfig)
	text, err := os.ReadFile(filepath.Join(dir, "description.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	description, err := draft.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if c := description.Clusters[1]; c.UID != "uid-of-the-cluster" || c.KeyHash != keyHash {
		t.Errorf("cluster %+v, want the uid of its kube-system and key %s", c, keyHash)
	}
}

func TestSDInitKeepsTheKeyToItself(t *testing.T) {
	dir := initialised(t)
	info, err := os.Stat(filepath.Join(dir, "key.json"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("key.json has mode %o, want 600", mode)
	}
	for _, published := range []string{"did.json", "jwks.json"} {
		text, err := os.ReadFile(filepath.Join(dir, published))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`"d"`)) {
			t.Errorf("%s holds the private key", published)
		}
	}
}

func TestSDInitOverwritesNothing(t *testing.T) {
	dir := initialised(t)
	before, err := os.ReadFile(filepath.Join(dir, "key.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sluice(t, "sd", "init", "--dir", dir, "--did", "did:web:provider.example"); err == nil {
		t.Error("it made a second description")
	}
	if after, err := os.ReadFile(filepath.Join(dir, "key.json")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key has changed: %v", err)
	}
	if _, err := sluice(t, "sd", "init", "--dir", dir, "--did", "did:web:other.example", "--keys-only"); err == nil {
		t.Error("it took the key of another DID for this one")
	}
}

func TestSDSignsAndVerifiesForEveryAlgorithm(t *testing.T) {
	for _, algorithm := range selfdescription.Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			dir := initialised(t, "--algorithm", algorithm)
			mustSluice(t, "sd", "sign", "--dir", dir)
			for _, keys := range []string{"did.json", "jwks.json"} {
				out := mustSluice(t, "sd", "verify", "--dir", dir, "--keys", filepath.Join(dir, keys))
				if strings.Contains(out, "✗") || strings.Count(out, "✓ signature") != 5 {
					t.Errorf("with %s, want 5 credentials verified:\n%s", keys, out)
				}
			}
		})
	}
}

func TestSDVerifyLooksAtTheSetTogether(t *testing.T) {
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	for says, args := range map[string][]string{
		"open nowhere: no such file or directory":    {"nowhere", "--dir", dir},
		"open no-keys: no such file or directory":    {"--dir", dir, "--keys", "no-keys"},
		"no keys of issuers: name files with --keys": {filepath.Join(dir, credentialsDir), "--dir", "nowhere"},
	} {
		if _, err := sluice(t, append([]string{"sd", "verify"}, args...)...); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("sd verify %q: %v, want %q", args, err, says)
		}
	}
	if out := mustSluice(t, "sd", "verify", "--dir", dir); !strings.Contains(out, "✓ admit") || !strings.Contains(out, "datacenter.country = DE") {
		t.Errorf("want the claims of the cluster:\n%s", out)
	}
	if err := os.Remove(filepath.Join(dir, "credentials/datacenter-main.jwt")); err != nil {
		t.Fatal(err)
	}
	if out, err := sluice(t, "sd", "verify", "--dir", dir); err == nil || !strings.Contains(out, "✗ references") {
		t.Errorf("without the data centre: %v\n%s", err, out)
	}
}

func TestSDVerifySaysWhichStepFailed(t *testing.T) {
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	file := filepath.Join(dir, "credentials/offering-eu.jwt")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	mustSluice(t, "sd", "init", "--dir", other, "--did", "did:web:provider.example", "--keys-only")
	tampered := parts[0] + "." + base64.RawURLEncoding.EncodeToString(bytes.ReplaceAll(payload, []byte("Kubernetes"), []byte("Kubernopes"))) + "." + parts[2]
	for name, row := range map[string]struct {
		text string
		keys string
		step string
	}{
		"not a token":   {"nonsense", dir, "parse"},
		"tampered with": {tampered, dir, "signature"},
		"another's key": {string(text), other, "signature"},
		"no key of his": {string(text), "", "key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "credential.jwt")
			if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"sd", "verify", file, "--fetch", "nobody.example"}
			if row.keys != "" {
				args = []string{"sd", "verify", file, "--keys", filepath.Join(row.keys, "jwks.json")}
			}
			out, err := sluice(t, args...)
			if err == nil || !strings.Contains(out, "✗ "+row.step) {
				t.Errorf("want a failure of step %s, got %v:\n%s", row.step, err, out)
			}
		})
	}
}

func TestSDSignRefusesWhatAVerifierWould(t *testing.T) {
	dir := initialised(t)
	file := filepath.Join(dir, "description.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(`Country: "DE"`), []byte("Country: Germany")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sluice(t, "sd", "sign", "--dir", dir); err == nil || !strings.Contains(err.Error(), "countryCode") || !strings.Contains(err.Error(), "Germany") {
		t.Errorf("want path and value of what is wrong, got: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "credentials")); err == nil {
		t.Error("it signed something all the same")
	}
}

// TestSDAttests: a notary confirms a number, a body certifies; signing the description
// again keeps the notary's credential.
func TestSDAttests(t *testing.T) {
	dir, notary, certifier := initialised(t), t.TempDir(), t.TempDir()
	credentials := filepath.Join(dir, "credentials")
	mustSluice(t, "sd", "sign", "--dir", dir)
	mustSluice(t, "sd", "init", "--dir", notary, "--did", "did:web:notary.example", "--keys-only")
	mustSluice(t, "sd", "init", "--dir", certifier, "--did", "did:web:certifier.example", "--keys-only", "--algorithm", "EdDSA")
	number := filepath.Join(credentials, "registration.jwt")
	mustSluice(t, "sd", "sign", "--dir", notary, "--type", "VatID", "--about", number, "--out", number)
	mustSluice(t, "sd", "sign", "--dir", certifier, "--type", "Certification", "--standard", "ISO/IEC 27001",
		"--about", filepath.Join(credentials, "offering-eu.jwt"), "--about", filepath.Join(credentials, "datacenter-main.jwt"),
		"--out", filepath.Join(credentials, "certification.jwt"))
	if out := mustSluice(t, "sd", "sign", "--dir", dir); !strings.Contains(out, "kept, signed by did:web:notary.example") {
		t.Errorf("the notary's credential was overwritten:\n%s", out)
	}
	out := mustSluice(t, "sd", "verify", "--dir", dir, "--keys", filepath.Join(dir, "jwks.json"),
		"--keys", filepath.Join(notary, "did.json"), "--keys", filepath.Join(certifier, "jwks.json"))
	for _, want := range []string{"VatID of did:web:notary.example", "Certification of did:web:certifier.example"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if out := mustSluice(t, "sd", "show", filepath.Join(credentials, "certification.jwt")); !strings.Contains(out, `"standard": "ISO/IEC 27001"`) {
		t.Errorf("show does not show the standard:\n%s", out)
	}
}

// TestSDNeedsNoWebServerWithDIDKey: the DID contains the key.
func TestSDNeedsNoWebServerWithDIDKey(t *testing.T) {
	dir := initialised(t, "--did", "did:key")
	mustSluice(t, "sd", "sign", "--dir", dir)
	if out := mustSluice(t, "sd", "verify", "--dir", dir, "--fetch", "nobody.example"); strings.Count(out, "✓ signature") != 5 || !strings.Contains(out, "✓ admit") {
		t.Errorf("want 5 credentials verified without any keys given:\n%s", out)
	}
}

// TestSDVerifyTakesKeysOnlyOfTheDIDThatPublishesThem: a forger's key verifies only the
// forger's credentials, in whichever file it is.
func TestSDVerifyTakesKeysOnlyOfTheDIDThatPublishesThem(t *testing.T) {
	dir, forger, honest := initialised(t), t.TempDir(), t.TempDir()
	mustSluice(t, "sd", "sign", "--dir", dir)
	mustSluice(t, "sd", "init", "--dir", forger, "--did", "did:web:provider.example", "--keys-only")
	mustSluice(t, "sd", "init", "--dir", honest, "--did", "did:web:certifier.example", "--keys-only")
	key := func(dir string) object {
		var set struct{ Keys []object }
		readJSON(t, filepath.Join(dir, "jwks.json"), &set)
		return set.Keys[0]
	}
	forged, own := key(forger), key(dir)
	forged["kid"] = own["kid"] // pretends to be the provider's
	method := object{"id": own["kid"], "type": "JsonWebKey2020", "controller": "did:web:provider.example", "publicKeyJwk": forged}
	evil := func(method object) object {
		return object{"id": "did:web:evil.example", "verificationMethod": []object{method}, "assertionMethod": []any{own["kid"]}}
	}
	theirs := object{"id": own["kid"], "type": "JsonWebKey2020", "controller": "did:web:evil.example", "publicKeyJwk": forged}
	for name, row := range map[string]struct {
		file object
		says string
	}{
		"in the document of another DID":                        {evil(method), "is of another DID"},
		"in the document of another DID, under its control":     {evil(theirs), "is of another DID"},
		"in a document, controlled by another":                  {object{"id": "did:web:provider.example", "verificationMethod": []object{theirs}, "assertionMethod": []any{own["kid"]}}, "controller"},
		"in the member keys of a document":                      {object{"id": "did:web:provider.example", "keys": []object{forged}, "verificationMethod": []object{}, "assertionMethod": []any{}}, "no key"},
		"in a key set, beside those of the set's own DID":       {object{"keys": []object{key(honest), forged}}, "two DIDs"},
		"in a document without an id, beside a member keys":     {object{"keys": []object{forged}, "verificationMethod": []object{method}}, "id"},
		"in a document that lists it for nothing":               {object{"id": "did:web:provider.example", "verificationMethod": []object{method}}, "no key"},
		"in a key set, under a name that is not that of a DID":  {object{"keys": []object{{"kid": "key-1", "kty": "OKP", "crv": "Ed25519", "x": forged["x"]}}}, "DID URL"},
		"in a document whose member keys has the provider's id": {object{"id": "did:web:evil.example", "keys": []object{forged}}, "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "did.json")
			saveJSON(t, file, row.file)
			out, err := sluice(t, "sd", "verify", "--dir", dir, "--keys", file)
			if err == nil || strings.Contains(out, "✓ signature") || !strings.Contains(err.Error()+out, row.says) {
				t.Errorf("want %q, got %v:\n%s", row.says, err, out)
			}
		})
	}
	t.Run("and of one file for each", func(t *testing.T) {
		_, err := sluice(t, "sd", "verify", "--dir", dir, "--keys", filepath.Join(dir, "did.json"), "--keys", filepath.Join(forger, "jwks.json"))
		if err == nil || !strings.Contains(err.Error(), "both give keys of did:web:provider.example") {
			t.Errorf("two files with keys of one DID: %v", err)
		}
	})
}

// TestSDVerifyLeavesOutKeysThatItCannotUse: it names them and uses the others.
func TestSDVerifyLeavesOutKeysThatItCannotUse(t *testing.T) {
	dir := initialised(t)
	mustSluice(t, "sd", "sign", "--dir", dir)
	var document object
	readJSON(t, filepath.Join(dir, "did.json"), &document)
	methods, listed := document["verificationMethod"].([]any), document["assertionMethod"].([]any)
	good := methods[0].(object)
	good["id"] = good["id"].(string)[strings.Index(good["id"].(string), "#"):] // relative ids are valid ids
	secp256k1 := object{"kty": "EC", "crv": "secp256k1", "x": "WfY7Px6AgH6x-_dgAoRbg8weYRJA36ON-gQiFnETrqw", "y": "IzFx3BUGztK0cyDStiunXbrZYYTtKbOUzx16SUK0sAY"}
	document["verificationMethod"] = append(methods, object{"id": "#coins", "type": "JsonWebKey2020", "controller": document["id"], "publicKeyJwk": secp256k1})
	document["assertionMethod"] = append(listed, "#coins",
		object{"id": "#embedded", "type": "Multikey", "controller": document["id"], "publicKeyMultibase": "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"})
	file := filepath.Join(t.TempDir(), "did.json")
	saveJSON(t, file, document)
	var printed bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs([]string{"sd", "verify", "--dir", dir, "--keys", file})
	cmd.SetOut(&printed)
	cmd.SetErr(&printed)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := printed.String()
	if strings.Count(out, "✓ signature") != 5 || strings.Count(out, "left out") != 2 || !strings.Contains(out, "#coins") || !strings.Contains(out, "Multikey") {
		t.Errorf("want 5 signatures verified and 2 keys left out:\n%s", out)
	}
}

type object = map[string]any

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func saveJSON(t *testing.T, file string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
