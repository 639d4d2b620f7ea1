package did

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/guarded"
)

func anyHost(string) bool { return true }

func TestAHostWithAPrivateAddressIsNotConnectedTo(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	resolver.Client = guarded.NewClient(net.options())
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	var address *guarded.AddressError
	if !errors.As(err, new(*InvalidError)) || !errors.As(err, &address) || address.Address != loopback {
		t.Errorf("got %v", err)
	}
	if lookups, connections, _ := net.seen(); lookups == 0 || connections != 0 {
		t.Errorf("%d lookups, %d connections", lookups, connections)
	}
}

// The first address of a name may be connected to, and the second may not. A client that
// resolves the name once for the check and again for the connection ends at the second.
func TestRebinding(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	asked := 0
	net.addresses = func(string) netip.Addr {
		if asked++; asked == 1 {
			return netip.MustParseAddr("127.0.0.2") // nobody listens there
		}
		return loopback
	}
	client := guarded.NewClient(net.options(netip.MustParsePrefix("127.0.0.2/32")))
	page := webURLOf(t, o)
	if _, err := Fetch(t.Context(), client, anyHost, page, 1000); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("first: got %v", err)
	}
	if _, err := Fetch(t.Context(), client, anyHost, page, 1000); !errors.As(err, new(*guarded.AddressError)) {
		t.Errorf("second: got %v", err)
	}
	if _, connections, _ := net.seen(); connections != 0 {
		t.Errorf("%d connections", connections)
	}
}

func webURLOf(t testing.TB, o *organisation) string {
	page, err := WebURL(o.did)
	fatal(t, err)
	return page
}

func TestURLsThatAreNotAsked(t *testing.T) {
	net := newInternet(t)
	client := guarded.NewClient(net.options(anyLoopback))
	for _, where := range []string{
		"http://provider.example/", "ftp://provider.example/", "file:///etc/passwd", "//provider.example/", "provider.example", "",
		"https:provider.example", "https:///x", "https://user@provider.example/", "https://user:pw@provider.example/",
		"https://127.0.0.1/", "https://127.1/", "https://0x7f000001/", "https://2130706433/", "https://0177.0.0.1/", "https://1.2.3.0x4/",
		"https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[fe80::1%25eth0]/", "https://127.0.0.1./", "https://provider.example./",
		"https://provider..example/", "https://-provider.example/", "https://prov_ider.example/", "https://prövider.example/", "https://provider.example%2eevil/",
		"https://provider.example:0/", "https://provider.example:65536/", "https://provider.example:/", "https://provider.example:0443/", "https://provider.example:https/",
		"https://provider.example/../x", "https://provider.example/a/./x", "https://provider.example/%2e%2e/x", "https://provider.example/%2E./x",
		"https://provider.example/a%2fx", "https://provider.example/a%5Cx", `https://provider.example/a\x`, "https://provider.example/a%252fx", "https://provider.example/a;x",
		"https://provider.example/a%00x", "https://provider.example/a%0d%0ax", "https://provider.example/%ff", "https://provider.example/\n", "https://provider.example/%zz",
		"https://provider.example/x#y", "https://" + strings.Repeat("a", 64) + ".example/", "https://" + strings.Repeat("a.", 130) + "example/", "https://provider.example/" + strings.Repeat("a", 2048),
	} {
		if _, err := Fetch(t.Context(), client, anyHost, where, 100); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%q: got %v", where, err)
		}
	}
	if lookups, connections, _ := net.seen(); lookups+connections != 0 {
		t.Errorf("%d lookups, %d connections", lookups, connections)
	}
}

func TestFetch(t *testing.T) {
	net := newInternet(t)
	base := "https://Provider.example:" + net.port
	const long = 2000
	for name, row := range map[string]struct {
		page http.HandlerFunc
		want string // type of error
	}{
		"page":                        {say("hello"), ""},
		"page of the greatest length": {say(strings.Repeat("x", 1000)), ""},
		"page too long":               {say(strings.Repeat("x", 1001)), "unreachable"},
		"page without end": {func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, long))
			}
		}, "unreachable"},
		"page cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{}"))
			panic(http.ErrAbortHandler)
		}, "unreachable"},
		"compressed page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("hello"))
		}, "unreachable"},
		"redirect to a page": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				say("hello")(w, r)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "unreachable"},
		"redirect without a place": {status(http.StatusMultipleChoices), "unreachable"},
		"headers too long": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 128<<10))
		}, "unreachable"},
		"404": {status(404), "unreachable"}, "410": {status(410), "invalid"},
		"403": {status(403), "unreachable"}, "429": {status(429), "unreachable"}, "500": {status(500), "unreachable"}, "204": {status(204), "unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			net.put("Provider.example/page", row.page)
			net.put("Provider.example/elsewhere", row.page)
			client := guarded.NewClient(net.options(anyLoopback))
			client.CheckRedirect = nil // Fetch does not rely on it
			body, err := Fetch(t.Context(), client, func(host string) bool { return host == provider }, base+"/page", 1000)
			got := ""
			switch {
			case errors.As(err, new(*InvalidError)):
				got = "invalid"
			case errors.As(err, new(*UnreachableError)):
				got = "unreachable"
			}
			if got != row.want || err == nil && len(body) == 0 {
				t.Errorf("got %d bytes, %v; want %q", len(body), err, row.want)
			}
		})
	}
}

func TestHostsMustShowATrustedCertificate(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	options := net.options(anyLoopback)
	options.Roots = newInternet(t).roots
	if _, err := Fetch(t.Context(), guarded.NewClient(options), anyHost, webURLOf(t, o), 1000); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("got %v", err)
	}
	if _, _, requests := net.seen(); requests != 0 {
		t.Errorf("%d requests", requests)
	}
}
