package guarded

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

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

// world is a server, and a client that may connect to it.
func world(t *testing.T, answer http.HandlerFunc) (string, *http.Client) {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.URL, NewClient(Options{Roots: roots, AllowAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

// get sends a request, and does not read the body.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	url, client := world(t, func(http.ResponseWriter, *http.Request) {})
	if proxy := client.Transport.(*bounded).next.(*http.Transport).Proxy; proxy != nil {
		t.Error("there is a proxy") // the environment is read once a process: a request may not show it
	}
	if err := get(t.Context(), client, url); err != nil {
		t.Error(err)
	}
}

func TestRequestsAtOnceAreBounded(t *testing.T) {
	url, client := world(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/", http.StatusFound)
		}
	})
	slots := client.Transport.(*bounded).slots
	for range cap(slots) {
		slots <- struct{}{}
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := get(soon, client, url); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than %d at once: got %v", maxRequests, err)
	}
	<-slots
	for range maxRequests + 1 { // each gives its slot back
		if err := get(t.Context(), client, url); err != nil {
			t.Fatal(err)
		}
	}
	if err := get(t.Context(), client, url+"/redirect"); !errors.Is(err, ErrRedirect) {
		t.Errorf("a redirect: got %v", err)
	}
	if err := get(t.Context(), client, "https://127.0.0.1:1/"); err == nil {
		t.Error("nobody listens there")
	}
	if len(slots) != cap(slots)-1 {
		t.Errorf("%d slots are taken, want the %d of the test", len(slots), cap(slots)-1)
	}
}
