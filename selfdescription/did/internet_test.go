package did

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// internet is an Internet on one machine: names that resolve to loopback addresses, a trusted
// certificate authority, and pages.
type internet struct {
	ca     authority
	roots  *x509.CertPool
	server *httptest.Server
	port   string

	mu          sync.Mutex
	addresses   func(name string) netip.Addr // zero: no such name
	pages       map[string]http.HandlerFunc  // by host and path
	lookups     []string
	connections int
	requests    []string
	now         time.Time
}

var loopback = netip.MustParseAddr("127.0.0.1")

func newInternet(t testing.TB) *internet {
	net := &internet{
		ca: newAuthority(t, "Root", nil), roots: x509.NewCertPool(), now: time.Now(), pages: map[string]http.HandlerFunc{},
		addresses: func(string) netip.Addr { return loopback },
	}
	net.roots.AddCert(net.ca.certificate)
	net.server = httptest.NewUnstartedServer(http.HandlerFunc(net.serve))
	net.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	net.server.Config.ConnState = net.count
	net.server.TLS = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		leaf := net.ca.issue(t, key.Public(), leafFor(hello.ServerName))
		return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}, nil
	}}
	net.server.StartTLS()
	t.Cleanup(net.server.Close)
	where, err := url.Parse(net.server.URL)
	fatal(t, err)
	net.port = where.Port()
	return net
}

func (i *internet) count(_ net.Conn, state http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if state == http.StateNew {
		i.connections++
	}
}

func (i *internet) serve(w http.ResponseWriter, request *http.Request) {
	host, _, _ := strings.Cut(request.Host, ":")
	i.mu.Lock()
	i.requests = append(i.requests, host+request.URL.EscapedPath())
	page, ok := i.pages[host+request.URL.EscapedPath()]
	i.mu.Unlock()
	if !ok {
		http.NotFound(w, request)
		return
	}
	page(w, request)
}

// options of a client on this Internet.
func (i *internet) options(allowed ...netip.Prefix) guarded.Options {
	return guarded.Options{Roots: i.roots, AllowAddresses: allowed, Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go i.answer(server)
			return client, nil
		},
	}}
}

var anyLoopback = netip.MustParsePrefix("127.0.0.0/8")

// resolver allows every host of this Internet.
func (i *internet) resolver() *Resolver {
	return &Resolver{
		Client: guarded.NewClient(i.options(anyLoopback)), Hosts: func(string) bool { return true }, Roots: i.roots,
		Now: func() time.Time { i.mu.Lock(); defer i.mu.Unlock(); return i.now },
	}
}

// pass lets time pass.
func (i *internet) pass(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = i.now.Add(d)
}

func (i *internet) put(page string, handler http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pages[page] = handler
}

// seen returns the numbers of lookups, connections and requests so far.
func (i *internet) seen() (lookups, connections, requests int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.lookups), i.connections, len(i.requests)
}

// answer is a DNS server on a stream (RFC 1035, 4.2.2).
func (i *internet) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		var size uint16
		if binary.Read(conn, binary.BigEndian, &size) != nil {
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		response := i.respond(query)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(response))), response...)); err != nil {
			return
		}
	}
}

func (i *internet) respond(query []byte) []byte {
	var message dnsmessage.Message
	if message.Unpack(query) != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	name := strings.TrimSuffix(question.Name.String(), ".")
	message = dnsmessage.Message{
		Header: dnsmessage.Header{ID: message.ID, Response: true, RecursionAvailable: true}, Questions: message.Questions,
	}
	if question.Type == dnsmessage.TypeA {
		i.mu.Lock()
		i.lookups = append(i.lookups, name)
		address := i.addresses(name)
		i.mu.Unlock()
		if address.IsValid() {
			header := dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class}
			message.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: address.As4()}}}
		}
	}
	packed, err := message.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// newAuthority returns one that a parent certifies; without a parent it is a root.
func newAuthority(t testing.TB, name string, parent *authority) authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	made := authority{key: key}
	if parent == nil {
		parent = &authority{certificate: template, key: key}
	}
	made.certificate = parent.issue(t, key.Public(), template)
	return made
}

var serial int64

var serialMu sync.Mutex

func (a authority) issue(t testing.TB, public crypto.PublicKey, template *x509.Certificate) *x509.Certificate {
	serialMu.Lock()
	serial++
	template.SerialNumber = big.NewInt(serial)
	serialMu.Unlock()
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(48*time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	fatal(t, err)
	certificate, err := x509.ParseCertificate(der)
	fatal(t, err)
	return certificate
}

func leafFor(host string) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

func inPEM(certificates ...*x509.Certificate) string {
	var text strings.Builder
	for _, c := range certificates {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return text.String()
}

// organisation owns a did:web on an internet and one key.
type organisation struct {
	did string
	key jose.JSONWebKey
}

const provider = "provider.example"

// organisation publishes the DID document of a host, with a P-256 key "key-1".
func (i *internet) organisation(t testing.TB, host string) *organisation {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	o := &organisation{did: "did:web:" + host + "%3A" + i.port}
	o.key = jose.JSONWebKey{Key: key, KeyID: o.did + "#key-1", Algorithm: "ES256"}
	i.publish(t, o, WebDocument(o.did, []jose.JSONWebKey{o.key}))
	return o
}

// publish replaces the DID document by any content.
func (i *internet) publish(t testing.TB, o *organisation, document any) {
	t.Helper()
	host, err := WebHost(o.did)
	fatal(t, err)
	i.put(host+"/.well-known/did.json", say(inJSON(t, document)))
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) }
}
