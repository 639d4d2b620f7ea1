//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	osb "github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/openid"
	"github.com/sluice-dev/sluice/internal/openid/openidtest"
	"github.com/sluice-dev/sluice/test/browser/chromium"
)

// shopPassword belongs to the consumers' platform, shop.
const shopPassword = "password of the shop"

// marketWorld is a broker behind a proxy that ends TLS, as an operator has started it.
type marketWorld struct {
	server
	// public URL of the broker, and the file with the certificate there.
	public, certificate string
	client              *http.Client
	dir                 string // one folder for each organisation
	rhein, liberty      *vendor
}

// vendor is a provider with a cluster, and without access to the broker's machine.
type vendor struct {
	*marketWorld
	// name, country and region of it, and the name of its cluster at the broker and in kind.
	name, country, region, cluster, kind string
	// price of a core and hour.
	price string
	// certified by the certification body.
	certified bool
}

// openMarket starts `sluice serve` with its files: platforms and people, what the operator sells itself, which
// providers may come and whose word counts.
func openMarket(t *testing.T) *marketWorld {
	t.Helper()
	must(t, setUpChromium())
	w := &marketWorld{dir: t.TempDir()}
	proxy := w.proxy(t)
	issuer := openidtest.Start(t)
	issuer.Register(w.public + "/console/signed-in")
	listed := issuer.Listed(
		openid.ListedCaller{Is: "operator", Claims: map[string]string{"sub": "olga"}},
		openid.ListedCaller{Is: "provider:rhein", Claims: map[string]string{"sub": "ruth"}},
		openid.ListedCaller{Is: "provider:liberty", Claims: map[string]string{"sub": "liam"}},
	)
	listed.SignIn = &openid.ListedSignIn{ClientID: openidtest.Audience, ClientSecret: openidtest.ClientSecret}
	document, err := json.Marshal(osb.PlatformsFile{
		Platforms: []osb.ListedPlatform{{Name: "shop", Basic: []osb.BasicCredential{{Username: "shop", Password: shopPassword}}}},
		OpenID:    []openid.Listed{listed},
	})
	must(t, err)
	file := filepath.Join(w.dir, "platforms.yaml")
	must(t, os.WriteFile(file, document, 0o600))

	w.server = serve(t, "--public-url", w.public, "--platforms", file, "--join-allow-addresses", "127.0.0.0/8")
	target, err := url.Parse(w.broker.url)
	must(t, err)
	proxy.Rewrite = func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}
	w.rhein = &vendor{w, "rhein", "DE", "eu-de", "rhein-1", members[0], "0.040", true}
	w.liberty = &vendor{w, "liberty", "US", "us-va", "liberty-1", members[1], "0.010", false}
	w.sluice("catalog", "apply", "-f", "market.yaml")
	w.shell(t, "sluice sd init --dir certifier --did did:web:certifier.example --keys-only", "")
	w.sluice("issuer", "add", "certifier", "--did", "did:web:certifier.example", "--keys", filepath.Join(w.dir, "certifier/jwks.json"), "--type", "Certification", "--assurance", "certified")
	for _, v := range []*vendor{w.rhein, w.liberty} {
		v.shell(t, fmt.Sprintf(`echo "our terms and conditions" >terms.txt
sluice sd init --dir %[1]s --did did:web:%[1]s.example --name %[1]s --country %[2]s --registration leiCode=00000000000000000098 \
  --accept-gaia-x-terms --terms-url https://%[1]s.example/terms.txt --terms-file terms.txt --cluster %[3]s="$KUBECONFIG"`, v.name, v.country, v.cluster), v.kind)
		w.sluice("provider", "add", v.name, "--did", "did:web:"+v.name+".example", "--keys", filepath.Join(w.dir, v.name, "jwks.json"), "--clusters", "1", "--proven")
	}
	return w
}

