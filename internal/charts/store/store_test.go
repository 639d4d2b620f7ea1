package store

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	registryserver "github.com/google/go-containerregistry/pkg/registry"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/registry"

	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// charted is a registry on this machine with one chart, greeter in version 1.0.0, pushed by
// Helm.
type charted struct {
	*testing.T
	server *httptest.Server
	// instead answers a request instead of the registry if it returns true.
	instead  func(http.ResponseWriter, *http.Request) bool
	requests atomic.Int64
	// digest of the chart's manifest.
	digest string
}

func newCharted(t *testing.T) *charted {
	t.Helper()
	r := &charted{T: t}
	quiet := log.New(io.Discard, "", 0)
	holds := registryserver.New(registryserver.Logger(quiet))
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.requests.Add(1)
		if r.instead == nil || !r.instead(w, request) {
			holds.ServeHTTP(w, request)
		}
	}))
	r.server.Config.ErrorLog = quiet
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	r.digest = r.push("a greeter")
	return r
}

// push pushes the greeter with a description, and returns the digest of its manifest.
func (r *charted) push(description string) string {
	r.Helper()
	greeter, err := loader.Load("testdata/charts/greeter")
	if err != nil {
		r.Fatal(err)
	}
	greeter.Metadata.Description = description
	file, err := chartutil.Save(greeter, r.TempDir())
	if err != nil {
		r.Fatal(err)
	}
	archive, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	client, err := registry.NewClient(registry.ClientOptHTTPClient(r.server.Client()), registry.ClientOptCredentialsFile(filepath.Join(r.TempDir(), "none")))
	if err != nil {
		r.Fatal(err)
	}
	pushed, err := client.Push(archive, r.host()+"/charts/greeter:"+greeter.Metadata.Version)
	if err != nil {
		r.Fatal(err)
	}
	return pushed.Manifest.Digest
}

func (r *charted) host() string { return r.server.Listener.Addr().String() }

func (r *charted) name(version string) string { return scheme + r.host() + "/charts/greeter" + version }

// charts returns the Charts that may be fetched from the registry.
func (r *charted) charts(folder string) *Store {
	roots := x509.NewCertPool()
	roots.AddCert(r.server.Certificate())
	return &Store{Folder: folder, Registries: []string{r.host()}, Client: guarded.NewClient(guarded.Options{
		Roots: roots, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})}
}

// want loads a chart, and returns its description.
func (r *charted) want(c *Store, version string) string {
	r.Helper()
	loaded, err := c.Load(r.Context(), r.name(version))
	if err != nil {
		r.Fatal(err)
	}
	if loaded.Name() != "greeter" || len(loaded.Templates) == 0 {
		r.Errorf("it is %s with %d templates", loaded.Name(), len(loaded.Templates))
	}
	return loaded.Metadata.Description
}

