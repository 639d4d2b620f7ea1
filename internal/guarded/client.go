package guarded

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Timeout of one request, from name resolution to the last byte, for clients without a timeout
// of their own.
const Timeout = 10 * time.Second

// Bounds of a client.
const (
	connectTimeout = 5 * time.Second
	maxHeaderBytes = 64 << 10
	maxRequests    = 16 // at once; more wait
	maxPerHost     = 4  // connections
	idleTimeout    = 30 * time.Second
)

// Options of a client; the zero value reaches public hosts.
type Options struct {
	// Roots that the certificates of hosts are checked against; nil means the system's.
	Roots *x509.CertPool
	// AllowAddresses are addresses that may be reached though they are not public, for
	// labs and private networks.
	AllowAddresses []netip.Prefix
	// Resolver of host names; nil means the system's.
	Resolver *net.Resolver
	// Timeout of one request; zero means Timeout.
	Timeout time.Duration
	// KeepAlive keeps up to this many connections to a host for later requests; zero closes each after
	// its request. As many requests may be sent to the host at once; zero means 4.
	KeepAlive int
	// MaxBytes is the longest body of an answer; reading on fails. Zero means that callers bound it themselves.
	MaxBytes int64
}

// ParseAddresses parses CIDRs, as AllowAddresses has them, of a resource's field addresses or a flag.
func ParseAddresses(cidrs []string) (addresses []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("addresses: %q is no CIDR", cidr)
		}
		addresses = append(addresses, prefix)
	}
	return addresses, nil
}

// ParseRoots parses the PEM certificates of a resource's field caBundle; nil, the system's roots, if it is empty.
func ParseRoots(bundle []byte) (*x509.CertPool, error) {
	if len(bundle) == 0 {
		return nil, nil
	}
	roots, err := ParseCertificates(bundle)
	if err != nil {
		return nil, fmt.Errorf("caBundle: %w", err)
	}
	return roots, nil
}

// ParseCertificates parses PEM certificates, at least one. Other blocks are ignored.
func ParseCertificates(pem []byte) (*x509.CertPool, error) {
	certificates := x509.NewCertPool()
	if !certificates.AppendCertsFromPEM(pem) {
		return nil, errors.New("contains no PEM certificate")
	}
	return certificates, nil
}

// NewDialer returns a dialer for hosts that are not trusted: it reaches public addresses only, and gives up after
// five seconds. The address is checked when the socket is created, after name resolution. So a name that changes its
// address in between gains nothing.
func NewDialer(options Options) *net.Dialer {
	return &net.Dialer{
		Timeout:  connectTimeout,
		Resolver: options.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			return checkAddress(address, options.AllowAddresses)
		},
	}
}

// TLS returns how the certificates of hosts are checked.
func (o Options) TLS() *tls.Config {
	return &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12}
}

// NewClient returns a client for hosts that are not trusted: no redirects, no proxies, no
// compression, no cookies, only the addresses that NewDialer reaches, everything bounded.
func NewClient(options Options) *http.Client {
	timeout := cmp.Or(options.Timeout, Timeout)
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: RefuseRedirect,
		Transport: &bounded{slots: make(chan struct{}, max(maxRequests, options.KeepAlive)), maxBytes: options.MaxBytes, next: &http.Transport{
			Proxy:                  nil,
			DialContext:            NewDialer(options).DialContext,
			TLSClientConfig:        options.TLS(),
			TLSHandshakeTimeout:    connectTimeout,
			ResponseHeaderTimeout:  timeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			MaxConnsPerHost:        cmp.Or(options.KeepAlive, maxPerHost),
			MaxIdleConnsPerHost:    options.KeepAlive,
			IdleConnTimeout:        idleTimeout,
			DisableCompression:     true,
			DisableKeepAlives:      options.KeepAlive == 0,
		}},
	}
}

// AddressError means that connecting to a host's address is not allowed.
type AddressError struct {
	Address netip.Addr
}

func (e *AddressError) Error() string { return fmt.Sprintf("address %s is not public", e.Address) }

func checkAddress(address string, allowed []netip.Prefix) error {
	addrPort, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read address: %w", err)
	}
	addr := addrPort.Addr().Unmap()
	for _, prefix := range allowed {
		if prefix.Contains(addr) {
			return nil
		}
	}
	if !isPublic(addr) {
		return &AddressError{Address: addr}
	}
	return nil
}

// NotPublic and Unicast6 say which addresses are public: IPv4 and Unicast6, both without the ranges of NotPublic. NotPublic
// has the ranges that are not public: all that the IANA special-purpose address registries (RFC 6890) do not call globally
// reachable, and transition mechanisms that carry any IPv4 address. Azure's metadata service is in it although the
// registries call it public.
var (
	NotPublic = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),        // this network
		netip.MustParsePrefix("10.0.0.0/8"),       // private
		netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT
		netip.MustParsePrefix("127.0.0.0/8"),      // loopback
		netip.MustParsePrefix("168.63.129.16/32"), // metadata services of Azure
		netip.MustParsePrefix("169.254.0.0/16"),   // link-local, metadata services
		netip.MustParsePrefix("172.16.0.0/12"),    // private
		netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
		netip.MustParsePrefix("192.0.2.0/24"),     // documentation
		netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
		netip.MustParsePrefix("192.168.0.0/16"),   // private
		netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
		netip.MustParsePrefix("198.51.100.0/24"),  // documentation
		netip.MustParsePrefix("203.0.113.0/24"),   // documentation
		netip.MustParsePrefix("224.0.0.0/3"),      // multicast, reserved, broadcast
		netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
		netip.MustParsePrefix("2001:db8::/32"),    // documentation
		netip.MustParsePrefix("2002::/16"),        // 6to4
		netip.MustParsePrefix("3fff::/20"),        // documentation
	}
	Unicast6 = netip.MustParsePrefix("2000::/3")
)

func isPublic(addr netip.Addr) bool {
	if addr.Zone() != "" || addr.Is6() && !Unicast6.Contains(addr) {
		return false
	}
	for _, prefix := range NotPublic {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}

// ErrRedirect means that a host answered with a redirect.
var ErrRedirect = errors.New("it redirects, and redirects are not followed")

// RefuseRedirect is an http.Client's CheckRedirect that follows none.
func RefuseRedirect(*http.Request, []*http.Request) error { return ErrRedirect }

// bounded limits the number of requests at once, and the length of bodies if maxBytes is positive. A request ends when
// its body is closed.
type bounded struct {
	slots    chan struct{}
	maxBytes int64
	next     http.RoundTripper
}

func (b *bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := b.enter(request.Context()); err != nil {
		return nil, fmt.Errorf("wait for other requests: %w", err)
	}
	response, err := b.next.RoundTrip(request)
	if err != nil {
		<-b.slots
		return nil, err
	}
	leave := sync.OnceFunc(func() { <-b.slots })
	if b.maxBytes > 0 {
		response.Body = http.MaxBytesReader(nil, response.Body, b.maxBytes)
	}
	response.Body = &leavingBody{response.Body, leave}
	return response, nil
}

func (b *bounded) enter(ctx context.Context) error {
	select {
	case b.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type leavingBody struct {
	io.ReadCloser
	leave func()
}

func (b *leavingBody) Close() error {
	defer b.leave()
	return b.ReadCloser.Close()
}