// proxy begins to listen at the public URL. Who gets the requests is said afterwards.
func (w *marketWorld) proxy(t *testing.T) *httputil.ReverseProxy {
	t.Helper()
	chain, private := selfSigned(t, "localhost")
	pair, err := tls.X509KeyPair(chain, private)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	w.certificate = filepath.Join(w.dir, "broker.crt")
	must(t, os.WriteFile(w.certificate, chain, 0o600))
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0)} // browsers leave streams
	front := httptest.NewUnstartedServer(proxy)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	front.StartTLS()
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	_, port, _ := strings.Cut(front.Listener.Addr().String(), ":")
	w.public = "https://localhost:" + port
	w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return proxy
}

// setUpChromium installs Chromium where it is missing, as test/browser/run.sh does.
func setUpChromium() error { return run("test/browser/chromium.sh") }

// window opens a browser that trusts the certificates of this test.
func (w *marketWorld) window(t *testing.T) chromium.Window {
	t.Helper()
	return chromium.Open(t, chromedp.Flag("ignore-certificate-errors", true), chromedp.WindowSize(1280, 1000))
}

// shell runs a script of somebody outside, who has the command sluice, and perhaps a kind cluster's kubeconfig.
func (w *marketWorld) shell(t *testing.T, script, cluster string) string {
	t.Helper()
	environment := []string{"SSL_CERT_FILE=" + w.certificate, "PATH=" + filepath.Join(mustAbs(t, root), "bin") + ":" + os.Getenv("PATH")}
	if cluster != "" {
		environment = append(environment, "KUBECONFIG="+kubeconfig(cluster))
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = w.dir, newcomer(t, environment...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s\n%s%s%v", script, &out, &complaints, err)
	}
	return out.String()
}

// brokerFlags name the broker for a provider's commands.
func (v *vendor) brokerFlags() string {
	return fmt.Sprintf("--dir %s --to %s --audience did:web:%s", v.name, v.public, strings.ReplaceAll(strings.TrimPrefix(v.public, "https://"), ":", "%3A"))
}

// presents signs the provider's self-descriptions and presents them, with what a certification body has signed about it.
func (v *vendor) presents(t *testing.T) {
	t.Helper()
	script := "sluice sd sign --dir " + v.name
	if v.certified {
		script += fmt.Sprintf(`
sluice sd sign --dir certifier --type Certification --standard "ISO/IEC 27001" --out %[1]s/credentials/certification.jwt \
  --about %[1]s/credentials/offering-%[2]s.jwt --about %[1]s/credentials/datacenter-main.jwt`, v.name, v.cluster)
	}
	v.shell(t, script+"\nsluice sd present "+v.brokerFlags(), "")
}

// sells publishes an offering of plans of the same size, by name and price of a month.
func (v *vendor) sells(t *testing.T, plans ...[2]string) {
	t.Helper()
	var all []map[string]any
	for _, p := range plans {
		all = append(all, map[string]any{
			"id": v.name + "-" + strings.ToLower(p[0]), "name": strings.ToLower(p[0]), "displayName": p[0], "description": "A namespace with guaranteed resources", "kind": "resources",
			"free": false, "costs": []any{map[string]any{"unit": "MONTHLY", "amount": map[string]string{"eur": p[1]}}},
			"resources": map[string]any{"limits": map[string]string{"cpu": "300m", "memory": "256Mi", "pods": "10"}},
		})
	}
	body, err := json.Marshal(map[string]any{"id": v.name, "name": v.name, "description": "Kubernetes by " + v.name, "bindable": true, "plans": all})
	must(t, err)
	token := strings.TrimSpace(v.shell(t, "sluice sd login "+v.brokerFlags(), ""))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, v.public+"/market/v1/offerings/"+v.name, bytes.NewReader(body))
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := v.client.Do(request)
	must(t, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusCreated {
		t.Fatalf("%s publishes: %s %s", v.name, response.Status, answer)
	}
}