func TestAChartOfARegistryIsFetchedOnce(t *testing.T) {
	for name, version := range map[string]func(*charted) string{
		"by version": func(*charted) string { return ":1.0.0" },
		"by digest":  func(r *charted) string { return "@" + r.digest },
	} {
		t.Run(name, func(t *testing.T) {
			r := newCharted(t)
			folder, version := t.TempDir(), version(r)
			r.want(r.charts(folder), version)
			r.push("moved")
			asked := r.requests.Load()
			if got := r.want(r.charts(folder), version); got != "a greeter" || r.requests.Load() != asked {
				t.Errorf("after a restart it is %q, with %d requests", got, r.requests.Load()-asked)
			}
			files, err := filepath.Glob(filepath.Join(folder, fetched, "sha256-*.tgz"))
			if err != nil || len(files) != 1 {
				t.Fatalf("kept are %v, %v", files, err)
			}
			if err := os.WriteFile(files[0], []byte("rotten"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.want(r.charts(folder), version)
			if r.requests.Load() == asked {
				t.Error("what was changed in the folder is used")
			}
		})
	}
}

// If a chart cannot be fetched, the error gives the reason and a remedy, and the folder stays
// empty.
func TestChartsThatAreNotHad(t *testing.T) {
	const elsewhere = "https://elsewhere.example"
	redirect := func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(w, r, elsewhere+"/blob", http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	challenge := func(with string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Www-Authenticate", with)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
	}
	manifest := func(document string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", strconv.Itoa(len(document)))
			_, _ = fmt.Fprint(w, document)
			return true
		}
	}
	layer := func(size int) string {
		return fmt.Sprintf(`{"layers": [{"mediaType": %q, "digest": "sha256:%064d", "size": %d}]}`, registry.ChartLayerMediaType, 1, size)
	}
	for name, row := range map[string]struct {
		version string // :1.0.0 where it is empty
		change  func(*charted, *Store)
		says    string
		later   bool // it may be had later
	}{
		"no host is allowed":               {change: func(_ *charted, c *Store) { c.Registries = nil }, says: "is not among the registries that may be asked: the operator has to allow the host with --chart-registry"},
		"an address that is not public":    {change: func(_ *charted, c *Store) { c.Client = guarded.NewClient(guarded.Options{}) }, says: "address 127.0.0.1 is not public: the operator has to allow it with --chart-registry-addresses"},
		"a certificate that nobody trusts": {change: func(_ *charted, c *Store) { c.Client.Transport = stranger() }, says: "certificate", later: true},
		"a redirect to another host":       {change: func(r *charted, _ *Store) { r.instead = redirect }, says: "fetch its content: " + elsewhere + " is not among the registries"},
		"tokens of another host": {change: func(r *charted, _ *Store) {
			r.instead = challenge(`Bearer realm="` + elsewhere + `/token",service="s"`)
		}, says: elsewhere + " is not among the registries"},
		"tokens without TLS": {change: func(r *charted, _ *Store) {
			r.instead = challenge(`Bearer realm="http://` + r.host() + `/token",service="s"`)
		}, says: "realm", later: true},
		"a registry that wants a password": {change: func(r *charted, _ *Store) { r.instead = challenge(`Basic realm="r"`) }, says: "--chart-registry-credentials"},
		"a version that is not there":      {version: ":2.0.0", says: "not found: the plan has to name another"},
		"no version":                       {version: "none", says: "it does not name a version"},
		"another manifest than the digest": {version: "@sha256:" + strings.Repeat("0", 64), change: func(r *charted, _ *Store) { r.instead = manifest(layer(1)) }, says: "digest", later: true},
		"a manifest that is none":          {change: func(r *charted, _ *Store) { r.instead = manifest("[]") }, says: "read its manifest"},
		"a manifest without a chart":       {change: func(r *charted, _ *Store) { r.instead = manifest(`{"layers": []}`) }, says: "its manifest names no chart"},
		"a manifest without end":           {change: func(r *charted, _ *Store) { r.instead = manifest(strings.Repeat(" ", 5<<20)) }, says: "limit"},
		"a chart that is too long":         {change: func(r *charted, _ *Store) { r.instead = manifest(layer(maxChart + 1)) }, says: "it has 16777217 bytes, more than the limit of 16777216"},
		"content that is not there":        {change: func(r *charted, _ *Store) { r.instead = manifest(layer(10)) }, says: "fetch its content"},
		"a registry that is out of order": {change: func(r *charted, _ *Store) {
			r.instead = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true }
		}, says: "fetch its manifest", later: true},
		"a folder that cannot be written": {change: func(_ *charted, c *Store) { c.Folder = os.DevNull }, says: "the operator has to make the folder of --charts writable"},
		"credentials that cannot be read": {change: func(r *charted, c *Store) { c.Credentials = r.TempDir() }, says: "read the credentials of registries", later: true},
		"a content of other bytes":        {change: func(r *charted, _ *Store) { r.instead = otherBytes }, says: "the registry's operator has to find the cause"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newCharted(t)
			c := r.charts(t.TempDir())
			if row.change != nil {
				row.change(r, c)
			}
			version := row.version
			switch version {
			case "":
				version = ":1.0.0"
			case "none":
				version = ""
			}
			_, err := c.Load(t.Context(), r.name(version))
			if err == nil || !strings.Contains(err.Error(), row.says) || !strings.Contains(err.Error(), "chart "+r.name(version)) {
				t.Errorf("got %v, want what says %q and names the chart", err, row.says)
			}
			if refused := errors.As(err, new(*RefusedError)); refused == row.later {
				t.Errorf("refused: %t, by %v", refused, err)
			}
			if left, _ := filepath.Glob(filepath.Join(c.Folder, fetched, "*")); len(left) > 0 {
				t.Errorf("in the folder is %v", left)
			}
		})
	}
}

// stranger trusts the system's roots only.
func stranger() http.RoundTripper {
	return guarded.NewClient(guarded.Options{AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}).Transport
}

// otherBytes answers with content that is not the chart.
func otherBytes(w http.ResponseWriter, r *http.Request) bool {
	if !strings.Contains(r.URL.Path, "/blobs/") {
		return false
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.(http.Flusher).Flush() // so that it has no length
	_, _ = w.Write(make([]byte, 1<<20))
	return true
}

func TestCredentialsOfRegistries(t *testing.T) {
	r := newCharted(t)
	r.instead = func(w http.ResponseWriter, request *http.Request) bool {
		if user, password, _ := request.BasicAuth(); user == "sluice" && password == "secret" {
			return false
		}
		w.Header().Set("Www-Authenticate", `Basic realm="r"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	c := r.charts(t.TempDir())
	c.Credentials = filepath.Join(t.TempDir(), "config.json")
	for _, password := range []string{"wrong", "secret"} { // the file is read again
		login := base64.StdEncoding.EncodeToString([]byte("sluice:" + password))
		if err := os.WriteFile(c.Credentials, fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, r.host(), login), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := c.Load(t.Context(), r.name(":1.0.0"))
		if wrong := password == "wrong"; wrong != (err != nil) || wrong && !strings.Contains(err.Error(), "--chart-registry-credentials") {
			t.Errorf("with the password %s: got %v", password, err)
		}
	}
}

// A chart with a digest is only the archive that has it.
func TestLoadExact(t *testing.T) {
	folder := t.TempDir()
	archive := chartstest.Pack(t, chartstest.Web(t, nil))
	if err := os.WriteFile(filepath.Join(folder, "web.tgz"), archive, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Store{Folder: folder}
	for _, digest := range []string{"", charts.Digest(archive)} {
		if loaded, err := s.LoadExact(t.Context(), "web.tgz", digest); err != nil || loaded.Name() != "web" {
			t.Errorf("digest %q: %v, %v", digest, loaded, err)
		}
	}
	_, err := s.LoadExact(t.Context(), "web.tgz", charts.Digest(nil))
	if no := (*RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), "the digest of chart web.tgz is "+charts.Digest(archive)) {
		t.Errorf("another archive: %v", err)
	}
}
