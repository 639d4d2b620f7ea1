package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/sluice-dev/sluice/test/loopback"
)

// TestListener: certificates are read again when they change, and a client CA refuses
// clients without a certificate from it.
func TestListener(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second := serverPair(t), serverPair(t)
	client, authority := clientPair(t)
	l := &listener{
		address:     loopback.Address(),
		certificate: file("tls.crt", first.certificate), key: file("tls.key", first.key),
		clientCA: file("ca.crt", authority),
		handler:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		ready:    func() bool { return true },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Start(ctx) }()

	eventually(t, "the first certificate is served", func() error { return get(l.address, first.certificate, client) })
	if err := get(l.address, first.certificate); err == nil {
		t.Error("a client without a certificate was let in")
	}
	file("tls.key", second.key)
	file("tls.crt", second.certificate)
	eventually(t, "the second certificate is served", func() error { return get(l.address, second.certificate, client) })

	stop()
	if err := <-ended; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestListenerBoundsConnections: a client that opens many connections gets at most half of
// them; others are served.
func TestListenerBoundsConnections(t *testing.T) {
	l := &listener{address: loopback.Address(), mostConnections: 8, handler: http.NotFoundHandler(), ready: func() bool { return true }}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Start(ctx) }()
	var open []net.Conn
	eventually(t, "somebody listens", func() error {
		first, err := net.Dial("tcp", l.address)
		open = append(open, first)
		return err
	})
	for range 20 {
		conn, err := net.Dial("tcp", l.address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	response, err := http.Get("http://" + l.address)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	closed := 0
	for _, conn := range open {
		if conn == nil {
			continue
		}
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			closed++
		}
		conn.Close()
	}
	if closed < 16 {
		t.Errorf("%d of %d are closed, of which 4 may be open", closed, len(open))
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("stop: %v", err)
	}
}

// TestListenerWaits: the port is closed until requests can be answered.
func TestListenerWaits(t *testing.T) {
	asked := make(chan struct{})
	l := &listener{address: loopback.Address(), handler: http.NotFoundHandler(), ready: func() bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return false
	}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Start(ctx) }()
	<-asked
	if connection, err := net.Dial("tcp", l.address); err == nil {
		connection.Close()
		t.Error("the address is open")
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("stop: %v", err)
	}
}

type pair struct{ certificate, key []byte }

func serverPair(t *testing.T) pair {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pair{certificate, key}
}

// clientPair returns a self-signed client certificate; its CA is the certificate itself.
func clientPair(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "platform"}, key)
	if err != nil {
		t.Fatal(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Raw})
	return tls.Certificate{Certificate: [][]byte{own.Raw}, PrivateKey: key}, authority
}

// get makes one request over a new connection, and trusts only one certificate.
func get(address string, trusted []byte, own ...tls.Certificate) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12},
	}}
	response, err := client.Get("https://" + address)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
