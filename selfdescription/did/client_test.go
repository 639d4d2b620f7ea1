package did

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func anyHost(string) bool { return true }

func TestAHostWithAPrivateAddressIsNotConnectedTo(t *testing.T) {
	net := newInternet(t)
	o := net.organisation(t, provider)
	resolver := net.resolver()
	resolver.Client = NewClient(net.options())
	_, err := resolver.Key(t.Context(), o.did+"#key-1")
	var address *AddressError
	if !errors.As(err, new(*InvalidError)) || !errors.As(err, &address) || address.Address != loopback {
		t.Errorf("got %v", err)
	}
	if lookups, connections, _ := net.seen(); lookups == 0 || connections != 0 {
		t.Errorf("%d lookups, %d connections", lookups, connections)
	}
}

// A name whose first address may be connected to and whose second may not: whoever
// looks a name up to check it and again to connect ends at the second.
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
	client := NewClient(net.options(netip.MustParsePrefix("127.0.0.2/32")))
	page := webURLOf(t, o)
	if _, err := Fetch(t.Context(), client, anyHost, page, 1000); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("first: got %v", err)
	}
	if _, err := Fetch(t.Context(), client, anyHost, page, 1000); !errors.As(err, new(*AddressError)) {
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

func TestWhichAddressesArePublic(t *testing.T) {
	for _, row := range []struct {
		addresses string
		public    bool
	}{
		{"8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.169.0.1 223.255.255.255 2606:4700::1111 2a00:1450::1", true},
		{"127.0.0.1 127.255.0.1 10.1.2.3 172.16.0.1 172.31.255.255 192.168.1.1 169.254.169.254 100.64.0.1 100.127.255.255", false},
		{"0.0.0.0 0.1.2.3 192.0.0.8 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 192.88.99.1", false},
		{"224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255", false},
		{":: ::1 fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 100::1 2001:db8::1 3fff::1 5f00::1", false},
		{"::ffff:127.0.0.1 ::ffff:10.0.0.1 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1::1 2001::1 2001:0:7f00:1::", false},
	} {
		for address := range strings.FieldsSeq(row.addresses) {
			err := checkAddress(netip.AddrPortFrom(netip.MustParseAddr(address), 443).String(), nil)
			if row.public && err != nil || !row.public && !errors.As(err, new(*AddressError)) {
				t.Errorf("%s: got %v, want public: %t", address, err, row.public)
			}
		}
	}
	lab := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}
	for address, want := range map[string]bool{"10.1.2.3:443": true, "[::ffff:10.1.2.3]:443": true, "[fd00::1]:443": true, "10.2.0.1:443": false, "8.8.8.8:443": true} {
		if err := checkAddress(address, lab); (err == nil) != want {
			t.Errorf("%s in the lab: got %v", address, err)
		}
	}
	for _, odd := range []string{"", "localhost:443", "10.1.2.3", "/run/docker.sock"} {
		if checkAddress(odd, lab) == nil {
			t.Errorf("%q is let through", odd)
		}
	}
}

func TestURLsThatAreNotAsked(t *testing.T) {
	net := newInternet(t)
	client := NewClient(net.options(anyLoopback))
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
		"page too long":               {say(strings.Repeat("x", 1001)), "invalid"},
		"page without end": {func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, long))
			}
		}, "invalid"},
		"page cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("{}"))
			panic(http.ErrAbortHandler)
		}, "unreachable"},
		"compressed page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write([]byte("hello"))
		}, "invalid"},
		"redirect to a page": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				say("hello")(w, r)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "invalid"},
		"redirect without a place": {status(http.StatusMultipleChoices), "unreachable"},
		"headers too long": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 2*maxHeaderBytes))
		}, "unreachable"},
		"404": {status(404), "invalid"}, "410": {status(410), "invalid"},
		"403": {status(403), "unreachable"}, "429": {status(429), "unreachable"}, "500": {status(500), "unreachable"}, "204": {status(204), "unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			net.put("Provider.example/page", row.page)
			net.put("Provider.example/elsewhere", row.page)
			client := NewClient(net.options(anyLoopback))
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
	if _, err := Fetch(t.Context(), NewClient(options), anyHost, webURLOf(t, o), 1000); !errors.As(err, new(*UnreachableError)) {
		t.Errorf("got %v", err)
	}
	if _, _, requests := net.seen(); requests != 0 {
		t.Errorf("%d requests", requests)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	net := newInternet(t)
	o := net.organisation(t, provider)
	client := NewClient(net.options(anyLoopback))
	if proxy := client.Transport.(*bounded).next.(*http.Transport).Proxy; proxy != nil {
		t.Error("there is a proxy") // the environment is read once a process: a request may not show it
	}
	_, err := Fetch(t.Context(), client, anyHost, webURLOf(t, o), 1000)
	fatal(t, err)
}

func TestRequestsAtOnceAreBounded(t *testing.T) {
	net := newInternet(t)
	client := NewClient(net.options(anyLoopback))
	slots := client.Transport.(*bounded).slots
	for range cap(slots) {
		slots <- struct{}{}
	}
	net.put(provider+"/page", say("hello"))
	page := "https://provider.example:" + net.port + "/page"
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Fetch(soon, client, anyHost, page, 1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than %d at once: got %v", maxRequests, err)
	}
	<-slots
	for range maxRequests + 1 { // each gives its slot back
		_, err := Fetch(t.Context(), client, anyHost, page, 1000)
		fatal(t, err)
	}
	net.put(provider+"/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusFound) })
	for _, failing := range []string{page + "/../redirect", strings.Replace(page, "/page", "/redirect", 1), "https://provider.example:1/nobody-listens"} {
		if _, err := Fetch(t.Context(), client, anyHost, failing, 1000); err == nil {
			t.Errorf("%s is there", failing)
		}
	}
	if len(slots) != cap(slots)-1 {
		t.Errorf("%d slots are taken, want the %d of the test", len(slots), cap(slots)-1)
	}
}
